"""Scores of the sample run, and their spread when it is trained again as on another machine.

``python benchmarks/scores.py``, after ``make submit``. It trains the same settings and seeds once more, as
``runs/elsewhere``: one step at a time, so that each network's sums are shared among all cores, without
instructions newer than AVX2, and with another kernel of OpenBLAS. Sums are rounded differently then, and a
training is a long chain of sums: its scores differ as if it had another seed.

A score is the mean over the programs of a collection (tile: 1 - slowdown of the five best configurations;
layout: Kendall's tau), and over both trainings and all seeds of the model. ± is half the range over these.
Rules are not trained. *Minus ridge*: a model minus the ridge regression, the strongest rule, paired by
program, ± the standard error over programs; of the mean of layouts both searches of a program count together.
*One training against another*: the standard deviation, over trainings and seeds, of a network's or ranker's
mean of layouts on test, and of the difference of two trainings of the same setting. *Lowest and highest
program* and *By distance* show the run of ``make submit``.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from common import report
from common.clusters import collection_mean, source_of
from common.command_line import run_main
from common.options import make_parser
from fastslow.competition.catalog import COLLECTIONS, TEST, VALID
from fastslow.core.settings import PROJECT, resolve
from fastslow.ensemble.baselines import RIDGE
from fastslow.evaluation.compare import CompareSettings, compare_table
from fastslow.evaluation.score_tables import pool_seeds, readable_distances
from fastslow.evaluation.scores import list_runs
from fastslow.evaluation.submission_record import read_submission_record

TABLE = {"hours": 0.3, "needs": ("fastslow", "run")}
SAMPLE = "sample"
ELSEWHERE = "elsewhere"
_OLDER = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell"}
_OLDER["MKL_ENABLE_INSTRUCTIONS"] = "AVX2"
SCOPES = {
    **{collection.name: [collection.name] for collection in COLLECTIONS},
    "mean of layouts": [collection.name for collection in COLLECTIONS if collection.kind == "layout"],
    "mean of five": [collection.name for collection in COLLECTIONS],
}


def train_again() -> None:
    """Train the sample run again, from nothing, as :data:`ELSEWHERE`."""
    for folder in ("features", "runs"):
        shutil.rmtree(resolve(f"{folder}/{ELSEWHERE}"), ignore_errors=True)
    command = [sys.executable, "-m", "fastslow", "submission", "data=sample", f"name={ELSEWHERE}", "jobs=1"]
    subprocess.run(command, check=True, cwd=PROJECT, stdout=sys.stderr, env=os.environ | _OLDER)


def scores_of(names: list[str]) -> pd.DataFrame:
    """Return one row per training, collection, model and seed, with the columns of the record's table."""
    tables = []
    for name in names:
        record = read_submission_record(resolve(f"submissions/{name}.csv"), "table")
        tables.append(pd.DataFrame(record["table"]).assign(training=name))
    return pd.concat(tables, ignore_index=True)


def overview(scores: pd.DataFrame, split: str) -> list[dict]:
    """Return one row per model: the score of each collection and of their means, with its half range.

    Args:
        scores: As :func:`scores_of` returns them.
        split: ``valid`` or ``test``.
    """
    rows = []
    for model, table in scores.groupby("model", sort=False):
        row = {"model": model}
        for scope, collections in SCOPES.items():
            part = table[table["collection"].isin(collections)]
            whole = set(collections) == {*part["collection"]}
            row[scope] = _with_half_range(part, split, len(collections) == 1) if whole else ""
        rows.append(row)
    return sorted(rows, key=lambda row: row["model"] == "ensemble")


def _with_half_range(part: pd.DataFrame, split: str, one_collection: bool) -> str:
    """Return the mean score of a model; of one collection with half the range over trainings and seeds."""
    mean = part.groupby("collection")[split].mean().mean()
    half = (part[split].max() - part[split].min()) / 2
    trained = part["weight"].notna().any()
    return f"{mean:.3f} ± {half:.3f}" if trained and one_collection else f"{mean:.3f}"


def by_training(scores: pd.DataFrame) -> list[dict]:
    """Return one row per trained model: its mean of five on test in each training, seeds averaged."""
    rows = []
    for model, table in scores[scores["weight"].notna()].groupby("model", sort=False):
        means = table.groupby(["training", "collection"], sort=False)[TEST].mean()
        rows.append({"model": model} | means.groupby("training", sort=False).mean().to_dict())
    return rows


def one_training(scores: pd.DataFrame) -> list[dict]:
    """Return one row per model with seeds: how far two trainings of one setting are apart."""
    layouts = scores[scores["collection"].isin(SCOPES["mean of layouts"]) & scores["weight"].notna()]
    rows = []
    for model, table in layouts[layouts["model"] != "ensemble"].groupby("model", sort=False):
        place = table["run"].str.extract(r" (s\d+)$")[0]
        means = table.groupby(["training", place])[TEST].mean()
        row = {"model": model, "trainings": len(means), "standard deviation": f"{means.std():.4f}"}
        rows.append(row | {"of the difference of two": f"{2**0.5 * means.std():.4f}"})
    return rows


def minus_ridge(names: list[str]) -> list[dict]:
    """Return one row per model: its paired difference from ridge on test, by layout collection.

    Args:
        names: Names of the runs; a program's score is the mean over them and over the seeds of a model.
    """
    tables: dict[str, list[pd.DataFrame]] = {}
    for collection in SCOPES["mean of layouts"]:
        of_models: dict[str, list[pd.DataFrame]] = {}
        for name in names:
            slug = collection.replace(":", "-")
            runs = [*list_runs(resolve(f"runs/{name}/ensemble-{slug}"))]
            (ridge,) = (folder for model, *_, folder in runs if model == RIDGE)
            settings = CompareSettings(one=name, other=name, split=TEST, features=f"features/{name}/{slug}")
            seeds: dict[str, list[Path]] = {}
            for model, *_, folder in runs:
                seeds.setdefault(model.removesuffix(f"-{slug}"), []).append(folder)
            for model, folders in seeds.items():
                if model != RIDGE:
                    table, *_ = compare_table(settings, folders, [ridge])
                    of_models.setdefault(model, []).append(table)
        for model, of_model in of_models.items():
            mean = pd.concat(of_model).groupby("graph")["difference"].mean().reset_index()
            tables.setdefault(model, []).append(mean.assign(collection=collection))
    rows = []
    for model, parts in tables.items():
        table = pd.concat(parts, ignore_index=True)
        scopes = {name: table[table["collection"] == name] for name in SCOPES["mean of layouts"]}
        row = {"model": model}
        for scope, part in (scopes | {"mean of layouts": table}).items():
            program = part["collection"].map(source_of) + part["graph"]
            mean, error = collection_mean(part["difference"], part["collection"], program)
            row[scope] = f"{mean:+.3f} ± {error:.3f}"
        rows.append(row)
    return rows


def programs(scores: pd.DataFrame) -> list[dict]:
    """Return one row per collection and model of the first training: lowest and highest program, weight."""
    pooled = pool_seeds(scores[scores["training"] == SAMPLE])
    rows = []
    for row in pooled.to_dict("records"):
        facts = {"collection": row["collection"], "model": row["model"]}
        facts["weight"] = "" if np.isnan(row["weight"]) else f"{row['weight']:.2f}"
        for split in (VALID, TEST):
            facts[split] = f"{row[split]:.3f} [{row[f'{split}_min']:.2f}, {row[f'{split}_max']:.2f}]"
        facts["top 1, test"] = "" if np.isnan(row["test_top1"]) else f"{row['test_top1']:.3f}"
        rows.append(facts)
    return rows


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    quick = make_parser(__doc__.splitlines()[0]).parse_args(arguments).quick
    if not quick:
        train_again()
    scores = scores_of([SAMPLE] if quick else [SAMPLE, ELSEWHERE])
    record = read_submission_record(resolve(f"submissions/{SAMPLE}.csv"), "table")
    tables = {
        "Test": overview(scores, TEST),
        "Valid": overview(scores, VALID),
        "Minus ridge, test": minus_ridge([*scores["training"].unique()]),
        "Mean of five on test, by training": by_training(scores),
        "One training against another": one_training(scores),
        "Lowest and highest program": programs(scores),
        "By distance": readable_distances(record["distances"]).to_dict("records"),
    }
    for title, rows in tables.items():
        print(f"## {title}\n\n{report.table([report.cells(row) for row in rows])}\n")
    report.finish({"benchmark": "scores", "environment": report.environment(), **tables})
    return 0


if __name__ == "__main__":
    run_main(main)
