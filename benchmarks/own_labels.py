"""Compare the ensemble with models that know labels of the same program, as an upper bound.

``python benchmarks/own_labels.py [--quick] [--run sample]``, after ``make submit`` on data whose ``default``
and ``random`` files hold the same programs, as in the sample. Tables show Kendall's tau per collection, mean
over programs, in the order that a submission lists (equal predictions in file order). The ensemble never saw
the valid and test programs. Its rivals predict each configuration from all others of the same program, of
both searches together, by the output layouts that they choose: one column per output layout, equal columns
once. The sample's labels depend on the layouts of outputs.

Ridge regression chooses its penalty by leave-one-out. The Gaussian process has a linear and a radial kernel
and noise, and chooses their scales by marginal likelihood. The last row is no prediction: it has one effect
per layout, fitted to the labels that are scored, and is an upper bound for any additive rule.
"""

import sys
import warnings
from argparse import Namespace
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import LeaveOneOut, cross_val_predict

from common import report
from common.options import add_data_option, make_parser
from fastslow.choices.layouts import WEIGHTS
from fastslow.competition.catalog import TEST, VALID, Collection, Program, get_collection, list_programs
from fastslow.competition.metrics import collection_score
from fastslow.competition.reader import read_competition_file
from fastslow.core.errors import DataError
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow.evaluation.baselines import SINGLE
from fastslow.evaluation.predictions import read_predictions
from fastslow.evaluation.results import as_submitted, list_runs
from fastslow.features.store import Features
from fastslow.kaggle.solution import read_solution, runtimes_of
from fastslow.programs.layout_search import SEARCHES

TABLE = {"hours": 0.1, "needs": ("run",)}
SOURCES = ("xla", "nlp")
SPLITS = (VALID, TEST)
UNSEEN = (SINGLE, "ensemble")
OWN = ("ridge, own labels", "Gaussian process, own labels", "additive, fitted to the scored labels")
_PENALTIES = np.logspace(-2, 2, 9)
_SMALL = 1e-2  # penalty of a fit to the labels that are scored: small beside 48 configurations


def read_outputs(program: Program) -> np.ndarray:
    """Return a number for the layout of every configurable node's output, ``(C, K)``."""
    file = read_competition_file(program.path, "layout")
    codes = file.choices.layout_codes()[..., 0]
    return ((file.layouts.astype(np.int64) + 1) @ WEIGHTS)[codes]


def one_hot(layouts: np.ndarray) -> np.ndarray:
    """Return a column of 0 and 1 per layout of an output but its first one, equal and opposite ones once."""
    columns = {}
    for output in layouts.T:
        for layout in np.unique(output)[1:]:
            chosen = output == layout
            columns.setdefault(min(chosen.tobytes(), (~chosen).tobytes()), chosen)
    return np.stack([*columns.values(), np.zeros(len(layouts))], 1).astype(float)


def own_predictions(choices: np.ndarray, runtime: np.ndarray) -> dict[str, np.ndarray]:
    """Predict each configuration of a program from the others; and fit all of them, see :data:`OWN`.

    Args:
        choices: ``(C, F)`` 0 and 1, both searches.
        runtime: ``(C,)`` labels.

    Returns:
        ``(C,)`` by model, lower = predicted faster.
    """
    target = np.log(runtime)
    kernel = ConstantKernel() * DotProduct() + ConstantKernel() * RBF(3.0) + WhiteKernel(0.1)
    models = (RidgeCV(_PENALTIES), GaussianProcessRegressor(kernel, normalize_y=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a scale at its bound is none that matters
        found = [cross_val_predict(model, choices, target, cv=LeaveOneOut()) for model in models]
    fitted = RidgeCV([_SMALL]).fit(choices, target).predict(choices)
    return dict(zip(OWN, [*found, fitted], strict=True))


class Searched:
    """A collection of a finished run, with the labels of valid and test.

    Args:
        run: Name of the run.
        collection: The collection.
        root: Data root.
        solution: Runtimes of test by ID.
    """

    def __init__(self, run: str, collection: Collection, root: Path, solution: dict[str, np.ndarray]):
        features = Features(resolve(f"features/{run}/{collection.slug}"))
        ensemble = resolve(f"runs/{run}/ensemble-{collection.slug}")
        single = next(folder for _, name, _, folder in list_runs(ensemble) if name == SINGLE)
        unseen = dict(zip(UNSEEN, map(read_predictions, (single, ensemble)), strict=True))
        self.labels = {VALID: features.labels(VALID), TEST: runtimes_of(solution, collection)}
        self.programs = {split: list_programs(root, collection, split) for split in SPLITS}
        self.predictions = {s: {model: own[s] for model, own in unseen.items()} for s in SPLITS}

    def tau(self, split: str, model: str, names: list[str]) -> float:
        """Return the mean Kendall's tau of a model over some programs of a split, as a submission's rows."""
        labels = {name: self.labels[split][name] for name in names}
        own = {name: self.predictions[split][model][name] for name in names}
        return collection_score("layout", labels, as_submitted(own))["mean"]


def predict_own(pair: dict[str, Searched], split: str, name: str) -> int:
    """Add the predictions of a program's own labels to both searches; return how many labels it has."""
    programs = [next(p for p in pair[s].programs[split] if p.name == name) for s in SEARCHES]
    layouts = [read_outputs(program) for program in programs]
    runtime = np.concatenate([pair[search].labels[split][name] for search in SEARCHES])
    for model, values in own_predictions(one_hot(np.concatenate(layouts)), runtime).items():
        parts = np.split(values, [len(layouts[0])])
        for search, part in zip(SEARCHES, parts, strict=True):
            pair[search].predictions[split].setdefault(model, {})[name] = part
    return len(runtime)


def common_names(pair: dict[str, Searched], split: str) -> list[str]:
    """Return the programs of a split that both searches have."""
    return sorted(set.intersection(*(set(pair[search].labels[split]) for search in SEARCHES)))


def tables(taus: dict[str, dict[str, dict[str, float]]]) -> str:
    """Return a Markdown table per split."""
    parts = []
    for split, own in taus.items():
        means = {model: float(np.mean(list(row.values()))) for model, row in own.items()}
        rows = [report.cells({split: model, **row, "mean": means[model]}) for model, row in own.items()]
        parts.append(report.table(rows))
    return "\n\n".join(parts)


def parse(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--run", default="sample", help="name of the run of make submit (default sample)")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse(arguments)
    root = resolve(options.data_root)
    solution = read_solution(root / "solution.csv")
    sources = {
        source: {
            search: Searched(options.run, get_collection(f"layout:{source}:{search}"), root, solution)
            for search in SEARCHES
        }
        for source in SOURCES
    }
    every = [
        (source, split, name)
        for source, pair in sources.items()
        for split in SPLITS
        for name in common_names(pair, split)[: 1 if options.quick else None]
    ]
    if {(source, split) for source, split, _ in every} != {(a, b) for a in SOURCES for b in SPLITS}:
        problem = "its default and random files share no programs"
        raise DataError(root, problem, "Take the sample, or another root whose searches have the same names")
    known = [predict_own(sources[s], *where) - 1 for s, *where in progress(every, desc="programs")]
    taus: dict[str, dict[str, dict[str, float]]] = {}
    for split in SPLITS:
        for model in (*UNSEEN, *OWN):
            own = taus.setdefault(split, {}).setdefault(model, {})
            for source, pair in sources.items():
                names = [name for s, t, name in every if (s, t) == (source, split)]
                own |= {f"{source}:{search}": pair[search].tau(split, model, names) for search in SEARCHES}
    facts = {"run": options.run, "programs": len(every), "known": int(np.median(known))}
    print("Run `{run}`, {programs} programs of valid and test. Models of own labels".format(**facts))
    print("know {known} labels of the program in the median.\n".format(**facts))
    print(tables(taus))
    report.finish({"benchmark": "own_labels", "environment": report.environment(), **facts, "tau": taus})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
