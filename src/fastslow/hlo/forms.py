"""The forms of a program beside protobufs: HLO text, StableHLO, compressed files.

XLA's own parser and converter, which jaxlib has, read text and StableHLO. They run in a process of their own:
some inputs fail a check of theirs, which ends the process; others take any amount of memory.
"""

import bz2
import contextlib
import lzma
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from google.protobuf.message import DecodeError

from fastslow.core.errors import DataError
from fastslow.core.input_files import read_bytes
from fastslow.core.isolated import CRASHED, TIMED_OUT, Killed, call_isolated
from fastslow.hlo.messages import MAX_BYTES, Module
from fastslow.hlo.module_checks import WRITE_AGAIN, check_module
from fastslow.hlo.texts import CutMlirError, as_text, programs_in, readable_mlir
from fastslow.hlo.verifier import refusal

FORMS = "A program is an HloModuleProto, an HloProto, HLO text, StableHLO, or a TpuGraphs .pb, packed or not"
DUMP = "Dump the program with XLA_FLAGS='--xla_dump_to=FOLDER --xla_dump_hlo_as_proto' and use a *.hlo.pb"
PARSER_BYTES = 8 << 30  # a text of 100 MB takes 2 GB
_PARSER_SECONDS = 300.0
CUT_OFF = "Give the whole program, from HloModule to the last brace of its ENTRY"
WHOLE_MLIR = "Give the whole MLIR module, to its last brace"
FROM_JAX = "jax.jit(FUNCTION).lower(*ARGUMENTS).as_text() gives StableHLO"
FROM_TORCH = "Give the module as model.py:FUNCTION, a function that returns (module, arguments)"
FROM_TENSORFLOW = (
    "tf.function(f, jit_compile=True).experimental_get_compiler_ir(*arguments)(stage='hlo') gives HLO"
)
_WAYS = {"torch": FROM_TORCH, "torch_c": FROM_TORCH, "tf": FROM_TENSORFLOW, "tfl": FROM_TENSORFLOW}
# what XLA says of a dialect that it does not know, or that no HLO is made of
_OTHER_DIALECT = re.compile(r"Dialect `(\w+)' not found|`!\"?(\w+)|'(\w+)\.\w+' op unsupported op for export")
_UNREGISTERED = "operation being parsed with an unregistered dialect"
_OPERATION = re.compile(rb"^\s*(?:%[^=\n]*= )?\"?(\w+)\.\w", re.M)
_KNOWN_DIALECTS = {b"builtin", b"func", b"stablehlo", b"mhlo", b"chlo", b"vhlo", b"sdy"}
_PACKED: dict[bytes, tuple[str, Callable]] = {
    b"\x1f\x8b": ("gzip", lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)),
    b"BZh": ("bz2", bz2.BZ2Decompressor),
    b"\xfd7zXZ\0": ("lzma", lzma.LZMADecompressor),
}
_CHECK = re.compile(r"its process ended with |\bF\d+ [\d:.]+ +\d+ [^\]]*\] ")  # and the place in XLA's code
_OTHER_NUMBER = re.compile(r"invalid parameter number\. Expected \S+ \S+ got (-?\d+)")
_BYTECODE = b"ML\xefR"


def read_unpacked(path: Path) -> bytes:
    """Return the content of a file, unpacked where gzip, bzip2 or xz packed it.

    Raises:
        DataError: It is missing, empty, no regular file, too large, or packed and broken.
    """
    data = read_bytes(path, "Check the path", MAX_BYTES)
    if packed := next((kind for start, kind in _PACKED.items() if data.startswith(start)), None):
        name, unpacker = packed
        try:
            data = _unpacked(data, unpacker)
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise DataError(path, f"is a broken {name} file ({error})", WRITE_AGAIN) from None
        if len(data) > MAX_BYTES:
            raise DataError(path, f"unpacks to more than {MAX_BYTES:,} bytes", "Check where it comes from")
    if not data:
        raise DataError(path, "is empty", WRITE_AGAIN)
    return data


def _unpacked(data: bytes, unpacker: Callable) -> bytes:
    """Return the content of packed streams, one byte more than allowed at most.

    ``bz2.open`` and ``lzma.open`` would ignore whatever follows a stream; only zeros may.
    """
    content = b""
    while data and len(content) <= MAX_BYTES:
        stream = unpacker()
        content += stream.decompress(data, MAX_BYTES + 1 - len(content))
        if not stream.eof and len(content) <= MAX_BYTES:
            raise EOFError("it ends before its end was reached")
        data = stream.unused_data.lstrip(b"\0")
    return content


def mlir_of(data: bytes) -> bytes | None:
    """Return the MLIR bytecode that a binary file is, or holds if ``jax.export`` wrote it."""
    start = data.find(_BYTECODE)
    if start <= 0:
        return data if start == 0 else None
    size = int.from_bytes(data[start - 4 : start], "little")  # of a vector of bytes of a flatbuffer
    return data[start : start + size] if start >= 4 and start + size <= len(data) else None


def sources_in(data: bytes) -> list[str | bytes]:
    """Return the modules of a file that only jaxlib reads: HLO texts, or StableHLO as bytes.

    Raises:
        ValueError: A program of a text is cut off.
    """
    if (text := as_text(data)) is not None:
        return programs_in(text)
    mlir = mlir_of(data)
    return [mlir] if mlir else []


def parse(path: Path, data: bytes) -> list[tuple[Module, str]]:
    """Return the modules of HLO text or of StableHLO; none if the content is neither.

    With each comes the refusal of XLA's verifier, if any, see :func:`fastslow.hlo.verifier.refusal`.

    Raises:
        DataError: It is cut off, cannot be parsed or converted, or jaxlib is not installed.
    """
    try:
        sources = sources_in(data)
    except ValueError as error:
        way = WHOLE_MLIR if isinstance(error, CutMlirError) else CUT_OFF
        raise DataError(path, f"is truncated, or a part of a program: {error}", way) from None
    if not sources:
        return []
    kind = "HLO text" if isinstance(sources[0], str) else "StableHLO"
    try:
        codes = call_isolated(_convert, path.absolute(), seconds=_PARSER_SECONDS, memory=PARSER_BYTES)
    except Killed as error:
        if error.kind == TIMED_OUT:
            problem = f"is {kind} that XLA's parser does not finish in {_PARSER_SECONDS:.0f} s"
            raise DataError(path, problem, DUMP) from None
        _explain_end(path, kind, sources[0], error)
    except DataError:  # of this machine, not of the text
        raise
    except ImportError:
        problem = f"is {kind}, which only XLA's own parser reads, and jaxlib is not installed"
        raise DataError(path, problem, f"{DUMP}, or pip install 'fastslow[compiler]'") from None
    except ValueError as error:
        if other := _other_dialect(sources[0], str(error)):
            problem = f"is MLIR of the dialect {other}, StableHLO is wanted"
            raise DataError(path, problem, _WAYS.get(other, FROM_JAX)) from None
        problem = f"is {kind} that this version of XLA does not read: {str(error)[:500]}"
        raise DataError(path, problem, DUMP) from None
    try:
        return [(Module.FromString(code), said) for code, said in codes]
    except DecodeError as error:
        problem = f"is {kind} whose shapes cannot be read ({error}), such as tuples a hundred deep"
        raise DataError(path, problem, "Give a program of flatter tuples") from None


def _other_dialect(source: str | bytes, said: str) -> str:
    """Return the dialect that XLA refuses in an MLIR module; empty where it refuses something else."""
    if isinstance(source, str):
        return ""
    if named := _OTHER_DIALECT.search(said):
        return next(filter(None, named.groups()))
    if _UNREGISTERED not in said:
        return ""
    others = (name for name in _OPERATION.findall(source) if name not in _KNOWN_DIALECTS)
    return next(others, b"").decode()


def _explain_end(path: Path, kind: str, source: str | bytes, error: Killed) -> NoReturn:
    """Raise what is wrong with a program that XLA ends its process on.

    Rules of our own say it where XLA parses the text and only its verifier ends.
    """
    if error.kind != CRASHED:
        raise DataError(path, f"is {kind} that XLA's parser ends on: {error}", DUMP) from None
    limits = {"seconds": _PARSER_SECONDS, "memory": PARSER_BYTES}
    try:
        codes = call_isolated(_parse_only, path.absolute(), **limits)
    except (Killed, ValueError):
        said = _CHECK.sub("", str(error).partition("*** ")[0]).strip()
        place = _likely_place(source, said)
        problem = f"is {kind}, and XLA's parser ended on it{place} ({said})"
        raise DataError(path, " ".join(problem.split()), "Correct that line" if place else DUMP) from None
    for code in codes:
        with contextlib.suppress(DecodeError):  # of tuples a hundred deep
            check_module(path, Module.FromString(code))
    raise DataError(path, f"is {kind} that XLA's verifier ends on: {error}", DUMP) from None


def _likely_place(source: str | bytes, said: str) -> str:
    """Return the line of an HLO text that names a number which XLA refuses, or a size of what has none."""
    number = _OTHER_NUMBER.search(said)
    likely = re.compile(rf"\bparameter\({re.escape(number[1])}\)" if number else r"\b(opaque|token)\[\d")
    for line in source.splitlines() if isinstance(source, str) else ():
        if likely.search(line):
            return f", probably at {line.strip()[:80]!r}"
    return ""


def to_hlo(source: str | bytes) -> bytes:
    """Return the serialised ``HloModuleProto`` of an HLO text, or of StableHLO, which are bytes."""
    from jaxlib import xla_client as xla

    if isinstance(source, str):
        return xla.hlo.hlo_module_from_text(source).as_serialized_hlo_module_proto()
    flat = {"use_tuple_args": False, "return_tuple": False}  # as JAX's own compiler_ir("hlo") converts it
    if not source.startswith(_BYTECODE):
        source = readable_mlir(source.decode()).encode()
    return xla._xla.mlir.mlir_module_to_xla_computation(source, **flat).as_serialized_hlo_module_proto()


def _parse_only(path: Path) -> list[bytes]:
    """Return the serialised modules of a file; run in a process of its own."""
    return [to_hlo(source) for source in sources_in(read_unpacked(path))]


def _convert(path: Path) -> list[tuple[bytes, str]]:
    """Return the serialised modules of a file with XLA's verdicts; run in a process of its own."""
    try:
        return [(code, refusal(code)) for code in _parse_only(path)]
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # of a type that only jaxlib can unpickle
        raise ValueError(" ".join(str(error).split())) from None
