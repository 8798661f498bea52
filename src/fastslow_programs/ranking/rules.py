"""What a trivial rule says of a program: the best one that the ensemble was compared with."""

import re
from typing import NamedTuple

import numpy as np

from fastslow.competition.catalog import TEST
from fastslow.evaluation.baselines import Columns, predict_configs
from fastslow.features.unseen import UnseenGraphs
from fastslow_programs.ranking.inference import FinishedRun

_CHOSEN = re.compile(r"(?P<columns>\w+(?: \+ \w+)*), (?P<order>ascending|descending)")


class Rule(NamedTuple):
    """A trivial rule applied to a program.

    Args:
        name: Its columns and their order, such as ``violation_ratio, ascending``.
        valid: Its score on the valid programs.
        own: The score of the models there.
        prediction: ``(C,)`` lower = predicted faster.
    """

    name: str
    valid: float
    own: float
    prediction: np.ndarray


def best_rule(run: FinishedRun, graphs: UnseenGraphs, program: str) -> Rule | None:
    """Apply the rule of one or more columns that scored best on the valid programs of a run.

    Args:
        run: An ensemble; a single model is not compared with rules.
        graphs: The program's graph.
        program: Its name.
    """
    columns, found = graphs.config_columns, []
    for baseline in run.manifest.get("baselines", {}).values():
        match = _CHOSEN.fullmatch(baseline.get("chosen", ""))
        names = match["columns"].split(" + ") if match else []
        if names and set(names) <= set(columns):
            rule = Columns(tuple(map(columns.index, names)), 1 if match["order"] == "ascending" else -1)
            found.append((baseline["valid"], match.group(), rule))
    if not found:
        return None
    valid, name, rule = max(found, key=lambda entry: entry[0])
    prediction = predict_configs(rule, graphs.graph(TEST, program))
    return Rule(name, valid, run.manifest["valid"]["mean"], prediction)
