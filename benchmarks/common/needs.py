"""Evaluations that searches needed, and how guided ones compare with the best unguided one."""

import numpy as np

from common.searches import NEVERGRAD

GUIDED = ("guided evolutionary", "guided random", "guided annealing")
UNGUIDED = ("random", "evolutionary", "annealing", "tpe", "nsga2", NEVERGRAD)
WITHIN = (0.05, 0.01, 0.0)  # shares of the best known; 0 is that itself
KERNEL = 100  # tiles of a kernel that make a search worth while


def needed(curve: np.ndarray, within: float) -> int:
    """Return the evaluations until a curve is within a share of the best; all of them where it never is."""
    return int(min(len(curve), (curve > within).sum() + 1))


def join(programs: list[dict]) -> dict:
    """Return what :func:`unseen` gave for several programs as one."""
    names = programs[0]["counts"]
    counts = {
        name: {str(w): [n for program in programs for n in program["counts"][name][str(w)]] for w in WITHIN}
        for name in names
    }
    return {"counts": counts, "sizes": [p["size"] for p in programs], "near": [p["near"] for p in programs]}


def summarise(raw: dict) -> dict:
    """Return mean and quartiles of the evaluations needed, and the ratio to the best unguided strategy."""
    needs = {
        name: {
            within: {"mean": float(np.mean(own)), "quartiles": np.quantile(own, [0.25, 0.5, 0.75]).tolist()}
            for within, own in by_share.items()
        }
        for name, by_share in raw["counts"].items()
    }
    ratios = {}
    for within in map(str, WITHIN):
        peers = [needs[name][within]["mean"] for name in UNGUIDED if name in needs]
        if peers and GUIDED[0] in needs:
            ratios[within] = min(peers) / needs[GUIDED[0]][within]["mean"]
    sizes = raw["sizes"]
    return {
        "programs": len(sizes),
        "needed": needs,
        "best unguided over guided": ratios,
        "configurations": [int(np.median(sizes)), min(sizes), max(sizes)],
        "within 1 %": float(np.median(raw["near"])),
    }
