"""The program of a tuning: its space, its evaluator, and a trained run's predictions for it."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.competition.catalog import TEST, ProgramFile
from fastslow.competition.layouts import LAYOUT_WIDTH, ROLES, format_layout
from fastslow.competition.reader import Program, program_of
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import digest
from fastslow.core.npz_io import file_fingerprint
from fastslow.core.progress import TICK_SECONDS, progress, ticking
from fastslow.core.settings import find_typed, resolve
from fastslow.hlo.graph_arrays import graph_arrays, operand_nodes
from fastslow.hlo.messages import Module
from fastslow.hlo.reader import HloProgram
from fastslow.steps.finished_run import FinishedRun
from fastslow.steps.unseen import build_unseen
from fastslow_programs.compiler.device import platform_name, require_jax
from fastslow_programs.compiler.layout_choices import TiedChoice, encode_defaults, imposable, layouts_of, tie
from fastslow_programs.compiler.layout_constraints import (
    AS_COMPILED,
    bind_differences,
    constrain,
    taken,
    taken_here,
)
from fastslow_programs.compiler.layout_space import ConfigurableNode, Layouts, encode
from fastslow_programs.compiler.libtpu import require_compiler
from fastslow_programs.compiler.lowering import (
    LAYOUTS,
    LocalProgram,
    draw_inputs,
    lower_function,
    options_of,
    with_options,
)
from fastslow_programs.program.configurations import ROW_MAJOR, find_default
from fastslow_programs.program.convert import ConvertedProgram, checked_nodes, write_npz
from fastslow_programs.program.measured import Measured
from fastslow_programs.program.user_program import Source
from fastslow_programs.ranking.choices import name_choices
from fastslow_programs.ranking.rank import read_program
from fastslow_programs.tuning.compiler_options import CompilerOption, list_options, refused_options
from fastslow_programs.tuning.evaluators import EVALUATORS, CommandEvaluator, DeviceEvaluator, Evaluator
from fastslow_programs.tuning.search.guided import Pretrained
from fastslow_programs.tuning.search.space import CODE, Choice, Space
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.user_space import UserSpace

_NAME = Path("program.npz")
_PYTHON = re.compile("^xla_.*python.*callback$")  # targets of custom calls
_ANCHORS = 64  # random configurations that neighbours are predicted with: the models scale what they get


@dataclass(frozen=True)
class Target:
    """A program to tune.

    Args:
        name: Its name.
        digest: Digest of its content; programs of equal digest share results.
        space: The choices, and the configurations that may be proposed.
        evaluator: Gives a configuration its value.
        pretrained: A trained run's predictions of configurations, None without a run.
        module_of: Makes the constrained module of a configuration; None where there is no HLO.
        module: The program without constraints, as the user compiles it; None where there is no HLO.
        labels: ``(C,)`` values of all listed configurations, None where they are not known.
        default_value: Value of the compiler's default where no configuration of the space is known to be it
            and its value is stated (of a tile: 1, the unit); otherwise the value of the space's default
            counts, once it is evaluated.
        unit: Runtime of a label of 1: of a tile, whose labels are ratios, the file's normaliser.
        default_is: Meaning of the default, in words.
        tied: Number of the program's choices, those included that cannot be imposed; 0 for a file.
        local: The program as it is lowered for this machine, where it is measured here.
        values_of: Returns the options of a configuration by name, in a space of the user's.
        measured: What was measured of the program before; None where that is not kept.
        layouts: Makes the layouts of a configuration, where there is HLO.
        free: Positions of the space's choices among the program's.
        is_traced_anew: Whether each configuration has code of its own, which a function of the user's makes:
            ``digest`` covers the default's code only.
    """

    name: str
    digest: str
    space: Space
    evaluator: Evaluator
    pretrained: Pretrained | None
    module_of: Callable[[tuple[int, ...]], Module] | None = None
    module: Module | None = None
    labels: np.ndarray | None = None
    default_value: float | None = None
    unit: float = 1.0
    default_is: str = "the compiler's own layouts"
    tied: int = 0
    local: LocalProgram | None = None
    values_of: Callable[[tuple[int, ...]], dict] | None = None
    measured: Measured | None = None
    layouts: Callable[[tuple[int, ...]], Layouts] | None = None
    free: Sequence[int] = ()
    is_traced_anew: bool = False

    def as_json(self, codes) -> dict:
        """Return a configuration as JSON: the options, and in words what differs from the default."""
        codes = [int(code) for code in codes]
        values = {"values": self.values_of(codes)} if self.values_of else {}
        return {"program": self.name, "options": codes, "differs": self.space.describe(codes), **values}


def read_target(settings: TuneSettings) -> Target:
    """Read the program of a tuning.

    Args:
        settings: The source (``model.py:FUNCTION``, HLO file, npz or ``space.json``), the evaluator and the
            run that guides.

    Returns:
        The program with its space, its evaluator and the trained run's predictions.

    Raises:
        SettingsError: The source cannot be tuned, or the compiler is needed and not installed.
        DataError: The source is missing, broken, unlabelled or has nothing to choose, or no run can guide.
    """
    if settings.is_space:
        return target_of_space(settings, UserSpace(find_typed(settings.source)))
    run = settings.find_run()  # before a compile, which may take minutes
    finished = FinishedRun(run) if run else None
    if EVALUATORS[settings.kind_of_evaluator].reads_labels:
        return _of_file(settings, finished)
    return _of_program(settings, finished)


def _of_file(settings: TuneSettings, run: FinishedRun | None) -> Target:
    file = read_program(settings.ranking())
    path = file.path
    if isinstance(file, ConvertedProgram):
        write_npz(file)
    values = file.runtime.astype(float) if file.normalizers is None else file.runtime / file.normalizers
    if values.min() <= 0:
        remedy = "Replay a file with runtimes, or tune the program's HLO"
        raise DataError(path, "holds configurations without a runtime", remedy)
    known_default = find_default(file)
    named = name_choices(file, known_default)
    if not named:
        raise DataError(path, "all its configurations are equal", "There is nothing to choose")
    codes = np.stack([choice.values for choice in named], 1).astype(CODE)
    listed, first, row = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    means = np.bincount(row, values) / np.bincount(row)
    wished = np.array([choice.default for choice in named])
    if known_default.config is not None:
        wished = codes[known_default.config]
    default = listed[(listed == wished).sum(1).argmax()]
    choices = [Choice(c.where, c.options, int(d)) for c, d in zip(named, default, strict=True)]
    space = Space(choices, listed)
    pretrained = _pretrained_of_file(run, file, space, first) if run else None
    # a default that is in the file has the value of its configuration, of which there may be equal rows
    stated = 1.0 if file.normalizers is not None and known_default.config is None else None
    target = Target(
        settings.program,
        file_fingerprint(path),
        space,
        None,
        pretrained,
        labels=means,
        default_value=stated,
        unit=1.0 if file.normalizers is None else float(np.mean(file.normalizers)),
        default_is=known_default.words,
    )
    return replace(target, evaluator=EVALUATORS[settings.kind_of_evaluator](settings, target))


def target_of_space(settings: TuneSettings, described: UserSpace) -> Target:
    """Return the program of a tuning in a space of the user's; errors are as for :func:`read_target`."""
    kind = EVALUATORS[settings.kind_of_evaluator]
    space = described.space
    if space.size < 2:
        raise DataError(described.path, "allows a single configuration", "There is nothing to choose")
    if described.facts.function and kind is CommandEvaluator:
        problem = f"names a function, {described.facts.function}, which evaluator=command does not run"
        raise DataError(described.path, problem, 'Remove "function", or set evaluator=device')
    local = described.lower(space.default, settings.seed) if kind is DeviceEvaluator else None
    code = local.module.SerializeToString(deterministic=True).hex() if local else ""
    target = Target(
        settings.program,
        digest([described.facts.model_dump(), code]),
        space,
        None,
        None,
        (lambda codes: described.lower(codes, settings.seed).module) if local else None,
        default_value=1.0 if local else None,
        default_is="the default of the space",
        local=local,
        values_of=described.values,
        is_traced_anew=local is not None,
    )
    return replace(target, evaluator=kind(settings, target))


def _pretrained_of_file(run: FinishedRun, file: Program, space: Space, first) -> Pretrained:
    known: list[np.ndarray] = []

    def pretrained(codes: np.ndarray) -> np.ndarray:
        """Return predictions ``(n,)``."""
        if not known:  # all at once, as a ranking of the file would
            known.append(_predict(run, file)[first])
        return known[0][space.rows(codes)]

    return pretrained


def _predict(run: FinishedRun, file: Program) -> np.ndarray:
    return run.predict(build_unseen(run.folder, [file]))[file.path.stem]


def _of_program(settings: TuneSettings, run: FinishedRun | None) -> Target:
    source = settings.origin
    kind = EVALUATORS[settings.kind_of_evaluator]
    limits = {"attempts": settings.attempts, "processes": settings.processes}
    labeller = replace(settings.ranking().labeller(), **limits)
    if kind.compiles:
        require_compiler()
    local = read_local(source, settings.seed) if kind is DeviceEvaluator else None
    if local and settings.searches_layouts:
        local.require_one_device(LAYOUTS)
    options = _options(settings)
    program = HloProgram(local.module, {}) if local else source.read(labeller, ask_compiler=kind.compiles)
    impose = bind_differences if local else constrain
    nodes = checked_nodes(source.path, program)
    tied = imposable(nodes, taken_here if local else taken)
    free = [g for g, choice in enumerate(tied) if len(choice.options) > 1 and settings.searches_layouts]
    if not free and not options:
        problem = "has no convolution, dot or reshape whose output has two layouts"
        remedy = "There is nothing to choose; options=auto searches options of the compiler on this machine"
        raise DataError(source.path, problem, remedy)
    names = [i.name for c in program.module.computations for i in c.instructions]
    space = Space([*(_choice(tied[g], names) for g in free), *(option.choice for option in options)])
    base = np.array([choice.default for choice in tied])

    def layouts(codes: tuple[int, ...]) -> Layouts:
        whole = base.copy()
        whole[free] = codes[: len(free)]
        return layouts_of(tuple(whole.tolist()), tied)

    def values_of(codes: tuple[int, ...]) -> dict[str, Any]:
        chosen = zip(options, codes[len(free) :], strict=True)
        return {option.name: option.values[int(code) - 1] for option, code in chosen if code}

    def module_of(codes: tuple[int, ...]) -> Module:
        # constraints that bind the default have a cost: a command measures what the user compiles
        if kind is CommandEvaluator and tuple(codes) == tuple(space.default.tolist()):
            return program.module
        return with_options(impose(program.module, layouts(codes), nodes), values_of(codes))

    code = program.module.SerializeToString(deterministic=True)
    content = digest([code.hex(), [list(map(list, node.default)) for node in nodes]])
    pretrained = None
    if run and free:
        of_layouts = _pretrained_of_program(run, program.module, nodes, tied, free, space)
        pretrained = of_layouts if not options else lambda codes: of_layouts(codes[:, : len(free)])
    every = sum(len(choice.options) > 1 for choice in tie(nodes)) if free else 0
    target = Target(
        settings.program,
        content,
        space,
        None,
        pretrained,
        module_of,
        program.module,
        tied=every,
        local=local,
    )
    if options:
        target = replace(target, values_of=values_of)
    if not any(node.default for node in nodes):
        target = replace(target, default_is=ROW_MAJOR)
    if kind is CommandEvaluator:
        target = replace(target, default_is=AS_COMPILED)
    if local:
        target = replace(target, default_value=1.0, default_is=AS_COMPILED)
    evaluator = kind(settings, target, labeller)
    measured = None
    if settings.cache and kind.kept and not options:
        measured = Measured(resolve(settings.data_root), program.module, nodes, evaluator.identity, tied)
    target = replace(target, evaluator=evaluator, measured=measured, free=free)
    return replace(target, layouts=layouts) if free else target


def _options(settings: TuneSettings) -> list[CompilerOption]:
    """Return the options of the compiler to search; one that it does not know is named and left out."""
    if not settings.searches_options:
        return []
    platform = platform_name()
    known, unknown = list_options(platform, settings.options == "numerics")
    if unknown:
        print(f"left out, as this compiler does not know them: {', '.join(unknown)}", file=sys.stderr)
    if not known:
        raise SettingsError("options", f"no list for a device of the kind {platform}: use a space of yours")
    return known


def _require_known_options(local: LocalProgram) -> None:
    """Raise :class:`SettingsError` that names the options of a user's ``jax.jit`` that are not known here."""
    options = [{name: value} for name, value in options_of(local.module.SerializeToString()).items()]
    if not options:
        return
    refused = zip(options, refused_options(options), strict=True)
    said = [f"{next(iter(option))} ({problem})" for option, problem in refused if problem]
    if said:
        problem = f"this machine's compiler refuses compiler_options: {', '.join(said)}"
        raise SettingsError("source", f"{problem}. Take them out of jax.jit")


def read_local(source: Source, seed: int) -> LocalProgram:
    """Read a program as it is lowered for this machine; inputs that are not given are drawn.

    Raises:
        SettingsError: JAX is not installed, or this machine's compiler refuses options of the function's
            ``jax.jit``, which are named.
        DataError: The source is no program, see :meth:`fastslow_programs.program.user_program.Source.read`,
            or calls Python while it runs.
    """
    require_jax()
    if source.function:
        function, arguments, keywords = source.call_of_function()
        with progress(total=1, desc="tracing", unit="function", delay=TICK_SECONDS) as bar, ticking(bar):
            local = lower_function(function, arguments, seed, keywords)
            bar.update()
        _require_known_options(local)
        return local
    module = source.read().module
    for instruction in (i for part in module.computations for i in part.instructions):
        if _PYTHON.search(instruction.custom_call_target):
            problem = f"{instruction.name} calls Python, by an address of the process that wrote the file"
            raise DataError(source.path, problem, "Leave jax.debug.print and callbacks out of the function")
    return LocalProgram(module, draw_inputs(module, seed))


def _choice(tied: TiedChoice, names: list[str]) -> Choice:
    more = f" and {len(tied.nodes) - 1} alike" if len(tied.nodes) > 1 else ""
    where = f"{names[tied.nodes[0]]}{more}: {' and '.join(ROLES[role] for role in tied.roles)}"
    options = tuple(" and ".join(map(format_layout, option)) for option in tied.options)
    return Choice(where, options, tied.default, tuple(map(float, tied.weights)))


def _pretrained_of_program(
    run: FinishedRun,
    module: Module,
    nodes: list[ConfigurableNode],
    tied: list[TiedChoice],
    free,
    space: Space,
) -> Pretrained:
    ids = np.array([node.node for node in nodes], np.int64)
    arrays = graph_arrays(module) | {"node_config_ids": ids} | encode_defaults(nodes)
    operands = operand_nodes(module)
    base = encode(layouts_of(tuple(choice.default for choice in tied), tied), nodes)
    place = {node.node: row for row, node in enumerate(nodes)}
    tables = []
    for choice in (tied[g] for g in free):
        columns = np.concatenate([LAYOUT_WIDTH * role + np.arange(LAYOUT_WIDTH) for role in choice.roles])
        rows = np.array([place[node] for node in choice.nodes])
        options = [layouts_of((option,), [choice]) for option in range(len(choice.options))]
        table = np.concatenate([encode(option, [nodes[rows[0]]]) for option in options])
        tables.append((rows[:, None], columns, table[:, None, columns]))
    anchors = np.concatenate([space.default[None], space.draw(_ANCHORS - 1, np.random.default_rng(0))])
    anchors = anchors[:, : len(tables)]  # choices of layouts come first

    def pretrained(codes: np.ndarray) -> np.ndarray:
        """Return predictions ``(n,)``, on the scale of the anchors and the configurations."""
        every = np.concatenate([anchors, codes])
        whole = np.repeat(base[None], len(every), 0)
        for column, (rows, columns, table) in zip(every.T, tables, strict=True):
            whole[:, rows, columns] = table[column]
        configs = {"node_config_feat": whole, "config_runtime": np.zeros(len(every), np.int64)}
        file = program_of(ProgramFile(run.collection, TEST, _NAME), arrays | configs)
        return _predict(run, replace(file, operands=operands))[len(anchors) :]

    return pretrained
