"""Rank the configurations of a program with a finished run, and say what makes them fast.

``fastslow.rank``, ``make rank`` and notebook 52 call it.
"""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from fastslow.competition.catalog import TEST
from fastslow.competition.metrics import fastest_first
from fastslow.competition.reader import Program
from fastslow.core.artifacts import commit
from fastslow.core.files import atomic_path, write_json
from fastslow.core.settings import resolve
from fastslow.features.configs.default_layouts import knows_default_layouts
from fastslow.features.nodes.protobuf import find_protobuf
from fastslow.steps.unseen import UnseenGraphs, build_unseen, read_recipe
from fastslow_programs.compiler.layout_constraints import constrain
from fastslow_programs.compiler.layout_space import decode
from fastslow_programs.compiler.libtpu import require_compiler
from fastslow_programs.program.convert import ConvertedProgram, estimate_cycles, read_program, write_npz
from fastslow_programs.program.default import Default, find_default
from fastslow_programs.program.identity import identify
from fastslow_programs.ranking.advice import ADVISED, advise
from fastslow_programs.ranking.effects import effects
from fastslow_programs.ranking.inference import FinishedRun
from fastslow_programs.ranking.known_runtimes import Learnt, check_known, configurations_of, learn, read_known
from fastslow_programs.ranking.models import Models, read_models
from fastslow_programs.ranking.named_choices import NamedChoice, name_choices
from fastslow_programs.ranking.result import Ranking, make_table
from fastslow_programs.ranking.rules import best_rule
from fastslow_programs.ranking.runs import describe_run
from fastslow_programs.ranking.settings import RankSettings

_DESCRIBED = 10  # configurations of either end of the ranking
_FROM_COMPILER = "with SET=estimate=10 the compiler names them"
_FROM_FILE = "they are read from default/SPLIT/NAME.npz beside a random/SPLIT/NAME.npz"

TABLE, EFFECTS, ENDS = "ranking.csv", "effects.csv", "ends.csv"
PAGE, FACTS = "ranking.html", "ranking.json"


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
    collection = settings.find_collection()
    run = models.of(collection)  # before a conversion, which may take minutes
    program = read_program(settings.conversion(), settings.estimate > 0)
    if settings.hlo_folder:
        protobuf = find_protobuf(resolve(settings.hlo_folder), program.file)
        settings.require(protobuf is not None, "hlo_folder", f"a folder with {program.name}.pb")
    converted = program if isinstance(program, ConvertedProgram) else None
    if converted:
        write_npz(converted)  # it says which configuration each row of the ranking is
    default = _default(settings, program)
    ids = identify(program)
    given = known is not None or settings.known
    known = _known(settings, known, converted, ids)
    graphs = build_unseen(run.folder, [program], settings.hlo_folder)
    name = program.name
    members, prediction = run.predict_program(graphs, name)
    parts = converted.module.computations if converted else []
    names = [instruction.name for part in parts for instruction in part.instructions] or None
    choices = name_choices(program, default, names)
    learnt = None if known is None else _learn(run, graphs, choices, members, known)
    prediction = learnt.mean if learnt else prediction
    cycles, default_cycles, failures = {}, None, []
    if settings.estimate:
        fastest = fastest_first(prediction, "layout")[: settings.estimate].tolist()
        (default_cycles, *best), failures = _estimate(settings, converted, default.config, fastest)
        cycles = dict(zip(fastest, best, strict=True))
    seen = models.seen(run.collection.kind) if known is None else None
    table = make_table(prediction, members, program.runtime, cycles, program.normalizers)
    table["id"] = ids[table["config"]]
    if known is not None:
        table["known"] = table["config"].map(known.groupby("config")["runtime"].mean())
    ranking = Ranking(
        program=settings.program,
        run=f"{run.folder.parent.name}/{run.name}",
        models=describe_run(run.folder),
        table=table,
        weights=run.weights(graphs.graph(TEST, name)),
        choices=choices,
        effects=effects(choices, prediction),
        compared_with=default,
        default_cycles=default_cycles,
        failures=failures,
        defaults_remedy=_defaults_remedy(run, program),
        advice=_advice(settings, program) if known is None else (),
        learnt=learnt,
        known_from=converted.known_from if converted and not given else "",
        rule=best_rule(run, graphs, name),
        trust=seen and seen.judge(run.collection.kind, graphs.graph(TEST, name)),
    )
    if default.config is not None and (faster := ranking.faster(default.config)) is not None:
        table["faster"] = faster[table["config"]]
    return ranking


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


def _learn(
    run: FinishedRun,
    graphs: UnseenGraphs,
    choices: Sequence[NamedChoice],
    members: dict[str, np.ndarray],
    known: pd.DataFrame,
) -> Learnt:
    """Join the members' predictions with measured runtimes; equal configurations of a file share them."""
    (name,) = graphs.names(TEST)
    graph = graphs.graph(TEST, name)
    row = graph.config_row
    given = configurations_of(graph, run.collection.kind, graphs.config_columns, choices, members)
    found = learn(given, known.assign(config=row[known["config"]]))
    return replace(found, mean=graph.expand(found.mean), inputs=found.inputs.take(row))


def _advice(settings: RankSettings, program: Program) -> Sequence[str]:
    """Return what to do while no runtime is known; nothing for a tile or a file with runtimes."""
    if program.choices is None or program.runtime.any():
        return ()
    if not len(program.choices.varying):
        return ["to keep: the compiler's default; there is no other configuration"]
    return advise(_to_measure(settings))


def _to_measure(settings: RankSettings) -> str:
    """Return how to measure configurations of a source, in words."""
    if settings.is_npz:
        return "Write the id and the runtime of those that you measured into a CSV file, and rank with known="
    first, source = "", shlex.quote(settings.source)
    if settings.origin.function:
        first = (
            "write jax.jit(function).lower(*arguments).compiler_ir('hlo').as_hlo_text() into program.hlo; "
        )
        source = "program.hlo"
    make = f"make measure SRC={source} SET=configs={ADVISED}"
    return f"How: {first}{make}, or fastslow measure {source} configs={ADVISED}; rank {source} with known="


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


def _estimate(
    settings: RankSettings, program: ConvertedProgram, default: int | None, configs: list[int]
) -> tuple[list[int | None], list[str]]:
    """Return the compiler's cycles of its own default, which must compile, and of some; and the failures."""
    rows, by_number = program.arrays["node_config_feat"], {node.node: node for node in program.nodes}
    nodes = [by_number[number] for number in program.arrays["node_config_ids"].tolist()]  # measured: some
    own = {} if default is None else decode(rows[default], nodes)
    layouts = [own, *(decode(rows[number], nodes) for number in configs)]
    programs = [constrain(program.module, own, program.nodes) for own in layouts]
    return estimate_cycles(settings.origin.path, programs, settings.labeller())


def write_ranking(ranking: Ranking, settings: RankSettings) -> Path:
    """Write the tables and a page of a ranking.

    Returns:
        The folder: ``ranking.csv``, ``effects.csv``, ``ends.csv``, ``ranking.html`` with sentences and two
        figures, ``ranking.json``.
    """
    folder = resolve(settings.folder)
    tables = {TABLE: ranking.table, EFFECTS: ranking.effects, ENDS: ranking.differences(_DESCRIBED)}
    for name, table in tables.items():
        with atomic_path(folder / name) as temporary:
            table.to_csv(temporary, index=False)
    with atomic_path(folder / PAGE) as temporary:
        temporary.write_text(ranking.page(ranking.program))
    summary = {name: str(value) for name, value in ranking.summary().items()}
    facts = {"settings": settings.asdict(), "commit": commit(), "summary": summary, "words": ranking.words()}
    facts["trust"], facts["scores"] = ranking.trust and ranking.trust.facts(), ranking.scores()
    write_json(folder / FACTS, facts)
    return folder
