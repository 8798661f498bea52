"""What a tuned fleet saved: tables, the curve, and the folder that keeps them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastslow.core.artifacts import MANIFEST, commit
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path, write_json
from fastslow.core.settings import resolve
from fastslow_programs.tuning.fleet import Fleet, Member

TABLE, TOTALS, BEST = "programs.csv", "savings.png", "best.json"


def fleet_table(members: Sequence[Member]) -> pd.DataFrame:
    """Return per program: weight, rows that share it, default, best, saved, evaluations, failed, seconds."""
    rows = [
        {
            "program": member.target.name,
            "copies": len(member.rows),
            "weight": member.weight,
            "default": member.default,
            "best": member.best[1] if member.best else None,
            "saved": member.saved,
            "evaluations": len(member.history),
            "failed": len(member.history.failures),
            "seconds": sum(outcome.seconds for _, outcome in member.history.done),
        }
        for member in members
    ]
    return pd.DataFrame(rows).sort_values("saved", ascending=False, ignore_index=True)


def summarise_fleet(fleet: Fleet) -> pd.Series:
    """Return what the fleet saved at which cost, one value per fact."""
    table = fleet_table(fleet.members)
    total = (table["weight"] * table["default"]).sum()
    cost = int(table["evaluations"].sum())
    facts = {
        "programs": f"{len(table)} different ones of {int(table['copies'].sum())}",
        "value": "; ".join(dict.fromkeys(m.target.evaluator.identity for m in fleet.members)),
        "evaluations": f"{cost}, {int(table['failed'].sum())} of them failed",
        "seconds of evaluation": f"{table['seconds'].sum():.0f}",
        "saved": f"{table['saved'].sum():.6g}, {table['saved'].sum() / total:.2%} of all defaults"
        if total
        else "0",
        "saved per evaluation": f"{table['saved'].sum() / max(cost, 1):.4g}",
    }
    sizes = [m.target.space.size for m in fleet.members if m.target.labels is not None]
    if len(sizes) == len(fleet.members):
        possible = sum(
            m.weight * max(m.default - m.target.labels.min(), 0.0)
            for m in fleet.members
            if m.default is not None
        )
        share = f"{table['saved'].sum() / possible:.1%}" if possible else "all"
        facts["of an exhaustive search"] = f"{share} of its saving for {cost / sum(sizes):.1%} of its cost"
    return pd.Series(facts, name=fleet.settings.fleet_name)


def plot_savings(fleet: Fleet) -> Figure:
    """Plot the total saving over the evaluations of this process."""
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.step(np.arange(1, len(fleet.savings) + 1), fleet.savings, where="post")
    axes.set(xlabel="evaluations", ylabel="saved: sum of weight x (default - tuned)", ylim=(0, None))
    axes.set_title(fleet.settings.fleet_name)
    return figure


def write_fleet(fleet: Fleet) -> Path:
    """Write the table of programs, the best configuration of each, and the curve; return the folder."""
    folder = resolve(fleet.settings.folder)
    with atomic_path(folder / TABLE) as temporary:
        fleet_table(fleet.members).to_csv(temporary, index=False)
    save_figure(plot_savings(fleet), folder / TOTALS)
    write_json(folder / BEST, [m.target.as_json(m.best[0].codes) for m in fleet.members if m.best])
    summary = {name: str(value) for name, value in summarise_fleet(fleet).items()}
    facts = {"settings": fleet.settings.asdict(), "commit": commit(), "summary": summary}
    write_json(folder / MANIFEST, facts)
    return folder
