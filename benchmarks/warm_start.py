"""Train networks on the sample from weights that were trained on other programs, and from nothing.

``python benchmarks/warm_start.py``, after ``make sample SIZE=more``. For each seed a network of the preset
``sample`` learns from ``data/more``, without the sample's train programs. From its weights, and from nothing,
networks are then trained on the sample for a few epochs, each with its own schedule of learning rates. What
starts from weights keeps their scaling of the inputs. Valid programs of the sample choose the weights of
every training, test programs report. *difference*: the mean over programs of tau from weights minus tau from
nothing, each the mean of the seeds, plus or minus its standard error over programs, which lacks the noise of
the trainings. Epochs of 0: the weights as they are.
"""

from argparse import Namespace
from collections.abc import Iterator, Sequence

import numpy as np

from common import report
from common.command_line import run_main
from common.kept import kept_parts
from common.options import at_least, make_parser, network_settings
from fastslow.competition.catalog import SPLITS, TEST, TRAIN, VALID, get_collection, list_programs
from fastslow.competition.metrics import ranking_tau
from fastslow.core.settings import resolve
from fastslow.evaluation.scores import SOLUTION, read_solution
from fastslow.features.build import build_graphs
from fastslow.features.graph import GraphSet
from fastslow.networks.predict.dataset import GraphDataset
from fastslow.networks.training.train import Training
from fastslow.steps.network_settings import TrainSettings

TABLE = {"hours": 1.0, "needs": ("more",)}
SAMPLE, MORE = "data/sample", "data/more"
COLLECTIONS = ("layout:xla:random", "layout:nlp:default")
EPOCHS = (1, 2, 4, 8, 20)
PRETRAINED_EPOCHS = 20
WARM, COLD = "from weights", "from nothing"


def graphs_of(collection_name: str, train_root: str, most: int | None) -> GraphSet:
    """Return the train graphs of one folder beside the sample's valid and test graphs."""
    collection = get_collection(collection_name)
    roots = {split: train_root if split == TRAIN else SAMPLE for split in SPLITS}
    files = [
        file
        for split, root in roots.items()
        for file in list_programs(resolve(root), collection, split)[:most]
    ]
    return build_graphs(files)


def options_of(seed: int, epochs: int) -> TrainSettings:
    """Return the layout network of the preset ``sample``."""
    settings, _ = network_settings("sample", {}, "layout")
    return TrainSettings(**settings, device="cpu").replace(seed=seed, epochs=epochs, evaluate_every=1)


def warm_training(sources: Sequence[GraphSet], options: TrainSettings, start: Training) -> Training:
    """Return a training on graphs from the weights of another one, with its scaling of the inputs."""
    scalers = start.dataset.node_scaler, start.dataset.config_scaler
    training = Training(options, GraphDataset(options, sources, scalers))
    training.network.load_state_dict(start.network.state_dict())
    return training


def scores_of(training: Training, slug: str, labels: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Return tau of each valid and each test program, with the weights that valid chooses."""
    valid, predictions = training.predict(slug)
    collection = get_collection(slug).name
    test = {
        name: ranking_tau(labels[f"{collection}:{name}"], values)
        for name, values in predictions[TEST].items()
    }
    return {VALID: valid["per_graph"], TEST: test}


def run_seed(
    seed: int, epochs: Sequence[int], pretrained_epochs: int, most: int | None
) -> Iterator[tuple[int, str, str, dict[str, dict[str, float]]]]:
    """Yield epochs, start, slug and scores of every training of a seed."""
    labels = read_solution(resolve(f"{SAMPLE}/{SOLUTION}"))
    sources = [graphs_of(name, SAMPLE, most) for name in COLLECTIONS]
    others = [graphs_of(name, MORE, most) for name in COLLECTIONS]
    options = options_of(seed, pretrained_epochs)
    start = Training(options, GraphDataset(options, others))
    start.run()
    for slug in start.dataset.sources:
        yield 0, WARM, slug, scores_of(start, slug, labels)
    start.validation.choose_weights(next(iter(start.dataset.sources)))
    for count in epochs:
        options = options_of(seed, count)
        trainings = {
            WARM: warm_training(sources, options, start),
            COLD: Training(options, GraphDataset(options, sources)),
        }
        for title, training in trainings.items():
            training.run()
            for slug in training.dataset.sources:
                yield count, title, slug, scores_of(training, slug, labels)


def rows_of(results: Sequence[Sequence], split: str) -> list[dict]:
    """Return a row for each number of epochs and collection: means over seeds, and the paired difference."""
    rows = []
    cells = {(epochs, slug) for epochs, _, slug, _ in results}
    for epochs, slug in sorted(cells, key=lambda cell: (cell[1], cell[0])):
        means = {}
        for title in (WARM, COLD):
            of_seeds = [r[3][split] for r in results if (r[0], r[1], r[2]) == (epochs, title, slug)]
            if of_seeds:
                means[title] = {name: np.mean([one[name] for one in of_seeds]) for name in of_seeds[0]}
        row = {"collection": slug, "epochs": epochs}
        for title in (WARM, COLD):
            row[title] = float(np.mean([*means[title].values()])) if title in means else ""
        row["difference"] = ""
        if len(means) == 2:
            differences = np.array([means[WARM][name] - means[COLD][name] for name in means[WARM]])
            error = differences.std(ddof=1) / np.sqrt(len(differences)) if len(differences) > 1 else 0.0
            row["difference"] = f"{differences.mean():+.3f} ± {error:.3f}"
        rows.append(row)
    return rows


def measure(options: Namespace) -> None:
    """Train all, print a table for each split and the JSON object."""
    kept = kept_parts(__file__, options)
    epochs, pretrained, most = ((1,), 1, 3) if options.quick else (EPOCHS, PRETRAINED_EPOCHS, None)
    results = []
    for seed in range(1 if options.quick else options.seeds):
        results += kept.part(
            f"seed {seed}", lambda seed=seed: [[*row] for row in run_seed(seed, epochs, pretrained, most)]
        )
    tables = {split: rows_of(results, split) for split in (VALID, TEST)}
    for split, rows in tables.items():
        print(f"## {split}\n\n{report.table([report.cells(row) for row in rows])}\n")
    report.finish({"benchmark": "warm_start", "environment": report.environment(), **tables})


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=at_least(1), default=3, help="seeds 0 to N - 1 (default 3)")
    measure(parser.parse_args(arguments))
    return 0


if __name__ == "__main__":
    run_main(main)
