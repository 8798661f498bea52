"""Every stage of ``make submit PRESET=kaggle`` on a made-up competition, measured and extrapolated.

Models take a few epochs or iterations. The function of every notebook is called as the notebook calls it, in
a process of its own; then the product's own command runs all notebooks on the finished steps, and writes and
checks the CSV. Whole = preset's number x (an epoch, an evaluation, an iteration) + the rest, each times the
real number of graphs over the made one. Growing a tree is not proportional to the rows, so rankers are
fitted on the train graphs repeated to their real number.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

from common.kept import Kept
from common.phases import measure
from common.planned_hours import amdahl, planned_seconds
from common.real_size import REAL, Size, write_real_size
from common.rehearsal import spoil
from fastslow.competition import row_order
from fastslow.competition.catalog import SPLITS, TEST, TRAIN, VALID, get_collection
from fastslow.competition.row_order import RowOrder
from fastslow.core.files import read_json, write_json
from fastslow.core.settings import resolve
from fastslow.evaluation.ensemble import EnsembleSettings, build_ensemble
from fastslow.evaluation.ledger import read_record
from fastslow.evaluation.submission import SubmissionSettings, make_submission
from fastslow.features.build import build_features
from fastslow.features.settings import FeatureSettings
from fastslow.kaggle.provenance import LAUNCH_RELEASE, warn_of_release
from fastslow.networks.settings.train_settings import TrainSettings
from fastslow.networks.training.train import Training, train
from fastslow.networks.training.validation import Validation
from fastslow.rankers import fit as ranker_fit
from fastslow.rankers import train as ranker_train
from fastslow.rankers.settings import RankerSettings
from fastslow.rankers.table import Table
from fastslow.workflow.run import RunSettings, make_plan, run
from fastslow.workflow.steps import Step

DATA, NOTEBOOKS = "making the data", "all notebooks again, CSV checked"
ITERATIONS = 40
BOUNDED = ["gnn.tile.epochs=1", "gnn.layout.epochs=2", "gnn.layout.evaluate_every=2"]
BOUNDED += [f"ranker.num_iterations={ITERATIONS}", "features.workers=1"]
FUNCTIONS = {
    FeatureSettings: build_features,
    TrainSettings: train,
    RankerSettings: ranker_train.train_ranker,
    EnsembleSettings: build_ensemble,
    SubmissionSettings: make_submission,
}
"""The function that the notebook of a step calls."""
EPOCH, EVALUATION, FIT, GROW, PREDICT = "epoch", "evaluation", "fit", "grow", "predict"
PHASES = {
    EPOCH: ((Training, "run_epoch"),),
    EVALUATION: ((Validation, "evaluate"),),
    FIT: ((ranker_train, "fit"),),
    GROW: ((ranker_fit, "boost"),),
    PREDICT: ((ranker_fit, "predict_trees"),),
}

PARALLEL = 0.75  # share of a layout step that threads divide: of two, each has 60 % (tables/scale.md)


class WholeRun:
    """A made-up competition and the costs of its stages, both kept in a folder, which is FASTSLOW_HOME.

    Args:
        folder: The folder; the same call resumes.
        size: Size of the competition.
        rehearsal: Whether it is spoiled as the real one is (``rehearsal.py``).
    """

    def __init__(self, folder: Path, size: Size, rehearsal: bool = False):
        self.folder, self.size, self.rehearsal = folder.absolute(), size, rehearsal
        self._kept, self.costs = Kept(self.folder / "costs.json"), {}

    def settings(self, *settings: str) -> RunSettings:
        """Return the settings of the run, with one seed where it is bounded by settings."""
        own = {"seeds": 1, "set": list(settings)} if settings else {}
        data = str(self.folder / "data")
        return RunSettings(target="submission", data=data, preset="kaggle", name="scale", jobs=1, **own)

    def measure(self, notebooks: bool = True) -> None:
        """Make the competition and measure every step that is not measured yet.

        Args:
            notebooks: Whether the product's command runs all notebooks at the end.
        """
        self._cost(DATA, self._make_data)
        bounded = self.settings(*BOUNDED)
        for step in make_plan(bounded).steps():
            self._cost(step_name(step), lambda own=step: self._run(own))
        if notebooks:
            self._cost(NOTEBOOKS, lambda: run(bounded))

    def _make_data(self) -> None:
        write_real_size(self.folder / "data", self.size)
        if self.rehearsal:
            write_json(self.folder / "spoiled.json", spoil(self.folder / "data")._asdict())

    def found(self) -> dict[str, bool]:
        """Return, for a rehearsal, whether the record names each damaged graph, and the wrong order."""
        spoiled = read_json(self.folder / "spoiled.json")
        record = read_record(resolve(make_plan(self.settings()).csv))
        named = {name: name in record["doubtful"] for name in spoiled["damaged"]}
        launch = {name: RowOrder(*order) for name, order in spoiled["launch"].items()}
        with mock.patch.object(row_order, "LAUNCH", launch):
            return named | {"row order": LAUNCH_RELEASE in warn_of_release(self.folder / "data")}

    def _run(self, step: Step) -> None:
        times = round(self._ratio(step, TRAIN)) if isinstance(step.settings, RankerSettings) else 1
        fit_ranker = ranker_train.fit

        def fit(settings, objective, training, report):
            train = repeated(training.train, times)
            return fit_ranker(settings, objective, replace(training, train=train), report)

        with mock.patch.object(ranker_train, "fit", new=fit):
            FUNCTIONS[type(step.settings)](step.settings)

    def _cost(self, name: str, work: Callable) -> None:
        def cost() -> dict:
            print(name, file=sys.stderr, flush=True)
            return measure(work, PHASES)

        self.costs[name] = self._kept.part(name, cost)

    def stages(self) -> list[dict]:
        """Return the cost of every stage as measured, and ``whole CPU s``: of all seeds on the real data."""
        steps = make_plan(self.settings(*BOUNDED)).steps()
        found = {DATA: {**self.costs[DATA], "whole CPU s": 0.0}}
        for step in steps:
            cost, stage = self.costs[step_name(step)], stage_of(step)
            before = found.get(stage, {"CPU s": 0, "wall s": 0, "peak GB": 0})
            added = {key: before[key] + cost[key] for key in ("CPU s", "wall s")}
            peak = max(before["peak GB"], cost["peak GB"])
            found[stage] = {**added, "peak GB": peak, "whole CPU s": 0.0}
        for step in make_plan(self.settings()).steps():  # of every seed
            found[stage_of(step)]["whole CPU s"] += self.whole_seconds(step)
        if NOTEBOOKS in self.costs:
            found[NOTEBOOKS] = {**self.costs[NOTEBOOKS], "whole CPU s": self.costs[NOTEBOOKS]["CPU s"]}
        return [{"stage": stage, **cost} for stage, cost in found.items()]

    def planned_hours(self, cores: int) -> float:
        """Return the wall hours of the whole by the plan of jobs, on cores such as this machine's."""
        stages: dict[str, list] = {}
        for step in make_plan(self.settings()).steps():
            long = isinstance(step.settings, TrainSettings) and step.settings.kind == "layout"
            stages.setdefault(step.stage, []).append((self.whole_seconds(step), long))
        features = sum(seconds for seconds, _ in stages.pop("features")) / cores  # by a process for each
        rest = (planned_seconds(steps, cores, amdahl(PARALLEL)) for steps in stages.values())
        return (features + sum(rest)) / 3600

    def whole_seconds(self, step: Step) -> float:
        """Return the CPU seconds of a step with the preset's settings on the whole competition."""
        cost, settings = self.costs[step_name(step)], step.settings
        once = cost["CPU s"] - sum(phase["CPU s"] for phase in cost["phases"].values())
        seconds = self._ratio(step, *SPLITS) * once
        if isinstance(settings, TrainSettings):
            epoch, evaluation = (cost["phases"][name] for name in (EPOCH, EVALUATION))
            one = self._ratio(step, TRAIN) * epoch["CPU s"] / epoch["calls"]
            look = self._ratio(step, VALID) * evaluation["CPU s"] / evaluation["calls"]
            seconds += settings.epochs * (one + look / settings.evaluate_every)
        elif isinstance(settings, RankerSettings):
            fit, grow, predict = (cost["phases"][name]["CPU s"] for name in (FIT, GROW, PREDICT))
            each = (grow + self._ratio(step, VALID, TEST) * predict) / ITERATIONS
            seconds += fit + settings.num_iterations * each
        return seconds

    def _ratio(self, step: Step, *splits: str) -> float:
        """Return real over made number of graphs of a step's collections and some splits."""
        places = [SPLITS.index(split) for split in splits]
        names = [get_collection(Path(folder).name).name for folder in folders_of(step)]
        real = sum(REAL[name].graphs[place] for name in names for place in places)
        return real / sum(self.size.graphs(name)[split] for name in names for split in splits)


def repeated(table: Table, times: int) -> Table:
    """Return a ranker's table with every graph so many times, under as many names.

    Rows are shared, so that the table itself takes no more memory.
    """
    names = [f"{name} {number}" for number in range(times) for name in table.names]
    return Table(names, table.rows * times, table.runtimes * times, table.columns)


def folders_of(step: Step) -> list[str]:
    """Return the features folders that a step makes or reads."""
    if isinstance(step.settings, FeatureSettings):
        return [step.settings.folder]
    folders = step.settings.features
    return folders if isinstance(folders, list) else [folders]


def step_name(step: Step) -> str:
    """Return a step's name, the same for all seeds."""
    return re.sub(r"-s\d+$", "", step.name)


def stage_of(step: Step) -> str:
    """Return the row of the table that a step belongs to."""
    kind = "tile" if "tile" in step.name else "layout"
    if isinstance(step.settings, FeatureSettings):
        return f"features, {kind}"
    if isinstance(step.settings, TrainSettings):
        return f"network, {step_name(step).removeprefix('training-')}"
    if isinstance(step.settings, RankerSettings):
        return f"{step.name.split('-')[0]}, {kind}"
    return step.stage
