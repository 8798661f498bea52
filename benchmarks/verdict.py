"""Count false and missed gains of noisy searches whose true runtimes are known, by rule of decision.

``python benchmarks/verdict.py [--quick] [--searches N]``. Runtimes are simulated; proposals, evaluators,
journal and verdict belong to ``fastslow tune`` with 40 evaluations. A space has 120 configurations of four
choices. In a space without a gain all are equal. In another one, options are slower than the default's by up
to 26 %, but one option of one choice is faster by the gain. A run of a program varies by a factor (lognormal,
2 %), the machine's speed walks and waves slowly, and one run in twenty-five is disturbed by 30 % on average.
A value of a command is the median of ``repeats`` runs. On a device a value is the median of fifteen rounds,
and each loading of a program is faster or slower by 1 %. Searches with seeds below ``FIRST_SEED`` chose the
level, the repeats and the number of contenders, and report nothing.

A gain is found where the verdict names a configuration that is truly faster. The other rules decide from the
same measurements of the same candidate: they are the simplest ones that could take the verdict's place.

*as it is* and *fastest again* compare two searches by the mean true time, over the default's, of their
result. The second one measures the fastest so far again in each batch, in the place of a new configuration,
and the means of the values decide what it proposes next.
"""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
from scipy import stats

from common import report
from common.command_line import run_main
from common.options import at_least, make_parser
from fastslow.core.progress import progress
from fastslow_programs.compiler.bench import Times
from fastslow_programs.compiler.device import ROUNDS
from fastslow_programs.tuning import evaluators, tune
from fastslow_programs.tuning.confirmation import CONFIRMS, LEVEL
from fastslow_programs.tuning.evaluators import CommandEvaluator, DeviceEvaluator, Evaluate
from fastslow_programs.tuning.history import Evaluation, History, Proposal
from fastslow_programs.tuning.search.strategies import GUIDED
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.target import Target
from fastslow_programs.tuning.tune import Study, complete_study
from fastslow_programs.tuning.user_space import UserSpace

TABLE = {"hours": 0.2, "needs": ("optuna",), "sample": False, "commands": (("--searches", "40"),)}
BUDGET = 40
FIRST_SEED = 10_000  # of the searches that the table counts
GAINS = (0.0, 0.05, 0.1, 0.3)
CHOICES = {"a": [*range(5)], "b": [*range(4)], "c": [*range(3)], "d": [0, 1]}
VERDICT = "fastslow: Student's t of the paired rounds"
RULES = (
    VERDICT,
    "median of the repeats, no interval",
    "Welch's t of the repeats",
    "paired rounds, trimmed mean",
)


class Machine:
    """Runs programs whose true runtimes are known.

    Args:
        gain: What the fastest option gains; 0 for a space whose configurations are equal.
        seed: Of the runtimes and of all noise.
    """

    def __init__(self, gain: float, seed: int):
        self._rng = np.random.default_rng([seed, round(1000 * gain)])
        self._options = [self._rng.uniform(0, 0.3, len(options)) * (gain > 0) for options in CHOICES.values()]
        for logs in self._options:
            logs[0] = 0.0
        choice = self._options[self._rng.integers(len(self._options))]
        choice[self._rng.integers(1, len(choice))] = np.log(1 - gain)
        self._walk, self._clock = 0.0, self._rng.uniform(0, 60)

    def true(self, codes: Sequence[int]) -> float:
        """Return the true runtime of a configuration over the default's."""
        return float(np.exp(sum(logs[code] for logs, code in zip(self._options, codes, strict=True))))

    def run(self, codes: Sequence[int], time: float) -> float:
        """Return the runtime of one run, after which the machine's clock is later by ``time``."""
        self._clock += time
        self._walk += np.sqrt(time) * 0.003 * self._rng.normal()
        log = self._walk + 0.02 * np.sin(self._clock / 10) + 0.02 * self._rng.normal()
        if self._rng.random() < 0.04:
            log += self._rng.exponential(0.3)
        return self.true(codes) * float(np.exp(log))

    def times(self, modules: Sequence[Sequence[int]]) -> Times:
        """Return what :class:`fastslow_programs.compiler.bench.Bench` measures of configurations."""
        programs = [[0] * len(CHOICES), [0] * len(CHOICES), *modules]
        loaded = np.exp(0.01 * self._rng.normal(size=len(programs)))
        seconds = np.zeros((ROUNDS, len(programs)))
        for row in seconds:
            for place in self._rng.permutation(len(programs)):
                row[place] = loaded[place] * self.run(programs[place], 1 / ROUNDS)
        return Times(seconds, [""] * len(modules))


class SimulatedCommand(CommandEvaluator):
    """The evaluator of a command that prints the runtime of one run; its processes are simulated."""

    def __init__(self, settings: TuneSettings, target: Target, machine: Machine):
        super().__init__(settings, target)
        self.machine = machine

    def each(
        self, measure: object, calls: dict[int, tuple], *limits: object
    ) -> Iterator[tuple[int, Evaluation]]:
        """Run configurations in turn, as :meth:`fastslow.core.isolated.Workers.each` runs their commands."""
        for place, (_, files) in calls.items():
            codes = json.loads(files[evaluators.CONFIGURATION])["options"]
            yield place, Evaluation(self.machine.run(codes, 1.0))

    @contextlib.contextmanager
    def running(self) -> Iterator[Evaluate]:
        """See :class:`CommandEvaluator`."""
        with mock.patch.object(evaluators, "Workers") as workers:
            workers.return_value.__enter__.return_value.each = self.each
            with super().running() as evaluate:
                yield evaluate


class SimulatedDevice(DeviceEvaluator):
    """The evaluator of a device, whose bench is simulated."""

    def __init__(self, settings: TuneSettings, target: Target, machine: Machine):
        super().__init__(settings, target)
        self.name = "simulated device"
        self.identity = "device"
        self.machine = machine

    @contextlib.contextmanager
    def running(self) -> Iterator[Evaluate]:
        """See :class:`fastslow_programs.tuning.evaluators.Evaluator`."""
        with mock.patch.object(evaluators, "Bench") as bench:
            bench.return_value.running.return_value = contextlib.nullcontext(self.machine.times)
            with super().running() as evaluate:
                yield evaluate


class Again:
    """A search that measures the fastest so far again in each batch.

    Args:
        name: Name of a strategy, as in the settings.
        target: The program.
    """

    name = GUIDED

    def __init__(self, name: str, target: Target):
        self._strategy = _make_strategy(name, target)

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Propose one configuration fewer than the strategy would, and the fastest by its mean."""
        means = history.means()
        told = [
            (Proposal(codes, self.name), Evaluation(float(np.exp(mean)))) for codes, mean in means.items()
        ]
        new = self._strategy.propose(History(history.space, told), count - 1, rng)
        fastest = min(means, key=means.__getitem__, default=None)
        return [*new, Proposal(fastest, self.name)] if fastest else new


_make_strategy = tune.make_strategy
AS_IT_IS, AGAIN = "as it is", "fastest again"
SEARCHES = {AS_IT_IS: _make_strategy, AGAIN: Again}
KINDS = {"command": SimulatedCommand, "device": SimulatedDevice}


def searched(kind: str, gain: float, seed: int) -> Study:
    """Return the study of a space with a gain."""
    machine = Machine(gain, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "space.json")
        path.write_text(json.dumps({"choices": CHOICES}))
        command = "true" if kind == "command" else ""
        settings = TuneSettings(
            source=str(path), evaluator=kind, evaluations=BUDGET, seed=seed, data_root=folder, command=command
        )
        space = UserSpace(path)
        target = Target("simulated", "simulated", space.space, None, None)
        if kind == "device":
            target = replace(target, module_of=lambda codes: codes, default_value=1.0)
        return complete_study(settings, replace(target, evaluator=KINDS[kind](settings, target, machine)))


def decided(study: Study) -> dict[str, bool]:
    """Return by rule whether it calls the candidate faster than the default."""
    codes, paired = study.verdict.proposal.codes, study.plan.paired
    rounds = [(p, e) for p, e in study.history.done if p.by == CONFIRMS and p.notes["round"] > 0]
    candidate = np.log([e.value for p, e in rounds if p.codes == codes])
    default = np.zeros(len(candidate)) if paired else np.log([e.value for p, e in rounds if p.codes != codes])
    differences = candidate - default
    welch = stats.ttest_1samp(differences, 0).confidence_interval(LEVEL).high
    if not paired:
        welch = stats.ttest_ind(candidate, default, equal_var=False).confidence_interval(LEVEL).high
    median = np.median(candidate) - np.median(default)
    trimmed = stats.mstats.trimmed_mean_ci(differences, (0.2, 0.2), alpha=1 - LEVEL)[1]
    return dict(zip(RULES, map(bool, (study.confirmed, median < 0, welch < 0, trimmed < 0)), strict=True))


def counts(kind: str, gain: float, searches: int) -> dict[str, int]:
    """Return by rule in how many searches it named a faster configuration: wrongly where there is no gain."""
    gained = dict.fromkeys(RULES, 0)
    for seed in progress(
        range(FIRST_SEED, FIRST_SEED + searches), desc=f"{kind}, gain {gain:.0%}", unit="search"
    ):
        study = searched(kind, gain, seed)
        faster = study.target.evaluator.machine.true(study.verdict.proposal.codes) < 1
        for rule, said in decided(study).items():
            gained[rule] += said and (faster or gain == 0)
    return gained


def ends(kind: str, gain: float, searches: int) -> dict[str, float]:
    """Return by search the mean true time over the default's of the configuration that it ends with."""
    times: dict[str, list[float]] = {name: [] for name in SEARCHES}
    for seed in progress(range(FIRST_SEED, FIRST_SEED + searches), desc=f"{kind}, again", unit="search"):
        for name, strategy in SEARCHES.items():
            with mock.patch.object(tune, "make_strategy", strategy):
                study = searched(kind, gain, seed)
            proposal, _ = study.best
            times[name].append(study.target.evaluator.machine.true(proposal.codes))
    return {name: float(np.mean(values)) for name, values in times.items()}


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--searches", type=at_least(1), default=10, help="searches with each gain (default 10)"
    )
    options = parser.parse_args(arguments)
    searches = 1 if options.quick else options.searches
    result: dict = {}
    for kind in KINDS:
        numbers = {gain: searches if gain else round(2.5 * searches) for gain in GAINS}
        result[kind] = {f"{gain:.0%}": counts(kind, gain, number) for gain, number in numbers.items()}
        rows = [
            {"rule": rule}
            | {
                f"gain {gain:.0%}" if gain else "no gain, called one": f"{gained[rule]} of {number}"
                for (gain, number), gained in zip(numbers.items(), result[kind].values(), strict=True)
            }
            for rule in RULES
        ]
        print(f"\n## By evaluator={kind}, {BUDGET} evaluations\n\n{report.table(rows)}", flush=True)
    cells = [gained for kind in KINDS for gained in result[kind].values()]
    level = sum(gained[VERDICT] == gained[RULES[2]] for gained in cells)
    print(f"\nThe paired rounds and Welch's t of the repeats find as many in {level} of {len(cells)} cells.")
    rows = []
    for kind in KINDS:
        for gain in GAINS[1:]:
            times = ends(kind, gain, searches)
            cells = {name: f"{value:.4f}" for name, value in times.items()}
            rows.append({"evaluator": kind, "gain": f"{gain:.0%}", **cells})
    result["again"] = rows
    print(f"\n## The fastest again in each batch\n\n{report.table(rows)}", flush=True)
    report.finish({"benchmark": "verdict", "environment": report.environment(), **result})
    return 0


if __name__ == "__main__":
    run_main(main)
