"""Conversion of a program to a competition file: files, tables and errors."""

import importlib.util
import subprocess
import sys
import traceback
from collections import Counter

import numpy as np
import pytest

from fastslow.competition.catalog import get_collection, list_programs
from fastslow.competition.opcodes import OPCODES
from fastslow.competition.schema import DEFAULTS, SCHEMA
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import DataError, SettingsError
from fastslow.features.build import build_graph, graph_of
from fastslow.features.configs.config_tensors import config_tensors
from fastslow.hlo.messages import Module
from fastslow.steps.features import FeatureSettings
from fastslow_programs.compiler.layout_choices import default_configuration, imposable, layouts_of
from fastslow_programs.compiler.layout_space import configurable_nodes, encode
from fastslow_programs.compiler.libtpu import lower
from fastslow_programs.program.configurations import identify
from fastslow_programs.program.convert import (
    ConvertSettings,
    draw_configurations,
    make_program,
    summarise,
    write_conversion,
)
from fastslow_programs.program.program_tables import list_configurable
from fastslow_programs.program.user_program import Source, dump_in
from fastslow_programs.tuning.target import read_local
from helpers.cases import cases
from helpers.competition_files import npz_program
from helpers.dot_module import add, measured_module, small_module, varied_module
from helpers.stub_labeller import StubLabeller

pytestmark = pytest.mark.usefixtures("undrawn")

compiler = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None or importlib.util.find_spec("jax") is None,
    reason="jax and libtpu are not installed (pip install -e '.[compiler]')",
)


def write(path, module):
    path.write_bytes(module.SerializeToString())
    return path


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "small.pb", varied_module(3))


def settings_of(source, root, **more):
    return ConvertSettings(source=str(source), data_root=str(root), **more)


@cases("order", [[0, 1, 2, 3], [0, 2, 1, 3]])
def test_the_order_of_instructions_changes_no_feature(tmp_path, order):
    """It changed which operand was taken for the kernel of the second dot: the one of the lower number."""
    module = Module(name="m", entry_computation_name="main", entry_computation_id=1)
    main, numbers = (
        module.computations.add(name="main", id=1),
        {"lhs_contracting": [1], "rhs_contracting": [0]},
    )
    x = add(main, "parameter", (8, 8))
    first = add(main, "dot", (8, 8), x, x, dot=numbers)
    turned = add(main, "reverse", (8, 8), x, dimensions=[1])
    main.root_id = add(main, "dot", (8, 8), turned, first, dot=numbers)
    listed = [main.instructions[place] for place in order]
    del main.instructions[:]
    main.instructions.extend(listed)
    program = make_program(settings_of(write(tmp_path / "m.pb", module), tmp_path / "mine"))
    assert graph_of(program)[0].pairs.tolist() == [[0, 1, 2]], "the first dot is the kernel of the second"


def test_the_file_is_one_of_the_competition(source, tmp_path):
    settings = settings_of(source, tmp_path / "mine")
    conversion = write_conversion(settings)
    (program,) = list_programs(tmp_path / "mine", get_collection("layout:xla:random"), "test")
    assert program.path == settings.npz and program.id == "layout:xla:random:small"
    with np.load(program.path, allow_pickle=False) as file:
        dtypes = {key: file[key].dtype for key in file.files}
    wanted = {"node_feat": "f4", "node_opcode": "u1", "edge_index": "i8", "config_runtime": "i8"}
    wanted |= {"node_config_ids": "i8", "node_config_feat": "f4", "node_splits": "i8"}
    assert dtypes == wanted and set(wanted) == set(SCHEMA["layout"])
    file = npz_program(program.path, "layout")
    names = [i.opcode for i in conversion.module.computations[0].instructions]
    assert file.node_opcode.tolist() == [OPCODES[name] for name in names]
    assert file.node_config_ids.tolist() == [i for i, name in enumerate(names) if name in ("dot", "reshape")]
    assert not file.runtime.any()
    with np.load(program.path, allow_pickle=False) as arrays:
        layouts = arrays["node_config_feat"]
    assert layouts.shape == (64, 9, 18)
    assert len(np.unique(layouts[..., :6].reshape(len(layouts), -1), axis=0)) == 64, "outputs tell them apart"
    assert (layouts[:, 0::3] == layouts[:, :1]).all(), "the dots agree in every configuration"
    operands = layouts[:, 0::3, 6:]
    assert (operands == operands[0]).all(), "which cannot be imposed"
    assert layouts[0, 0, :6].tolist() == [3, 2, -1, -1, -1, -1], "row-major is the default"


def test_features_of_the_file_can_be_built_and_know_every_configured_tensor(source, tmp_path):
    """A file padded with -1 instead of 0, which ``padding=-1`` wrote once, left none of them known."""
    settings = settings_of(source, tmp_path)
    nodes = write_conversion(settings).nodes
    (program,) = list_programs(tmp_path, get_collection("layout:xla:random"), "test")
    graph, _ = build_graph(program, FeatureSettings(data_root=str(tmp_path), workers=1))
    assert graph.num_configs == 64 and np.isfinite(graph.config_feat).all()
    file = npz_program(settings.npz, "layout")
    tensors = config_tensors(file.node_feat, file.node_opcode, file.edge_index, file.node_config_ids)
    assert tensors.known.tolist() == [[True, True, node.opcode == "dot"] for node in nodes]


def test_the_seed_alone_decides_what_is_drawn():
    choices = imposable(configurable_nodes(varied_module()))
    one, same, other = (draw_configurations(choices, 50, seed) for seed in (0, 0, 1))
    assert one == same and one != other and one[0] == default_configuration(choices)
    assert len(set(one)) == 50
    assert draw_configurations(choices, 20, 0) == one[:20], "more of them begin with fewer"


def test_a_small_space_is_drawn_whole():
    module = small_module()
    del module.computations[0].instructions[3:]
    module.computations[0].root_id = 3
    rows = draw_configurations(imposable(configurable_nodes(module)), 100, 0)
    assert len(rows) == 2, "the output both ways; operands cannot be imposed"
    scalar = add(module.computations[0], "constant", ())
    add(module.computations[0], "reshape", (), scalar)
    node = configurable_nodes(module)[-1]  # it has no choice
    assert node.node == scalar
    assert draw_configurations(imposable([node]), 10, 0) == [(0,)]


def test_a_folder_has_a_picture_and_tables_of_what_was_found(source, tmp_path):
    conversion = write_conversion(settings_of(source, tmp_path))
    summary = summarise(conversion)
    assert summary["nodes"] == 17 and summary["configurable nodes"] == 9 and summary["computations"] == 1
    assert summary["tied choices"] == 3 and summary["possible configurations"] == f"{2 * 24 * 24:,}"
    first, second = list_configurable(conversion.module, conversion.nodes).to_dict("records")[:2]
    assert first["name"] == "dot.3" and first["node"] == 2
    assert [first[role] for role in ("output", "input", "kernel")] == [
        "f32[2,3,4,4]",
        "f32[2,3,4,4]",
        "f32[4,4]",
    ]
    assert [second[role] for role in ("output", "input")] == ["f32[2,3,4,2,2]", "f32[2,3,4,4]"]
    assert [first[f"{role}_layouts"] for role in ("output", "input", "kernel")] == [2, 2, 2]
    assert (second["output_layouts"], second["kernel"], second["kernel_layouts"]) == (24, "", 0)
    folder = tmp_path / "programs" / "small"
    assert (folder / "graph.png").read_bytes().startswith(b"\x89PNG")
    assert len((folder / "nodes.csv").read_text().splitlines()) == 1 + 9
    manifest = read_manifest(folder)
    assert manifest["summary"] == summary.to_dict() and manifest["settings"]["seed"] == 0


def test_settings_reach_the_file_and_a_program_that_is_converted_again_replaces_the_first(source, tmp_path):
    settings = settings_of(source, tmp_path, collection="layout:nlp:default", name="other", configs=5)
    write_conversion(settings)
    assert settings.npz.parent == get_collection("layout:nlp:default").folder(tmp_path, "test")
    assert settings.npz.stem == "other" and len(npz_program(settings.npz, "layout").runtime) == 5
    write(source, varied_module(1))
    write_conversion(settings)
    assert len(npz_program(settings.npz, "layout").node_config_ids) == 3


def test_measured_runs_of_the_file(tmp_path):
    tuned = measured_module([500, 300], layouts=[[0, 1], [1, 0]], nodes=(2, 3))
    source = write(tmp_path / "tuned.pb", tuned)
    conversion = write_conversion(settings_of(source, tmp_path, configs=0))
    file = npz_program(conversion.path, "layout", labelled=True)
    assert file.runtime.tolist() == [500, 300] and file.node_config_ids.tolist() == [2, 3]
    assert file.layouts[file.choices.layout_codes()[1, 0, 0]].tolist() == [1, 0, -1, -1, -1, -1]
    assert summarise(conversion)["labels"] == "measured runtime, ns"
    assert not write_conversion(settings_of(source, tmp_path)).arrays["config_runtime"].any()


def test_measured_runs_that_no_program_has_name_their_protobuf(tmp_path):
    """The npz that they would be in is not there."""
    layouts = write(tmp_path / "layouts.pb", measured_module([500, 300], layouts=[[1, 1], [1, 0]]))
    said = r"layouts.pb: node_config_feat\[0, 0, 1\] is 1, an axis .*twice\. Write or download the file again"
    with pytest.raises(DataError, match=said):
        write_conversion(settings_of(layouts, tmp_path, configs=0))


def test_an_hlo_file_is_labelled_from_the_compilers_own_layouts(source, tmp_path, monkeypatch):
    monkeypatch.setattr("fastslow_programs.program.program_settings.Labeller", StubLabeller)
    monkeypatch.setattr("fastslow_programs.program.user_program.require_compiler", lambda: None)
    conversion = write_conversion(settings_of(source, tmp_path, configs=8, label=True))
    choices = imposable(conversion.nodes)
    assert {(2,), (7, 12)} < {c.nodes for c in choices}, "its default sets one dot apart"
    drawn = [layouts_of(c, choices) for c in draw_configurations(choices, 8, 0)]
    kept = [n for n in range(8) if n % 3 != 1]
    rows = np.stack([encode(drawn[n], conversion.nodes) for n in kept])
    assert np.array_equal(conversion.arrays["node_config_feat"], rows), "refused ones are dropped"
    assert conversion.arrays["config_runtime"].tolist() == [100 + n for n in kept]
    assert summarise(conversion)["labels"].endswith("; none for 3 of 8 configurations (3 refused: no)")
    assert rows[0, 0, :2].tolist() == [2, 3], "the compiler's own first"
    named = npz_program(conversion.path, "layout").default_layouts.reshape(len(rows[0]), -1)
    assert named[0, :2].tolist() == [2, 3] and (named[1:] == -1).all(), "and named"
    assert DEFAULTS not in write_conversion(settings_of(source, tmp_path)).arrays, "an HLO file does not tell"


def test_an_identity_does_not_depend_on_what_is_known_of_the_compiler(source, tmp_path, monkeypatch):
    """The compiler's own layouts change the options of operands, the ties of nodes and so every position."""
    plain = write_conversion(settings_of(source, tmp_path, configs=1152))
    monkeypatch.setattr("fastslow_programs.program.program_settings.Labeller", StubLabeller)
    monkeypatch.setattr("fastslow_programs.program.user_program.require_compiler", lambda: None)
    labelled = write_conversion(settings_of(source, tmp_path, configs=200, label=True, name="labelled"))
    named = [
        {
            row[:, :6].tobytes(): identity
            for row, identity in zip(p.arrays["node_config_feat"], identify(p), strict=True)
        }
        for p in (plain, labelled)
    ]
    both = named[0].keys() & named[1].keys()
    assert len(both) > 20 and all(named[0][outputs] == named[1][outputs] for outputs in both)
    assert len({*named[0].values(), *named[1].values()}) == len(named[0].keys() | named[1].keys())
    np.testing.assert_array_equal(identify(npz_program(plain.path, "layout")), identify(plain))


def test_a_file_without_measured_runs_has_none_to_take(source, tmp_path):
    with pytest.raises(DataError, match="small.pb: holds no measured layout runs. Set configs"):
        write_conversion(settings_of(source, tmp_path, configs=0))


def with_opcode(opcode, last=1):
    module = small_module()
    for instruction in module.computations[0].instructions[-last:]:
        instruction.opcode = opcode
    return module


@cases("opcode, known", [("erf", "tanh"), ("acosh", "tanh"), ("magic", "no known opcode")])
def test_a_newer_opcode_is_taken_for_the_nearest_and_named(tmp_path, capsys, opcode, known):
    conversion = write_conversion(settings_of(write(tmp_path / "new.pb", with_opcode(opcode)), tmp_path))
    assert conversion.arrays["node_opcode"][-1] == OPCODES.get(known, 0)
    words = f"{opcode} (taken for {known})"
    assert summarise(conversion)["newer opcodes"] == words and words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"generation": "v1"}, "generation: 'v1' is not one of v2, v3, v4"),
        ({"collection": "tile:xla"}, "collection: 'tile:xla' is not a layout collection"),
        ({"collection": "layout:xla"}, "collection: 'layout:xla' is none of"),
        (
            {"padding": -1},
            "padding: no such setting of ConvertSettings; the file is 0-padded, as in the schema",
        ),
        ({"configs": -1}, "configs: -1 is not 0 or more"),
        ({"configs": 0, "label": True}, "label: True is not False, since configs=0 has labels"),
        ({"name": "../x"}, "name: '../x' is not made of"),
        ({"source": ""}, "source: give a program: an HLO file, model.py:FUNCTION, or"),
        ({"source": "model.py:a b"}, "source: model.py:a b names no function"),
    ],
)
def test_a_wrong_setting_is_refused(source, tmp_path, change, said):
    with pytest.raises(SettingsError) as caught:
        write_conversion(ConvertSettings(**{"source": str(source), "data_root": str(tmp_path), **change}))
    assert str(caught.value).startswith(said)


def test_a_source_names_the_file_and_must_be_there(tmp_path):
    for name in ("nothing.pb", "nothing.py:make"):
        with pytest.raises(DataError, match=r"nothing.p[by]: no such file.*\. Check the path"):
            write_conversion(settings_of(tmp_path / name, tmp_path))
    for name, stem in (("my model (1).pb", "my_model__1_"), (".hidden", "hidden"), ("a.b.hlo", "a.b")):
        write(tmp_path / name, small_module())
        assert ConvertSettings(source=str(tmp_path / name)).program == stem
    (tmp_path / "net.py").write_text("")
    assert ConvertSettings(source=f"{tmp_path}/net.py:make").program == "net-make"


MODEL = """
import jax, jax.numpy as jnp
from neighbour import width

def step(weight, x):
    return jnp.tanh(x @ weight).reshape(4, 2, width)

def make():
    shape = jax.ShapeDtypeStruct
    return step, (shape((width, width), jnp.float32), shape((8, width), jnp.float32))

def needs(x): return step, (x,)
def wrong(): return step
def no_tuple(): return step, 3
def fails(): raise RuntimeError("my own mistake")
def refused(): return step, (jax.ShapeDtypeStruct((3, 3), jnp.float32),) * 2
def dynamic():
    size, = jax.export.symbolic_shape("n")
    return step, [jax.ShapeDtypeStruct((16, 16), jnp.float32), jax.ShapeDtypeStruct((size, 16), jnp.float32)]
number = 3
def traced(): return jax.jit(step).trace(*make()[1])
def lowered(): return traced().lower(lowering_platforms=("tpu",))
def exported(): return jax.export.export(jax.jit(step), platforms=["tpu"])(*make()[1])
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    (tmp_path / "neighbour.py").write_text("width = 16\n")
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delitem(sys.modules, "neighbour", raising=False)
    return tmp_path / "model.py"


def test_what_jax_made_of_a_function_is_the_same_program(model):
    pytest.importorskip("jax")
    names = ("make", "traced", "lowered", "exported")
    codes = [lower(*Source.of(f"{model}:{name}").call_of_function()) for name in names]
    found = [
        [i.opcode for c in Module.FromString(code).computations for i in c.instructions] for code in codes
    ]
    assert found[0] == found[1] == found[2] == found[3] and "dot" in found[0]
    with pytest.raises(SettingsError, match="a Lowered has no arguments to be called with; give"):
        read_local(Source.of(f"{model}:lowered"), 0)


@compiler
def test_a_jax_function_is_taken_before_layouts_are_assigned(model, tmp_path):
    conversion = write_conversion(settings_of(f"{model}:make", tmp_path))
    opcodes = Counter(i.opcode for c in conversion.module.computations for i in c.instructions)
    assert conversion.name == "model-make"
    assert opcodes["parameter"] == 2 and opcodes["tanh"] == 1 and opcodes["reshape"] >= 1
    assert opcodes.get("dot", 0) + opcodes.get("convolution", 0) == 1
    assert not {"fusion", "copy"} & opcodes.keys()
    assert len(npz_program(conversion.path, "layout").runtime) == 4
    assert all(node.default for node in conversion.nodes), "the compiler's own layouts are known"


@compiler
def test_labels_are_the_compilers_estimates_for_the_same_configurations(model, tmp_path):
    plain = write_conversion(settings_of(f"{model}:make", tmp_path, configs=3, name="plain"))
    labelled = write_conversion(
        settings_of(f"{model}:make", tmp_path, configs=3, name="labelled", label=True)
    )
    assert (labelled.arrays["node_config_feat"] == plain.arrays["node_config_feat"]).all()
    cycles = npz_program(labelled.path, "layout", labelled=True).runtime
    assert len(cycles) == 3
    assert summarise(labelled)["labels"] == "the compiler's estimated cycles"
    assert summarise(plain)["labels"] == "none"


@compiler
def test_a_program_that_the_compiler_refuses_is_said(source, tmp_path):
    with pytest.raises(DataError, match=r"small.pb: the compile failed \(libtpu .*, v3:2x2; refused\): .*"):
        write_conversion(settings_of(source, tmp_path / "mine", label=True, configs=1))
    assert not settings_of(source, tmp_path / "mine").npz.exists()


@compiler
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("absent", "model.py: has no function absent. Name a function without parameters that returns"),
        ("number", "model.py: has no function number"),
        ("needs", "model.py: needs needs arguments"),
        ("wrong", "model.py: wrong did not return (function, arguments)"),
        ("no_tuple", "model.py: no_tuple did not return (function, arguments)"),
        ("dynamic", "model.py: an argument has the dynamic shape (n, 16). Give every dimension a fixed size"),
    ],
)
def test_a_function_of_another_form_is_refused(model, tmp_path, function, said):
    with pytest.raises(DataError) as caught:
        write_conversion(settings_of(f"{model}:{function}", tmp_path))
    assert said in str(caught.value)


@pytest.mark.parametrize("code", ["import sys\nsys.exit(0)", "def make():\n    raise SystemExit"])
def test_a_file_that_ends_python_is_refused(tmp_path, code):
    """Else the command would end at once, with the status of success."""
    pytest.importorskip("jax")
    (tmp_path / "script.py").write_text(f"{code}\n")
    with pytest.raises(DataError, match=r"script.py: ends Python \(sys.exit, line 2\). Guard it"):
        Source.of(f"{tmp_path / 'script.py'}:make").call_of_function()


@compiler
@pytest.mark.parametrize(("function", "error"), [("fails", RuntimeError), ("refused", SettingsError)])
def test_a_mistake_in_the_users_code_keeps_its_traceback(model, tmp_path, function, error):
    with pytest.raises(error) as caught:
        write_conversion(settings_of(f"{model}:{function}", tmp_path))
    cause = caught.value.__cause__ or caught.value
    assert any(frame.f_code.co_filename == str(model) for frame, _ in traceback.walk_tb(cause.__traceback__))


@pytest.mark.parametrize("missing", ["libtpu", "jax"])
def test_a_missing_compiler_is_said_with_what_to_install(model, tmp_path, monkeypatch, missing):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None if name == missing else object())
    with pytest.raises(SettingsError, match=rf"{missing}.* is not installed.*pip install -e '.\["):
        write_conversion(settings_of(f"{model}:make", tmp_path))


def test_an_hlo_file_needs_no_compiler(source, tmp_path):
    blocked = "import sys; sys.modules |= {name: None for name in ('jax', 'jaxlib', 'libtpu')}\n"
    settings = f"ConvertSettings(source={str(source)!r}, data_root={str(tmp_path)!r})"
    call = (
        "from fastslow_programs.program.convert import ConvertSettings, write_conversion\n"
        f"write_conversion({settings})"
    )
    subprocess.run([sys.executable, "-c", blocked + call], check=True)
    assert settings_of(source, tmp_path).npz.is_file()


def test_the_dump_of_a_folder(tmp_path):
    names = [
        "m.before_optimizations.txt",
        "m.before_optimizations.hlo.pb",
        "m.after_optimizations.txt",
        "m.ll",
    ]
    for name in names:
        (tmp_path / name).touch()
    assert dump_in(tmp_path).name == "m.before_optimizations.hlo.pb", "the proto needs no parser"
    (tmp_path / "n.before_layout-assignment.hlo.pb.gz").touch()
    assert Source.of(str(tmp_path)).path.name == "n.before_layout-assignment.hlo.pb.gz"
    (tmp_path / "o.before_layout-assignment.txt").touch()
    with pytest.raises(DataError, match=r"holds 2 dumps \(n.before_.*, o.before_.*\). Name one"):
        Source.of(str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: holds no dumps"):
        dump_in(tmp_path / "empty")
