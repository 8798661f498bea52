"""A trivial rule's ranking of a program: the best rule that the ensemble was compared with."""

from typing import NamedTuple

import numpy as np

from fastslow.competition.catalog import TEST
from fastslow.ensemble.baselines import Columns, predict_configs
from fastslow.steps.finished_run import FinishedRun
from fastslow.steps.unseen import UnseenGraphs


class Rule(NamedTuple):
    """A trivial rule applied to a program.

    Args:
        name: Its columns and their order, such as ``violation_ratio, ascending``.
        valid: Its score on the valid programs.
        models: The score of the models there.
        prediction: ``(C,)`` lower = predicted faster.
    """

    name: str
    valid: float
    models: float
    prediction: np.ndarray


def best_rule(run: FinishedRun, graphs: UnseenGraphs, program: str) -> Rule | None:
    """Apply the rule of one or more columns that scored best on the valid programs of a run.

    Args:
        run: An ensemble; a single model is not compared with rules, nor is a run whose manifest does not
            hold ``columns`` and ``sign`` of its rules (of commit 8c8ffaf1 or before).
        graphs: The program's graph.
        program: Its name.
    """
    names = graphs.config_columns
    rules = [rule for rule in run.manifest.get("baselines", {}).values() if "columns" in rule]
    if not rules:
        return None
    best = max(rules, key=lambda rule: rule["valid"])
    rule = Columns(tuple(map(names.index, best["columns"])), best["sign"])
    prediction = predict_configs(rule, graphs.graph(TEST, program))
    return Rule(rule.describe(names), best["valid"], run.manifest["valid"]["mean"], prediction)
