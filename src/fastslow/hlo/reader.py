"""Read HLO files: the compiler's dumps, other forms of a program, and TpuGraphs' files with measurements.

The kind of a file is recognised by its content, not by its name:

==================  ==================================================================================
kind                written by
==================  ==================================================================================
HloModuleProto      XLA's ``HloModule::ToProto``; JAX's ``as_serialized_hlo_module_proto``
HloProto            the compiler under ``--xla_dump_to=FOLDER --xla_dump_hlo_as_proto`` (``*.hlo.pb``)
HloSnapshot         XLA's ``--xla_dump_hlo_snapshots``
HLO text            the compiler under ``--xla_dump_to=FOLDER`` (``*.txt``), one module or several
StableHLO           ``lowered.as_text()``, MLIR or VHLO bytecode, ``jax.export``
ModuleTuningData    TpuGraphs: a layout program with its measurements
TuningData          TpuGraphs: tile kernels with their measurements
==================  ==================================================================================

Each may be packed with gzip, bzip2 or xz. :mod:`fastslow.hlo.forms` reads what is no protobuf.
"""

import hashlib
import importlib.util
import re
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from fastslow.competition.layouts import LAYOUT_WIDTH, MAX_DIMENSION, ROLES
from fastslow.core.errors import DataError, counted
from fastslow.core.input_files import read_bytes
from fastslow.core.isolated import CRASHED, Killed, call_isolated
from fastslow.hlo.forms import (
    DUMP,
    FORMS,
    FROM_JAX,
    FROM_TENSORFLOW,
    FROM_TORCH,
    PARSER_BYTES,
    parse,
    read_unpacked,
)
from fastslow.hlo.graph_arrays import tile_config_feat
from fastslow.hlo.messages import MAX_BYTES, Module, ModuleTuningData, TuningData
from fastslow.hlo.module_checks import LARGEST_SIZE, WRITE_AGAIN, check_module
from fastslow.hlo.texts import as_text
from fastslow.hlo.verifier import refusal

_OPCODE = re.compile(r"[a-z][a-z0-9-]*")
_VERIFIER_SECONDS = 120.0  # a module of 5,000 instructions takes 0.2
_known_verdicts: dict[tuple[bytes, ...], list[str]] = {}  # by the digests of a file's modules
_LISTED = 20  # names of kernels in a message
_BEGINNING = 1 << 20  # bytes that tell what a file is: a whole file of zeros takes minutes
_WEIGHTS = "Give the program that reads them: model.py:FUNCTION, or its HLO"
_FETCH = f"{FORMS}. {DUMP}"
_OTHERS = {  # what the bytes begin with, or hold: what it is, and the way to HLO
    rb"(?s).{0,99}/(host|device):": ("a profile (xplane)", _FETCH),
    rb"PK\x03\x04": ("a zip archive, such as a PyTorch, Keras or npz file", _FETCH),
    rb"(?s).{257}ustar": ("a tar archive (tar -xf unpacks it)", _FETCH),
    rb"\x28\xb5\x2f\xfd": ("packed with zstd (zstd -d unpacks it)", _FETCH),
    rb"version https://git-lfs": ("a pointer of Git LFS (git lfs pull fetches the file)", _FETCH),
    rb"(?i)\s*<(!doctype )?html": ("a page of HTML", _FETCH),
    rb"\s*\{ ?lambda\b": ("a jaxpr", FROM_JAX),
    rb"(?s).{8}\{\s*\"[^\"]+\":\s*\{": ("a safetensors file, weights without a program", _WEIGHTS),
    rb"\x80[\x02-\x05]": ("a pickle", _WEIGHTS),
    rb"\x89HDF": ("an HDF5 file, such as weights of Keras", _WEIGHTS),
    rb"\x08\x01\x12": ("a SavedModel of TensorFlow", FROM_TENSORFLOW),
    rb"(?s)....TFL3": ("a TensorFlow Lite model", FROM_TENSORFLOW),
    rb"\x08[\x02-\x1f][\x12\x1a:]": (
        "an ONNX model",
        f"onnx2torch makes a PyTorch module of it. {FROM_TORCH}",
    ),
    rb"(?s)\x0a.{1,4}\x0a.[\w./-]+\x12.[A-Z]\w+": ("a GraphDef of TensorFlow", FROM_TENSORFLOW),
    rb"(?s).*?^(node|library|versions) \{": ("a GraphDef of TensorFlow, as text", FROM_TENSORFLOW),
    rb"(?s).*?^(graph\(%|ExportedProgram:|class \w+\(torch|def forward\(self|\s*def forward\(self)": (
        "a program of PyTorch",
        FROM_TORCH,
    ),
    rb"(?s)\s*(ir_version: \d|.*?^graph \{)": (
        "an ONNX model, as text",
        f"onnx2torch reads it. {FROM_TORCH}",
    ),
    rb"(?s).*?^\s*(hlo_module|computations) \{": (
        "a protobuf as text",
        "google.protobuf.text_format.Parse reads it into an HloProto: write its SerializeToString()",
    ),
    rb"(?s).*?\b(torch|torch_c)\.(aten|operator|constant|vtensor)": ("MLIR of torch-mlir", FROM_TORCH),
    rb"(?s).*?^\s*(?:%\S+(?:, %\S+)* = )?\"?"
    rb"(linalg|tosa|tf|tfl|onnx|affine|memref|scf|vector|gpu|llvm|triton|tt)\.": (
        "MLIR of another dialect",
        f"StableHLO is wanted: {FROM_JAX}",
    ),
}


def other_kind(data: bytes) -> tuple[str, str]:
    """Return the kind of a file without a program, in words, and a remedy; both empty if it is unknown."""
    beginning = data[:_BEGINNING]
    for pattern, named in _OTHERS.items():
        if re.match(pattern, beginning, re.M):
            return named
    return "", ""


@dataclass(frozen=True)
class HloProgram:
    """An HLO module and its measurements.

    Args:
        module: A :class:`fastslow.hlo.messages.Module` message.
        runs: Configurations and runtimes by npz key, in file order. Layout: ``node_config_ids`` (K,),
            ``node_config_feat`` (C, K, 18) and ``config_runtime`` (C,) in nanoseconds. Tile: ``config_feat``
            (C, 24), ``config_runtime`` and ``config_runtime_normalizers`` (C,), the runtime of the
            compiler's default. Empty for a file without runs.
        layouts: The compiler's own layouts by instruction, see
            :meth:`fastslow_programs.compiler.libtpu.Compiler.layout_assignment`; empty where it was not
            asked.
    """

    module: Module
    runs: dict[str, np.ndarray]
    layouts: dict[str, list[list[int]]] = field(default_factory=dict)


def read_hlo(path: Path, kernel: str = "") -> HloProgram:
    """Read one module of an HLO file.

    Args:
        path: A file of any kind listed in :mod:`fastslow.hlo.reader`.
        kernel: Name of the module, or its position from 0; may be empty where the file holds one.

    Raises:
        DataError: As for :func:`read_hlo_modules`; or the file holds several modules and none is chosen, no
            such one, or two of that name.
    """
    return choose_module(path, read_hlo_modules(path), kernel)


def choose_module(path: Path, programs: list[HloProgram], kernel: str) -> HloProgram:
    """Return one module of those that a file holds.

    Args:
        path: The file, for messages.
        programs: Its modules.
        kernel: As for :func:`read_hlo`, with its errors.
    """
    if not kernel and len(programs) == 1:
        return programs[0]
    names = [program.module.name for program in programs]
    chosen = [number for number, name in enumerate(names) if name == kernel]
    if not chosen and re.fullmatch("[0-9]{1,9}", kernel) and int(kernel) < len(names):
        chosen = [int(kernel)]
    if len(chosen) == 1:
        return programs[chosen[0]]
    listed = ", ".join(f"{number} {name}" for number, name in enumerate(names[:_LISTED]))
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    problem = f"holds {counted(len(names), 'kernel')} ({listed}{more})"
    if kernel:
        problem += f", {len(chosen) or 'none'} of them named {kernel[:80]!r}"
    raise DataError(path, problem, "Choose one by name or number: kernel=0")


def read_hlo_modules(path: Path) -> list[HloProgram]:
    """Read all modules of an HLO file; TuningData and text may hold several.

    Failed runs are dropped, as in TpuGraphs.

    Args:
        path: A file of any kind listed in :mod:`fastslow.hlo.reader`.

    Raises:
        DataError: The file is missing, empty, truncated, not HLO, or holds no sound module
            (:func:`fastslow.hlo.module_checks.check_module`, :mod:`fastslow.hlo.verifier`); or jaxlib is
            missing.
    """
    path = Path(path)
    data = read_unpacked(path)
    modules = [] if as_text(data) else _parse(data)
    verdicts = None
    if not modules:
        parsed = parse(path, data)
        modules = [ModuleTuningData(module=module) for module, _ in parsed]
        verdicts = [verdict for _, verdict in parsed]
    if not modules:
        other, way = other_kind(data)
        problem = f"is {other}; a program is wanted" if other else "is not HLO, or is truncated"
        raise DataError(path, problem, way or FORMS)
    programs = [_checked(path, tuned) for tuned in modules]
    if verdicts is None:
        verdicts = _verdicts(path, [program.module.SerializeToString() for program in programs])
    for program, said in zip(programs, verdicts, strict=False):
        if said:
            problem = f"HLO module {program.module.name!r}: XLA's verifier says: {said}"
            raise DataError(path, problem, WRITE_AGAIN)
    return programs


def _verdicts(path: Path, codes: list[bytes]) -> list[str]:
    """Return XLA's verdict on serialised modules of a file, none where it has none in time or in memory.

    Raises:
        DataError: XLA ends its process on them.
    """
    if not importlib.util.find_spec("jaxlib"):
        return []
    key = tuple(hashlib.sha256(code).digest() for code in codes)
    if key not in _known_verdicts:
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, str(number)) for number in range(len(codes))]
            for file, code in zip(files, codes, strict=True):
                file.write_bytes(code)
            limits = {"seconds": _VERIFIER_SECONDS, "memory": PARSER_BYTES}
            try:
                _known_verdicts[key] = call_isolated(_verify, files, **limits)
            except Killed as error:
                if error.kind != CRASHED:
                    return []
                raise DataError(
                    path, f"is HLO on which XLA's verifier crashes: {error}", WRITE_AGAIN
                ) from None
    return _known_verdicts[key]


def _verify(files: list[Path]) -> list[str]:
    """Return :func:`refusal` of each serialised module; run in a process of its own."""
    return [refusal(file.read_bytes()) for file in files]


def read_protobuf(path: Path) -> HloProgram:
    """Read the program of a protobuf, such as TpuGraphs' of a layout program, and no other form.

    Features are made from this form only, so a change in how others are read does not make them stale.

    Raises:
        DataError: The file is missing, or holds no sound module or several.
    """
    modules = _parse(read_bytes(path, WRITE_AGAIN, MAX_BYTES))
    if len(modules) != 1:
        raise DataError(path, "is no protobuf of one program, or is truncated", WRITE_AGAIN)
    return _checked(path, modules[0])


def _checked(path: Path, tuned: ModuleTuningData) -> HloProgram:
    check_module(path, tuned.module)
    return HloProgram(tuned.module, _runs(path, tuned))


def _parse(data: bytes) -> list[ModuleTuningData]:
    """Return the modules of a protobuf with their runs; an empty list if it is none of the kinds.

    The bytes may also parse as another message, into nonsense; instructions with valid opcodes decide.
    """
    module = _decode(Module, data)
    if module and _is_module(module):
        return [ModuleTuningData(module=module)]
    tuned = _decode(ModuleTuningData, data)
    tuning = _decode(TuningData, data)
    modules = list(tuning.modules) if tuning else []
    if tuned and _is_module(tuned.module):
        modules = [tuned]
    if not all(_is_module(part.module) for part in modules):
        return []
    for part in modules:
        if not (part.fingerprint or part.config_index_to_node):  # an HloProto, whose field 3 is no run
            part.ClearField("runs")
    return modules


def _decode(message: Any, data: bytes):
    try:
        return message.FromString(data)
    except DecodeError:
        return None


def _is_module(module: Module) -> bool:
    return bool(module.computations) and all(
        part.instructions and all(_OPCODE.fullmatch(inst.opcode) for inst in part.instructions)
        for part in module.computations
    )


def _runs(path: Path, tuned: ModuleTuningData) -> dict[str, np.ndarray]:
    measured = [run for run in tuned.runs if not run.error and run.profile.compute_time_ns > 1]
    if not measured:
        return {}
    runtime = np.array([run.profile.compute_time_ns for run in measured], np.int64)
    if all(run.HasField("module_config") for run in measured):
        ids = list(tuned.config_index_to_node)  # they may be too large for numpy's int64
        nodes = sum(len(part.instructions) for part in tuned.module.computations)
        if max(ids, default=0) >= nodes:
            problem = (
                f"config_index_to_node names node {max(ids)}, but the program has {counted(nodes, 'node')}"
            )
            raise DataError(path, problem, WRITE_AGAIN)
        if repeated := [node for node, times in Counter(ids).items() if times > 1]:
            raise DataError(path, f"config_index_to_node names node {repeated[0]} twice", WRITE_AGAIN)
        features = [_layout_features(path, run.module_config.layout_config, len(ids)) for run in measured]
        return {
            "node_config_ids": np.array(ids, np.int64),
            "node_config_feat": np.stack(features),
            "config_runtime": runtime,
        }
    defaults = [run for run in measured if run.is_default]
    if not all(run.HasField("op_config") for run in measured) or not defaults:
        problem = (
            f"the runs of HLO module {tuned.module.name!r} mix layouts and tiles, or none is the default"
        )
        raise DataError(path, problem, WRITE_AGAIN)
    times = [run.profile.compute_time_ns for run in defaults]
    tiles = {tuple(_tile_row(path, run.op_config.tile_size_config)) for run in defaults}
    if len({*times}) > 1 and len(tiles) > 1:
        problem = f"{len(tiles)} configurations of HLO module {tuned.module.name!r} are marked as the default"
        raise DataError(path, problem, WRITE_AGAIN)
    rows = [_tile_row(path, run.op_config.tile_size_config) for run in measured]
    return {
        "config_feat": np.array(rows, np.float32),
        "config_runtime": runtime,
        # of a default that was measured several times the mean, as of other equal configurations
        "config_runtime_normalizers": np.full(len(measured), round(mean(times)), np.int64),
    }


def _layout_features(path: Path, config, nodes: int) -> np.ndarray:
    """Return ``node_config_feat`` of one configuration, (K, 18) float32, -1 where a tensor has no layout."""
    if len(config.nodes) != nodes or any(len(node.tensors) > len(ROLES) for node in config.nodes):
        problem = (
            f"a run configures {counted(len(config.nodes), 'node')}, but config_index_to_node names {nodes}"
        )
        raise DataError(path, problem, WRITE_AGAIN)
    features = np.full((nodes, len(ROLES), LAYOUT_WIDTH), -1, np.float32)
    for row, node in zip(features, config.nodes, strict=True):
        for tensor, layout in enumerate(node.tensors):
            dims = layout.dims[:LAYOUT_WIDTH]
            if min(dims, default=0) < -1 or max(dims, default=0) > MAX_DIMENSION:
                problem = f"a run has the layout {list(dims)}, axes from 0 to {MAX_DIMENSION} wanted"
                raise DataError(path, problem, WRITE_AGAIN)
            row[tensor, : len(dims)] = dims
    return features.reshape(nodes, -1)


def _tile_row(path: Path, tile) -> list[int]:
    for bound in chain(tile.kernel_bounds, tile.output_bounds, tile.input_bounds):
        if not 0 <= bound <= LARGEST_SIZE:
            problem = f"a run has the tile bound {bound}, 0 to {LARGEST_SIZE} wanted"
            raise DataError(path, problem, WRITE_AGAIN)
    return tile_config_feat(tile.kernel_bounds, tile.output_bounds, tile.input_bounds)
