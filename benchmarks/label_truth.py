"""Compare the compiler's estimates with measured runs, under several rules of binding a configuration.

``python benchmarks/label_truth.py [--quick] [--rules NAME[:N] ...] [--programs N] [--real ../shared/real]``.
The measured runs are TpuGraphs' runs of ``alexnet_train_batch_32``. The program is written in JAX
(``common/alexnet.py``) and compiled for TPU v3. Configurations for which a rule binds the same layouts give
one program. The commonest programs of each rule are compiled. Labels are kept: an interrupted call resumes.

*programs*: compiled ones of all distinct ones, the commonest first. *covered*: the fraction of configurations
whose program was compiled; the row is computed on these, so rows that cover different configurations do not
compare exactly. *tau*: Kendall's tau-b of estimated cycles with measured time. *bound*: the tau of each
program's median measured time, an upper bound for any estimate under what the rule binds. *signs*: tied
choices whose estimated effect has the sign of the measured effect, of those with a notable measured effect.

Effect of a tied choice: median time with another than its commonest option, over the median with it, where
the other choices of outputs and reshapes take their commonest option. In brackets is the tau of the choice
with time. An empty cell means that the rule does not bind the choice or that the programs were not compiled.
"""

import base64
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from common import report
from common.alexnet import training_step
from common.binding_rules import COMMITTED, RULES, BoundProgram, Rule, instruction_costs
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
from common.options import make_parser
from fastslow.competition.metrics import kendall_tau
from fastslow.competition.reader import Program, read_npz
from fastslow.competition.tied_choices import Choices
from fastslow.core.errors import SettingsError
from fastslow.hlo.messages import Module
from fastslow_programs.compiler.compile_pool import Labeller, program_before_layout
from fastslow_programs.compiler.layout_space import configurable_nodes
from fastslow_programs.compiler.libtpu import Compiler, lower, require_compiler

FILE = "npz_all/npz/layout/xla/default/train/alexnet_train_batch_32.npz"
TABLE = {
    "hours": 1.0,
    "needs": ("real", "libtpu"),
    "sample": False,
    "commands": (("--rules", "committed:27", "unfilled:27", "no copies:27", "outputs:27", "products:7"),),
}
QUICK = {COMMITTED: 2, "products": 2}
SECONDS = 600.0  # time limit of a compile, which takes 20 to 60
Label = Callable[[list[bytes], str], list[dict]]


def bound_groups(rule: Rule, program: BoundProgram, choices: Choices) -> np.ndarray:
    """Return the tied choices that a rule binds."""
    return np.unique(choices.group[program.matched][program.bound_tensors(rule)])


def match_program(label: Label, file: Program, choices: Choices) -> BoundProgram:
    """Return AlexNet before layout assignment, matched with the measured file."""
    (record,) = label([lower(*training_step())], "before layout assignment")
    if "failure" in record:
        raise SettingsError(f"AlexNet does not compile: {record['message']}")
    module = Module.FromString(base64.b64decode(record["module"]))
    return BoundProgram(module, configurable_nodes(module, record["layouts"]), file, choices.layout_codes())


def score_rule(rule: Rule, program: BoundProgram, measured: Measured, label: Label, programs: int) -> dict:
    """Compile the commonest programs under a rule and compare their estimates with the measured runs.

    Args:
        rule: The rule.
        program: The program, matched with the measured file.
        measured: The measured runs.
        label: Returns a record with ``instructions`` for each serialised module.
        programs: Maximum number of programs to compile.

    Returns:
        The figures of the rule's row, ``effects`` by name of the tied choice, and ``estimate``, ``(C,)``
        cycles of every configuration, NaN where its program was not compiled.
    """
    codes = program.bound(rule)
    flat = codes.reshape(len(codes), -1)
    _, first, index, counts = np.unique(
        flat, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.lexsort((np.random.default_rng(0).permutation(len(counts)), -counts))[:programs]
    records = label([program.impose(rule, codes[first[place]]) for place in order], rule.name)
    cycles = np.full(len(counts), np.nan)
    for place, record in zip(order, records, strict=True):
        if "failure" not in record:
            cycles[place] = rule.cycles(record["instructions"])
    estimate = cycles[index]
    covered = np.isfinite(estimate)
    found = {
        "rule": rule.name,
        "programs": int(np.isfinite(cycles).sum()),
        "distinct": len(counts),
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
        "effects": effects(bound_groups(rule, program, measured.choices), measured, estimate),
    }


def page(results: dict[str, dict], truth: dict[str, list], chosen: dict) -> str:
    """Return the tables in Markdown."""

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.3f}"

    def cell(pair: list | None) -> str:
        return f"{pair[0]:+.1%} ({pair[1]:.2f})" if pair else ""

    rows = [
        {
            "": name,
            "binds": found["rule"],
            "programs": f"{found['programs']} of {found['distinct']:,}",
            "covered": f"{found['covered']:.1%}",
            "tau": number(found["tau"]),
            "bound": number(found["bound"]),
            "signs": "{} of {}".format(*signs(truth, found["effects"])),
        }
        for name, found in results.items()
    ]
    choices = [
        {"tied choice": name, "measured": cell(pair)}
        | {rule: cell(found["effects"].get(name)) for rule, found in results.items()}
        for name, pair in truth.items()
    ]
    parts = [report.table(rows), choice_in_words(chosen), report.table(choices)]
    if COMMITTED in results:
        far = disagreements(truth, results[COMMITTED]["effects"]) or ["none"]
        parts.append(f"Under the rule of the labels, effects more than {FAR:.0%} off: {'; '.join(far)}.")
    return "\n\n".join(parts)


def parse_rules(given: list[str], programs: int) -> dict[str, int]:
    """Return the number of programs by rule; ``NAME:N`` asks for N.

    Raises:
        SettingsError: There is no such rule.
    """
    wanted = {name: int(count or programs) for name, _, count in (each.partition(":") for each in given)}
    if unknown := wanted.keys() - RULES.keys():
        raise SettingsError(f"--rules: no rule {', '.join(sorted(unknown))}; choose from {', '.join(RULES)}")
    return wanted


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status, 1 where the compiler is missing."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--real", type=Path, default=REAL, help="folder with npz_all/ (default ../shared/real)"
    )
    parser.add_argument("--rules", nargs="+", default=list(RULES), metavar="NAME[:N]", help=", ".join(RULES))
    parser.add_argument("--programs", type=int, default=24, help="compiled programs of a rule (default 24)")
    parser.add_argument("--processes", type=int, default=2, help="worker processes (default 2)")
    parser.add_argument(
        "--labels", type=Path, default=report.RESULTS / "label_truth", help="folder of labels"
    )
    options = parser.parse_args(arguments)
    path = options.real / FILE
    if not path.is_file():
        print(f"skipped: {path} is missing. Name the folder of the published files with --real")
        return 0
    try:
        require_compiler()
        wanted = QUICK if options.quick else parse_rules(options.rules, options.programs)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    run(read_npz(program_of(path), labelled=True), wanted, options)
    return 0


def run(file: Program, wanted: dict[str, int], options) -> None:
    """Score the rules, write the page and print the JSON object."""
    choices = file.choices
    limits = {"processes": options.processes, "seconds": SECONDS}
    cache = options.labels / "labels.sqlite"
    with Labeller(cache, task=program_before_layout, **limits).workers() as label:
        program = match_program(label, file, choices)
    decisive = bound_groups(RULES[COMMITTED], program, choices)
    measured = Measured(file.runtime, choices, name_groups(file, choices), decisive)
    with Labeller(cache, task=instruction_costs, **limits).workers() as label:
        results = {name: score_rule(RULES[name], program, measured, label, n) for name, n in wanted.items()}
    estimates = {name: found.pop("estimate") for name, found in results.items()}
    _, classes = np.unique(
        program.bound(RULES[COMMITTED]).reshape(len(file.runtime), -1), axis=0, return_inverse=True
    )
    chosen = choose_on_half(estimates, classes.ravel(), file.runtime)
    truth = effects(choices.varying, measured, measured.runtime)
    facts = {
        "configs": len(file.runtime),
        "matched": len(program.matched),
        "nodes": len(file.node_config_ids),
    }
    facts |= {"libtpu": Compiler.version(), "chosen": chosen}
    print("{configs:,} configurations, half of the published ones; libtpu {libtpu}.".format(**facts))
    print("{matched} of {nodes} configurable nodes match in opcode and shapes.\n".format(**facts))
    print(page(results, truth, chosen))
    report.finish({"benchmark": "label_truth", **facts, "measured": truth, "rules": results})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
