"""Load your own program as an HLO module, from an HLO file or from a JAX function in a Python file.

``model.py:make`` names a function without parameters that returns a function for ``jax.jit`` and the tuple of
its arguments. Arguments may be arrays or ``jax.ShapeDtypeStruct``: nothing is computed::

    def make():
        image = jax.ShapeDtypeStruct((8, 224, 224, 3), jnp.bfloat16)
        return forward, (parameters, image)

A dict as a third value has keyword arguments. It may also return what JAX made of a function,
``jax.jit(forward).trace(...)``, ``.lower(...)`` or an export, or a ``torch.nn.Module`` and the tuple of its
tensors.
"""

import base64
import contextlib
import functools
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from fastslow.core.errors import DataError, SettingsError, with_article
from fastslow.core.input_files import check_regular, unpacked_name
from fastslow.core.settings import find_typed
from fastslow.hlo.forms import read_unpacked, sources_in
from fastslow.hlo.messages import Module, message_classes
from fastslow.hlo.reader import HloProgram, choose_module, read_hlo, read_hlo_modules
from fastslow.hlo.texts import earliest
from fastslow_programs.compiler.compile_pool import Labeller, program_before_layout
from fastslow_programs.compiler.device import require_jax
from fastslow_programs.compiler.libtpu import lower, require_compiler
from fastslow_programs.compiler.tracing import WITHOUT, Call, is_staged, without_exit
from fastslow_programs.program.simplify import check_inlined, refuse_unbounded, simplify, warn_of_bounds
from fastslow_programs.program.torch_module import as_jax

_DUMP = (
    "Give the module from before layout assignment, such as *before_optimizations.txt of "
    "XLA_FLAGS=--xla_dump_to=DIR, or name the JAX function"
)
_OPTIMISED_NAME = re.compile(r"after_(all_)?optimizations|after_layout")
# custom calls that a backend puts in the place of dots and convolutions
_OF_A_BACKEND = ("__cublas$", "__cudnn$", "__onednn$", "__cub$")
_TUPLE, _SPLIT = 2, 3  # types of XLA's OpSharding: one for each element, and a split one
_ON_ONE = 1  # the type of what is on a single device, which it names
# in the header of HLO text, and among the attributes of an MLIR module
_DEVICES = re.compile(
    r"(?:^HloModule\b.*?\b|\bmhlo\.)(num_partitions|num_replicas|replica_count) ?= ?([2-9]|[1-9]\d+)\b", re.M
)
_MESH = re.compile(r"#sdy\.mesh<\[([^]]*)\]")
_Sharded = message_classes(
    "fastslow.sharded",
    "message Sharding { int64 type = 1; repeated int64 tiles = 3; repeated int64 devices = 4; "
    "repeated Sharding elements = 5; } "
    "message Inst { string name = 1; Sharding sharding = 40; } "
    "message Part { repeated Inst instructions = 2; } "
    "message Assignment { int64 replicas = 1; int64 partitions = 2; } "
    "message Entry { string key = 1; string value = 2; } "
    "message Attributes { repeated Entry entries = 1; } "
    "message Sharded { repeated Part computations = 3; Assignment device_assignment = 15; "
    "Attributes frontend_attributes = 19; }",
)["Sharded"]
_LISTED = 20  # names of dumps in a message
_WANTED = (
    "Name a function without parameters that returns (function, arguments) for jax.jit; "
    "a dict as a third value has keyword arguments"
)


def find_source(text: str) -> str:
    """Return the source that a user typed with its whole path, and with its function, if it names one."""
    name, function = _split_source(text)
    return str(find_typed(name)) + f":{function}" * bool(function) if name else text


def as_typed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with paths as the text that a command line would have."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}


def require_path(source: Any, arguments: Sequence[Any], keywords: Mapping[str, Any] | None) -> None:
    """Raise :class:`SettingsError` for a source that is no path, or for a path with arguments to call it."""
    if not isinstance(source, str | Path):
        may_be = "the path of an HLO or a competition file (npz), model.py:make, or a function for jax.jit"
        raise SettingsError("source", f"{with_article(type(source).__name__)} is no program; give {may_be}")
    if count := len(arguments) + len(keywords or {}):
        raise SettingsError("arguments", f"{count} given, but {source} is no function")


def require_keywords(keywords: Any) -> None:
    """Raise :class:`SettingsError` for keyword arguments that are no mapping."""
    if keywords is not None and not isinstance(keywords, Mapping):
        given = with_article(type(keywords).__name__)
        raise SettingsError("keywords", f"{given} is no mapping of names to values")


def _split_source(text: str) -> tuple[str, str]:
    name, _, function = text.rpartition(":")
    return (name, function) if name.endswith(".py") else (text, "")


@dataclass(frozen=True)
class Source:
    """The source of a program: an HLO file, or a Python file and its function.

    ``kernel`` selects a module of an HLO file, as for :func:`fastslow.hlo.reader.read_hlo`.
    """

    path: Path
    function: str
    kernel: str = ""

    @classmethod
    def of(cls, text: str, kernel: str = "") -> "Source":
        """Parse ``program.hlo``, a folder of dumps or ``model.py:function``; ``kernel`` is one module.

        Raises:
            SettingsError: The text is neither.
            DataError: The file does not exist.
        """
        name, function = _split_source(text)
        if not name:
            programs = "an HLO file, model.py:FUNCTION, or for rank and tune an npz"
            raise SettingsError("source", f"give a program: {programs}")
        if name.endswith(".py") and not function.isidentifier():
            raise SettingsError("source", f"{text} names no function; write {name}:make")
        path = find_typed(name)
        if path.is_dir() and not function:
            path = dump_in(path)
        check_regular(path)
        if not path.is_file():
            raise DataError(path, "no such file", "Check the path")
        if function and kernel:
            raise SettingsError("kernel", f"{kernel!r} is not empty, but {text!r} is one program")
        return cls(path, function, kernel)

    @property
    def name(self) -> str:
        """File stem, followed by the name of the function, or of the chosen kernel, if there is one."""
        stem = Path(unpacked_name(self.path)).stem
        return "-".join(part for part in (stem, self.function, self.kernel) if part)

    @property
    def measured(self) -> str:
        """``layout`` or ``tile`` for a TpuGraphs ``.pb`` with measurements of that kind, otherwise empty."""
        if self.function or not unpacked_name(self.path).endswith(".pb"):
            return ""
        return _measured(self.path, self.kernel, self.path.stat().st_mtime_ns)

    def read(self, labeller: Labeller | None = None, ask_compiler: bool = False) -> HloProgram:
        """Return the program's HLO, with the measurements that the file holds.

        An HLO file is simplified (:func:`fastslow_programs.program.simplify.simplify`), but one with measured
        runs, which name its nodes by number. A JAX function is compiled in a separate process up to layout
        assignment, the stage of the competition's programs.

        Args:
            labeller: TPU generation and limits for compiling; an HLO file alone needs none.
            ask_compiler: Compile an HLO file too, to know the compiler's own layouts; for a JAX function they
                are always known.

        Raises:
            SettingsError: JAX or libtpu is needed and not installed.
            DataError: The file is not HLO, a dimension has no bound, the function is missing or does not
                return (function, arguments), or the compiler failed on it.
        """
        if not self.function:
            program = read_hlo(self.path, self.kernel)
            if not program.runs:
                _refuse_optimised(self.path, program.module)
                _refuse_sharded(self.path, program.module)
                program = replace(program, module=_simplified(self.path, program.module))
            if not ask_compiler:
                return program
            require_compiler()
            code = program.module.SerializeToString(deterministic=True)
            return replace(program, layouts=self._before_layout(code, labeller)["layouts"])
        require_compiler()
        require_jax()
        record = self._before_layout(lower(*self.call_of_function()), labeller)
        return HloProgram(Module.FromString(base64.b64decode(record["module"])), {}, record["layouts"])

    def _before_layout(self, program: bytes, labeller: Labeller) -> dict:
        """Return the record of :func:`fastslow_programs.compiler.compile_pool.program_before_layout`."""
        with replace(labeller, task=program_before_layout, processes=1).workers() as label:
            (record,) = label([program])
        refuse_failure(self.path, record)
        return record

    def call_of_function(self, **options) -> Call:
        """Return the JAX function and its arguments, made with ``options``.

        Raises:
            DataError: The function is missing, takes other options, ends Python or does not return (function,
                arguments).
        """
        require_jax()  # before the user's file imports JAX, which then reads where it is to run
        make = getattr(_run_file(self.path), self.function, None)
        if not callable(make):
            raise DataError(self.path, f"has no function {self.function}", _WANTED)
        try:
            inspect.signature(make).bind(**options)
        except TypeError as error:
            given = f"takes other arguments than {', '.join(options)}" if options else "needs arguments"
            raise DataError(self.path, f"{self.function} {given} ({error})", _WANTED) from None
        with without_exit(self.path):
            made = make(**options)
        if is_staged(made):
            return _checked(self.path, Call(made))
        if not _is_call(made):
            raise DataError(self.path, f"{self.function} did not return (function, arguments)", _WANTED)
        return _checked(self.path, Call(*made))


@dataclass(frozen=True)
class FunctionSource(Source):
    """A JAX function in memory.

    Args:
        call: The function and its arguments, as for ``jax.jit``.
    """

    call: Call = Call(tuple)

    @classmethod
    def of_function(
        cls, function: Callable, arguments: tuple, keywords: Mapping[str, Any] | None = None
    ) -> "FunctionSource":
        """Return the source of a JAX function.

        Args:
            function: As for ``jax.jit``.
            arguments: Its arguments: arrays or ``jax.ShapeDtypeStruct``, or trees of these.
            keywords: Its keyword arguments, of the same kinds.

        Raises:
            SettingsError: Arguments are given to what JAX made of a function, which has its own.
        """
        count = len(arguments) + len(keywords or {})
        if count and type(function).__module__.partition(".")[0] == "jax" and is_staged(function):
            staged = type(function).__name__
            problem = f"{count} given, but {with_article(staged)} has its arguments already"
            raise SettingsError("arguments", problem)
        name = getattr(function, "__name__", type(function).__name__)
        return cls(Path(name), name, call=Call(function, arguments, keywords or {}))

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.function

    def call_of_function(self) -> Call:
        """See :class:`Source`."""
        return _checked(self.path, self.call)


def dump_in(folder: Path) -> Path:
    """Return the dump of a folder of ``--xla_dump_to`` that was written before layout assignment.

    Raises:
        DataError: The folder holds no dump, or dumps of several modules.
    """
    dumps = sorted(p for p in folder.iterdir() if re.search(r"\.(pb|txt|hlo|mlir)$", unpacked_name(p)))
    chosen = [dumps[n] for n in earliest([path.name for path in dumps])]
    # a proto and the text of one module
    stems = {re.sub(r"\.(hlo\.pb|txt)$", "", unpacked_name(path)): path for path in reversed(chosen)}
    if len(stems) == 1:
        return next(iter(stems.values()))
    names = f" ({', '.join(sorted(stems)[:_LISTED])})" if stems else ""
    raise DataError(folder, f"holds {len(stems) or 'no'} dumps{names}", "Name one file of it")


@functools.lru_cache(maxsize=64)
def _measured(path: Path, kernel: str, changed: int) -> str:
    try:
        programs = read_hlo_modules(path)
    except DataError:  # said when the program itself is read
        return ""
    runs = choose_module(path, programs, kernel).runs
    if not runs:
        return ""
    return "tile" if "config_feat" in runs else "layout"


def refuse_failure(path: Path, record: dict) -> None:
    """Raise :class:`DataError` if a labeller's record of the program in ``path`` is a failure.

    Args:
        path: The program, for the message.
        record: What the labeller returned; a failure has the texts ``failure`` (its kind), ``message``,
            ``compiler`` and ``topology``.
    """
    if "failure" in record:
        compiler = f"{record['compiler']}, {record['topology']}"
        problem = f"the compile failed ({compiler}; {record['failure']}): {record['message'].strip()}"
        raise DataError(path, problem, "Try a smaller batch, another generation, or more seconds")


def _refuse_optimised(path: Path, module: Module) -> None:
    """Raise :class:`DataError` if a module comes from the end of a compile: no layout is left to choose."""
    instructions = [inst for part in module.computations for inst in part.instructions]
    fusions = sum(inst.opcode == "fusion" for inst in instructions)
    calls = {inst.custom_call_target for inst in instructions if inst.opcode == "custom-call"}
    libraries = sorted(call for call in calls if call.startswith(_OF_A_BACKEND))
    signs = {
        f"{fusions} fusions": fusions,
        "a schedule": module.schedule,
        f"calls of {', '.join(libraries[:3])}": libraries,
        "by its name": _OPTIMISED_NAME.search(unpacked_name(path)),
    }
    if sign := next((sign for sign, is_there in signs.items() if is_there), ""):
        problem = f"is an optimised dump ({sign}), in which no layout is left to choose"
        raise DataError(path, problem, _DUMP)


def _refuse_sharded(path: Path, module: Module) -> None:
    """Raise :class:`DataError` if a module is to be split over several devices, or run on each of them."""
    whole = _Sharded.FromString(module.SerializeToString())
    instructions = [inst for part in whole.computations for inst in part.instructions]
    split = [inst.name for inst in instructions if _is_elsewhere(inst.sharding)]
    counts = dict(_DEVICES.findall(_text_of(path, module.name)))
    signs = [f"{name}={count}" for name, count in counts.items()]
    if split:
        signs.append(f"sharding of {', '.join(split[:3])}")
    assigned = whole.device_assignment
    if not signs and assigned.replicas * assigned.partitions > 1:
        signs.append(f"{assigned.replicas} x {assigned.partitions} devices assigned")
    meshes = _MESH.findall(" ".join(entry.value for entry in whole.frontend_attributes.entries))
    sizes = {axes: prod(map(int, re.findall(r"= ?(\d+)", axes))) for axes in meshes}
    if not signs and max(sizes.values(), default=1) > 1:
        signs.append(f"the mesh {max(sizes, key=sizes.__getitem__)}")
    if signs:
        problem = f"is a program for several devices ({'; '.join(signs)})"
        remedy = (
            "Name the function (model.py:make) to search options of the compiler for its mesh (tune "
            "options=auto), or lower it for one device, without shardings"
        )
        raise DataError(path, problem, remedy)


def _text_of(path: Path, name: str) -> str:
    """Return the text of a module in a file, of all that have its name; empty for a protobuf."""
    sources = [s if isinstance(s, str) else s.decode("latin-1") for s in sources_in(read_unpacked(path))]
    named = re.compile(rf"\b(HloModule[ \t]+|module @){re.escape(name)}(?![\w.-])")
    return "\n".join([source for source in sources if named.search(source)] or sources)


def _is_elsewhere(sharding: Any) -> bool:
    """Return whether a sharding needs another device than the first."""
    if sharding.type == _TUPLE:
        return any(map(_is_elsewhere, sharding.elements))
    if sharding.type == _SPLIT:
        return prod(sharding.tiles) > 1
    return sharding.type == _ON_ONE and any(sharding.devices)


def _simplified(path: Path, module: Module) -> Module:
    """Return a simplified module, and say where bounds were taken; :class:`DataError` where there is none."""
    check_inlined(path, module)
    simple = simplify(module)
    refuse_unbounded(path, simple)
    warn_of_bounds(path, module)
    return simple


def _is_call(made: Any) -> bool:
    """Return whether a value is (function, arguments) or (function, arguments, keywords)."""
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        return False
    return callable(made[0]) and type(made[1]) in (tuple, list) and all(type(k) is dict for k in made[2:])


def _checked(path: Path, call: Call) -> Call:
    """Return a call of a JAX function; :class:`DataError` where a shape is dynamic."""
    import jax

    of_staged = getattr(call.function, "in_avals", ()) if is_staged(call.function) else ()
    for leaf in (*call.leaves().arrays.values(), *jax.tree.leaves(of_staged)):
        shape = getattr(leaf, "shape", ())
        if any(map(jax.export.is_symbolic_dim, shape)):
            raise DataError(
                path, f"an argument has the dynamic shape {shape}", "Give every dimension a fixed size"
            )
    with without_exit(path, WITHOUT):
        return as_jax(call)


class _Executed(NamedTuple):
    """The folder of a file that was executed, and the names of all modules that were there before."""

    folder: Path
    before: frozenset[str]


_PACKAGE = "__init__.py"
_executed: list[_Executed] = []  # the first file of the folder that is in ``sys.path``, if any


def _forget(folder: Path, before: frozenset[str]) -> None:
    """Forget modules that were imported from a folder, which leaves ``sys.path``."""
    with contextlib.suppress(ValueError):  # the user has removed it
        sys.path.remove(str(folder))
    files = {name: Path(getattr(module, "__file__", None) or "/") for name, module in sys.modules.items()}
    own = {name for name, file in files.items() if file in (folder / f"{name}.py", folder / name / _PACKAGE)}
    for name in list(sys.modules):
        if name.partition(".")[0] in own - before:
            del sys.modules[name]


def _run_file(path: Path):
    """Execute a Python file, which may import modules from its folder, and return it as a module.

    The folder stays in ``sys.path``, as the functions of the file may import when they are called. A file of
    another folder replaces it: both may have a ``layers.py``.
    """
    spec = importlib.util.spec_from_file_location("user_program", path)
    module = importlib.util.module_from_spec(spec)
    if not (_executed and _executed[0].folder == path.parent):
        while _executed:
            _forget(*_executed.pop())
        _executed.append(_Executed(path.parent, frozenset(sys.modules)))
        sys.path.insert(0, str(path.parent))
    sys.modules[spec.name] = module
    with without_exit(path):
        spec.loader.exec_module(module)
    return module
