"""What a protobuf adds to its npz, and that it is the protobuf of that npz and no other."""

from pathlib import Path

import numpy as np
import pytest

from fastslow.competition import node_columns
from fastslow.competition.catalog import ProgramFile, get_collection
from fastslow.competition.opcodes import OPCODES
from fastslow.core.errors import DataError, SettingsError
from fastslow.features.build import build_graph
from fastslow.features.configs.config_tensors import config_tensors
from fastslow.features.nodes.node_encodings import EXTRA_COLUMNS, PADDING, pad
from fastslow.features.nodes.protobuf import find_protobuf, read_exact_graph
from fastslow.hlo.graph_arrays import EXTRA_NAMES, graph_arrays
from fastslow.hlo.messages import ModuleTuningData
from fastslow.runs.features_folder import Features
from fastslow.steps.features import FeatureSettings, build_features
from helpers.cases import cases
from helpers.competition_files import PUBLISHED_GRAPH, PUBLISHED_MODULE, needs_pair, npz_program, write_npz
from helpers.hlo_message import Program, graph, random_program

COLLECTION = get_collection("layout:xla:random")
SPLIT_OF = {"a": "train", "v": "valid", "t": "test"}


def square_dots():
    """Two dots of square matrices; the second one's kernel is the first, whose number is the lower.

    The npz cannot tell that: operand 0 more often than not has the lower number.
    """
    program = Program()
    x, y = program.add("parameter", (8, 8)), program.add("parameter", (8, 8), parameter_number=1)
    first = program.add("dot", (8, 8), [x, y], dot={"lhs_contracting": [1], "rhs_contracting": [0]})
    turned = program.add("reverse", (8, 8), [x], dimensions=[1])  # of how many axes, the npz cannot tell
    second = program.add("dot", (8, 8), [turned, first], dot={"lhs_contracting": [1], "rhs_contracting": [0]})
    program.computation.root_id = second
    program.module.entry_computation_id = program.computation.id
    return program.module, [first, second]


def competition_arrays(module, ids, configs=4):
    """A competition file of a module: some nodes configurable, the first tensors row-major."""
    arrays = graph_arrays(module)
    layouts = np.full((configs, len(ids), 18), -1, np.float32)
    layouts[: configs // 2, :, [0, 6]] = 1
    layouts[: configs // 2, arrays["node_opcode"][ids] != OPCODES["reshape"], 12] = 1
    return {
        **arrays,
        "node_config_ids": np.array(ids),
        "node_config_feat": layouts,
        "config_runtime": np.arange(1, configs + 1),
    }


def write_program(root, name, module, ids):
    path = COLLECTION.folder(root, SPLIT_OF[name]) / f"{name}.npz"
    return write_npz(path, competition_arrays(module, ids))


def write_protobuf(path, module):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(module.SerializeToString())
    return path


@pytest.fixture
def settings(tmp_path):
    """Settings for one program a split, with the protobuf of the train program alone."""
    module, ids = square_dots()
    for name in SPLIT_OF:
        write_program(tmp_path / "data", name, module, ids)
    write_protobuf(tmp_path / "pb" / "a.pb", module)
    return FeatureSettings(
        data_root=str(tmp_path / "data"),
        folder=str(tmp_path / "features"),
        hlo_folder=str(tmp_path / "pb"),
        workers=1,
    )


@cases("seed", range(5))
def test_padding_and_operands_are_those_of_the_module(tmp_path, seed):
    program = random_program(seed)
    program.module.entry_computation_id = program.computation.id
    instructions = program.computation.instructions
    source = next(inst for inst in instructions if inst.operand_ids and inst.shape.dimensions)
    node = len(instructions)
    program.add("reshape", tuple(source.shape.dimensions), [source.id])
    program.add("custom-call", (), [i.id for i in instructions], custom_call_target="uses all")
    program.computation.root_id = instructions[-1].id
    npz = write_npz(tmp_path / "p.npz", competition_arrays(program.module, [node]))
    file = npz_program(npz, "layout")
    exact = read_exact_graph(write_protobuf(tmp_path / "p.pb", program.module), file)
    assert np.array_equal(exact.node_feat, graph(program.module, PADDING)[0])
    assert exact.operands[: len(instructions)] == [list(inst.operand_ids) for inst in instructions]
    extra = graph_arrays(program.module, PADDING, extra=True)["node_extra_feat"]
    assert np.array_equal(exact.node_extra, extra) and extra.shape == (
        len(file.node_opcode),
        len(EXTRA_NAMES),
    )


def test_the_order_of_operands_is_taken_from_the_module():
    module, ids = square_dots()
    arrays = graph(module)
    guessed = config_tensors(*arrays, np.array(ids))
    assert guessed.ambiguous.all() and guessed.source_ids[1].tolist() == [4, 2, 3]
    exact = config_tensors(
        *arrays, np.array(ids), [list(i.operand_ids) for i in module.computations[0].instructions]
    )
    assert not exact.ambiguous.any() and exact.known.all()
    assert exact.source_ids.tolist() == [[2, 0, 1], [4, 3, 2]]


def test_features_are_exact_where_there_is_a_protobuf(settings):
    index = build_features(settings)
    assert dict(zip(index["name"], index["exact"], strict=True)) == {"a": True, "v": False, "t": False}
    features = Features(settings.folder)
    exact, guessed = (features.graph(SPLIT_OF[name], name) for name in "av")
    reverse = node_columns.DIMENSIONS
    assert exact.node_feat[3, reverse].tolist() == [1, *[PADDING] * 5]
    assert guessed.node_feat[3, reverse].tolist() == [1, *[0] * 5], "the npz alone cannot tell"
    assert exact.pairs.tolist() == [[0, 1, 2]], "the first dot is the kernel of the second"
    assert guessed.pairs.tolist() == [[0, 1, 1]]
    contracted = EXTRA_COLUMNS.index("dot_lhs_contracting_0")
    assert exact.node_extra[exact.config_index, contracted].tolist() == [1, 1]
    assert (guessed.node_extra[:, contracted] == PADDING).all()


def test_a_protobuf_that_comes_changes_or_goes_rebuilds_its_graph_alone(settings, tmp_path):
    build_features(settings)

    def pairs_and_stamp(name):
        path = Path(settings.folder) / SPLIT_OF[name] / f"{name}.npz"
        return Features(settings.folder).graph(SPLIT_OF[name], name).pairs[0, 2], path.stat().st_mtime_ns

    before = {name: pairs_and_stamp(name) for name in SPLIT_OF}
    build_features(settings)
    assert {name: pairs_and_stamp(name) for name in SPLIT_OF} == before
    write_protobuf(tmp_path / "pb" / "v.pb", square_dots()[0])
    build_features(settings)
    assert pairs_and_stamp("v")[0] == 2 and before["v"][0] == 1
    assert pairs_and_stamp("a") == before["a"]
    (tmp_path / "pb" / "v.pb").unlink()
    build_features(settings)
    assert pairs_and_stamp("v")[0] == 1
    (tmp_path / "pb" / "a.pb").write_bytes(b"")
    with pytest.raises(DataError, match="a.pb: is no protobuf of one program"):
        build_features(settings)


def test_padding_of_0_stays_as_published(settings):
    settings = FeatureSettings(**settings.asdict() | {"padding": 0})
    program = settings.programs()[0]
    assert program.name == "a"
    assert np.array_equal(build_graph(program, settings)[0].node_feat, graph(square_dots()[0])[0])


def test_where_a_protobuf_is_looked_for(tmp_path):
    program = ProgramFile(COLLECTION, "train", tmp_path / "a.npz")
    assert find_protobuf(tmp_path, program) is None
    flat = write_protobuf(tmp_path / "a.pb", square_dots()[0])
    assert find_protobuf(tmp_path, program) == flat
    tree = write_protobuf(tmp_path / "layout" / "xla" / "random" / "train" / "a.pb", square_dots()[0])
    assert find_protobuf(tmp_path, program) == tree


def test_a_folder_without_protobufs_is_refused(settings, tmp_path):
    with pytest.raises(DataError, match="contains no .pb file.*hlo_folder"):
        build_features(FeatureSettings(**settings.asdict() | {"hlo_folder": str(tmp_path / "data")}))
    with pytest.raises(SettingsError, match="hlo_folder: 3 is a whole number"):
        FeatureSettings(hlo_folder=3)


def change_layout(module):
    module.computations[0].instructions[2].shape.layout.minor_to_major[:] = [0, 1]


def change_opcode(module):
    module.computations[0].instructions[3].opcode = "negate"


def change_edge(module):
    module.computations[0].instructions[2].operand_ids[:] = [1, 1]


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (change_layout, r"its node_feat\[2, 134\] \(layout_0\) is 0.0, the npz's 1.0"),
        (change_opcode, r"its node_opcode\[3\] is 60, the npz's 76"),
        (change_edge, r"its edge_index has the shape \(4, 2\), the npz's \(5, 2\)"),
    ],
)
def test_a_protobuf_of_another_program_is_refused(settings, tmp_path, change, difference):
    module = square_dots()[0]
    change(module)
    write_protobuf(tmp_path / "pb" / "a.pb", module)
    with pytest.raises(DataError, match=f"a.pb: is not the program of .*a.npz: {difference}.*same name"):
        build_features(settings)


def test_configurable_nodes_must_agree_too(tmp_path):
    module, ids = square_dots()
    file = npz_program(write_npz(tmp_path / "a.npz", competition_arrays(module, ids)), "layout")
    run = {"module_config": {"layout_config": {"nodes": [{}, {}]}}, "profile": {"compute_time_ns": 5}}
    tuned = ModuleTuningData(module=module, fingerprint=1, runs=[run], config_index_to_node=ids)
    assert read_exact_graph(write_protobuf(tmp_path / "a.pb", tuned), file).operands[4] == [3, 2]
    tuned.config_index_to_node[0] = 0
    with pytest.raises(DataError, match=r"its node_config_ids\[0\] is 0, the npz's 2"):
        read_exact_graph(write_protobuf(tmp_path / "a.pb", tuned), file)


@needs_pair
def test_the_published_pair():
    file = npz_program(PUBLISHED_GRAPH, "layout")
    exact = read_exact_graph(PUBLISHED_MODULE, file)
    assert np.array_equal(exact.node_feat, pad(file.node_feat, file.node_opcode, file.edge_index))
    arrays = file.node_feat, file.node_opcode, file.edge_index, file.node_config_ids
    ours, found = config_tensors(*arrays, exact.operands), config_tensors(*arrays)
    assert np.array_equal(ours.source_ids, found.source_ids) and not ours.ambiguous.any()
