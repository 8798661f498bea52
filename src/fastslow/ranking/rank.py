"""Rank the configurations of a program with a finished run, and say what makes them fast.

``make rank`` runs this through a notebook.
"""

from collections.abc import Sequence

import numpy as np

from fastslow.choices.layouts import LAYOUT_WIDTH, ROLES
from fastslow.competition.catalog import TEST, Program
from fastslow.competition.reader import CompetitionFile, file_fingerprint, read_competition_file
from fastslow.core.artifacts import Artifact
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow.features.configs.default_layouts import knows_default_layouts
from fastslow.features.unseen import build_unseen, read_recipe
from fastslow.kaggle.submission import ranking as fastest_first
from fastslow.programs.convert import Conversion, convert, estimate_cycles
from fastslow.ranking.effects import effects
from fastslow.ranking.inference import FinishedRun
from fastslow.ranking.named_choices import NamedChoice, name_choices
from fastslow.ranking.plots import plot_effects, plot_predictions
from fastslow.ranking.result import Imposed, Ranking, make_table, rank_groups
from fastslow.ranking.settings import RankSettings
from fastslow.xla.layout_choices import tie
from fastslow.xla.layout_constraints import constrain, is_imposed
from fastslow.xla.layout_space import OUTPUT, decode
from fastslow.xla.libtpu import require_compiler

_FROM_COMPILER = "with SET=estimate=10 the compiler names them"
_FROM_FILE = "they are read from default/SPLIT/NAME.npz beside a random/SPLIT/NAME.npz"

TABLE, EFFECTS, ENDS, IMPOSED = "ranking.csv", "effects.csv", "ends.csv", "imposed.csv"
PREDICTIONS_PICTURE, EFFECTS_PICTURE = "predictions.png", "effects.png"


def rank(settings: RankSettings) -> Ranking:
    """Rank a program and write its tables and figures.

    Args:
        settings: Settings.

    Returns:
        The ranking; its folder has ``ranking.csv``, ``effects.csv``, ``ends.csv``, of a program whose
        configurations were drawn ``imposed.csv``, and two figures.

    Raises:
        SettingsError: The source cannot be ranked, or the compiler is needed and not installed.
        DataError: The source is missing or broken, no run was trained, or the run is of another collection.
    """
    if settings.estimate:
        require_compiler()
    run = FinishedRun(settings.find_run())  # before a conversion, which may take minutes
    npz, conversion = settings.origin.path, None
    if not settings.is_npz:
        conversion = convert(settings.conversion(), ask_compiler=settings.estimate > 0)
        npz = conversion.npz
    file = read_competition_file(npz, run.collection.kind)
    default = _default(settings, conversion, len(file.runtime))
    inputs = {"run": run.manifest["fingerprint"], "npz": file_fingerprint(npz)}
    artifact = Artifact(resolve(settings.folder), settings.identity(), inputs)
    with artifact.building():
        ranking = _rank(settings, run, file, conversion, default)
        _write(ranking, artifact, settings.described)
    return ranking


def predict_file(
    run: FinishedRun, file: CompetitionFile, hlo_folder: str = ""
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Predict the configurations of one file, with a progress bar over the members.

    Args:
        run: A run of the file's collection.
        file: The file.
        hlo_folder: As the setting of feature building.

    Returns:
        ``(C,)`` of the run, and that of each member by name, the run's own where it is a single model.
    """
    members, name = run.members or {run.name: run}, file.path.stem
    with progress(total=1 + len(members), desc=name, unit="step") as bar:
        bar.set_postfix_str("features")
        graphs = build_unseen(run.folder, [file], hlo_folder)
        bar.update()
        predictions = {}
        for member, own in members.items():
            bar.set_postfix_str(member)
            predictions[member] = own.predict(graphs)
            bar.update()
    ranked = run.combine(predictions) if run.members else predictions[run.name]
    return ranked[name], {member: values[name] for member, values in predictions.items()}


def _rank(
    settings: RankSettings,
    run: FinishedRun,
    file: CompetitionFile,
    conversion: Conversion | None,
    default: int | None,
) -> Ranking:
    prediction, members = predict_file(run, file, settings.hlo_folder)
    parts = conversion.module.computations if conversion else []
    names = [instruction.name for part in parts for instruction in part.instructions] or None
    choices = name_choices(file, default, names)
    cycles, default_cycles = {}, None
    if settings.estimate:
        fastest = fastest_first(prediction, "layout")[: settings.estimate].tolist()
        default_cycles, *best = _estimate(settings, conversion, default, fastest)
        cycles = dict(zip(fastest, best, strict=True))
    weights = {name: member["weight"] for name, member in run.manifest.get("members", {}).items()}
    return Ranking(
        program=settings.program,
        run=f"{run.folder.parent.name}/{run.name}",
        table=make_table(prediction, members, file.runtime, cycles, file.normalizers),
        weights=weights or {run.name: 1.0},
        choices=choices,
        effects=effects(choices, prediction),
        default=default,
        default_cycles=default_cycles,
        defaults_remedy=_defaults_remedy(run, file, conversion),
        imposed=_imposed(conversion, choices, prediction) if default is not None and conversion else None,
    )


def _imposed(
    conversion: Conversion, choices: Sequence[NamedChoice], prediction: np.ndarray
) -> Imposed | None:
    """Rank the configurations that differ in what can be imposed; None for measured ones."""
    if conversion.measured:
        return None
    outputs = conversion.arrays["node_config_feat"][:, :, :LAYOUT_WIDTH]
    tied = [choice for choice in tie(conversion.nodes) if len(choice.options) > 1]
    bound = [choice for choice in choices if ROLES[OUTPUT] in choice.tensor.split(" and ")]
    table = rank_groups(outputs.reshape(len(outputs), -1), prediction, choices, bound)
    return Imposed(len(tied), sum(is_imposed(choice.roles) for choice in tied), table)


def _defaults_remedy(run: FinishedRun, file: CompetitionFile, conversion: Conversion | None) -> str:
    """Return what would tell the compiler's own layouts; empty if they are known or no model reads them."""
    if run.collection.kind == "tile" or not read_recipe(run.folder)["settings"]["compiler_defaults"]:
        return ""
    if knows_default_layouts(Program(run.collection, TEST, file.path), file):
        return ""
    return _FROM_COMPILER if conversion else _FROM_FILE


def _default(settings: RankSettings, conversion: Conversion | None, configs: int) -> int | None:
    if settings.default >= 0:
        settings.require(
            settings.default < configs, "default", f"a position below {configs}, the configurations"
        )
        return settings.default
    return 0 if conversion is not None and not conversion.measured else None


def _estimate(
    settings: RankSettings, conversion: Conversion, default: int | None, configs: list[int]
) -> list[int | None]:
    """Return the compiler's cycles: of its own default, which must compile, and of some configurations."""
    rows = conversion.arrays["node_config_feat"]
    own = {} if default is None else decode(rows[default], conversion.nodes)
    layouts = [own, *(decode(rows[number], conversion.nodes) for number in configs)]
    programs = [constrain(conversion.module, own, conversion.nodes) for own in layouts]
    return estimate_cycles(settings.origin.path, programs, settings.labeller())


def _write(ranking: Ranking, artifact: Artifact, described: int) -> None:
    tables = {TABLE: ranking.table, EFFECTS: ranking.effects, ENDS: ranking.differences(described)}
    if ranking.imposed:
        tables[IMPOSED] = ranking.imposed.table
    for name, table in tables.items():
        with atomic_path(artifact.folder / name) as temporary:
            table.to_csv(temporary, index=False)
    save_figure(plot_predictions(ranking), artifact.folder / PREDICTIONS_PICTURE)
    save_figure(plot_effects(ranking.effects), artifact.folder / EFFECTS_PICTURE)
    summary = {name: str(value) for name, value in ranking.summary().items()}
    artifact.finish((*tables, PREDICTIONS_PICTURE, EFFECTS_PICTURE), summary=summary)
