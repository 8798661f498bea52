"""Score models trained on the sample on measured programs, of which no runtime is known.

``python benchmarks/zero_shot.py [--quick] [--runs runs/sample] [--real ../shared/real]``, after ``make
submit``. The networks, rankers and ensembles of a finished run are applied to every labelled file, beside the
trivial rules of its sample. ``few_shot.py`` measures what some known runtimes of a program are worth.

Zero-shot: no runtime of the program is known. The score is the competition's, over every configuration of the
file. Beside it stands the noise ceiling, the tau of a perfect predictor on labels of this noise
(``competition/data_quality.py``). Models are means over seeds. The single feature and the ridge regression
are chosen on the sample's train programs. In hindsight: the feature is chosen on the runtimes that are
scored.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

from common import report
from common.few_shot import best_in_hindsight
from common.options import add_measured_options, make_parser
from common.pretrained import Pretrained, labelled_files
from fastslow.competition.catalog import TEST, ProgramFile
from fastslow.competition.data_quality import measure_quality
from fastslow.competition.metrics import ranking_tau, tile_score
from fastslow.competition.reader import read_npz
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import DataError
from fastslow.core.progress import progress
from fastslow.evaluation.baselines import predict_configs
from fastslow.features.store import Graph
from fastslow.features.unseen import read_unseen
from fastslow_programs.ranking.runs import runs_folder

TABLE = {"hours": 0.5, "needs": ("run", "real")}
QUICK_CONFIGS = 64
_METRICS = {"layout": "Kendall's tau", "tile": "1 - slowdown of the top 5, of the top 1, Kendall's tau"}


def scores(kind: str, runtime: np.ndarray, prediction: np.ndarray) -> dict[str, float]:
    """Return Kendall's tau and, for tile, 1 - slowdown of the top 1 and of the top 5."""
    tau = {"tau": ranking_tau(runtime, prediction)}
    if kind == "layout":
        return tau
    return tau | {f"top {k}": tile_score(runtime, prediction, k) for k in (1, 5)}


def zero_shot(graph: Graph, pretrained: Pretrained, predictions: dict[str, np.ndarray]) -> dict:
    """Score a graph without any of its runtimes; models are means over their seeds.

    Returns:
        ``scores`` by predictor and ``chosen``: each baseline in words.
    """
    kind, columns = pretrained.features.collection.kind, pretrained.features.config_columns
    hindsight = best_in_hindsight(graph.expand(graph.config_feat), graph.file_runtime)
    baselines = {**pretrained.baselines, "in hindsight": hindsight}
    found = {
        name: [scores(kind, graph.file_runtime, predict_configs(own, graph))]
        for name, own in baselines.items()
    }
    for run, values in predictions.items():
        model = pretrained.models.get(run, "ensemble")
        found.setdefault(model, []).append(scores(kind, graph.file_runtime, values))
    means = {name: {m: float(np.mean([s[m] for s in own])) for m in own[0]} for name, own in found.items()}
    return {"scores": means, "chosen": {name: own.describe(columns) for name, own in baselines.items()}}


def evaluate(path: Path, pretrained: Pretrained, options: argparse.Namespace) -> dict:
    """Score one labelled file, zero-shot and, if of a layout, few-shot; empty if all features are equal."""
    collection = pretrained.features.collection
    graph = read_unseen(pretrained.features.folder, [path]).graph(TEST, path.stem)
    if graph.num_configs == 1:
        return {}
    if options.configs and graph.num_configs > options.configs:
        rng = np.random.default_rng(0)
        graph = graph.take(np.sort(rng.choice(graph.num_configs, options.configs, replace=False)))
    predictions = pretrained.predict(graph)
    return {
        "collection": collection.name,
        "program": path.stem,
        "configs": len(graph.config_row),
        "distinct": graph.num_configs,
        "ceiling": measure_quality(read_npz(ProgramFile(collection, TEST, path), labelled=True)).ceiling,
        "zero_shot": zero_shot(graph, pretrained, predictions),
    }


def zero_shot_tables(results: dict[str, dict]) -> dict[str, list[dict]]:
    """Return the rows of the zero-shot table of each kind: layout tau, tile top 5, top 1 and tau."""
    rows: dict[str, list[dict]] = {"layout": [], "tile": []}
    for result in results.values():
        kind = result["collection"].split(":")[0]
        row = {name: str(result[name]) for name in ("program", "collection", "configs")}
        row["noise ceiling, tau"] = "not known" if np.isnan(result["ceiling"]) else f"{result['ceiling']:.3f}"
        shown = {
            predictor: ", ".join(f"{own[m]:.3f}" for m in ("top 5", "top 1", "tau") if m in own)
            for predictor, own in result["zero_shot"]["scores"].items()
        }
        rows[kind].append(row | shown)
    return {kind: own for kind, own in rows.items() if own}


def make_page(results: dict[str, dict], runs: Path, options: argparse.Namespace) -> str:
    """Return the Markdown page of all tables."""
    trained = read_manifest(runs / "submission")
    zero = zero_shot_tables(results)
    parts = [f"Run `{runs.name}` of commit {trained['commit']}, {trained['created'][:10]}."]
    for kind, rows in zero.items():
        parts += [f"## No runtime known, {kind}: {_METRICS[kind]}", report.table(rows)]
        own = [result for result in results.values() if result["collection"].startswith(kind)]
        chosen = [{"program": result["program"], **result["zero_shot"]["chosen"]} for result in own]
        parts += ["The rules:", report.table(chosen)]
    return "\n\n".join(parts)


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    add_measured_options(parser)
    parser.add_argument(
        "--configs", type=int, default=0, help="maximum configurations of a file (default all)"
    )
    parser.add_argument("--threads", type=int, default=2, help="threads of torch and LightGBM (default 2)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.configs = options.configs or QUICK_CONFIGS
    return options


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse_options(arguments)
    torch.set_num_threads(options.threads)
    runs = runs_folder(options.runs).resolve()
    files = list(labelled_files(options.real))
    if not files:
        raise DataError(options.real, "no labelled competition file", "Name a folder that holds npz_all/")
    pretrained = {
        collection: Pretrained(runs, collection) for collection in dict.fromkeys(c for c, _ in files)
    }
    every = {
        f"{collection.name}:{path.stem}": evaluate(path, pretrained[collection], options)
        for collection, path in progress(files, desc="programs", unit="file")
    }
    results = {name: result for name, result in every.items() if result}
    left_out = [name for name in every if name not in results]
    print(make_page(results, runs, options))
    if left_out:
        print(f"left out, as all configurations have the same features: {', '.join(left_out)}")
    environment = report.environment(options.threads)
    facts = {"environment": environment, "run": runs.name, "programs": results, "left_out": left_out}
    report.finish({"benchmark": "zero_shot", **facts})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
