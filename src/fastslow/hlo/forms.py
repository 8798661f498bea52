"""The forms of a program beside protobufs: HLO text, StableHLO, compressed files.

XLA's own parser and converter, which jaxlib has, read text and StableHLO. They run in a process of their own:
some inputs fail a check of theirs, which ends the process; others take any amount of memory.
"""

import bz2
import gzip
import lzma
import re
import zlib
from pathlib import Path

from google.protobuf.message import DecodeError

from fastslow.core.errors import DataError
from fastslow.core.input_files import read_bytes
from fastslow.core.isolated import TIMED_OUT, Killed, call_isolated
from fastslow.hlo.messages import MAX_BYTES, Module
from fastslow.hlo.module_checks import WRITE_AGAIN
from fastslow.hlo.texts import as_text, programs_in, readable_mlir
from fastslow.hlo.verifier import refusal

FORMS = "A program is an HloModuleProto, an HloProto, HLO text, StableHLO, or a TpuGraphs .pb, packed or not"
DUMP = "Dump the program with XLA_FLAGS='--xla_dump_to=FOLDER --xla_dump_hlo_as_proto' and use a *.hlo.pb"
PARSER_BYTES = 8 << 30  # a text of 100 MB takes 2 GB
_PARSER_SECONDS = 300.0
CUT_OFF = "Give the whole program, from HloModule to the last brace of its ENTRY"
FROM_JAX = "jax.jit(FUNCTION).lower(*ARGUMENTS).as_text() gives StableHLO"
_OTHER_DIALECT = re.compile(r"Dialect `(\w+)' not found")
_PACKED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
_BYTECODE = b"ML\xefR"


def read_unpacked(path: Path) -> bytes:
    """Return the content of a file, unpacked where gzip, bzip2 or xz packed it.

    Raises:
        DataError: It is missing, empty, no regular file, too large, or packed and broken.
    """
    data = read_bytes(path, "Check the path", MAX_BYTES)
    if unpacked := next((opened for start, opened in _PACKED.items() if data.startswith(start)), None):
        try:
            with unpacked(path) as file:
                data = file.read(MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise DataError(path, f"is a broken {unpacked.__module__} file ({error})", WRITE_AGAIN) from None
        if len(data) > MAX_BYTES:
            raise DataError(path, f"unpacks to more than {MAX_BYTES:,} bytes", "Check where it comes from")
    if not data:
        raise DataError(path, "is empty", WRITE_AGAIN)
    return data


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
        raise DataError(path, f"is truncated, or a part of a program: {error}", CUT_OFF) from None
    if not sources:
        return []
    kind = "HLO text" if isinstance(sources[0], str) else "StableHLO"
    try:
        codes = call_isolated(_convert, path.absolute(), seconds=_PARSER_SECONDS, memory=PARSER_BYTES)
    except Killed as error:
        if error.kind == TIMED_OUT:
            problem = f"is {kind} that XLA's parser does not finish in {_PARSER_SECONDS:.0f} s"
            raise DataError(path, problem, DUMP) from None
        raise DataError(path, f"is {kind} that XLA's parser ends on: {error}", DUMP) from None
    except DataError:  # of this machine, not of the text
        raise
    except ImportError:
        problem = f"is {kind}, which only XLA's own parser reads, and jaxlib is not installed"
        raise DataError(path, problem, f"{DUMP}, or pip install 'fastslow[compiler]'") from None
    except ValueError as error:
        if other := _OTHER_DIALECT.search(str(error)):
            problem = f"is MLIR of the dialect {other[1]}, StableHLO is wanted"
            raise DataError(path, problem, FROM_JAX) from None
        problem = f"is {kind} that this version of XLA does not read: {str(error)[:500]}"
        raise DataError(path, problem, DUMP) from None
    try:
        return [(Module.FromString(code), said) for code, said in codes]
    except DecodeError as error:
        problem = f"is {kind} whose shapes cannot be read ({error}), such as tuples a hundred deep"
        raise DataError(path, problem, "Give a program of flatter tuples") from None


def to_hlo(source: str | bytes) -> bytes:
    """Return the serialised ``HloModuleProto`` of an HLO text, or of StableHLO, which are bytes."""
    from jaxlib import xla_client as xla

    if isinstance(source, str):
        return xla.hlo.hlo_module_from_text(source).as_serialized_hlo_module_proto()
    flat = {"use_tuple_args": False, "return_tuple": False}  # as JAX's own compiler_ir("hlo") converts it
    if not source.startswith(_BYTECODE):
        source = readable_mlir(source.decode()).encode()
    return xla._xla.mlir.mlir_module_to_xla_computation(source, **flat).as_serialized_hlo_module_proto()


def _convert(path: Path) -> list[tuple[bytes, str]]:
    """Return the serialised modules of a file with XLA's verdicts; run in a process of its own."""
    try:
        codes = [to_hlo(source) for source in sources_in(read_unpacked(path))]
        return [(code, refusal(code)) for code in codes]
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # of a type that only jaxlib can unpickle
        raise ValueError(" ".join(str(error).split())) from None
