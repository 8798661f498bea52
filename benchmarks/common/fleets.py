"""Fleets of labelled programs: the saving by budget, allocation of the budget, and strategy."""

import numpy as np
from matplotlib.figure import Figure

from fastslow_programs.tuning.fleet import Member, spend
from fastslow_programs.tuning.fleet_settings import FleetSettings
from fastslow_programs.tuning.history import History
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.target import Target
from fastslow_programs.tuning.tune import Study, advance, make_strategy

SHARES = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)  # budgets as shares of the exhaustive one
LEVELS = (0.5, 0.99)  # fractions of the possible saving whose budget is reported
_DEFAULT = 0.1  # share of the configurations that are as fast as a default or faster
_SIMULATED = 0.15  # share up to which searches with a model are run: their last evaluations bring nothing
GUIDED, NO_RUN, EVEN = "expected saving, guided", "expected saving, no run", "even split, no model"
_KINDS = {GUIDED: ("guided", 0), NO_RUN: ("guided", 1), EVEN: ("random", 1)}


class Simulated:
    """Evaluations of a program in memory, as :class:`fastslow_programs.tuning.kept_study.KeptStudy` without a file."""

    def __init__(self, target: Target):
        self.history, self.batch = History(target.space), (0, 0, 0)

    def keep(self, proposal, evaluation, batch) -> None:
        """Append an evaluation to the history."""
        self.history.add(proposal, evaluation)
        self.batch = batch


def fleet_curves(targets: list[tuple[Target, Target]], seed: int) -> dict[str, list[float]]:
    """Tune a fleet whose weights follow Zipf's law, with a default among the fastest tenth of each program.

    Args:
        targets: Each program with a run's prediction, and without.
        seed: Draws weights and defaults.

    Returns:
        By allocation, the fraction of the possible saving after each evaluation of an exhaustive search.
    """
    total = sum(target.space.size for target, _ in targets)
    rng = np.random.default_rng([seed, 7])
    weights = rng.permutation(1.0 / np.arange(1, len(targets) + 1))
    starts = [target.space.listed[_fast_row(target.labels, rng)] for target, _ in targets]
    possible, found = _possible(targets, weights, starts), {}
    for name, (strategy, which) in _KINDS.items():
        budget = total if strategy == "random" else int(_SIMULATED * total)
        settings = FleetSettings(strategy=strategy, evaluations=budget, seed=seed, batch=2)
        members = []
        for pair, weight, start in zip(targets, weights, starts, strict=True):
            target, own = pair[which], TuneSettings(strategy=strategy)
            target.space.default = start
            study = Study(own, target, make_strategy(strategy, target), Simulated(target))
            members.append(Member(study, float(weight)))
        members.sort(key=lambda member: -member.weight)
        savings = spend(members, settings, lambda study, count: _look_up(study, count, seed))
        savings += savings[-1:] * (total - len(savings))
        found[name] = np.array(savings) / possible
    return {name: np.round(curve, 5).tolist() for name, curve in found.items()}


def _fast_row(labels: np.ndarray, rng) -> int:
    fastest = np.argsort(labels, kind="stable")[: max(2, int(_DEFAULT * len(labels)))]
    return int(rng.choice(fastest))


def _look_up(study: Study, count: int, seed: int) -> int:
    with study.target.evaluator.running() as evaluate:
        return advance(study.kept, study.strategy, evaluate, count, seed, lambda: None)


def _possible(targets, weights, starts) -> float:
    defaults = [t.labels[t.space.rows(s[None])[0]] for (t, _), s in zip(targets, starts, strict=True)]
    return sum(w * (d - t.labels.min()) for (t, _), w, d in zip(targets, weights, defaults, strict=True))


def at_share(curves: np.ndarray, share: float) -> np.ndarray:
    """Return the share of the possible saving ``(seeds,)`` for a share of the exhaustive budget."""
    return curves[:, max(0, round(share * curves.shape[1]) - 1)]


def cost_of(curves: np.ndarray, level: float) -> float:
    """Return the share of the exhaustive budget after which a share of the saving is had, mean over seeds."""
    return float(((curves < level).sum(1) + 1).mean() / curves.shape[1])


def fleet_table(found: dict[str, list]) -> list[dict]:
    """Return a row per allocation: the fraction of the saving by budget, and the cost of half and of 99 %."""
    rows = []
    for name, own in found.items():
        curves = np.array(own)
        saved = {f"{share:.0%}": f"{at_share(curves, share).mean():.3f}" for share in SHARES}
        costs = {f"budget for {level:.0%}": f"{cost_of(curves, level):.2%}" for level in LEVELS}
        rows.append({"allocation": name, **saved, **costs})
    return rows


def plot_fleet(found: dict[str, list]) -> Figure:
    """Draw the share of the possible saving over the budget, mean and range over seeds."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, own in found.items():
        curves = np.array(own)
        budget = np.arange(1, curves.shape[1] + 1) / curves.shape[1]
        (line,) = axes.plot(budget, curves.mean(0), "-" if "model" not in name else ":", label=name)
        axes.fill_between(budget, curves.min(0), curves.max(0), color=line.get_color(), alpha=0.15, lw=0)
    axes.set(xscale="log", xlabel="evaluations over the evaluations of an exhaustive search", xlim=(1e-3, 1))
    axes.set(ylabel="fraction of the possible saving", ylim=(0, 1.02))
    axes.axvline(0.1, color="0.6", lw=0.8)
    axes.legend(fontsize=8, loc="lower right")
    return figure
