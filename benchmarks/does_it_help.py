"""Whether a ranking helps on programs that no model saw, by kind of label.

``python benchmarks/does_it_help.py --labels KIND [--quick]``. The models in the package rank as ``fastslow
rank`` does. The kind ``compiler``: ``fastslow convert SET=label=True`` labels functions in forms that the zoo
lacks (``common/unseen_programs.py``), beside the sample's test programs with their labels. The kind
``device``: ``fastslow measure`` labels these functions and programs of the zoo's test split on this machine.
The kind ``tpu``: TpuGraphs' own runs.

The labels of n configurations drawn at random are known, the others are ranked. *tau* is Kendall's tau on the
others, *opa* the share of their pairs in the right order. *top k*: how much slower than the best is the
fastest of the known ones and the first k of the order; the order *default* has the default only. On a device
the even rounds choose and are known, the odd rounds score, so that luck in a measurement is no gain. *The
best* is the configuration that measuring all of them would choose: it has the fastest even rounds. In the odd
rounds others can be faster, so differences from it can be negative. *halves agree* is the tau between the
halves, which a good ranking can exceed. *rule* is the single feature that ``fastslow
rank`` prints. It is the best one on the train programs of the models in the package, the sample's and
``data/more``'s. The sample's own train programs choose another one for xla, whose tau on the measured
programs ``more_programs.py`` has. *column* is the single feature with the largest tau on the known ones;
*ridge* is fitted to their choices. *default* is the compiler's own configuration, of a device the
unconstrained program. *expected* is the tau that ``fastslow rank`` states. With nothing known it states a
band of tau for 80 % of programs (*low*, *high*), unless no program like it was scored. Programs that made the
bands have none here: their own score is in it.

n are known where a program has 2n configurations or more. The rows of one *number* of programs are means over
the same ones. *tau - rank* and *top 1 - rank*: an order minus ``fastslow rank`` with as many known, paired by
program, ± the standard error over programs.

The kind ``device`` also writes ``device.json`` into the package, whose figures ``fastslow rank`` prints.
"""

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd

from common import report
from common.command_line import run_main
from common.few_shot import rank_labels
from common.graph_files import REAL
from common.kept import finite, kept_parts
from common.labelled_sample import labelled_sample
from common.options import make_parser
from common.pretrained import labelled_files
from common.unseen_programs import held_out, own_programs
from fastslow.competition.catalog import TEST, ProgramFile
from fastslow.competition.metrics import kendall_tau, ordered_pair_accuracy, ranking_tau
from fastslow.competition.reader import Program, read_npz
from fastslow.core.files import write_json
from fastslow.core.progress import progress
from fastslow.ensemble.baselines import GraphRows, choose_column, fit_ridge
from fastslow.features.scaling import standardise
from fastslow.runs.packaged import packaged_models
from fastslow.steps.finished_run import best_rule
from fastslow.steps.unseen import build_unseen
from fastslow_programs.commands.measure import measure_program
from fastslow_programs.compiler.device import device_name
from fastslow_programs.compiler.lowering import lower_function
from fastslow_programs.program.configurations import find_default, identify
from fastslow_programs.program.convert import make_program
from fastslow_programs.program.program_settings import ConvertSettings
from fastslow_programs.program.user_program import FunctionSource
from fastslow_programs.ranking.choices import name_choices
from fastslow_programs.ranking.known_runtimes import configurations_of, learn
from fastslow_programs.ranking.models import Models
from fastslow_programs.ranking.trust import ADVISED, FIGURES, TOLD

COMPILER, DEVICE, TPU = LABELS = "compiler", "device", "tpu"
TABLE = {
    "hours": 0.5,
    "needs": ("libtpu", "real", "package"),
    "commands": (("--labels", "compiler"), ("--labels", "device"), ("--labels", "tpu")),
}
CONFIGS, DRAWS = 64, 5
KNOWN, TOPS = (0, ADVISED, 16, 32), (1, 5, 10, 100)
MODEL, RULE, COLUMN, RIDGE = "fastslow rank", "rule", "column", "ridge"
RANDOM, DEFAULT = "random", "default"
NEAR = 0.01  # a slowdown that does not count
Case = tuple[Program, np.ndarray | None]
"""A program, and ``(2, C_file)`` labels that choose and that score; None where they are in its file."""


def estimated(call: tuple, name: str, folder: Path, configs: int) -> Case:
    """Return a function compiled for a TPU, with the compiler's estimates."""
    settings = ConvertSettings(name=name, configs=configs, label=True, data_root=str(folder))
    return make_program(settings.of(FunctionSource.of_function(*call))), None


def measured(call: tuple, name: str, folder: Path, configs: int) -> Case:
    """Return a function lowered for this machine, with medians of the even and the odd rounds."""
    source = folder / f"{name}.hlo.pb"
    source.write_bytes(lower_function(*call).module.SerializeToString())
    settings = ConvertSettings(source=str(source), name=name, configs=configs, data_root=str(folder))
    with contextlib.redirect_stdout(sys.stderr):
        rows = pd.read_csv(measure_program(settings)["table"])
    program = make_program(settings)
    halves = rows.groupby([rows["round"] % 2, "id"])["runtime"].median().unstack()
    return program, halves.reindex(columns=identify(program)).to_numpy()


def cases(labels: str, folder: Path, configs: int) -> Iterator[tuple[str, Callable[[], Case]]]:
    """Yield a name and a function that makes the case, for each program of a kind of labels."""
    calls = {COMPILER: own_programs, DEVICE: lambda: own_programs() | held_out(), TPU: dict}[labels]()
    make = estimated if labels == COMPILER else measured
    for name, call in calls.items():
        yield name, partial(make, call, name.replace(" ", "_"), folder, configs)
    sample, real = partial(labelled_sample, folder, TEST), partial(labelled_files, REAL)
    for collection, path in {COMPILER: sample, DEVICE: tuple, TPU: real}[labels]():
        if collection.kind == "layout":
            file = ProgramFile(collection, TEST, path)
            yield f"{collection.slug} {path.stem}", lambda file=file: (read_npz(file, labelled=True), None)


def evaluate(case: Case, models: Models, draws: int) -> dict:
    """Return the facts of a program, and tau and regrets by number of known labels and order.

    It is empty where all configurations are alike.
    """
    program, labels = case
    run = models.of(program.file.collection)
    graphs = build_unseen(run.folder, [program])
    graph = graphs.graph(TEST, program.name)
    if graph.num_configs == 1:
        return {}
    kind, default = run.collection.kind, find_default(program)
    trust = models.seen(kind).judge(kind, graph)
    members, prediction = run.predict_program(graphs, program.name)
    orders = {MODEL: prediction, RULE: best_rule(run, graphs, program.name).prediction}
    both_labels = np.stack([graph.runtime] * 2) if labels is None else labels[:, graph.config_ids]
    ranked = np.flatnonzero(np.isfinite(both_labels).all(0))
    chooses, scores = both_labels[:, ranked]
    orders = {name: prediction[graph.config_ids[ranked]] for name, prediction in orders.items()}
    choices, columns = name_choices(program, default), graphs.config_columns
    given = configurations_of(graph, kind, columns, choices, members, prediction).take(ranked)
    taken = np.concatenate([given.choices == option for option in range(given.choices.max() + 1)], 1)
    options, features = standardise(taken), standardise(graph.config_feat[ranked])
    best, rows = scores[chooses.argmin()], []
    for n in (n for n in KNOWN if 2 * n <= len(ranked)):
        for rng in (np.random.default_rng([draw, n]) for draw in range(draws)):
            known, rest = np.split(rng.permutation(len(ranked)), [n])
            expected, found = None, orders | {RANDOM: rng.random(len(ranked))}
            if n:
                learnt = learn(given, pd.DataFrame({"config": known, "runtime": chooses[known]}))
                expected, found[MODEL] = learnt.stack.expected_tau, learnt.mean
                fitted = fit_ridge([GraphRows(options[known], chooses[known])], rank_labels)
                found[RIDGE] = fitted.predict(taken)
                column = choose_column([GraphRows(features[known], chooses[known])])
                found[COLUMN] = column.predict(features)
            for name, order in found.items():
                first = rest[np.argsort(order[rest], kind="stable")]
                picks = {f"top {k}": np.r_[known, first[:k]] for k in TOPS}
                row = {"known": n, "order": name, "tau": ranking_tau(scores[rest], order[rest])}
                row["opa"] = ordered_pair_accuracy(scores[rest], order[rest])
                row |= {
                    top: scores[picked[chooses[picked].argmin()]] / best - 1 for top, picked in picks.items()
                }
                rows.append(row | {"expected": expected if name == MODEL else None})
    slower = np.nan
    if default.config is not None:
        slower = scores[ranked == graph.config_row[default.config]][0] / best - 1
        rows.append({"known": 0, "order": DEFAULT, "top 1": slower})
    means = pd.DataFrame(rows).astype({"expected": float}).groupby(["known", "order"], sort=False).mean()
    facts = {"configurations": len(ranked), "within 1 %": np.mean(scores <= 1.01 * best)}
    facts |= {"halves agree": kendall_tau(scores, chooses), "trained on": str(trust.trained_on)}
    facts |= {"distance": trust.nearest, "low": np.nan, "high": np.nan, "default": slower}
    if not trust.scored_on:
        facts |= dict(zip(("low", "high"), trust.band(TOLD) or (), strict=False))
    facts |= {
        f"{key}, {order}": means.loc[(0, order), key] for order in (MODEL, RULE) for key in ("tau", "top 1")
    }
    return finite(facts | {"rows": means.reset_index().to_dict("records")})


def programs_with(programs: dict[str, dict], known: int) -> list[str]:
    """Return the names of the programs that were ranked with so many known labels."""
    return [name for name, facts in programs.items() if any(row["known"] == known for row in facts["rows"])]


def mean_rows(programs: dict[str, dict]) -> pd.DataFrame:
    """Return means by ``number`` of programs, known labels and order.

    The rows of a number share their programs. Programs with many known labels have rows with fewer, too.
    """
    rows = pd.DataFrame([{"program": name} | row for name in programs for row in programs[name]["rows"]])
    rows = rows.astype({"expected": float})
    rows["place"] = rows["order"].map([MODEL, DEFAULT, RULE, COLUMN, RIDGE, RANDOM].index)
    found = {}
    for most in KNOWN:  # a later one replaces the rows of the same programs
        names = programs_with(programs, most)
        part = rows[rows["program"].isin(names) & (rows["known"] <= most)]
        keys = ["known", "place", "order"]
        means = part.drop(columns="program").groupby(keys).mean().reset_index().drop(columns="place")
        for key in ("tau", "top 1"):
            means[f"{key} - rank"] = [
                "" if order == MODEL else _in_words(*paired(part, key, (known, order), (known, MODEL)))
                for known, order in zip(means["known"], means["order"], strict=True)
            ]
        means.insert(0, "number", len(names))
        found[len(names)] = means
    return pd.concat([means for number, means in found.items() if number], ignore_index=True)


def paired(rows: pd.DataFrame, key: str, one: tuple, other: tuple) -> tuple[float, float]:
    """Return the mean difference of two orders over programs, and its standard error.

    Args:
        rows: A row for each program, number of known labels and order.
        key: The column that is compared.
        one: Number of known labels and order.
        other: The same of what is subtracted.
    """
    values = rows.pivot(index="program", columns=["known", "order"], values=key)
    difference = values[one] - values[other]
    return float(difference.mean()), float(difference.sem())


def _in_words(mean: float, error: float) -> str:
    return "" if np.isnan(mean) else f"{mean:+.3f} ± {error:.3f}"


def figures(programs: dict[str, dict]) -> dict[str, str | float]:
    """Return what ``fastslow rank`` prints, see :data:`fastslow_programs.ranking.trust.FIGURES`."""
    names = programs_with(programs, ADVISED)
    means = mean_rows(programs)
    means = means[means["number"] == len(names)].set_index(["known", "order"])
    top = means["top 1"].round(3)  # as the table has them
    rows = pd.DataFrame([{"program": name} | row for name in names for row in programs[name]["rows"]])
    differences = {
        "first_over_default": ((0, MODEL), (0, DEFAULT)),
        "gain_over_default": ((0, DEFAULT), (ADVISED, MODEL)),
        "gain_over_random": ((ADVISED, RANDOM), (ADVISED, MODEL)),
    }
    told = {}
    for name, pair in differences.items():
        told[name], told[f"{name}_error"] = (round(value, 3) for value in paired(rows, "top 1", *pair))
    return {
        "device": device_name(),
        "programs": len(names),
        "measured": ADVISED,
        "default": top[0, DEFAULT],
        "first": top[0, MODEL],
        "rule": top[0, RULE],
        "first_learnt": top[ADVISED, MODEL],
        "first_at_random": top[ADVISED, RANDOM],
        **told,
    }


def make_page(programs: dict[str, dict]) -> str:
    """Return the tables of one kind of labels in Markdown."""
    each = pd.DataFrame([{"program": name, **facts} for name, facts in programs.items()]).drop(columns="rows")
    each = each.astype(dict.fromkeys(("low", "high", "default"), float))
    means = mean_rows(programs)
    first, tau = each[f"top 1, {MODEL}"] - each["default"], each[f"tau, {MODEL}"]
    counts = {
        "programs": len(each),
        "trained on": (each["trained on"] == "True").sum(),
        "default known": each["default"].notna().sum(),
        "default within 1 % of the best": (each["default"] <= NEAR).sum(),
        "first 1 % faster than the default": (first < -NEAR).sum(),
        "1 % slower": (first > NEAR).sum(),
        "tau above the rule's": (tau > each[f"tau, {RULE}"]).sum(),
        "with a band": each["low"].notna().sum(),
        "in the band": tau.between(each["low"], each["high"]).sum(),
    }
    tables = [counts], means.to_dict("records"), each.to_dict("records")
    return "\n\n".join(report.table([report.cells(row) for row in table]) for table in tables)


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--labels", choices=LABELS, default=DEVICE, help="their kind (default device)")
    options = parser.parse_args(arguments)
    kept, models, programs = kept_parts(__file__, options, packaged_models()), Models(packaged_models()), {}
    configs, draws, most = (8, 1, 1) if options.quick else (CONFIGS, DRAWS, None)
    with tempfile.TemporaryDirectory() as quick:
        folder = Path(quick) if options.quick else report.RESULTS / "does_it_help"
        folder.mkdir(parents=True, exist_ok=True)
        every = islice(cases(options.labels, folder, configs), most)
        for name, make in progress(every, desc="programs", unit="program"):
            programs[name] = kept.part(name, lambda make=make: evaluate(make(), models, draws))
    programs = {name: facts for name, facts in programs.items() if facts}
    print(f"## Labels: {options.labels}\n\n{make_page(programs)}")
    if options.labels == DEVICE and not options.quick:
        write_json(FIGURES, figures(programs))
    report.finish({"benchmark": "does_it_help", "environment": report.environment(), "programs": programs})
    return 0


if __name__ == "__main__":
    run_main(main)
