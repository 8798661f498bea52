"""The Python interface: the functions ``fastslow.rank``, ``fastslow.tune``, ``fastslow.convert`` and more.

A function of one program writes no file unless ``out`` names a folder; relative paths start at the working
folder. ``submit`` and ``data_quality`` write where these commands do. ``docs/api.md`` has examples.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastslow.core.errors import SettingsError
from fastslow.core.settings import find_typed, path_text
from fastslow.core.shown import Shown
from fastslow.evaluation.leaderboard import Leaderboard, LeaderboardSettings
from fastslow.evaluation.leaderboard import leaderboard as read_leaderboard
from fastslow.workflow.settings.presets import PACKAGED
from fastslow_programs.compiler.tuned import load_tuned as load_tuned  # of the interface
from fastslow_programs.program.convert import ConvertedProgram, make_program, summarise, write_conversion
from fastslow_programs.program.graph_picture import plot_graph
from fastslow_programs.program.program_settings import ConvertSettings, MeasureSettings
from fastslow_programs.program.program_tables import list_configurable
from fastslow_programs.program.user_program import (
    FunctionSource,
    as_typed,
    find_source,
    require_keywords,
    require_path,
)
from fastslow_programs.ranking.models import Models, read_models
from fastslow_programs.ranking.rank import rank_source, write_ranking
from fastslow_programs.ranking.result import Ranking
from fastslow_programs.ranking.settings import RankSettings
from fastslow_programs.tuning.decorator import tuned as tuned  # of the interface

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.figure import Figure

    from fastslow.evaluation.compare import Comparison
    from fastslow.workflow.data_quality import LabelReport
    from fastslow_programs.tuning.measurement_result import Measurement
    from fastslow_programs.tuning.tune import Study

AnySource = str | Path | Callable
"""A competition file (npz), an HLO file, ``model.py:make``, a function for ``jax.jit``, or what JAX made of
one (``Traced``, ``Lowered``, ``Exported``)."""


class Converted(Shown):
    """A converted program.

    Args:
        program: The program: HLO, configurable nodes, arrays of the competition file.

    Attributes:
        table: One row per configurable node.
    """

    def __init__(self, program: ConvertedProgram):
        self.program, self.arrays = program, program.arrays
        self.table = list_configurable(program.module, program.nodes)

    def words(self) -> list[str]:
        """Return sizes of the graph, of its configuration space and of the file."""
        return [f"{name}: {fact}" for name, fact in summarise(self.program).items()]

    def figures(self) -> "list[Figure]":
        """Return the picture of the graph."""
        return [plot_graph(self.arrays, self.program.name)]


class Tuned(Shown):
    """The result of a search.

    Attributes:
        table: One row per evaluation.
        best: The configuration to use: value, options, and in words what differs from the default. It is the
            default where nothing is faster, or with noisy values, where nothing is confirmed to be faster.
            ``candidate`` in it is the fastest configuration that was seen, and ``confirmed`` is true where
            it is known to be faster. None where no evaluation succeeded.
    """

    def __init__(self, study: "Study"):
        from fastslow_programs.tuning.result import best_facts, list_evaluations

        self.study, self.table, self.best = study, list_evaluations(study), best_facts(study)

    def words(self) -> list[str]:
        """Return the findings of the search, a ``name: fact`` each, as ``fastslow tune`` prints them."""
        from fastslow_programs.tuning.result import summarise_study

        return [f"{name}: {fact}" for name, fact in summarise_study(self.study).items()]

    def figures(self) -> "list[Figure]":
        """Return the best value over the evaluations."""
        from fastslow_programs.tuning.result import plot_curve

        return [plot_curve(self.study)]


def load_models(path: str | Path | None = None) -> Models:
    """Read trained models once, to rank many programs with.

    Args:
        path: A folder of runs such as ``runs/sample``, or the folder of one ensemble or model. By default
            the newest complete run of your own, or else the models in the package, which ``package`` names.

    Returns:
        The models; ``table`` has their scores, beside the trivial rules.

    Raises:
        DataError: There is no such folder, or it holds no models.
    """
    return read_models(_run(_text("path", path)))


def leaderboard(**settings: Any) -> Leaderboard:
    """List every model under ``runs/`` with settings, hours, scores and what Kaggle said.

    Args:
        **settings: Settings of ``fastslow leaderboard``: ``sort``, ``csv``.

    Returns:
        The leaderboard: ``table`` (one row per run and model, the best first), ``left_out``, ``words()``.

    Raises:
        SettingsError: A setting is wrong.
    """
    return read_leaderboard(LeaderboardSettings(**as_typed(settings)))


def compare(one: str | Path, other: str | Path, **settings: Any) -> "Comparison":
    """Compare two runs, two models or two submissions: which is better, beyond chance?

    Args:
        one: Run, model or submission, as ``fastslow compare`` takes it.
        other: Another one of the same sort.
        **settings: Settings of ``fastslow compare``: ``metric``, ``split``, ``data_root``.

    Returns:
        The comparison: ``table`` (a row per collection), ``programs``, ``words()`` with the verdict first.

    Raises:
        SettingsError: A setting is wrong, or the two are not of one sort.
        DataError: One of them is missing or broken.
    """
    from fastslow.workflow.compare import CompareSettings, compare_two

    given = {"one": path_text("one", one), "other": path_text("other", other)}
    return compare_two(CompareSettings(**given, **as_typed(settings)))


def data_quality(**settings: Any) -> "LabelReport":
    """Measure the labels of a competition; the table is kept in ``features/``.

    Args:
        **settings: Settings of ``fastslow data-quality``: ``data``, ``collections``, ``splits``.

    Returns:
        The report: ``table`` (a row per graph), ``words()`` with the doubtful graphs.

    Raises:
        SettingsError: A setting is wrong.
        DataError: A file is missing or broken.
    """
    from fastslow.workflow.data_quality import LabelReport, QualitySettings, measure_labels

    return LabelReport(measure_labels(QualitySettings(**as_typed(settings))))


def submit(**settings: Any) -> Leaderboard:
    """Run every stage to a checked CSV, as ``fastslow submit`` does; what is up to date is not run again.

    Args:
        **settings: Settings of ``fastslow submit``. Settings of steps are a list:
            ``set=["gnn.layout.epochs=5"]``.

    Returns:
        The leaderboard, on which the run stands.

    Raises:
        SettingsError: A setting is wrong, or a run of that name was begun with other ones.
        DataError: The data are missing or broken.
        StepError: A notebook failed.
    """
    from fastslow.workflow.run import run
    from fastslow.workflow.settings.run_settings import RunSettings

    run(RunSettings(**as_typed(settings)))
    return leaderboard()


def blend(
    *csvs: str | Path,
    weights: Sequence[float] = (),
    out: str | Path | None = None,
    data_root: str | Path = "",
) -> "dict[str, np.ndarray]":
    """Blend submissions by the weighted mean of the places that they give each configuration.

    Args:
        *csvs: Two submissions or more with the same rows, your own or others'.
        weights: A weight above 0 for each; equal ones if empty.
        out: CSV to write, checked and recorded for the leaderboard; by default nothing is written.
        data_root: Folder with the test files to check each submission against; by default the one that a
            submission was made from, as its record has it.

    Returns:
        ``(n,)`` configurations by row ID, indices from 0, fastest first.

    Raises:
        SettingsError: A setting is wrong, or ``out`` must not be replaced: a submission that is no blend.
        DataError: A submission is missing or broken, or does not fit the others or the test files.
    """
    from fastslow.evaluation.blend import BlendSettings, blend_submissions, write_blend

    given = {"out": str(out)} if out else {}
    names = [path_text("csvs", csv) for csv in csvs]
    if isinstance(weights, str | Set | Mapping) or not isinstance(weights, Iterable):
        raise SettingsError("weights", f"{weights!r} is no list of numbers such as [2, 1]")
    settings = BlendSettings(csvs=names, weights=[*weights], data_root=str(data_root), **given)
    blended = blend_submissions(settings.paths(), settings.weights, settings.test_files())
    if out:
        write_blend(settings, blended)
    return blended


def rank(
    source: AnySource,
    *arguments: Any,
    keywords: Mapping[str, Any] | None = None,
    known: "pd.DataFrame | str | Path | None" = None,
    models: Models | str | Path | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Ranking:
    """Rank the configurations of a program, fastest first, without running them.

    Args:
        source: A competition file (npz), an HLO file, ``model.py:make``, or a function for ``jax.jit``.
        *arguments: Arguments of the function: arrays or ``jax.ShapeDtypeStruct``; nothing is computed.
        keywords: Its keyword arguments.
        known: Runtimes that you measured: a table or a CSV file with the columns ``id`` (of the ranking's
            table; for an npz also ``config``, the position from 0) and ``runtime``; repeated rows are
            repeated measurements.
        models: As returned by :func:`load_models`, or their path, as it takes one.
        out: Folder to write tables, figures and a page to; by default nothing is written.
        **settings: Settings of ``fastslow rank``, such as ``configs=5000``.

    Returns:
        The ranking: ``table`` (one row per configuration), ``words()``, ``effects``, ``changes()``,
        ``figures()``.

    Raises:
        SettingsError: A setting is wrong, or a compiler is needed and not installed.
        DataError: The source is missing or broken, or the models do not fit.
    """
    _refuse_run(settings)
    with _data_root(out, settings) as data_root:
        measured = None
        if isinstance(known, str | Path):
            settings["known"] = str(find_typed(str(known)))
        else:
            measured = known
        if settings.get("hlo_folder"):
            settings["hlo_folder"] = str(find_typed(path_text("hlo_folder", settings["hlo_folder"])))
        own = _settings(RankSettings, source, arguments, keywords, data_root=data_root, **settings)
        guides = models if isinstance(models, Models) else load_models(_text("models", models))
        ranking = rank_source(own, guides, measured)
        if out:
            write_ranking(ranking, own)
    return ranking


def convert(
    source: AnySource,
    *arguments: Any,
    keywords: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Converted:
    """Convert a program to the arrays of a competition file, with configurations drawn at random.

    Args:
        source: As for :func:`rank`, but no npz.
        *arguments: As for :func:`rank`.
        keywords: As for :func:`rank`.
        out: Folder to write the npz, a picture and a table to; by default nothing is written.
        **settings: Settings of ``fastslow convert``, such as ``configs=200``.

    Returns:
        The program: ``arrays``, ``table`` (one row per configurable node), ``words()``, ``figures()``.

    Raises:
        SettingsError: A setting is wrong, or a compiler is needed and not installed.
        DataError: The source is missing or broken, or the competition's format cannot represent it.
    """
    with _data_root(out, settings) as data_root:
        own = _settings(ConvertSettings, source, arguments, keywords, data_root=data_root, **settings)
        own.require_read()
        return Converted(write_conversion(own) if out else make_program(own))


def tune(
    source: AnySource,
    *arguments: Any,
    keywords: Mapping[str, Any] | None = None,
    models: Models | str | Path | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Tuned:
    """Search for a program's fastest configuration with few evaluations.

    Args:
        source: As for :func:`rank`, or a space of yours (``space.json``).
        *arguments: As for :func:`rank`; with ``evaluator="device"`` the function runs on them, and a
            ``jax.ShapeDtypeStruct`` is replaced by random values.
        keywords: As for :func:`rank`.
        models: As for :func:`rank`; ``"none"`` for no guide.
        out: Folder of the study, which is resumed where it is there; by default nothing is kept.
        **settings: Settings of ``fastslow tune``, such as ``evaluations=200`` or ``evaluator="command"``.

    Returns:
        The search: ``best``, ``table`` (one row per evaluation), ``words()``, ``figures()``.

    Raises:
        SettingsError: A setting is wrong, or something is not installed.
        DataError: The program, the models or the study cannot be used, or all evaluations failed.
    """
    from fastslow_programs.tuning.result import write_result
    from fastslow_programs.tuning.settings import TuneSettings
    from fastslow_programs.tuning.tune import complete_study

    _refuse_run(settings)
    run = str(models.folder) if isinstance(models, Models) else _run(_text("models", models))
    with _data_root(out, settings) as data_root:
        own = _settings(
            TuneSettings,
            source,
            arguments,
            keywords,
            data_root=data_root,
            run=run,
            **settings,
        )
        study = complete_study(own, is_kept=bool(out))
        if out:
            write_result(study)
    return Tuned(study)


def measure(
    source: AnySource,
    *arguments: Any,
    keywords: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> "Measurement":
    """Measure configurations of a program on this machine: CPU, GPU or TPU through JAX.

    Args:
        source: As for :func:`convert`. A function is measured as it is lowered for this machine.
        *arguments: As for :func:`tune`.
        keywords: As for :func:`rank`.
        out: Folder to write the table and the page to, and of a function the HLO to rank with it; by default
            nothing is written.
        **settings: Settings of ``fastslow measure``, such as ``configs=40``.

    Returns:
        The times: ``table`` (one row per configuration and round), ``verdict()``, ``words()``,
        ``figures()``.

    Raises:
        SettingsError: A setting is wrong, JAX is not installed, or the program does not run here.
        DataError: The source is missing or broken, or no configuration runs.
    """
    from fastslow_programs.tuning.measurement import claiming_table, measure_source, write_measurement

    with _data_root(out, settings) as data_root:
        chosen = _settings(MeasureSettings, source, arguments, keywords, data_root=data_root, **settings)
        with claiming_table(chosen):
            measurement = measure_source(chosen)
            if out:
                write_measurement(measurement, chosen)
    return measurement


def _refuse_run(settings: dict[str, Any]) -> None:
    """Raise :class:`SettingsError` for a run that is named as a setting, as a command has it."""
    if "run" in settings:
        raise SettingsError("run", f"name it as models={settings['run']!r}, or read it with load_models()")


def _run(named: str) -> str:
    """Return the folder of runs that a caller named, or the word for one as it is."""
    from fastslow_programs.tuning.settings import NO_RUN

    return named if named in ("", NO_RUN, PACKAGED) else str(find_typed(named))


def _text(name: str, path: Any) -> str:
    """Return a path that was given as text, empty for None; SettingsError for what is no path."""
    return "" if path is None else path_text(name, path)


@contextmanager
def _data_root(out: str | Path | None, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the folder to write to: the one that is named, or a temporary one.

    Raises:
        SettingsError: It is named as a setting, as a command has it.
    """
    if "data_root" in settings:
        raise SettingsError("data_root", f"name the folder of results as out={settings['data_root']!r}")
    if folder := _text("out", out):
        yield str(Path(folder).expanduser().absolute())
        return
    with tempfile.TemporaryDirectory(prefix="fastslow-") as folder:
        yield folder


def _settings(
    kind: type, source: AnySource, arguments: tuple, keywords: Mapping[str, Any] | None, **settings: Any
) -> Any:
    """Return the settings of a command for a source."""
    require_keywords(keywords)
    settings = as_typed(settings)
    if callable(source) or type(source).__module__.partition(".")[0] == "jax":
        return kind(**settings).of(FunctionSource.of_function(source, arguments, keywords))
    require_path(source, arguments, keywords)
    return kind(source=find_source(str(source)), **settings)
