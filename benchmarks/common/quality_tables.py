"""Tables of ``quality.py``: tau of our network and the 1st place's, per collection and per graph."""

import numpy as np

from common import report
from fastslow.competition.catalog import TEST, VALID

EQUAL_TIME, EQUAL_STEPS = "winner, equal time", "winner, equal steps"
CONTENDERS = ("ours", EQUAL_TIME, EQUAL_STEPS)
EVALUATED = (VALID, TEST)


def summarise(runs: list[dict]) -> dict:
    """Average over collections per contender, split and seed, and return the gains of ours."""

    def mean(contender: str, split: str, seed: int) -> float:
        return float(np.mean([run[split]["mean"] for run in _of(runs, contender) if run["seed"] == seed]))

    seeds = sorted({run["seed"] for run in runs})
    there = _contenders(runs)
    means = {c: {split: [mean(c, split, seed) for seed in seeds] for split in _splits(runs)} for c in there}
    gains = {
        c: {split: float(np.mean(means["ours"][split]) - np.mean(means[c][split])) for split in _splits(runs)}
        for c in there[1:]
    }
    return {"mean of collections by seed": means, "gain of ours": gains}


def collection_rows(runs: list[dict]) -> list[dict]:
    """Return table rows of tau, seconds and steps per collection and contender, then of the means."""
    rows = []
    for collection in dict.fromkeys(run["collection"] for run in runs):
        for contender in _contenders(runs):
            own = _of(runs, contender, collection)
            row = {"collection": collection, "network": contender}
            row |= {split: report.spread([run[split]["mean"] for run in own], 2) for split in _splits(runs)}
            rows.append(
                row | {what: f"{np.mean([r[what] for r in own]):.0f}" for what in ("seconds", "steps")}
            )
    for contender, by_split in summarise(runs)["mean of collections by seed"].items():
        row = {"collection": "**mean**", "network": contender}
        row |= {split: report.spread(values, 2) for split, values in by_split.items()}
        rows.append(row | {"seconds": "", "steps": ""})
    return rows


def _of(runs: list[dict], contender: str, collection: str = "") -> list[dict]:
    return [r for r in runs if r["contender"] == contender and r["collection"].startswith(collection)]


def _contenders(runs: list[dict]) -> list[str]:
    return [c for c in CONTENDERS if any(run["contender"] == c for run in runs)]


def _splits(runs: list[dict]) -> list[str]:
    return [split for split in EVALUATED if split in runs[0]]
