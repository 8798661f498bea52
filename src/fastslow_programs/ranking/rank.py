"""Rank the configurations of a program with a finished run, and say what makes them fast.

``fastslow.rank``, ``make rank`` and notebook 52 call it.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fastslow.competition.catalog import TEST, ProgramFile
from fastslow.competition.metrics import fastest_first
from fastslow.competition.reader import Program, read_npz
from fastslow.competition.rules.program_rules import check_program
from fastslow.core.artifacts import commit
from fastslow.core.errors import DataError
from fastslow.core.files import atomic_path, write_json
from fastslow.core.settings import resolve
from fastslow.features.graph import Graph
from fastslow.features.nodes.protobuf import find_protobuf
from fastslow.steps.finished_run import FinishedRun, best_rule
from fastslow.steps.unseen import UnseenGraphs, build_unseen, read_recipe
from fastslow_programs.compiler.layout_constraints import MEASURE_INSTEAD, UNBOUND, constrain
from fastslow_programs.compiler.layout_space import decode
from fastslow_programs.compiler.libtpu import require_compiler
from fastslow_programs.program.configurations import Default, find_default, identify, knows_default_layouts
from fastslow_programs.program.convert import (
    ConvertedProgram,
    count_reasons,
    estimate_cycles,
    make_program,
    write_npz,
)
from fastslow_programs.program.measured import MEASURED_FOLDER
from fastslow_programs.ranking.choices import NamedChoice, name_choices
from fastslow_programs.ranking.known_runtimes import (
    KNOWN_COLUMNS,
    Learnt,
    are_estimates,
    check_known,
    configurations_of,
    learn,
    read_known,
)
from fastslow_programs.ranking.models import Models, describe_run, read_models
from fastslow_programs.ranking.result import Ranking, make_table
from fastslow_programs.ranking.settings import RankSettings, words_of_draw
from fastslow_programs.ranking.trust import ADVISED, Trust, advise

_DESCRIBED = 10  # configurations of either end of the ranking
_TO_WRITE = (
    "Write the id and the runtime of those that you measured into a CSV file, and rank again with "
    "known=FILE.csv"
)
_TO_RUN = "Measure some configurations with fastslow measure; it ends with the command that ranks with them"
_OF_MACHINE = "Its configurations are this machine's, others than these"
_FROM_COMPILER = "with SET=estimate=10 the compiler names them"
_FROM_FILE = "they are read from default/SPLIT/NAME.npz beside a random/SPLIT/NAME.npz"

TABLE, EFFECTS, ENDS = "ranking.csv", "effects.csv", "ends.csv"
PAGE, FACTS = "ranking.html", "ranking.json"


class _Estimates(NamedTuple):
    """The compiler's cycles of some configurations, of its default and of the program without constraints.

    For a configuration without cycles there is why.
    """

    cycles: dict[int, int | None]
    default: int | None
    as_compiled: int | None
    failures: Sequence[str]


@dataclass(frozen=True)
class Subject:
    """A program that is ranked.

    Args:
        program: The program as a competition file holds it.
        default: What others are compared with.
        ids: ``(C,)`` identity of each configuration.
        known: Measured runtimes, ``config``, ``runtime`` and, where it is given, ``round``; None without any.
        known_from: Where these were kept, empty where the user gave them.
    """

    program: Program
    default: Default
    ids: np.ndarray
    known: pd.DataFrame | None
    known_from: str

    @property
    def measurements(self) -> pd.DataFrame | None:
        """The measured runtimes with the ``id`` of the configuration, which equal configurations share."""
        return None if self.known is None else self.known.assign(id=self.ids[self.known["config"]])

    @property
    def converted(self) -> ConvertedProgram | None:
        """The program with its HLO, where it is no npz."""
        return self.program if isinstance(self.program, ConvertedProgram) else None


@dataclass(frozen=True)
class Predicted:
    """What models predict of a program.

    Args:
        graphs: Its graph, built as those that the models learned from.
        members: ``(C,)`` of each model.
        prediction: ``(C,)`` of the run.
        choices: What the configurations choose.
    """

    graphs: UnseenGraphs
    members: dict[str, np.ndarray]
    prediction: np.ndarray
    choices: list[NamedChoice]

    @property
    def graph(self) -> Graph:
        """The graph."""
        (name,) = self.graphs.names(TEST)
        return self.graphs.graph(TEST, name)


def rank_source(
    settings: RankSettings, models: Models | None = None, known: pd.DataFrame | None = None
) -> Ranking:
    """Rank a program; nothing is written but the competition file of a converted one.

    Args:
        settings: Settings.
        models: The models, where they were read already; by default the settings' models.
        known: Measured runtimes, ``config`` and ``runtime``; by default the rows of the settings' file.

    Raises:
        SettingsError: The source cannot be ranked, or the compiler is needed and not installed.
        DataError: The source is missing or broken, no run was trained, or the run belongs to another
            collection.
    """
    settings.require_read()
    if settings.estimate:
        require_compiler()
    models = models or read_models(settings.run)
    run = models.of(settings.find_collection())  # before a conversion, which may take minutes
    subject = read(settings, known)
    predicted = predict(run, subject, settings.hlo_folder)
    learnt = learn_known(run, subject, predicted)
    prediction = learnt.mean if learnt else predicted.prediction
    estimates = _estimate(settings, subject, prediction)
    kind = run.collection.kind
    return Ranking(
        program=settings.program,
        run=f"{run.folder.parent.name}/{run.name}",
        models=describe_run(run.folder),
        rows=_rows(subject, predicted, prediction, estimates),
        weights=run.weights(predicted.graph),
        choices=predicted.choices,
        arrays=vars(subject.program),
        compared_with=subject.default,
        default_cycles=estimates.default,
        cycles_as_compiled=estimates.as_compiled,
        failures=estimates.failures,
        defaults_remedy=_defaults_remedy(run, subject.program),
        advice=_advice(settings, subject),
        learnt=learnt,
        known=subject.measurements,
        known_from=subject.known_from,
        find_rule=lambda: best_rule(run, predicted.graphs, subject.program.name),
        judge=lambda: None if learnt else _judge(models, kind, predicted.graph, _remedy(subject)),
    )


def read_program(settings: RankSettings) -> Program:
    """Return a program from any source: a competition file, an HLO file or a JAX function.

    Raises:
        SettingsError: The source cannot be read, or the compiler is needed and not installed.
        DataError: The source is missing or broken, or cannot be converted.
    """
    if settings.is_npz:
        program = read_npz(ProgramFile(settings.find_collection(), TEST, settings.origin.path))
        check_program(program)
        return program
    return make_program(settings.conversion(), settings.estimate > 0)


def read(settings: RankSettings, known: pd.DataFrame | None = None) -> Subject:
    """Read a program, or convert it, and its known runtimes; arguments as for :func:`rank_source`."""
    program = read_program(settings)
    if settings.hlo_folder:
        protobuf = find_protobuf(resolve(settings.hlo_folder), program.file)
        settings.require(protobuf is not None, "hlo_folder", f"a folder with {program.name}.pb")
    converted = program if isinstance(program, ConvertedProgram) else None
    if converted:
        write_npz(converted)  # it says which configuration each row of the ranking is
    default = _default(settings, program)
    ids = identify(program)
    from_user = known is not None or settings.known
    known_from = converted.known_from if converted and not from_user else ""
    return Subject(program, default, ids, _known(settings, known, converted, ids), known_from)


def predict(run: FinishedRun, subject: Subject, hlo_folder: str = "") -> Predicted:
    """Predict the configurations of a program.

    Args:
        run: The models.
        subject: The program.
        hlo_folder: As the setting.
    """
    graphs = build_unseen(run.folder, [subject.program], hlo_folder)
    members, prediction = run.predict_program(graphs, subject.program.name)
    parts = subject.converted.module.computations if subject.converted else []
    names = [instruction.name for part in parts for instruction in part.instructions] or None
    return Predicted(graphs, members, prediction, name_choices(subject.program, subject.default, names))


def learn_known(run: FinishedRun, subject: Subject, predicted: Predicted) -> Learnt | None:
    """Correct the predictions by the measured runtimes that the user gave.

    Args:
        run: The run that predicted.
        subject: The program, with its measured runtimes.
        predicted: Its predictions.

    Returns:
        What was learnt, a row for each configuration of the file; equal configurations share runtimes.
        None where no runtime was given.
    """
    if subject.known is None:
        return None
    graph = predicted.graph
    row = graph.config_row
    inputs = configurations_of(
        graph,
        run.collection.kind,
        predicted.graphs.config_columns,
        predicted.choices,
        predicted.members,
        predicted.prediction,
    )
    known = subject.known[[*KNOWN_COLUMNS]]
    learnt = learn(inputs, known.assign(config=row[known["config"]]))
    is_known = np.isin(row, row[known["config"]])
    changed = np.zeros(len(row))
    for choice in predicted.choices:
        changed += choice.values != choice.default
    others = changed if is_known.all() else changed[~is_known]
    return replace(
        learnt,
        mean=graph.expand(learnt.mean),
        inputs=learnt.inputs.take(row),
        place=learnt.place[row],
        changed=(float(changed[is_known].mean()), float(others.mean())),
    )


def _rows(
    subject: Subject, predicted: Predicted, prediction: np.ndarray, estimates: _Estimates
) -> pd.DataFrame:
    program = subject.program
    rows = make_table(
        subject.ids, prediction, predicted.members, program.runtime, estimates.cycles, program.normalizers
    )
    if subject.known is not None:
        rows["known"] = rows["config"].map(subject.known.groupby("config")["runtime"].median())
    return rows


def _judge(models: Models, kind: str, graph: Graph, remedy: str) -> Trust | None:
    seen = models.seen(kind)
    return None if seen is None else replace(seen.judge(kind, graph), remedy=remedy)


def _remedy(subject: Subject) -> str:
    """Return how to know more than the models do; nothing where all configurations are one program."""
    if len({*subject.ids}) == 1:
        return ""
    runs_here = subject.converted is not None and not subject.converted.measured
    return _TO_RUN if runs_here else _TO_WRITE


def _known(
    settings: RankSettings, known: pd.DataFrame | None, program: ConvertedProgram | None, ids: np.ndarray
) -> pd.DataFrame | None:
    of_file = program is None or program.measured
    if known is not None:
        return check_known(known, len(ids), ids=ids, of_file=of_file)
    if settings.known:
        return read_known(resolve(settings.known), len(ids), ids, of_file)
    before = program.known.items() if program else ()
    rows = [(config, value) for config, values in before for value in values]
    return pd.DataFrame(rows, columns=["config", "runtime"]) if rows else None


def _advice(settings: RankSettings, subject: Subject) -> Sequence[str]:
    """Return what to do while no runtime is known; nothing for a tile or a file with runtimes."""
    program = subject.program
    if subject.known is not None or program.choices is None or program.runtime.any():
        return ()
    if settings.default >= 0:  # what is advised was measured of the compiler's default
        return ()
    if not len(program.choices.varying):
        return ["to keep: the compiler's default; there is no other configuration"]
    configurations = len(program.runtime)
    measures_these = not settings.origin.function  # a function is lowered anew, for this machine
    whole = settings.is_npz or configurations < settings.configs
    are_all = configurations <= ADVISED and measures_these and whole
    count = configurations if are_all else ADVISED
    return advise(_to_measure(settings, count), configurations if are_all else None)


def _to_measure(settings: RankSettings, count: int) -> str:
    """Return how to measure so many configurations of a source, in words."""
    if settings.is_npz:
        return _TO_WRITE
    if not settings.source:
        call = f"fastslow.measure(function, *arguments, configs={count}, out=FOLDER)"
        written = f"It writes the HLO to rank and the CSV for known= into FOLDER/{MEASURED_FOLDER}"
        return f"How: {call}. {_OF_MACHINE}. {written}"
    source = shlex.quote(settings.source)
    changed = words_of_draw(settings)
    measured = shlex.join([f"configs={count}", *changed])
    make = f"make measure SRC={source} SET={shlex.quote(measured)}, or fastslow measure {source} {measured}"
    if settings.origin.function:
        return f"How: {make}. {_OF_MACHINE}; it ends with the command that ranks with them"
    table = resolve(settings.data_root) / MEASURED_FOLDER / f"{settings.program}.csv"
    here = table.relative_to(Path.cwd()) if table.is_relative_to(Path.cwd()) else table
    ranked = shlex.join([f"known={here}", *changed])
    return f"How: {make}, then fastslow rank {source} {ranked}"


def _defaults_remedy(run: FinishedRun, program: Program) -> str:
    """Return advice to make the compiler's layouts known; empty if they are, or if no model reads them."""
    if run.collection.kind == "tile" or not read_recipe(run.folder)["settings"]["compiler_defaults"]:
        return ""
    if knows_default_layouts(program):
        return ""
    return _FROM_COMPILER if isinstance(program, ConvertedProgram) else _FROM_FILE


def _default(settings: RankSettings, program: Program) -> Default:
    if settings.default < 0:
        return find_default(program)
    configs = len(program.runtime)
    settings.require(settings.default < configs, "default", f"a position below {configs}, the configurations")
    return Default(settings.default, f"configuration {settings.default}, as set")


def _estimate(settings: RankSettings, subject: Subject, prediction: np.ndarray) -> _Estimates:
    """Ask the compiler for cycles of the program and its default, which must compile, and of the first.

    Where the known runtimes are its estimates, it is asked for the program and its default in any case, which
    it mostly compiled before.

    Raises:
        DataError: One of these two does not compile.
    """
    program = subject.converted
    if program is None or not (settings.estimate or are_estimates(subject.known_from)):
        return _Estimates({}, None, None, [])
    configs = fastest_first(prediction, "layout")[: settings.estimate].tolist()
    rows = program.arrays["node_config_feat"]
    by_number = {node.node: node for node in program.nodes}
    nodes = [by_number[number] for number in program.arrays["node_config_ids"].tolist()]  # measured: some
    default = subject.default.config
    default_layouts = {} if default is None else decode(rows[default], nodes)
    layouts = [default_layouts, *(decode(rows[number], nodes) for number in configs)]
    constrained = [constrain(program.module, layout, program.nodes) for layout in layouts]
    programs = [program.module, *constrained]  # the first without constraints, as the user compiles it
    cycles, failures = estimate_cycles(settings.origin.path, programs, settings.labeller())
    as_compiled, default_cycles, *of_configs = cycles
    if default_cycles is None:
        reason = count_reasons(failures[:1])
        raise DataError(settings.origin.path, f"{UNBOUND} ({reason})", MEASURE_INSTEAD)
    return _Estimates(dict(zip(configs, of_configs, strict=True)), default_cycles, as_compiled, failures)


def write_ranking(ranking: Ranking, settings: RankSettings) -> Path:
    """Write the tables and a page of a ranking.

    Returns:
        The folder: ``ranking.csv``, ``effects.csv``, ``ends.csv``, ``ranking.json``, and ``ranking.html``
        with the verdict, the first configurations and figures.
    """
    folder = resolve(settings.folder)
    tables = {TABLE: ranking.table, EFFECTS: ranking.effects, ENDS: ranking.differences(_DESCRIBED)}
    for name, table in tables.items():
        with atomic_path(folder / name) as temporary:
            table.to_csv(temporary, index=False)
    with atomic_path(folder / PAGE) as temporary:
        temporary.write_text(ranking.page(ranking.program))
    made = {"settings": settings.asdict(), "commit": commit(), "words": ranking.words()}
    write_json(folder / FACTS, made | ranking.facts())
    return folder
