"""The forms of a program beside protobufs: HLO text, StableHLO, compressed files.

XLA's own parser and converter, which jaxlib has, read text and StableHLO. They run in a process of their own:
some inputs fail a check of theirs, which ends the process; others take any amount of memory.
"""

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from fastslow.core.errors import DataError
from fastslow.core.input_files import decode, read_bytes
from fastslow.core.isolated import TIMED_OUT, Killed, call_isolated
from fastslow.hlo.messages import MAX_BYTES, Module
from fastslow.hlo.module_checks import WRITE_AGAIN
from fastslow.hlo.verifier import refusal

FORMS = "A program is an HloModuleProto, an HloProto, HLO text, StableHLO, or a TpuGraphs .pb, packed or not"
DUMP = "Dump the program with XLA_FLAGS='--xla_dump_to=FOLDER --xla_dump_hlo_as_proto' and use a *.hlo.pb"
PARSER_BYTES = 8 << 30  # a text of 100 MB takes 2 GB
_PARSER_SECONDS = 300.0
_STAGES = ("before_layout", "before_optimizations", "")  # in the names of dumps, the one that we want first
# attributes of other versions that change nothing of what is computed
_NOTES = re.compile(r", (original_value|origin|statistics|api_version)=(\{.*?\}(?=$|, \w+=)|\w+)", re.M)
# colours, and what a log begins its lines with
_NOISE = re.compile(r"\x1b\[[\d;]*[mK]|^[IWEF]\d{4} [^]\n]*\] ?", re.M)
_PACKED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
_BYTECODE = b"ML\xefR"
_SECTION = re.compile(r"^\*\*\* Begin (.*) \*\*\*$", re.M)  # of --xla_dump_to=-
_HEADER = re.compile(r"^HloModule\s", re.M)
_WITHOUT_HEADER = re.compile(r"^(ENTRY )?%?[\w.-]+ (\(.*\) -> .*)?\{$", re.M)
_MLIR = re.compile(r'^\s*("?builtin\.module|module\b[^\n=,]*\{|func\.func|#\w+ = )|\b(stable|v|m)hlo\.', re.M)


def earliest(names: Sequence[str]) -> list[int]:
    """Return the positions of the dumps whose names say the stage nearest before layout assignment."""
    stages = ([n for n, name in enumerate(names) if stage in name] for stage in _STAGES)
    return next(filter(None, stages), [])


def unpacked_name(path: Path) -> str:
    """Return the name that a packed file has after unpacking."""
    return re.sub(r"\.(gz|bz2|xz)$", "", path.name)


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


def as_text(data: bytes) -> str | None:
    """Return the file as text, None if binary: a protobuf of HLO holds control characters (field tags).

    It is without what a log adds to its lines.
    """
    try:
        text = decode(data)
    except UnicodeDecodeError:
        return None
    return None if re.search(r"[\x00-\x08]", text) else _NOISE.sub("", text.replace("\r\n", "\n"))


def split_text(text: str) -> list[str]:
    """Return the HLO modules of a text, without the lines between them; those that have no header get one.

    Of the dumps that ``--xla_dump_to=-`` prints, only those from before layout assignment are taken.
    """
    text, *sections = _SECTION.split(_NOTES.sub("", text))
    if sections:
        text = "\n".join(sections[1::2][n] for n in earliest(sections[::2]))
    if not (starts := [found.start() for found in _HEADER.finditer(text)]):
        return [f"HloModule module\n\n{text}"] if _WITHOUT_HEADER.search(text) else []
    parts = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    return [part[: part.rfind("\n}") + 2] if "\n}" in part else part for part in parts]


def mlir_of(data: bytes) -> bytes | None:
    """Return the MLIR bytecode that a binary file is, or holds if ``jax.export`` wrote it."""
    start = data.find(_BYTECODE)
    if start <= 0:
        return data if start == 0 else None
    size = int.from_bytes(data[start - 4 : start], "little")  # of a vector of bytes of a flatbuffer
    return data[start : start + size] if start >= 4 and start + size <= len(data) else None


def sources_in(data: bytes) -> list[str | bytes]:
    """Return the modules of a file that only jaxlib reads: HLO texts, or one of StableHLO as bytes."""
    text = as_text(data)
    if text is not None and (_HEADER.search(text) or not _MLIR.search(text)):
        return [*split_text(text)]
    mlir = mlir_of(data) if text is None else text.encode()
    return [mlir] if mlir else []


def parse(path: Path, data: bytes) -> list[tuple[Module, str]]:
    """Return the modules of HLO text or of StableHLO; none if the content is neither.

    With each comes what XLA's verifier says of it, see :func:`fastslow.hlo.verifier.refusal`.

    Raises:
        DataError: It cannot be parsed or converted, or jaxlib is not installed.
    """
    if not (sources := sources_in(data)):
        return []
    kind = "HLO text" if isinstance(sources[0], str) else "StableHLO"
    try:
        codes = call_isolated(_convert, path.absolute(), seconds=_PARSER_SECONDS, memory=PARSER_BYTES)
    except Killed as error:
        if error.kind == TIMED_OUT:
            problem = f"is {kind} that XLA's parser does not finish in {_PARSER_SECONDS:.0f} s"
            raise DataError(path, problem, DUMP) from None
        raise DataError(path, f"is {kind} that XLA's parser ends on: {error}", WRITE_AGAIN) from None
    except ImportError:
        problem = f"is {kind}, which only XLA's own parser reads, and jaxlib is not installed"
        raise DataError(path, problem, f"{DUMP}, or pip install 'fastslow[compiler]'") from None
    except ValueError as error:
        problem = f"is {kind} that this version of XLA does not read: {str(error)[:500]}"
        raise DataError(path, problem, f"{WRITE_AGAIN}. {DUMP}") from None
    return [(Module.FromString(code), said) for code, said in codes]


def to_hlo(source: str | bytes) -> bytes:
    """Return the serialised ``HloModuleProto`` of an HLO text, or of StableHLO, which are bytes."""
    from jaxlib import xla_client as xla

    if isinstance(source, str):
        return xla.hlo.hlo_module_from_text(source).as_serialized_hlo_module_proto()
    flat = {"use_tuple_args": False, "return_tuple": False}  # as JAX's own compiler_ir("hlo") converts it
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
