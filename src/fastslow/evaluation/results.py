"""From ensembles to a checked submission and one table of what every model scored."""

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd

from fastslow.competition.catalog import COLLECTIONS
from fastslow.competition.metrics import collection_score, competition_score
from fastslow.core.artifacts import Artifact
from fastslow.core.errors import ConfigError
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path
from fastslow.core.settings import Config, resolve, unkeyed
from fastslow.evaluation.plots import plot_results
from fastslow.evaluation.predictions import (
    PREDICTED_SPLITS,
    check_predictions,
    read_predictions,
    read_run_manifest,
)
from fastslow.features.store import Features
from fastslow.kaggle.ledger import read_record, write_record
from fastslow.kaggle.solution import read_solution, score_submission
from fastslow.kaggle.submission import SAMPLE, check_submission, ranking, write_submission

FORMAT = 1  # raise it with every change of code that changes what a submission holds
SOLUTION = "solution.csv"
_SCOPES = {  # what means are taken over; a model may be of layout alone
    "mean of layouts": [c.name for c in COLLECTIONS if c.kind == "layout"],
    "mean of five": [c.name for c in COLLECTIONS],
}


class SubmissionConfig(Config):
    """Settings of the submission notebook."""

    data_root: str = unkeyed("data/sample")
    """Folder that holds ``npz_all/`` and, where known, ``sample_submission.csv`` and ``solution.csv``."""
    features: list[str] = [f"features/sample/{c.slug}" for c in COLLECTIONS]
    """Features folders, one for each of the five collections."""
    ensembles: list[str] = [f"runs/sample/ensemble-{c.slug}" for c in COLLECTIONS]
    """Ensemble (or run) folders whose scores are submitted, in the order of ``features``."""
    csv: str = "submissions/sample.csv"
    """The file to write; its record and plot take its name."""
    folder: str = unkeyed("runs/sample/submission")
    """Folder of the executed notebook and the manifest."""

    def check(self) -> None:
        """Check ranges."""
        self.require(self.csv.endswith(".csv"), "csv", "a path that ends in .csv")
        if len(self.features) != len(self.ensembles):
            raise ConfigError(f"ensembles: {len(self.ensembles)} folders for {len(self.features)} features")

    def artifact(self) -> Artifact:
        """The submission; it depends on the ensembles, and on the data's two CSVs where they are there."""
        inputs = {
            ensemble: read_run_manifest(resolve(ensemble))["fingerprint"] for ensemble in self.ensembles
        }
        root, csv = resolve(self.data_root), resolve(self.csv)
        for name in (SAMPLE, SOLUTION):
            if (root / name).is_file():
                inputs[name] = hashlib.sha256((root / name).read_bytes()).hexdigest()[:16]
        products = (csv, csv.with_suffix(".json"), csv.with_suffix(".png"))
        return Artifact(resolve(self.folder), {"format": FORMAT, **self.identity()}, inputs, products)


def make_submission(config: SubmissionConfig) -> pd.DataFrame:
    """Write the CSV, read it back, check it, score it where labels are known, and record all that.

    Beside ``<name>.csv`` come ``<name>.json`` (members, weights, scores, checksum) and ``<name>.png``.

    Args:
        config: Settings.

    Returns:
        The table: one row a collection and model, see :func:`score_table`.

    Raises:
        DataError: Scores, the CSV or the data are not as they must be.
    """
    artifact = config.artifact()
    with artifact.building() as needed:
        if needed:
            _submission(config, resolve(config.data_root), resolve(config.csv))
            artifact.finish()
    return pd.DataFrame(read_record(resolve(config.csv))["table"])


def _submission(config: SubmissionConfig, root: Path, csv: Path) -> None:
    pairs = [
        (Features(resolve(f)), resolve(e)) for f, e in zip(config.features, config.ensembles, strict=True)
    ]
    missing = {c.name for c in COLLECTIONS} - {features.collection.name for features, _ in pairs}
    if missing:
        raise ConfigError(
            f"features: no folder for {', '.join(sorted(missing))}; a submission needs all five"
        )
    by_id, weights = {}, {}
    for features, folder in pairs:
        name, scores = features.collection.name, read_predictions(folder)
        check_predictions(folder, scores, features)
        by_id |= {f"{name}:{graph}": score for graph, score in scores["test"].items()}
        members = read_run_manifest(folder).get("members", {folder.name: {"weight": 1.0}})
        weights[name] = {member: facts["weight"] for member, facts in members.items()}
    # checked under a name of its own: a CSV that fails the check never takes the name of a good one
    solution = read_solution(root / SOLUTION) if (root / SOLUTION).is_file() else None
    with atomic_path(csv) as temporary:
        write_submission(temporary, by_id, root)
        checked = check_submission(temporary, root)
        submitted = score_submission(temporary, solution) if solution else {}
    table = score_table(pairs, solution)
    save_figure(plot_results(pool_seeds(table)), csv.with_suffix(".png"))
    valid = {
        features.collection.name: read_run_manifest(folder)["valid"]["mean"] for features, folder in pairs
    }
    test = {name: score["mean"] for name, score in submitted.items()}
    write_record(
        csv,
        [member for by_member in weights.values() for member in by_member],
        weights,
        valid,
        data_root=config.data_root,
        checked=checked,
        valid_mean=competition_score(valid),
        test=test,
        test_mean=competition_score(test) if test else None,
        table=table.to_dict("records"),
    )


def score_table(pairs: list[tuple[Features, Path]], solution: dict | None) -> pd.DataFrame:
    """What every member and every ensemble scores.

    Args:
        pairs: Features and ensemble folder of each collection.
        solution: True test runtimes by ID, None where they are not known.

    Returns:
        Columns ``collection``, ``model`` (run folder's name without the collection), ``weight``, ``valid``,
        ``valid_least`` and ``valid_most`` (of a graph), and, where the solution is known, ``test``,
        ``test_least``, ``test_most``. Kendall's tau for layout, 1 - slowdown of the five best for tile; on
        test as a submission scores, which lists equal scores in file order.
    """
    rows = []
    for features, folder in pairs:
        name, kind = features.collection.name, features.collection.kind
        prefix = f"{name}:"
        truth = {i.removeprefix(prefix): r for i, r in (solution or {}).items() if i.startswith(prefix)}
        members = read_run_manifest(folder).get("members", {})
        runs = [(member, facts["weight"], resolve(facts["folder"])) for member, facts in members.items()]
        for model, weight, run in [*runs, (folder.name, 1.0, folder)]:
            row = {"collection": name, "model": _model_name(model, features), "weight": weight}
            row |= _spread("valid", read_run_manifest(run)["valid"])
            if truth:
                row |= _spread(
                    "test", collection_score(kind, truth, _as_submitted(read_predictions(run)["test"]))
                )
            rows.append(row)
    return pd.DataFrame(rows)


def _as_submitted(scores: dict) -> dict:
    """The place of each configuration in the order that a submission lists."""
    return {graph: np.argsort(ranking(score, "layout")) for graph, score in scores.items()}


def _model_name(run: str, features: Features) -> str:
    """``gnn s0`` for ``gnn-layout-xla-random-s0``, ``ensemble`` for ``ensemble-layout-xla-random``."""
    return run.replace(f"-{features.collection.slug}", "").replace("-", " ")


def _spread(split: str, score: dict) -> dict:
    values = score["per_graph"].values()
    return {split: score["mean"], f"{split}_least": min(values), f"{split}_most": max(values)}


def pool_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """One row a collection and kind of model: seeds averaged.

    Args:
        table: What :func:`score_table` gives.

    Returns:
        The same columns and ``seeds``; weights are summed, ``<split>`` is the mean over seeds,
        ``<split>_spread`` the largest less the smallest of them, and least and most are over the graphs of
        all seeds.
    """
    kind = table["model"].str.replace(r" s\d+$", "", regex=True).rename("kind")
    splits = [split for split in PREDICTED_SPLITS if split in table]
    columns = {"seeds": ("model", "size"), "weight": ("weight", "sum")}
    for split in splits:
        columns[split] = (split, "mean")
        columns[f"{split}_spread"] = (split, lambda values: values.max() - values.min())
        columns[f"{split}_least"] = (f"{split}_least", "min")
        columns[f"{split}_most"] = (f"{split}_most", "max")
    pooled = table.groupby(["collection", kind], sort=False).agg(**columns).reset_index()
    return pooled.rename(columns={"kind": "model"})


def format_table(table: pd.DataFrame) -> str:
    """The pooled table as Markdown for a terminal or a README, with the means over collections."""
    pooled = pool_seeds(table)
    splits = [split for split in PREDICTED_SPLITS if split in pooled]
    lines = [
        ["collection", "model", "seeds", "weight", *splits],
        ["---", "---", *["---:"] * (2 + len(splits))],
    ]
    for row in pooled.to_dict("records"):
        cells = [
            f"{row[s]:.3f} ± {row[f'{s}_spread'] / 2:.3f}" if row["seeds"] > 1 else f"{row[s]:.3f}"
            for s in splits
        ]
        graphs = [f"[{row[f'{s}_least']:.2f}, {row[f'{s}_most']:.2f}]" for s in splits]
        cells = [f"{cell} {graph}" for cell, graph in zip(cells, graphs, strict=True)]
        lines.append([row["collection"], row["model"], str(row["seeds"]), f"{row['weight']:.2f}", *cells])
    for scope, names in _SCOPES.items():
        for model, rows in pooled[pooled["collection"].isin(names)].groupby("model", sort=False):
            if len(rows) == len(names):
                means = [f"**{rows[split].mean():.3f}**" for split in splits]
                lines.append([f"**{scope}**", model, str(rows["seeds"].iloc[0]), "", *means])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    )
