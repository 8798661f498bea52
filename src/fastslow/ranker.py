"""The LightGBM ranker, for layout and for tile, from tabulated features of each configuration."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd

from fastslow import columns
from fastslow.artifacts import Artifact, atomic_path, read_manifest
from fastslow.config import Config, elsewhere, resolve
from fastslow.graphs import Features, Graph
from fastslow.metrics import collection_score
from fastslow.opcodes import CONVOLUTION, DOT, OPCODES, RESHAPE, opcode_name
from fastslow.plots import plot_training, save_figure
from fastslow.progress import progress
from fastslow.scores import SCORED_SPLITS, run_artifact, write_scores

FORMAT = 1  # raise it with every change of code that changes what a run gives
MODEL = "model.txt"
IMPORTANCE = "importance.csv"
METRICS = "metrics.jsonl"
PLOT = "training.png"
QUERY_ROWS = 10_000  # LightGBM's largest query
RELEVANCE_LEVELS = 31  # beyond it LightGBM wants its own table of gains
OBJECTIVES = ("regression", "lambdarank")


@dataclass(frozen=True)
class RankerConfig(Config):
    """Settings of the ranker notebook.

    Args:
        features: Features folder of the collection to train on.
        folder: Run folder to write.
        threads: Threads of LightGBM; 0 takes OMP_NUM_THREADS or every core.
        seed: Seed of sampling rows, columns and configurations.
        objective: ``regression`` (z-scored log runtime of each graph), ``lambdarank``, or ``best``:
            both are trained and the better on valid is kept.
        rounds: Most boosting rounds.
        patience: Stop after so many rounds without a better valid score.
        learning_rate: Shrinkage of each tree.
        leaves: Most leaves of a tree; more fits finer and overfits sooner.
        min_rows: Fewest rows in a leaf.
        column_share: Share of the columns tried for a tree.
        row_share: Share of the rows drawn for a tree.
        configs_per_graph: Most configurations used of a train graph, at most 10,000 (LightGBM's limit).
    """

    features: str = elsewhere("features/sample/layout-xla-random")
    folder: str = elsewhere("runs/sample/ranker-layout-xla-random-s0")
    threads: int = elsewhere(0)
    seed: int = 0
    objective: str = "best"
    rounds: int = 500
    patience: int = 100
    learning_rate: float = 0.05
    leaves: int = 15
    min_rows: int = 5
    column_share: float = 0.5
    row_share: float = 0.8
    configs_per_graph: int = QUERY_ROWS

    def check(self) -> None:
        """Check ranges."""
        self.require(
            self.objective in (*OBJECTIVES, "best"), "objective", f"one of {', '.join(OBJECTIVES)}, best"
        )
        for field in ("rounds", "patience", "min_rows"):
            self.require(getattr(self, field) >= 1, field, "1 or more")
        for field in ("threads", "seed"):
            self.require(getattr(self, field) >= 0, field, "0 or more")
        self.require(self.leaves >= 2, "leaves", "2 or more")
        self.require(self.learning_rate > 0, "learning_rate", "above 0")
        for field in ("column_share", "row_share"):
            self.require(0 < getattr(self, field) <= 1, field, "above 0, at most 1")
        in_range = 2 <= self.configs_per_graph <= QUERY_ROWS
        self.require(in_range, "configs_per_graph", f"from 2 to {QUERY_ROWS}")

    def artifact(self) -> Artifact:
        """The run folder; it depends on the features."""
        return run_artifact("ranker", FORMAT, self)


def context_features(graph: Graph) -> tuple[np.ndarray, list[str]]:
    """What is the same for all configurations of a graph: its size and its operations.

    Returns:
        ``(W,)`` float32: log(1 + count) of nodes, edges and of the nodes of each opcode, log(1 + elements)
        of the outputs of convolutions, dots and reshapes, and the sizes of the last root's output; and the
        names.
    """
    elements = graph.node_feat[:, columns.SHAPE_PRODUCT]
    counts = np.bincount(graph.node_opcode, minlength=len(OPCODES) + 1)[: len(OPCODES) + 1]
    roots = np.flatnonzero(graph.node_feat[:, columns.IS_ROOT] == 1)
    output = graph.node_feat[roots[-1], columns.SHAPE] if len(roots) else np.zeros(6)
    kinds = (CONVOLUTION, DOT, RESHAPE)
    values = [
        graph.num_nodes,
        len(graph.edge_index),
        *counts,
        *(elements[graph.node_opcode == kind].sum() for kind in kinds),
        *np.maximum(output, 0),
    ]
    names = [
        "nodes_log",
        "edges_log",
        *(f"count_{opcode_name(opcode)}_log" for opcode in range(len(counts))),
        *(f"elements_{opcode_name(kind)}_log" for kind in kinds),
        *(f"output_size_{d}_log" for d in range(6)),
    ]
    return np.log1p(np.array(values, np.float64)).astype(np.float32), names


def tabulate(graph: Graph, config_columns: list[str]) -> tuple[np.ndarray, list[str]]:
    """One row of features for every configuration of a graph.

    Args:
        graph: The graph.
        config_columns: Names of its ``config_feat`` columns.

    Returns:
        ``(C, 2 V + W)`` float32: the configuration's features; each of them less its smallest value among
        the graph's configurations, so that programs of different size compare; and the graph's context.
        How often a configuration occurs changes nothing.
    """
    values = np.asarray(graph.config_feat)
    context, context_names = context_features(graph)
    above = values - values.min(0)
    table = np.concatenate([values, above, np.broadcast_to(context, (len(values), len(context)))], 1)
    return table, [*config_columns, *(f"{name}_above_least" for name in config_columns), *context_names]


def regression_labels(runtime: np.ndarray) -> np.ndarray:
    """z-scored log runtime of a graph, ``(C,)``: lower is faster."""
    log = np.log(runtime)
    return (log - log.mean()) / max(log.std(), 1e-6)  # below that, rounding


def relevance_labels(runtime: np.ndarray) -> np.ndarray:
    """Integer relevance 0 to 30, the fastest highest; equal runtimes share one, beyond 31 so do quantiles."""
    _, rank = np.unique(-runtime, return_inverse=True)
    levels = rank.max() + 1
    return rank if levels <= RELEVANCE_LEVELS else rank * RELEVANCE_LEVELS // levels


class Table:
    """The rows of one split, graph by graph.

    Args:
        features: A finished features folder.
        split: ``train``, ``valid`` or ``test``.
        most: Most configurations of a graph; drawn at random beyond.
        seed: Seed of the draw.
    """

    def __init__(self, features: Features, split: str, most: int | None = None, seed: int = 0):
        self.names = features.names(split)
        rng = np.random.default_rng(seed)
        tables, self.runtimes = [], []
        for name in self.names:
            graph = features.graph(split, name)
            table, self.columns = tabulate(graph, features.config_columns)
            size = graph.num_configs
            rows = (
                np.arange(size)
                if most is None or size <= most
                else np.sort(rng.choice(size, most, replace=False))
            )
            tables.append(table[rows])
            self.runtimes.append(graph.runtime[rows])
        self.sizes = [len(table) for table in tables]
        self.rows = np.concatenate(tables)

    def by_graph(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Values of all rows, split by graph."""
        return dict(zip(self.names, np.split(values, np.cumsum(self.sizes)[:-1]), strict=True))

    def dataset(self, objective: str, reference: lightgbm.Dataset | None = None) -> lightgbm.Dataset:
        """The table as a LightGBM dataset with the objective's labels; every graph weighs the same."""
        label = regression_labels if objective == "regression" else relevance_labels
        weight = np.concatenate(
            [np.full(size, len(self.rows) / len(self.sizes) / size) for size in self.sizes]
        )
        return lightgbm.Dataset(
            self.rows,
            np.concatenate([label(runtime) for runtime in self.runtimes]),
            weight=weight,
            group=self.sizes,
            feature_name=self.columns,
            reference=reference,
            free_raw_data=False,
        )


def _metric(kind: str, table: Table, sign: int) -> Callable:
    """The collection's metric as LightGBM wants it; ``sign`` turns its predictions into scores."""
    runtimes = dict(zip(table.names, table.runtimes, strict=True))

    def metric(predictions: np.ndarray, _):
        return "valid", collection_score(kind, runtimes, table.by_graph(sign * predictions))["mean"], True

    return metric


def fit(
    config: RankerConfig, objective: str, kind: str, train: Table, valid: Table
) -> tuple[lightgbm.Booster, list]:
    """Boost trees until the valid score stops improving.

    Args:
        config: Settings.
        objective: ``regression`` or ``lambdarank``.
        kind: ``layout`` or ``tile``.
        train: Rows to fit.
        valid: Rows to stop on.

    Returns:
        The booster, cut at its best round, and the valid score after every round.
    """
    parameters = {
        "objective": objective,
        "metric": "None",
        "learning_rate": config.learning_rate,
        "num_leaves": config.leaves,
        "min_data_in_leaf": config.min_rows,
        "min_sum_hessian_in_leaf": 1e-3 if objective == "regression" else 1e-4,
        "feature_fraction": config.column_share,
        "bagging_fraction": config.row_share,
        "bagging_freq": 1,
        "lambdarank_truncation_level": 30,
        "seed": config.seed,
        "deterministic": True,
        "force_col_wise": True,
        "num_threads": config.threads,
        "verbosity": -1,
    }
    history: dict = {}
    train_set = train.dataset(objective)
    with progress(total=config.rounds, desc=f"{Path(config.folder).name} {objective}", unit="round") as bar:

        def show(environment) -> None:
            bar.update()
            bar.set_postfix(valid=f"{environment.evaluation_result_list[0][2]:.3f}", refresh=False)

        booster = lightgbm.train(
            parameters,
            train_set,
            num_boost_round=config.rounds,
            valid_sets=[valid.dataset(objective, train_set)],
            valid_names=["valid"],
            feval=_metric(kind, valid, _sign(objective)),
            callbacks=[
                lightgbm.early_stopping(config.patience, verbose=False),
                lightgbm.record_evaluation(history),
                show,
            ],
        )
    return booster, history["valid"]["valid"]


def _sign(objective: str) -> int:
    """Regression predicts runtimes, lambdarank relevance."""
    return 1 if objective == "regression" else -1


def train_ranker(config: RankerConfig) -> dict:
    """Train the ranker of one collection and write its run folder.

    The folder gets ``metrics.jsonl``, ``training.png``, ``model.txt``, ``importance.csv``, ``scores.npz``
    and, last, ``manifest.json``. Training takes seconds to minutes; an interrupted run starts again.

    Args:
        config: Settings.

    Returns:
        The manifest, with the valid score (mean and per graph) of the kept and of every objective.
    """
    artifact = config.artifact()
    with artifact.building() as needed:
        if needed:
            artifact.finish(**_train(config, Features(resolve(config.features)), artifact.folder))
    return read_manifest(artifact.folder)


def _train(config: RankerConfig, features: Features, folder: Path) -> dict:
    """Fit, write all but the manifest, and give the facts for it."""
    kind = features.collection.kind
    train = Table(features, "train", config.configs_per_graph, config.seed)
    tables = {split: Table(features, split) for split in SCORED_SPLITS}
    labels = features.labels("valid")
    wanted = OBJECTIVES if config.objective == "best" else (config.objective,)
    fits = {objective: fit(config, objective, kind, train, tables["valid"]) for objective in wanted}
    scores = {
        objective: {
            split: table.by_graph(_sign(objective) * booster.predict(table.rows))
            for split, table in tables.items()
        }
        for objective, (booster, _) in fits.items()
    }
    valid = {objective: collection_score(kind, labels, scores[objective]["valid"]) for objective in wanted}
    best = max(wanted, key=lambda objective: valid[objective]["mean"])
    booster = fits[best][0]
    rows = [
        {"objective": objective, "round": number, "valid": value}
        for objective, (_, history) in fits.items()
        for number, value in enumerate(history, 1)
    ]
    save_figure(plot_training(pd.DataFrame(rows), folder.name), folder / PLOT)
    with atomic_path(folder / METRICS) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with atomic_path(folder / MODEL) as temporary:
        booster.save_model(temporary)
    with atomic_path(folder / IMPORTANCE) as temporary:
        gain = booster.feature_importance("gain")
        table = pd.DataFrame({"column": booster.feature_name(), "gain": gain})
        table.sort_values("gain", ascending=False, kind="stable").to_csv(temporary, index=False)
    write_scores(folder, scores[best])
    return {
        "valid": {**valid[best], "weights": f"{best}, {booster.best_iteration} rounds"},
        "objectives": {objective: valid[objective]["mean"] for objective in wanted},
    }
