"""Compare the compiler's estimates with measurements, under several rules of summing a program's cycles.

``python benchmarks/label_truth.py [--quick] [--programs N] [--real ../shared/real]``. The measurements are
TpuGraphs' runtimes of ``alexnet_train_batch_32``. The program is written in JAX (``common/alexnet.py``) and
compiled for TPU v3. Configurations for which the same layouts are imposed, of outputs and reshapes, give one
program. The commonest programs are compiled. Labels are kept: an interrupted call resumes.

*programs*: compiled ones of all distinct ones, the commonest first. *covered*: the fraction of configurations
whose program was compiled; the table is computed on these. *tau*: Kendall's tau-b of estimated cycles with
measured time. *bound*: the tau of each program's median measured time, an upper bound for any estimate under
what is imposed. *signs*: tied choices whose estimated effect has the sign of the measured effect, of those
with a notable measured effect. *models*: a model in the package, and the rule of one column that scored best
on its valid programs, on all configurations that are covered.

Effect of a tied choice: median time with another than its commonest option, over the median with it, where
the other choices of outputs and reshapes take their commonest option. In brackets is the tau of the choice
with time. An empty cell means that the choice is not imposed or that its programs were not compiled.
"""

import base64
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import numpy as np

from common import report
from common.alexnet import training_step
from common.binding_rules import COMMITTED, RULES, BoundProgram, instruction_costs
from common.command_line import run_main
from common.graph_files import REAL, program_of
from common.measured_runs import (
    FAR,
    Measured,
    choice_in_words,
    choose_on_half,
    disagreements,
    effects,
    name_groups,
    signs,
)
from common.options import at_least, make_parser
from fastslow.competition.metrics import kendall_tau, ranking_tau
from fastslow.competition.reader import Program, read_npz
from fastslow.competition.tied_choices import Choices
from fastslow.core.errors import SettingsError
from fastslow.core.files import write_json
from fastslow.hlo.messages import Module
from fastslow.runs.packaged import packaged_models
from fastslow.steps.finished_run import best_rule
from fastslow.steps.unseen import build_unseen
from fastslow_programs.compiler.compile_pool import Labeller, program_before_layout
from fastslow_programs.compiler.layout_space import configurable_nodes
from fastslow_programs.compiler.libtpu import Compiler, lower, require_compiler
from fastslow_programs.ranking.models import Models
from fastslow_programs.ranking.trust import ESTIMATES

FILE = "npz_all/npz/layout/xla/default/train/alexnet_train_batch_32.npz"
TABLE = {"hours": 0.2, "needs": ("real", "libtpu", "package"), "sample": False}
PROGRAMS = 16  # of 27, for 99.7 % of the configurations
SECONDS = 600.0  # time limit of a compile, which takes 20 to 60
Label = Callable[[list[bytes], str], list[dict]]


def bound_groups(program: BoundProgram, choices: Choices) -> np.ndarray:
    """Return the tied choices that are imposed."""
    return np.unique(choices.group[program.matched][program.bound_tensors()])


def match_program(label: Label, file: Program, choices: Choices) -> BoundProgram:
    """Return AlexNet before layout assignment, matched with the measured file."""
    (record,) = label([lower(*training_step())], "before layout assignment")
    if "failure" in record:
        raise SettingsError(f"AlexNet does not compile: {record['message']}")
    module = Module.FromString(base64.b64decode(record["module"]))
    return BoundProgram(module, configurable_nodes(module, record["layouts"]), file, choices.layout_codes())


def compile_commonest(
    program: BoundProgram, label: Label, programs: int
) -> tuple[np.ndarray, list[dict], list[int]]:
    """Compile the commonest programs.

    Args:
        program: The program, matched with the measured file.
        label: Returns a record with ``instructions`` for each serialised module.
        programs: Maximum number of programs to compile.

    Returns:
        ``(C,)`` number of the distinct program of each configuration; the records; and the number of each
        record's program.
    """
    codes = program.bound()
    flat = codes.reshape(len(codes), -1)
    _, first, index, counts = np.unique(
        flat, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.lexsort((np.random.default_rng(0).permutation(len(counts)), -counts))[:programs]
    records = label([program.impose(codes[first[place]]) for place in order], "programs")
    return index.ravel(), records, order.tolist()


def score_rule(
    rule: str, program: BoundProgram, measured: Measured, compiled: tuple[np.ndarray, list[dict], list[int]]
) -> dict:
    """Compare the estimates of compiled programs by a rule with the measurements.

    Args:
        rule: Its short name.
        program: The program, matched with the measured file.
        measured: The measurements.
        compiled: As returned by :func:`compile_commonest`.

    Returns:
        The figures of the rule's row, ``effects`` by name of the tied choice, and ``estimate``, ``(C,)``
        cycles of every configuration, NaN where its program was not compiled.
    """
    index, records, order = compiled
    words, count = RULES[rule]
    cycles = np.full(index.max() + 1, np.nan)
    for place, record in zip(order, records, strict=True):
        if "failure" not in record:
            cycles[place] = count(record["instructions"])
    estimate = cycles[index]
    covered = np.isfinite(estimate)
    found = {
        "rule": words,
        "programs": int(np.isfinite(cycles).sum()),
        "distinct": len(cycles),
        "failures": sum("failure" in record for record in records),
        "covered": float(covered.mean()),
        "estimate": estimate,
    }
    if not covered.any():
        return found | {"tau": None, "bound": None, "effects": {}}
    runtime, of_class = measured.runtime[covered], index[covered]
    medians = {place: np.median(runtime[of_class == place]) for place in np.unique(of_class)}
    best = np.array([medians[place] for place in of_class])
    return found | {
        "tau": kendall_tau(runtime, estimate[covered]),
        "bound": kendall_tau(runtime, best),
        "effects": effects(bound_groups(program, measured.choices), measured, estimate),
    }


def score_models(file: Program, estimate: np.ndarray) -> list[dict]:
    """Return the taus of the models in the package with the estimates of a program and with its runtimes."""
    run, known = Models(packaged_models()).of(file.file.collection), np.isfinite(estimate)
    labels = {"tau with estimates": estimate[known], "with measurements": file.runtime[known]}
    graphs = build_unseen(run.folder, [file])
    orders = {model: predictions[file.name] for model, predictions in run.predict_members(graphs).items()}
    orders["trivial rule"] = best_rule(run, graphs, file.name).prediction
    return [
        {"model": model} | {name: ranking_tau(label, order[known]) for name, label in labels.items()}
        for model, order in orders.items()
    ]


def page(results: dict[str, dict], truth: dict[str, list], chosen: dict) -> str:
    """Return the tables in Markdown."""

    def cell(pair: list | None) -> str:
        return f"{pair[0]:+.1%} ({pair[1]:.2f})" if pair else ""

    rows = [
        {
            "": name,
            "cycles": found["rule"],
            "programs": f"{found['programs']} of {found['distinct']:,}",
            "covered": f"{found['covered']:.1%}",
            "tau": found["tau"],
            "bound": found["bound"],
            "signs": "{} of {}".format(*signs(truth, found["effects"])),
        }
        for name, found in results.items()
    ]
    choices = [
        {"tied choice": name, "measured": cell(pair)}
        | {rule: cell(found["effects"].get(name)) for rule, found in results.items()}
        for name, pair in truth.items()
    ]
    far = disagreements(truth, results[COMMITTED]["effects"]) or ["none"]
    off = f"Under the rule of the labels, these effects are more than {FAR:.0%} off. {'. '.join(far)}."
    scores = report.table([report.cells(row) for row in rows])
    return "\n\n".join([scores, choice_in_words(chosen), report.table(choices), off])


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status.

    Raises:
        SettingsError: The compiler is missing.
    """
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--real", type=Path, default=REAL, help="folder with npz_all/")
    parser.add_argument(
        "--programs", type=at_least(1), default=PROGRAMS, help=f"compiled programs (default {PROGRAMS})"
    )
    options = parser.parse_args(arguments)
    path = options.real / FILE
    if not path.is_file():
        print(f"skipped: {path} is missing. Name the folder of the published files with --real")
        return 0
    require_compiler()
    options.programs = 2 if options.quick else options.programs
    tau, low, high = run(read_npz(program_of(path), labelled=True), options)["held_out"]
    if options.programs == PROGRAMS:
        figures = {"tau": round(tau, 3), "low": round(low, 3), "high": round(high, 3)}
        write_json(ESTIMATES, {"program": "AlexNet", **figures})
    return 0


def run(file: Program, options: Namespace) -> dict:
    """Score the rules, write the page and print the JSON object; return what the halves chose."""
    choices = file.choices
    limits, cache = {"seconds": SECONDS}, report.RESULTS / "label_truth" / "labels.sqlite"
    with Labeller(cache, task=program_before_layout, **limits).workers() as label:
        program = match_program(label, file, choices)
    decisive = bound_groups(program, choices)
    measured = Measured(file.runtime, choices, name_groups(file, choices), decisive)
    with Labeller(cache, task=instruction_costs, **limits).workers() as label:
        compiled = compile_commonest(program, label, options.programs)
    results = {rule: score_rule(rule, program, measured, compiled) for rule in RULES}
    estimates = {name: found.pop("estimate") for name, found in results.items()}
    chosen = choose_on_half(estimates, compiled[0], file.runtime)
    truth = effects(choices.varying, measured, measured.runtime)
    facts = {"configs": len(file.runtime), "nodes": len(file.node_config_ids)}
    facts |= {"matched": len(program.matched), "libtpu": Compiler.version(), "chosen": chosen}
    facts |= {"models": score_models(file, estimates[COMMITTED])}
    print("{configs:,} configurations, half of the published ones; libtpu {libtpu}.".format(**facts))
    print("{matched} of {nodes} configurable nodes match in opcode and shapes.\n".format(**facts))
    print(page(results, truth, chosen))
    print(f"\nThe models in the package:\n\n{report.table([report.cells(row) for row in facts['models']])}")
    report.finish({"benchmark": "label_truth", **facts, "measured": truth, "rules": results})
    return chosen


if __name__ == "__main__":
    run_main(main)
