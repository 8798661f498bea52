"""The forms that people have: bare text, several modules, printed dumps, StableHLO, gzip."""

import gzip

import pytest

from fastslow.core.errors import DataError
from fastslow.hlo.forms import mlir_of, split_text
from fastslow.hlo.messages import HloProto, ModuleTuningData, TuningData
from fastslow.hlo.reader import read_hlo, read_hlo_modules
from helpers.cases import cases
from helpers.dot_module import small_module

BODY = "ENTRY main {\n  ROOT p = f32[4,8]{1,0} parameter(0)\n}\n"
FIRST, SECOND = f"HloModule first\n\n{BODY}", f"HloModule second, is_scheduled=true\n\n{BODY}"
PRETTY = """// from a public test
module @product {
  func.func public @main(%a: tensor<4x8xf32>, %b: tensor<8x2xf32>) -> tensor<4x2xf32> {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
    return %0 : tensor<4x2xf32>
  }
}
"""
GENERIC = """"builtin.module"() ({
  "func.func"() ({
  ^bb0(%a: tensor<4x8xf32>):
    %0 = "stablehlo.tanh"(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    "func.return"(%0) : (tensor<4x8xf32>) -> ()
  }) {function_type = (tensor<4x8xf32>) -> tensor<4x8xf32>, sym_name = "main"} : () -> ()
}) : () -> ()
"""


@pytest.fixture
def xla():
    """Skip without XLA's own parser."""
    return pytest.importorskip("jaxlib.xla_client", reason="text needs jaxlib, an optional requirement")


def printed(*dumps):
    """What ``--xla_dump_to=-`` prints of dumps, each a name and a text."""
    return "".join(f"I0000 log\n*** Begin {name} ***\n{text}\n*** End {name} ***\n" for name, text in dumps)


@cases(
    "text, modules",
    [
        (FIRST, [FIRST.strip()]),
        (BODY, [f"HloModule module\n\n{BODY}"]),
        (f"I0000 a log line\n{FIRST}\nand more\n{SECOND}the end\n", [FIRST.strip(), SECOND.strip()]),
        (
            printed(("m.before_optimizations.txt", FIRST), ("m.cpu_after_optimizations.txt", SECOND)),
            [FIRST.strip()],
        ),
        (
            printed(("m.before_optimizations.txt", FIRST), ("m.before_layout-assignment.txt", SECOND)),
            [SECOND.strip()],
        ),
        (printed(("m.after_optimizations.txt", FIRST)), [FIRST.strip()]),
        ("config,runtime\n1,2\n", []),
        (
            FIRST.replace("(0)", '(0), original_value={({"p"}, {"q" {0}})}, api_version=API_X'),
            [FIRST.strip()],
        ),
        ("# ENTRY point\nENTRY is a word {\n", []),
    ],
)
def test_the_modules_of_a_text(text, modules):
    assert split_text(text) == modules


def test_the_text_of_several_modules_with_windows_line_ends(xla, tmp_path):
    path = tmp_path / "both.txt"
    path.write_bytes(f"{FIRST}\n{SECOND}".replace("\n", "\r\n").encode("utf-8-sig"))
    assert [program.module.name for program in read_hlo_modules(path)] == ["first", "second"]
    assert read_hlo(path, "1").module.name == "second"


@cases("text, opcode", [(PRETTY, "dot"), (GENERIC, "tanh")])
def test_stablehlo_as_text(xla, tmp_path, text, opcode):
    path = tmp_path / "program.hlo"
    path.write_text(text)
    opcodes = [i.opcode for c in read_hlo(path).module.computations for i in c.instructions]
    assert opcode in opcodes and "parameter" in opcodes


def test_stablehlo_as_bytecode_and_as_jax_exports_it(xla, tmp_path):
    from jax._src.lib.mlir import ir  # jaxlib's MLIR, with which JAX writes bytecode
    from jaxlib.mlir.dialects import stablehlo

    with ir.Context() as context:
        stablehlo.register_dialect(context)
        code = stablehlo.serialize_portable_artifact_str(PRETTY, stablehlo.get_current_version())
    export = b"\x10\0\0\0fields" + len(code).to_bytes(4, "little") + code + b"\xffmore fields"
    for content in (code, export, gzip.compress(export)):
        (tmp_path / "program.bin").write_bytes(content)
        assert read_hlo(tmp_path / "program.bin").module.name == "product"
    assert mlir_of(export[:-60]) is None, "cut off"


def test_stablehlo_that_cannot_be_converted(xla, tmp_path):
    path = tmp_path / "wrong.mlir"
    path.write_text(PRETTY.replace("x [0]", "x [1]"))
    with pytest.raises(
        DataError, match="wrong.mlir: is StableHLO that this version .* does not read: .*Dump"
    ):
        read_hlo(path)


@cases("text", ["module = torch.nn.Linear(3, 4)\n", "module,runtime\n1,2\n", "{}\n"])
def test_a_text_of_another_kind_is_no_program(tmp_path, text):
    (tmp_path / "x.txt").write_text(text)
    with pytest.raises(DataError, match=r"x\.txt: is not HLO"):
        read_hlo(tmp_path / "x.txt")


def test_compressed_protos_and_snapshots(tmp_path):
    module, path = small_module(), tmp_path / "small.hlo.pb.gz"
    path.write_bytes(gzip.compress(HloProto(hlo_module=module).SerializeToString()))
    assert read_hlo(path).module == module
    # an HloSnapshot holds an HloProto as its first field, as TuningData holds a module's data
    snapshot = TuningData(modules=[ModuleTuningData(module=module)]).SerializeToString()
    path.write_bytes(snapshot + b"\x12\x02\x08\x0b")
    assert read_hlo(path).module == module
    path.write_bytes(path.read_bytes()[:1] + gzip.compress(snapshot)[:40])
    with pytest.raises(DataError, match="small.hlo.pb.gz"):
        read_hlo(path)
    path.write_bytes(gzip.compress(snapshot)[:-20])
    with pytest.raises(DataError, match="is a broken gzip file"):
        read_hlo(path)
