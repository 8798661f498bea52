"""Compile HLO ahead of time with the TPU compiler (libtpu), on a machine without a TPU.

libtpu is an optional requirement, ``pip install -e '.[compiler]'``, with its own terms. It is called through
the public PJRT C API (``pjrt.py``), which compiles for a topology description, without a device. An abort
inside the compiler ends the process, so :mod:`fastslow_programs.compiler.compile_pool` compiles in worker
processes.
"""

import ctypes
import importlib.metadata
import importlib.util
import os
import signal
import tempfile
import threading
from pathlib import Path

from fastslow.core.errors import SettingsError
from fastslow.hlo.forms import to_hlo
from fastslow.hlo.messages import HloProto, Module, message_classes
from fastslow_programs.compiler import pjrt
from fastslow_programs.compiler.layout_space import CONFIGURABLE
from fastslow_programs.compiler.tracing import Call, is_staged, require_no_callbacks, trace

TOPOLOGIES = {
    "v2": "v2:2x2",
    "v3": "v3:2x2",
    "v4": "v4:2x2x1",
    "v5e": "v5e:2x2",
    "v5p": "v5p:2x2x1",
    "v6e": "v6e:2x2",
    "tpu7x": "tpu7x:2x2x1",
}
"""Topology used for each TPU generation; a program is compiled for one core of it.

TpuGraphs was measured on v3.
"""

# do not query a metadata server; accept any TPU type; let several processes load libtpu, as none uses a TPU
_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_MIN_LOG_LEVEL": "3",
    "JAX_PLATFORMS": "cpu",
}

_OPTION_MESSAGES = message_classes(
    "fastslow.compile_options",
    """
message Option { string string_field = 1; bool bool_field = 2; }
message OptionEntry { string key = 1; Option value = 2; }
message ReplicaDevices { repeated int64 ids = 1; }
message DeviceAssignment {
  int64 replica_count = 1; int64 computation_count = 2; repeated ReplicaDevices computation_devices = 3;
}
message BuildOptions {
  int64 device_ordinal = 1; int64 num_replicas = 4; int64 num_partitions = 5;
  DeviceAssignment device_assignment = 9;
}
message CompileOptions { BuildOptions build_options = 3; repeated OptionEntry overrides = 7; }
""",
)


class CompilerError(RuntimeError):
    """The compiler refused a program; the message is the compiler's."""


def require_compiler() -> None:
    """Raise :class:`SettingsError` that names what to install if libtpu is not installed."""
    if importlib.util.find_spec("libtpu") is None:
        raise SettingsError(
            "libtpu, the TPU compiler, is not installed (Linux on x86-64 only): pip install -e '.[compiler]'"
        )


def _set_environment() -> None:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


class Compiler:
    """The TPU compiler for one generation.

    Raises:
        SettingsError: libtpu is missing or has an unsupported PJRT version.
    """

    def __init__(self, generation: str = "v3"):
        topology = TOPOLOGIES[generation].encode()
        require_compiler()
        _set_environment()
        folder = importlib.util.find_spec("libtpu").submodule_search_locations[0]
        library = ctypes.CDLL(str(Path(folder) / "libtpu.so"))
        library.GetPjrtApi.restype = ctypes.POINTER(pjrt.Api)
        self._api = library.GetPjrtApi().contents
        if self._api.version.major != 0 or self._api.struct_size < ctypes.sizeof(pjrt.Api):
            version = f"{self._api.version.major}.{self._api.version.minor}"
            raise SettingsError(f"libtpu {self.version()}: its PJRT API {version} is not supported")
        self._call("Plugin_Initialize", pjrt.Initialize())
        created = self._call(
            "TopologyDescription_Create", pjrt.Topology(name=topology, name_size=len(topology))
        )
        self._topology = created.topology

    @staticmethod
    def version() -> str:
        """Return the version of libtpu, such as ``0.0.51``.

        Raises:
            SettingsError: libtpu is not installed.
        """
        require_compiler()
        return importlib.metadata.version("libtpu")

    def _function(self, name: str, result: type | None = pjrt.pointer):
        return ctypes.CFUNCTYPE(result, pjrt.pointer)(self._api.functions[pjrt.FUNCTIONS[name]])

    def _call(self, name: str, arguments: ctypes.Structure) -> ctypes.Structure:
        error = self._function(name)(ctypes.addressof(pjrt.sized(arguments)))
        if error:
            message = pjrt.sized(pjrt.Message(error=error))
            self._function("Error_Message", None)(ctypes.addressof(message))
            text = ctypes.string_at(message.text, message.text_size).decode(errors="replace")
            self._function("Error_Destroy", None)(ctypes.addressof(pjrt.sized(pjrt.Error(error=error))))
            raise CompilerError(text)
        return arguments

    def compile(self, module: bytes, options: dict[str, str | bool] | None = None) -> Module:
        """Return the optimised, scheduled module of a program.

        Args:
            module: A serialised ``HloModuleProto``.
            options: XLA debug options by name.

        Raises:
            CompilerError: The compiler refused the program.
        """
        settings = _compile_options(options or {})
        code = ctypes.create_string_buffer(module, len(module))
        program = pjrt.sized(
            pjrt.Program(code=ctypes.addressof(code), code_size=len(module), format=b"hlo", format_size=3)
        )
        arguments = pjrt.Compile(
            topology=self._topology,
            program=ctypes.pointer(program),
            options=settings,
            options_size=len(settings),
        )
        executable = self._call("Compile", arguments).executable
        try:
            return HloProto.FromString(self._optimized(executable)).hlo_module
        finally:
            self._call("Executable_Destroy", pjrt.Executable(executable=executable))

    def _optimized(self, executable: int) -> bytes:
        """Return a ``HloModuleProtoWithConfig``; its first field is the module, as in ``HloProto``."""
        program = pjrt.sized(pjrt.Program())
        arguments = pjrt.Optimized(executable=executable, program=ctypes.pointer(program))
        self._call("Executable_OptimizedProgram", arguments)  # the first call returns the size
        code = ctypes.create_string_buffer(program.code_size)
        program.code = ctypes.addressof(code)
        self._call("Executable_OptimizedProgram", arguments)
        return code.raw[: program.code_size]

    def layout_assignment(self, module: bytes) -> tuple[Module, dict[str, list[list[int]]]]:
        """Return the module right before layout assignment, the stage of TpuGraphs' programs, and its result.

        The same program gives the same bytes in every process: source locations and process-wide ids are
        removed.

        Args:
            module: A serialised ``HloModuleProto`` as a framework produces it.

        Returns:
            The module, and by the name of each convolution, dot and reshape the compiler's own minor-to-major
            layouts of its output and operands. A parameter counts as row-major, as in TpuGraphs' programs,
            whose caller decides.

        Raises:
            CompilerError: The compiler refused the program or wrote no such dump.
        """
        with tempfile.TemporaryDirectory() as folder:
            options = {"xla_dump_to": folder, "xla_dump_hlo_pass_re": "layout-assignment"}
            self.compile(module, {**options, "xla_dump_hlo_as_proto": True})
            sides = [f"*{side}_layout-assignment*.pb" for side in ("before", "after")]
            dumps = [sorted(Path(folder).glob(side)) for side in sides]
            if not all(dumps):
                raise CompilerError("the compiler dumped no module around its pass layout-assignment")
            before, after = (HloProto.FromString(dump[0].read_bytes()).hlo_module for dump in dumps)
            return anonymous(before), _layouts(after)


def _layouts(module: Module) -> dict[str, list[list[int]]]:
    """Return the layouts of output and operands of the configurable instructions by name."""
    layouts = {}
    for computation in module.computations:
        by_id = {instruction.id: instruction for instruction in computation.instructions}
        for instruction in computation.instructions:
            if instruction.opcode in CONFIGURABLE:
                tensors = [instruction, *(by_id[i] for i in instruction.operand_ids)]
                layouts[instruction.name] = [
                    list(range(len(t.shape.dimensions)))[::-1]
                    if t.opcode == "parameter"
                    else list(t.shape.layout.minor_to_major)
                    for t in tensors
                ]
    return layouts


def anonymous(module: Module) -> Module:
    """Remove what differs between two runs: the module's id in the process and source locations."""
    module.ClearField("id")
    module.ClearField("stack_frame_index")
    for computation in module.computations:
        for instruction in computation.instructions:
            instruction.ClearField("metadata")
    return module


def _compile_options(options: dict[str, str | bool]) -> bytes:
    """Return a serialised ``CompileOptionsProto`` for one core."""
    message = _OPTION_MESSAGES["CompileOptions"]()
    build = message.build_options
    build.device_ordinal, build.num_replicas, build.num_partitions = -1, 1, 1
    build.device_assignment.replica_count = build.device_assignment.computation_count = 1
    build.device_assignment.computation_devices.add(ids=[0])
    for name, value in options.items():
        field = "bool_field" if isinstance(value, bool) else "string_field"
        setattr(message.overrides.add(key=name).value, field, value)
    return message.SerializeToString()


def lower(function, arguments, keywords=None) -> bytes:
    """Lower a program to a serialised ``HloModuleProto``, for a TPU where it is not lowered yet.

    Args:
        function: A function for ``jax.jit``, or a value of :func:`is_staged`, which has its arguments.
        arguments: The function's arguments, as for ``jax.jit``.
        keywords: Its keyword arguments.

    Raises:
        SettingsError: JAX cannot trace the function with these arguments, or it calls Python while it runs.
    """
    _set_environment()
    import jax
    import jax.export

    traced = function
    if isinstance(traced, jax.stages.Traced):
        require_no_callbacks(traced)
    if not is_staged(function):
        traced = trace(Call(function, arguments, keywords or {}), within_jit=True).traced
    lowered = traced.lower(lowering_platforms=("tpu",)) if isinstance(traced, jax.stages.Traced) else traced
    devices = getattr(lowered, "nr_devices", 1)
    if isinstance(lowered, jax.stages.Lowered):
        devices = lowered._lowering.compile_args["num_devices"]
    if devices > 1:
        remedy = "give function and arguments for one device, without shardings"
        raise SettingsError("source", f"the program is for a mesh of {devices} devices; {remedy}")
    if threading.current_thread() is threading.main_thread():
        # libtpu, which JAX loads, prints a stack trace when a process such as a notebook's kernel is ended
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    if isinstance(lowered, jax.export.Exported):
        code = to_hlo(lowered.mlir_module_serialized)
    else:
        code = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return anonymous(Module.FromString(code)).SerializeToString(deterministic=True)
