"""What to do with a ranking while no runtime of the program is known, and what that is worth on a device.

The figures are in files of the package, which benchmarks write beside their tables.
"""

from fastslow.core.files import read_json
from fastslow.core.tables import percent
from fastslow.runs.packaged import FOLDER

FIGURES = FOLDER / "device.json"
"""Means over ``programs`` programs that no model saw, measured on ``device``. A figure is how much slower a
configuration is than the best one; 0.1 is 10 % slower. ``default``, ``first`` and ``rule`` are the default
and the first of the ranking and of the trivial rule. With ``measured`` configurations measured,
``first_learnt`` is the fastest of these and of the first of the ranking that learnt from them;
``first_at_random`` takes one more at random instead. ``benchmarks/does_it_help.py --labels device`` writes
them."""
ESTIMATES = FOLDER / "estimates.json"
"""Kendall's ``tau`` of the compiler's estimates with measured runs of ``program``, on halves of its programs
that did not choose the rule of the labels: the mean, and ``low`` and ``high``, the 2.5 and 97.5 percentiles.
``benchmarks/label_truth.py`` writes it beside its table."""
ADVISED = 8
"""Number of measurements that are advised."""


def advise(to_measure: str, configurations: int | None = None) -> list[str]:
    """Return as sentences that the default is the choice to keep, and what measurements bring.

    Args:
        to_measure: How to measure configurations of the program, in words.
        configurations: Number of configurations that the program has; None for more than are advised.
    """
    figures = read_json(FIGURES)
    slower = {name: percent(value, 1) for name, value in figures.items() if isinstance(value, float)}
    if configurations is not None:
        gain = f"to gain: measure all {configurations} configurations, and take the fastest. "
    else:
        gain = (
            "to gain: measure {measured} configurations. The fastest of {measured} and of the first that is "
            "ranked then is {first_learnt} slower than the best, of {measured} and one more at random "
            "{first_at_random}. ".format(**figures | slower)
        )
    return [
        "to keep: the compiler's default, while no runtime is known. On {programs} programs measured on a "
        "device ({device}) it is {default} slower than the best configuration, the first of the ranking "
        "{first}, the first of the trivial rule {rule}".format(**figures | slower),
        gain + to_measure,
    ]


def describe_estimates() -> str:
    """Return in words how well the compiler's estimates agree with measured runs."""
    return "{tau:.2f} on {program}, between {low:.2f} and {high:.2f}".format(**read_json(ESTIMATES))
