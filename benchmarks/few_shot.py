"""Rank programs of which some runtimes are known: the stack against rules fitted to the same runtimes.

``python benchmarks/few_shot.py [--quick] [--runs runs/sample] [--real ../shared/real]``, after ``make
submit``. The runtimes of n distinct configurations, drawn at random, are known; the other distinct
configurations are scored by Kendall's tau. Every predictor has the same known runtimes, the same columns and
the same predictions of the run's models.

``stack`` is ``fastslow_programs.ranking.known_runtimes``. Its rivals: the single column of
``config_feat`` with the largest tau on the known runtimes; ridge regression and boosted trees on the ranker's
table, fitted to ranks, without and with the predictions; and scikit-learn's Gaussian process on both.
``ensemble`` knows no runtime. In one table the first n of the ensemble are known, as after a search.

Programs: every file with measured runtimes; the sample's test programs, the configurations of both searches
together; the sample's test kernels with at least 100 tiles. The stack's models and constants were chosen on
the sample's valid programs and kernels (the same script, ``--split valid``) and on the measured files: there
its lead is optimistic. The test split only reports. *Ceiling* is the tau that a perfect predictor would reach
on distinct configurations, given the noise of repeated ones. *Promised* is the tau that the stack expects, by
leaving known configurations out. The rows of one *number* of programs are means over the same ones.
"""

import argparse
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from common import report
from common.ceilings import distinct_ceiling
from common.command_line import run_main
from common.few_shot import PREDICTORS, Measured
from common.kept import kept_parts
from common.labelled_sample import labelled_sample
from common.options import add_measured_options, at_least, make_parser
from common.pretrained import Pretrained, labelled_files, run_with_features
from fastslow.competition.catalog import TEST, VALID, Collection, ProgramFile
from fastslow.competition.metrics import ranking_tau
from fastslow.competition.reader import read_npz
from fastslow.core.progress import progress
from fastslow.features.graph import Graph
from fastslow.steps.unseen import read_unseen
from fastslow_programs.program.configurations import find_default
from fastslow_programs.ranking.choices import name_choices
from fastslow_programs.ranking.known_runtimes import configurations_of, learn

TABLE = {"hours": 0.15, "needs": ("run", "real"), "commands": (("--runs", "runs/sample"),)}
KNOWN = (4, 8, 16, 64, 256)
DRAWS, SAMPLE_DRAWS = 10, 3
KERNELS = 24  # of the sample, evenly by name
FEWEST = 4  # a program of fewer than twice as many configurations is left out
STACK, ENSEMBLE = "stack", "ensemble"
RIVALS = (*PREDICTORS, ENSEMBLE)
MEASURED, LAYOUTS, TILES = "measured", "sample, layouts", "sample, tiles"


@dataclass(frozen=True)
class Case:
    """One program.

    Args:
        name: Its name.
        group: ``MEASURED``, ``LAYOUTS`` or ``TILES``.
        collection: Its collection, whose models predict.
        path: Its file, with runtimes.
    """

    name: str
    group: str
    collection: Collection
    path: Path


class Program:
    """A program ready to be ranked, see :class:`Case`."""

    def __init__(self, case: Case, pretrained: Pretrained):
        folder = pretrained.features.folder
        graph: Graph = read_unseen(folder, [case.path]).graph(TEST, case.path.stem)
        file = read_npz(ProgramFile(case.collection, TEST, case.path))
        predictions = pretrained.predict(graph)
        whole = predictions.pop(pretrained.ensemble.name)
        self.graph, self.ensemble = graph, whole[graph.config_ids]
        columns = pretrained.features.config_columns
        choices = name_choices(file, find_default(file))
        self.configurations = configurations_of(
            graph, case.collection.kind, columns, choices, predictions, whole
        )
        self.rivals = Measured(
            np.asarray(graph.config_feat),
            self.configurations.columns,
            self.configurations.members,
            graph.runtime,
        )

    def known(self, drawn: np.ndarray) -> pd.DataFrame:
        """Return all measurements of some distinct configurations."""
        rows = np.isin(self.graph.config_row, drawn)
        return pd.DataFrame({"config": self.graph.config_row[rows], "runtime": self.graph.file_runtime[rows]})


def evaluate(case: Case, pretrained: Pretrained, counts: list[int], draws: int, threads: int) -> dict:
    """Return the tau of every draw by number of known runtimes and predictor, and the taus promised.

    ``first`` has the taus where the first of the ensemble are known.
    """
    program = Program(case, pretrained)
    runtime = program.graph.runtime
    total, taus, promised, first = len(runtime), {}, {}, {}
    ranking = np.argsort(program.ensemble, kind="stable")
    for n in (n for n in counts if 2 * max(n, FEWEST) <= total):
        taus[str(n)], promised[str(n)] = {}, []
        for draw in range(draws):
            order = np.random.default_rng([draw, n]).permutation(total)
            drawn, rest = order[:n], order[n:]
            found = learn(program.configurations, program.known(drawn))
            predictions = {STACK: found.mean, ENSEMBLE: program.ensemble}
            predictions |= program.rivals.predict(drawn, threads)
            for name, prediction in predictions.items():
                taus[str(n)].setdefault(name, []).append(ranking_tau(runtime[rest], prediction[rest]))
            promised[str(n)].append(found.stack.expected_tau)
        top, rest = np.split(ranking, [n])
        orders = {STACK: learn(program.configurations, program.known(top)).mean, ENSEMBLE: program.ensemble}
        first[str(n)] = {name: ranking_tau(runtime[rest], order[rest]) for name, order in orders.items()}
    measured = case.group == MEASURED
    ceiling = distinct_ceiling(program.graph.file_runtime, program.graph.config_row) if measured else np.nan
    return {
        "name": case.name,
        "group": case.group,
        "configs": total,
        "ceiling": None if np.isnan(ceiling) else ceiling,
        "taus": taus,
        "promised": promised,
        "first": first,
    }


def find_cases(options: argparse.Namespace, folder: Path) -> list[Case]:
    """Return all programs: the measured ones first, unless the split is valid."""
    groups = {"layout": LAYOUTS, "tile": TILES}
    sample = [
        Case(f"{c.name}:{path.stem}", groups[c.kind], c, path)
        for c, path in labelled_sample(folder, options.split)
    ]
    kernels = [case for case in sample if case.group == TILES]
    kept = kernels[:: max(1, -(-len(kernels) // KERNELS))]
    cases = [case for case in sample if case.group == LAYOUTS] + kept
    if options.split == TEST:
        files = labelled_files(options.real)
        cases = [Case(f"{c.name}:{path.stem}", MEASURED, c, path) for c, path in files] + cases
    if options.quick:
        first = {case.group: case for case in reversed(cases)}
        cases = [case for case in cases if first[case.group] is case]
    return cases


def mean_rows(programs: list[dict]) -> list[dict]:
    """Return the mean tau of each predictor over programs, and the promise.

    A row for each group, number of its programs and known number: the rows of a number share their programs.
    """
    rows = []
    for group in dict.fromkeys(program["group"] for program in programs):
        group_programs = [program for program in programs if program["group"] == group]
        parts = {}
        for most in KNOWN:  # a later one replaces the rows of the same programs
            part = [program for program in group_programs if str(most) in program["taus"]]
            parts[len(part)] = [(n, part) for n in KNOWN if n <= most]
        for n, here in (row for number, part in parts.items() if number for row in part):
            means = {
                name: float(np.mean([np.mean(p["taus"][str(n)][name]) for p in here]))
                for name in (STACK, ENSEMBLE, *PREDICTORS)
                if name in here[0]["taus"][str(n)]
            }
            own_promise = [tau for p in here for tau in p["promised"][str(n)] if tau is not None]
            row = {"programs": group, "number": len(here), "known": n, **means}
            row["promised"] = float(np.mean(own_promise)) if own_promise else np.nan
            rows.append(row)
    return rows


def first_rows(programs: list[dict]) -> list[dict]:
    """Return the mean tau over programs where the first of the ensemble are known, by group and number."""
    rows = []
    for group in dict.fromkeys(program["group"] for program in programs):
        for n in map(str, KNOWN):
            points = [p["first"][n] for p in programs if p["group"] == group and n in p["first"]]
            if points:
                row = {"programs": group, "number": len(points), "known": int(n)}
                rows.append(row | {name: np.mean([p[name] for p in points]) for name in (STACK, ENSEMBLE)})
    return rows


def program_rows(programs: list[dict]) -> list[dict]:
    """Return a row per measured program and known number: mean and range over draws."""
    return [
        {
            "program": program["name"].split(":")[-1][:24],
            "known": n,
            **{name: report.spread(taus.get(name, []), 2) for name in (STACK, ENSEMBLE, *PREDICTORS)},
            "ceiling": "" if program["ceiling"] is None else f"{program['ceiling']:.3f}",
            "promised": report.spread([tau for tau in program["promised"][n] if tau is not None], 2),
        }
        for program in programs
        if program["group"] == MEASURED
        for n, taus in program["taus"].items()
    ]


def margins(programs: list[dict]) -> tuple[list[dict], list[dict]]:
    """Compare the stack with every rival.

    Returns:
        A row per rival: how far the stack is ahead in the mean over groups and counts, and over measured
        programs and counts. Then the points at which the stack is more than 0.01 behind the best rival. A
        point is a measured program or a group of the sample with a number of known runtimes.
    """
    points = {}
    for row in mean_rows([p for p in programs if p["group"] != MEASURED]):
        points.setdefault((row["programs"], row["known"]), row)  # the first one has most programs
    for program in programs:
        if program["group"] == MEASURED:
            for n, taus in program["taus"].items():
                points[program["name"], int(n)] = {name: float(np.mean(v)) for name, v in taus.items()}
    measured = [point for (name, _), point in points.items() if name not in (LAYOUTS, TILES)]
    rows = [
        {
            "rival": rival,
            "all points": float(np.mean([point[STACK] - point[rival] for point in points.values()])),
            "measured": float(np.mean([point[STACK] - point[rival] for point in measured] or [np.nan])),
            "smallest": float(min(point[STACK] - point[rival] for point in points.values())),
        }
        for rival in RIVALS
    ]
    behind = []
    for (name, n), point in points.items():
        best = max(RIVALS, key=lambda rival: point[rival])
        if point[STACK] < point[best] - 0.01:
            behind.append(
                {"programs": name, "known": n, STACK: point[STACK], "best": point[best], "rival": best}
            )
    return rows, behind


def make_page(programs: list[dict], draws: tuple[int, int]) -> str:
    """Return the Markdown page of all tables."""
    ahead, behind = margins(programs)
    parts = [f"{draws[0]} draws of measured programs, {draws[1]} of the sample's."]
    parts += ["## Ahead of each rival, in Kendall's tau", report.table([report.cells(r) for r in ahead])]
    text = "Points at which the stack is more than 0.01 behind the best rival: "
    parts += [text + ("none." if not behind else f"{len(behind)}.")]
    if behind:
        parts += [report.table([report.cells(row) for row in behind])]
    parts += ["## Means over programs", report.table([report.cells(row) for row in mean_rows(programs)])]
    known_first = [report.cells(row) for row in first_rows(programs)]
    parts += ["## The first of the ensemble are known: means over programs", report.table(known_first)]
    if rows := program_rows(programs):
        parts += ["## Measured programs: mean (minimum to maximum) over draws", report.table(rows)]
    return "\n\n".join(parts)


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    add_measured_options(parser)
    parser.add_argument(
        "--draws", type=at_least(1), default=DRAWS, help=f"of a measured program (default {DRAWS})"
    )
    parser.add_argument("--split", choices=(TEST, VALID), default=TEST, help="of the sample (default test)")
    parser.add_argument(
        "--threads", type=at_least(1), default=1, help="threads of torch and LightGBM (default 1)"
    )
    options = parser.parse_args(arguments)
    options.counts = [4] if options.quick else [*KNOWN]
    options.draws = 1 if options.quick else options.draws
    return options


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse_options(arguments)
    torch.set_num_threads(options.threads)
    runs = run_with_features(options.runs)
    kept = kept_parts(__file__, options, runs)
    draws = options.draws, min(options.draws, SAMPLE_DRAWS)
    pretrained = cache(lambda collection: Pretrained(runs, collection))
    programs = []
    with tempfile.TemporaryDirectory() as folder:
        for case in progress(find_cases(options, Path(folder)), desc="programs", unit="program"):
            case_draws = draws[case.group != MEASURED]

            def found(case=case, case_draws=case_draws) -> dict:
                return evaluate(
                    case, pretrained(case.collection), options.counts, case_draws, options.threads
                )

            programs.append(kept.part(f"{case.group} {case.name}", found))
    programs = [program for program in programs if program["taus"]]
    print(make_page(programs, draws))
    facts = {"environment": report.environment(options.threads), "run": runs.name, "programs": programs}
    report.finish({"benchmark": "few_shot", **facts})
    return 0


if __name__ == "__main__":
    run_main(main)
