"""The result of a measurement: whether a configuration is faster than the default, its figure and page."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fastslow.core.errors import counted
from fastslow.core.figures import CEILING, DEFAULT, KNOWN, WIDTH, in_style, mark_ratios, name_in_colours
from fastslow.core.shown import Number, Section, Shown, picture
from fastslow.core.tables import number_text, percent, table_html
from fastslow_programs.program.configurations import find_default, identify
from fastslow_programs.program.convert import ConvertedProgram, count_failures
from fastslow_programs.ranking.choices import NamedChoice, describe_differences, name_choices
from fastslow_programs.tuning.confirmation import FEWEST, LEVEL, student_interval

_ON_PAGE = 10  # configurations on the page
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))  # nanoseconds of a unit; below these it is ns
_WHOLE = 9.95  # percent, from which no decimal is shown
_MARGIN = 1.02  # of the axis beyond the lowest and the highest time


@dataclass(frozen=True)
class Measurement(Shown):
    """Times of a program's configurations.

    The default is the program as this machine's compiler compiles it by itself.

    Args:
        program: The program with its configurations.
        source: What to rank with these times: the HLO file.
        device: Kind of the device that ran it.
        default_ns: Median time of the default in nanoseconds.
        noise: Median difference between two times of the default in a round, as a fraction.
        rounds: ``(rounds, C)`` time of each configuration over the default's in the same round; NaN where it
            did not run.
        failures: Reason for which a configuration did not run, empty where it did.
        paired: Of the fastest configuration, the logarithm of its time over the default's, one for each time
            that both were loaded again; empty where none was below the default.
    """

    kind = "Measurement of configurations"
    program: ConvertedProgram
    source: str
    device: str
    default_ns: float
    noise: float
    rounds: np.ndarray
    failures: Sequence[str]
    paired: Sequence[float] = ()

    @cached_property
    def table(self) -> pd.DataFrame:  # type: ignore[override]
        """A row is a configuration in a round: ``id``, as in a ranking, ``round`` and ``runtime`` in ns.

        The runtime is the time over the default's in the same round, times the median of the latter, so a
        machine that becomes slower in between changes no order.
        """
        runtime = self.rounds * self.default_ns
        config, number = np.nonzero(~np.isnan(runtime.T))
        columns = {"id": self._ids[config], "round": number, "runtime": runtime.T[config, number]}
        return pd.DataFrame(columns)

    @cached_property
    def ratios(self) -> dict[int, float]:
        """Position of each configuration that ran, and the median of its time over the default's."""
        return median_ratios(self.rounds, self.failures)

    @property
    def facts(self) -> dict[str, Any]:
        """What was measured, in words by name."""
        facts = {
            "result": self.verdict(),
            "device": self.device,
            "configurations": len(self.ratios),
            "time of the default": _time(self.default_ns),
            "two runs of it differ by": percent(self.noise, 1),
        }
        if failed := [failure for failure in self.failures if failure]:
            facts["failures"] = count_failures(failed, len(self.failures))
        return facts

    def words(self) -> list[str]:
        """Return the facts of the measurement, a ``name: fact`` each."""
        return [f"{name}: {fact}" for name, fact in self.facts.items()]

    def verdict(self) -> str:
        """Return in one line whether the fastest is faster than the default beyond noise, and by how much."""
        if len(self.failures) == 1:
            return "There is one configuration: nothing is left to choose."
        fastest = fastest_config(self.program, self.ratios)
        if fastest is None:
            return f"Keep the default: {self._none()} needs less time."
        if self.is_faster:
            return f"Take configuration {fastest}: it needs {self._gain} time than the default."
        beyond = "is not faster beyond noise"
        if len(self.paired) < FEWEST:
            beyond = f"was below the default, but failed in one of {FEWEST} further runs"
        return f"Keep the default: configuration {fastest}, the fastest of {len(self.ratios)}, {beyond}."

    @property
    def is_faster(self) -> bool:
        """Whether the interval of the fastest configuration's time, measured again, is below the default."""
        mean, half = student_interval(self.paired) if self.paired else (0.0, 0.0)
        return mean + half < 0

    def _none(self) -> str:
        ran = len(self.ratios)
        return f"none of {ran:,} configurations" if ran > 1 else "no other configuration that ran"

    @property
    def _gain(self) -> str:
        return _against(float(np.exp(np.mean(self.paired))))

    def title(self) -> str:
        """Return the title of the figure: what was found."""
        if self.is_faster:
            ran = counted(len(self.ratios), "configuration")
            return f"The fastest of {ran} needs {self._gain} time than the default"
        none = self._none()
        return f"{none[:1].upper()}{none[1:]} is faster than the default beyond noise"

    def numbers(self) -> list[Number]:
        """Return the fastest against the default, the noise, and the default's time."""
        against = Number("fastest against the default", "not faster")
        if self.paired:
            mean, half = student_interval(self.paired)
            interval = f"{_signed(np.exp(mean - half))} to {_signed(np.exp(mean + half))}"
            runs = counted(len(self.paired), "further run")
            note = f"{percent(LEVEL)} interval {interval}, from {runs} of both"
            note = note if np.isfinite(half) else "too few further runs"
            gain = f"{self._gain} time"
            if not self.is_faster:  # the headline is no gain, but what was seen stands below it
                note = f"{gain}; {note}"
                gain = "not confirmed" if mean < 0 else "not faster"
            against = Number(against.name, gain, note)
        failed = sum(map(bool, self.failures))
        ran = f"{counted(len(self.ratios), 'configuration')} ran" + (f", {failed} failed" if failed else "")
        return [
            against,
            Number(
                "two runs of the default differ by",
                percent(self.noise, 1),
                "the noise, median of the rounds",
            ),
            Number("time of the default", _time(self.default_ns), f"{self.device}; {ran}"),
        ]

    def figures(self) -> list[Figure]:
        """Return the time of each configuration against its place."""
        return [plot_times(self)]

    def sections(self) -> list[Section]:
        """Return the fastest configurations in words, the figure, and the facts folded."""
        (figure,) = self.figures()
        return [
            Section("The fastest configurations", table_html(self.first_rows())),
            Section("How slow is each configuration?", picture(figure)),
            Section("Facts", table_html(pd.Series(self.facts)), folded=True),
        ]

    def first_rows(self) -> pd.DataFrame:
        """Return the fastest configurations for a reader.

        Returns:
            Texts and numbers: ``config``, ``id``, median ``time``, the time ``against the default``, the
            ``middle half of the rounds``, and the ``differences from the default`` in words.
        """
        shown = sorted(self.ratios, key=self.ratios.__getitem__)[:_ON_PAGE]
        low, high = np.percentile(self.rounds[:, shown], (25, 75), axis=0)
        middle = [f"{_signed(one)} to {_signed(other)}" for one, other in zip(low, high, strict=True)]
        return pd.DataFrame(
            {
                "config": shown,
                "id": self._ids[shown],
                "time": [_time(self.ratios[config] * self.default_ns) for config in shown],
                "against the default": [_signed(self.ratios[config]) for config in shown],
                "middle half of the rounds": middle,
                "differences from the default": [self._in_words(config) for config in shown],
            }
        )

    @cached_property
    def _ids(self) -> np.ndarray:
        return identify(self.program)

    @cached_property
    def _choices(self) -> list[NamedChoice]:
        assert self.program.module is not None, "a converted program has its HLO"
        names = [i.name for computation in self.program.module.computations for i in computation.instructions]
        return name_choices(self.program, find_default(self.program), names)

    def _in_words(self, config: int) -> str:
        """Return what a configuration changes in the default."""
        return describe_differences(self._choices, config)


def median_ratios(rounds: np.ndarray, failures: Sequence[str]) -> dict[int, float]:
    """Return the median of ``rounds`` of each configuration that ran, by its position."""
    ran = [number for number, failure in enumerate(failures) if not failure]
    medians: list[float] = np.median(rounds[:, ran], 0).tolist()
    return dict(zip(ran, medians, strict=True))


def fastest_config(program: ConvertedProgram, ratios: dict[int, float]) -> int | None:
    """Return the fastest configuration that is not the default, None where none is below the default.

    Args:
        program: The program with its configurations.
        ratios: Median time over the default's by the position of a configuration.
    """
    default = find_default(program).config
    below = {config: ratio for config, ratio in ratios.items() if ratio < 1 and config != default}
    return min(below, key=below.__getitem__, default=None)


@in_style
def plot_times(measurement: Measurement) -> Figure:
    """Plot the time of each configuration over the default's, fastest first, with the spread of rounds."""
    order = sorted(measurement.ratios, key=measurement.ratios.__getitem__)
    medians = np.array([measurement.ratios[config] for config in order])
    low, high = np.percentile(measurement.rounds[:, order], (25, 75), axis=0)
    place = np.arange(1, len(order) + 1)
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    axes = figure.subplots()
    axes.axhspan(1 / (1 + measurement.noise), 1 + measurement.noise, color="#eeeeee", linewidth=0)
    axes.axhline(1.0, color=DEFAULT, linestyle="--")
    axes.vlines(place, low, high, color=KNOWN, alpha=0.4, linewidth=3)
    axes.plot(place, medians, "o", color=KNOWN, markersize=4)
    default = find_default(measurement.program).config
    if default in order:
        axes.plot(1 + order.index(default), measurement.ratios[default], "D", color=DEFAULT)
    named = [
        ("dot: median of a configuration", KNOWN),
        (f"its line: the middle half of {counted(len(measurement.rounds), 'round')}", KNOWN),
        (f"dashed: the default, {_time(measurement.default_ns)}", DEFAULT),
        ("diamond: the default, bound like the others", DEFAULT),
        (f"grey: two runs of the default differ by {percent(measurement.noise, 1)}", CEILING),
    ]
    axes.set_yscale("log")
    bottom = min(low.min(), 1.0) / _MARGIN
    top = max(high.max(), 1.0) * _MARGIN
    axes.set_ylim(bottom, top)
    mark_ratios(axes.yaxis, bottom, top)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: _signed(ratio)))
    axes.set_xlim(0.5, len(order) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("place by measured time (1 is the fastest)")
    axes.set_ylabel("time against the default")
    axes.set_title(measurement.title())
    name_in_colours(figure, named)
    return figure


def _time(nanoseconds: float) -> str:
    """Return a time with its unit."""
    for size, unit in _UNITS:
        if nanoseconds >= size:
            return f"{number_text(nanoseconds / size)} {unit}"
    return f"{number_text(nanoseconds)} ns"


def _against(ratio: float) -> str:
    """Return a ratio to the default's time in words, such as ``5.2 % less``."""
    return f"{_digits(abs(1 - ratio))} % {'less' if ratio < 1 else 'more'}"


def _signed(ratio: float) -> str:
    """Return a ratio to the default's time as a difference in percent with its sign."""
    digits = _digits(abs(1 - ratio))
    if float(digits.replace(",", "")) == 0:
        return "0 %"
    return f"{'+' if ratio > 1 else '−'}{digits} %"


def _digits(share: float) -> str:
    """Return a share in percent with two digits, at most one of them a decimal."""
    percent = 100 * share
    return f"{percent:.1f}" if percent < _WHOLE else f"{percent:,.0f}"
