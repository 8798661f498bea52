"""Competition files: what real ones hold is read right; what is refused is in ``tests/bad_input``."""

import graphlib
import itertools
import re
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastslow.competition import node_columns
from fastslow.competition.opcodes import OPCODES
from fastslow.competition.reader import read_checked, read_choices
from fastslow.competition.schema import SCHEMA
from fastslow.core.errors import DataError
from helpers.cases import cases
from helpers.competition_files import competition_arrays, layout_arrays, npz_program, tile_arrays, write_npz
from helpers.factorised import factorise


@pytest.fixture
def read(tmp_path):
    """Write arrays of a kind as x.npz and read them back."""

    def write_and_read(kind, arrays, labelled=True):
        return npz_program(write_npz(tmp_path / "x.npz", arrays), kind, labelled)

    return write_and_read


def refused(message):
    return pytest.raises(DataError, match=rf"x\.npz: {message}")


def assert_same(read, arrays):
    """All that was written is there, configurations through their codes."""
    np.testing.assert_array_equal(read.node_feat, arrays["node_feat"])
    np.testing.assert_array_equal(read.node_opcode, arrays["node_opcode"])
    np.testing.assert_array_equal(read.edge_index, arrays["edge_index"])
    np.testing.assert_array_equal(read.runtime, arrays["config_runtime"])
    assert (read.node_feat.dtype, read.node_opcode.dtype) == (np.float32, np.uint8)
    assert read.edge_index.dtype == read.runtime.dtype == np.int64
    if read.choices is not None:
        np.testing.assert_array_equal(read.node_config_ids, arrays["node_config_ids"])
        feat = arrays["node_config_feat"]
        np.testing.assert_array_equal(read.layouts[read.choices.layout_codes()].reshape(feat.shape), feat)
    else:
        np.testing.assert_array_equal(read.config_feat, arrays["config_feat"])
        np.testing.assert_array_equal(read.normalizers, arrays["config_runtime_normalizers"])


@pytest.mark.parametrize("kind", SCHEMA)
@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_edges_in_a_circle_are_placed_and_no_others_refused(read, kind, data):
    arrays = competition_arrays(kind)
    count = len(arrays["node_opcode"])
    arrays["node_opcode"][:] = OPCODES["custom-call"]  # with operands or without
    arrays["node_feat"][:, node_columns.LISTS["parameter_number"][0]] = 0
    nodes = st.integers(0, count - 1)
    edges = data.draw(st.lists(st.tuples(nodes, nodes), min_size=1, max_size=12, unique=True))
    graph = graphlib.TopologicalSorter()
    for user, operand in edges:
        graph.add(user, operand)
    arrays["edge_index"] = np.array(edges, np.int64)
    try:
        graph.prepare()
    except graphlib.CycleError:
        with refused(
            r"edge_index\[(\d+)(, 0)?\] is .* (a cycle|other than its operand wanted)\. .+"
        ) as caught:
            read(kind, arrays)
        row = int(re.search(r"edge_index\[(\d+)", str(caught.value))[1])
        users = {edges[row][1]}
        for _ in range(count):
            users |= {operand for user, operand in edges if user in users}
        assert edges[row][0] in users, "the named edge lies on a cycle"
    else:
        if kind == "layout":
            with refused(r"node_config_ids\[0\] names node 2, a custom-call; configurable are convolution,"):
                read(kind, arrays)
        else:
            assert_same(read(kind, arrays), arrays)


@cases(
    ("kind", "key", "said"),
    [
        ("layout", "node_config_default", "key node_config_default is missing"),
        ("layout", "config_feat", "a layout file has no key config_feat. Its keys are node_feat, .*_default"),
        ("tiles", "node_feat", "'tiles' is no kind of file. Give layout or tile"),
    ],
)
def test_keys_that_a_file_cannot_have_are_refused_by_name(tmp_path, kind, key, said):
    path = write_npz(tmp_path / "x.npz", layout_arrays(3, configs=5))
    assert read_checked(path, "layout", ["node_opcode"]).keys() == {"node_opcode"}
    with refused(said):
        read_checked(path, kind, [key])


@pytest.mark.parametrize("kind", SCHEMA)
def test_runtimes_of_zero_are_for_test_files(read, kind):
    arrays = competition_arrays(kind, labelled=False)
    assert_same(read(kind, arrays, labelled=False), arrays)
    with refused(r"config_runtime\[0\] is 0, 1 or more wanted. .*is this a test file"):
        read(kind, arrays, labelled=True)
    arrays["config_runtime"][1] = -1
    with refused(r"config_runtime\[1\] is -1, 0 or more wanted"):
        read(kind, arrays, labelled=False)
    arrays["config_runtime"][:] = 5, *[7] * (len(arrays["config_runtime"]) - 2), 0
    with refused(
        r"config_runtime\[\d+\] is 0, 1 or more wanted\. Give every configuration a runtime, or 0 to"
    ):
        read(kind, arrays, labelled=False)


@pytest.mark.parametrize(("kind", "other"), [("layout", "tile"), ("tile", "layout")])
def test_a_file_of_the_other_kind_is_recognised(read, kind, other):
    with refused(f"key .* is missing .*It looks like a {other} file"):
        read(kind, competition_arrays(other))


def seven_dimensions():
    """Node features with a tensor of more dimensions than the columns show."""
    node_feat = layout_arrays()["node_feat"]
    node_feat[0, node_columns.SHAPE] = [2, 3, 4, 5, 6, 7]
    node_feat[0, [node_columns.SHAPE_SUM, node_columns.SHAPE_PRODUCT]] = [35, 40320]
    node_feat[0, node_columns.LAYOUT] = [6, 5, 4, 3, 2, 1]
    return node_feat


def layouts_of_inputs(*layout):
    """Configurations whose inputs have a layout, which may leave axes out."""
    feat = layout_arrays()["node_config_feat"]
    feat[:, :, 6:12] = layout
    return feat


@cases(
    "kind, change",
    [
        ("layout", {"node_splits": np.arange(4)}),
        ("layout", {"node_splits": np.zeros((1, 0), np.int32)}),
        ("layout", {"edge_index": np.asfortranarray(layout_arrays()["edge_index"])}),
        ("layout", {"config_runtime": np.arange(1, 9, dtype=np.int32)}),
        ("layout", {"node_config_ids": layout_arrays()["node_config_ids"][::-1].astype(np.uint8)}),
        ("layout", {"node_feat": seven_dimensions()}),
        ("layout", {"node_config_feat": layouts_of_inputs(1, -1, -1, -1, -1, -1)}),
        ("layout", {"node_config_feat": np.full((8, 3, 18), -1, np.float16)}),
        ("layout", {"node_config_feat": np.tile([1.0, *[-1] * 5], (8, 3, 3)).astype(">f8")}),
        *(
            ("layout", {"node_config_feat": layout_arrays()["node_config_feat"].astype(t)})
            for t in ("i1", "i8")
        ),
        ("layout", {"anything_else": np.array([None])}),
        ("tile", {"node_feat": np.asfortranarray(tile_arrays()["node_feat"], np.float64)}),
        ("tile", {"config_runtime": np.arange(1, 7, dtype=np.uint64)}),
    ],
)
def test_what_real_files_vary_in_is_read(tmp_path, kind, change):
    arrays = {**competition_arrays(kind), **change}
    assert_same(npz_program(write_npz(tmp_path / "x.npz", arrays), kind, labelled=True), arrays)


@pytest.mark.parametrize(("dtype", "chunk_bytes"), [(np.float32, 1), (np.float32, 10**6), (np.int64, 5000)])
def test_what_is_wrong_among_rows_of_known_options_is_placed(tmp_path, rng, chunk_bytes, dtype):
    """After 250 rows everything is known, and a row is compared with what known options hold."""
    feat = tied_layouts(rng, 300, 4).astype(dtype)
    feat[250:, 2, 6:12] = [3, 1, 0, 2, -1, -1]
    wrongs = {6: "whole number", -2: "whole number", 3: "an axis that its layout", 100: "whole number"}
    if dtype != np.int64:
        wrongs |= {np.nan: "whole number", np.inf: "whole number", 1.5: "whole number", 1e-30: "whole number"}
    for value, problem in wrongs.items():
        changed = feat.copy()
        changed[280, 2, 9] = value
        path = write_npz(tmp_path / "x.npz", {"node_config_feat": changed})
        with refused(rf"node_config_feat\[280, 2, 9\] is .*{problem}"):
            read_choices(path, chunk_bytes)
    feat[280:, 2, 10] = 5  # allowed, and new
    layouts, choices = read_choices(write_npz(tmp_path / "x.npz", {"node_config_feat": feat}), chunk_bytes)
    np.testing.assert_array_equal(layouts[choices.layout_codes()].reshape(feat.shape), feat)


def random_layouts(rng, *shape):
    """Layouts of 0 to 6 axes, none twice, of few distinct kinds."""
    order = rng.permuted(np.tile(np.arange(6), (*shape, 1)), axis=-1)
    return np.where(np.arange(6) < rng.integers(0, rng.integers(1, 8), (*shape, 1)), order, -1)


def tied_layouts(rng, configs, nodes):
    """Configurations of few groups: tensors of a group have layouts of their own under each of its options.

    Rare options and groups that part late are common, and so are tensors that never vary.
    """
    tensors = nodes * 3
    group = rng.integers(0, rng.integers(1, 5), tensors)
    tables = random_layouts(rng, 4, tensors)
    choice = np.where(rng.random((configs, 5)) < rng.random(5) * 0.5, rng.integers(0, 4, (configs, 5)), 0)
    if rng.random() < 0.5:  # one tensor leaves its group in one configuration
        group[rng.integers(0, max(1, tensors), 1 if tensors else 0)] = 4
        choice[:, 4] = choice[:, 0]
        choice[rng.integers(configs), 4] = 3
    return tables[choice[:, group], np.arange(tensors)].reshape(configs, nodes, 18)


@given(
    seed=st.integers(0, 10**6),
    configs=st.integers(1, 90),
    nodes=st.integers(0, 4),
    chunk=st.integers(1, 3000),
    tied=st.booleans(),
    dtype=st.sampled_from(["<f4", "<f4", "<f8", ">f4", "<f2", "i1", ">i2", "<i8"]),
)
@settings(max_examples=80)
def test_choices_are_those_of_all_codes_whatever_the_chunk(
    tmp_path_factory, seed, configs, nodes, chunk, tied, dtype
):
    rng = np.random.default_rng(seed)
    layouts = tied_layouts(rng, configs, nodes) if tied else random_layouts(rng, configs, nodes, 3)
    feat = layouts.reshape(configs, nodes, 18).astype(dtype)
    if dtype == "<f4" and seed % 3 == 0:
        feat[(feat == 0) & (rng.random(feat.shape) < 0.02)] = -0.0  # equal to 0, in other bits
    path = write_npz(tmp_path_factory.mktemp("choices") / "x.npz", {"node_config_feat": feat})
    layouts, choices = read_choices(path, chunk)
    codes = choices.layout_codes()
    np.testing.assert_array_equal(layouts[codes].reshape(feat.shape), feat)
    assert (layouts[0] == -1).all()
    used = {tuple(layout) for layout in feat.reshape(-1, 6).astype(int).tolist()} | {(-1,) * 6}
    assert [tuple(layout) for layout in layouts.tolist()] == sorted(used, key=lambda row: row[::-1])
    for name, wanted in vars(factorise(codes)).items():
        np.testing.assert_array_equal(getattr(choices, name), wanted, err_msg=name)
        assert getattr(choices, name).dtype == wanted.dtype


@cases("options", [256, 257, 700])
def test_many_options_are_read(tmp_path, options):
    """One node whose kernel goes through many layouts, its input through fewer: more than a table holds."""
    orders = [order for length in range(1, 7) for order in itertools.permutations(range(6), length)]
    layouts = np.array([(*order, *[-1] * (6 - len(order))) for order in orders[:options]], np.float32)
    rows = np.arange(options + 50) % options
    feat = np.concatenate([layouts[rows % 90], layouts[rows % 91], layouts[rows]], 1)[:, None]
    for chunk_bytes in (1000, 1 << 20):
        found, choices = read_choices(write_npz(tmp_path / "x.npz", {"node_config_feat": feat}), chunk_bytes)
        np.testing.assert_array_equal(found[choices.layout_codes()].reshape(feat.shape), feat)
        assert choices.values.dtype == (np.uint8 if options <= 256 else np.uint16)
        assert choices.options.tolist() == [90, 91, options]


def test_large_layouts_are_never_held_as_floats(tmp_path):
    configs, nodes = 1_000, 250
    arrays = layout_arrays(dots=nodes, configs=1)
    row = random_layouts(np.random.default_rng(0), 50, nodes, 3).reshape(50, nodes, 18).astype(np.float32)
    arrays["config_runtime"] = np.ones(configs, np.int64)
    arrays["node_feat"][:, node_columns.SHAPE] = 1  # six dimensions, as the layouts have
    del arrays["node_config_feat"]
    path = write_npz(tmp_path / "x.npz", arrays)
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("node_config_feat.npy", "w") as member,
    ):
        header = {"descr": "<f4", "fortran_order": False, "shape": (configs, nodes, 18)}
        np.lib.format.write_array_header_1_0(member, header)
        for _ in range(configs // len(row)):
            member.write(row.tobytes())
    tracemalloc.start()
    file = npz_program(path, "layout", labelled=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert configs * nodes * 18 * 4 == 18_000_000
    assert peak < 9_000_000
    last = file.choices.layout_codes(slice(-50, None))
    np.testing.assert_array_equal(file.layouts[last].reshape(row.shape), row)
