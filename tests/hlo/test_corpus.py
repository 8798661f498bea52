"""Programs in the forms that people have, ``corpus.txt``: what each gives, or the error with the remedy."""

import bz2
import gzip
import json
import lzma
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from fastslow.core.errors import DataError
from fastslow.hlo import forms, reader
from fastslow.hlo.messages import HloProto, Module, ModuleTuningData, TuningData
from fastslow.hlo.texts import split_text
from fastslow_programs.program.convert import make_program
from fastslow_programs.program.program_settings import ConvertSettings
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.target import read_target
from helpers.cases import cases


def mlir(data, portable=False):
    """StableHLO as MLIR's own bytecode, or as the portable artifact that keeps its versions."""
    from jax._src.interpreters.mlir import make_ir_context, module_to_bytecode
    from jax._src.lib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    with make_ir_context():
        if portable:
            return stablehlo.serialize_portable_artifact_str(data.decode(), stablehlo.get_current_version())
        return module_to_bytecode(ir.Module.parse(data.decode()))


def renamed(data, words):
    """A protobuf in which an opcode, ``old>new``, has another name."""
    old, new = words.split(">")
    module = Module.FromString(data)
    for instruction in (i for c in module.computations for i in c.instructions if i.opcode == old):
        instruction.opcode = new
    return module.SerializeToString()


def message(data):
    (text,) = split_text(data.decode())
    return Module.FromString(forms.to_hlo(text))


HEADER = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
ENCODINGS = {
    "plain": lambda data: data,
    "crlf": lambda data: data.replace(b"\n", b"\r\n"),
    "cr": lambda data: data.replace(b"\n", b"\r"),
    "oneline": lambda data: data.replace(b"\n", b" "),
    "junk": lambda data: data + b"junk",
    "zeros": lambda data: data + bytes(8),
    "again": lambda data: data + lzma.compress(b"\n"),
    "bom": lambda data: b"\xef\xbb\xbf" + data,
    "utf16": lambda data: data.decode().encode("utf-16"),
    "utf16be": lambda data: b"\xfe\xff" + data.decode().encode("utf-16-be"),
    "vlog": lambda data: re.sub(rb"^", b"I0612 10:00:00.123456   123 hlo.cc:1] ", data, flags=re.M),
    "colours": lambda data: data.replace(b"dot(", b"\x1b[01;31m\x1b[Kdot\x1b[m\x1b[K("),
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "cut": lambda data: data[: len(data) * 2 // 3],
    "proto": lambda data: message(data).SerializeToString(),
    "hloproto": lambda data: HloProto(hlo_module=message(data)).SerializeToString(),
    # an HloSnapshot holds an HloProto as its first field, as TuningData holds a module's data
    "snapshot": lambda data: (
        TuningData(modules=[ModuleTuningData(module=message(data))]).SerializeToString() + b"\x12\x02\x08\x0b"
    ),
    "bytecode": mlir,
    "vhlo": lambda data: mlir(data, portable=True),
    "export": lambda data: exported(mlir(data, portable=True)),
    "xplane": lambda data: b"\x0a\x0d\x08\x01\x12\x09/host:CPU",
    "repr": lambda data: repr(data.decode()).encode(),
    "json": lambda data: json.dumps({"program": data.decode()}, indent=1).encode(),
    "said": lambda data: b"(gdb) print text\n$1 = " + json.dumps(data.decode()).encode() + b"\n",
    "erased": lambda data: re.sub(rb"(?m)^", b"\x1b[2K\x1b[1G", data).replace(
        b"dot(", b"\x1b[38:2:1:2:3mdot\x1b[0m("
    ),
    "titled": lambda data: b"\x1b]0;make\x07" + data,
    "spaces": lambda data: data.replace(b"  ", "\u00a0 ".encode()),
    "tar": lambda data: bytes(257).replace(b"\0", b"m") + b"ustar\x0000" + bytes(40),
    "zstd": lambda data: b"\x28\xb5\x2f\xfd" + bytes(40),
    "zip": lambda data: b"PK\x03\x04" + bytes(40),
    "latin1": lambda data: data.decode().encode("latin-1"),
    "onnx": lambda data: b"\x08\x08\x12\x07pytorch\x1a\x052.1.0",
    "safetensors": lambda data: len(HEADER).to_bytes(8, "little") + HEADER,
    "pickle": lambda data: pickle.dumps({"w": 1}),
    "graphdef": lambda data: b"\x0a\x10\x0a\x01x\x12\x0bPlaceholder",
    "savedmodel": lambda data: b"\x08\x01\x12\x40\x0a\x20\x12\x00",
    "noise": lambda data: np.random.default_rng(0).bytes(500),
}


def exported(code):
    """A flatbuffer with the bytes as a vector among other fields, as ``jax.export`` writes it."""
    return b"\x10\0\0\0fields" + len(code).to_bytes(4, "little") + code + b"\xffmore fields"


def programs():
    """Name, encoding, expectation and text of each program of the corpus."""
    parts = re.split(r"^==== (.*)\n", Path(__file__).with_name("corpus.txt").read_text(), flags=re.M)
    for head, text in zip(parts[1::2], parts[2::2], strict=True):
        name, forms_of, expected = re.fullmatch(r"(\S+?)(?: \[(.*?)\])?: (.*)", head).groups()
        for encoding in (forms_of or "plain").split(", "):
            yield name, encoding, expected, text


@cases("name, encoding, expected, text", [*programs()])
def test_a_program_gives_what_its_line_says(tmp_path, monkeypatch, capsys, name, encoding, expected, text):
    pytest.importorskip("jaxlib.xla_client", reason="text needs jaxlib, an optional requirement")
    for module in (forms, reader):
        monkeypatch.setattr(module, "call_isolated", lambda function, given, **limits: function(given))
    data, kernel = text.strip("\n").encode() + b"\n", ""
    for word in encoding.split():
        if word.startswith("kernel="):
            kernel = word.removeprefix("kernel=")
        else:
            data = renamed(data, word) if ">" in word else ENCODINGS[word](data)
    path = tmp_path / f"{encoding}-{name}".replace(" ", "-").replace(">", "-")
    path.write_bytes(data)
    settings = ConvertSettings(source=str(path), kernel=kernel, configs=1, data_root=str(tmp_path))
    if expected.startswith("error: "):
        said = "|".join(map(re.escape, expected.removeprefix("error: ").split("|")))
        with pytest.raises(DataError, match=said) as caught:
            make_program(settings)
        assert str(caught.value).startswith(f"{path}: ")
        tuning = TuneSettings(source=str(path), kernel=kernel, run="none", evaluator="device")
        with pytest.raises(DataError, match=f"{said}|There is nothing to choose"):
            read_target(tuning.replace(data_root=str(tmp_path)))
        return
    sizes, _, warning = expected.partition("; warning: ")
    program = make_program(settings)
    found = f"{len(program.node_opcode)} nodes, {len(program.node_config_ids)} configurable"
    assert found == sizes
    assert warning in (said := capsys.readouterr().err) and bool(said) == bool(warning), said


def test_what_a_file_is_stands_at_its_beginning():
    """Where all 64 MB are searched, this test takes 17 seconds."""
    assert reader.other_kind(bytes(1 << 26)) == ("", "")
