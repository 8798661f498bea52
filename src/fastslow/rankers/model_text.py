"""LightGBM's model text, checked before LightGBM reads it.

LightGBM trusts its text: a child out of range is followed, a list that is too short ends the process. So
every number of every tree is counted and compared with its range. Each must be a tree: every node and leaf
is reached once, and a node's children come after it. LightGBM reads only the header and the trees, which were
checked: objective and parameters, which only a training needs, are left out.
"""

import math
import re
import sys
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import lightgbm

_HEADER = (
    r"tree\nversion=v\d\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\nmax_feature_idx=(\d{1,7})\n"
    r"(?:objective=[^\n]*\n)?"
    r"feature_names=([\x21-\x7e ]+)\nfeature_infos=([-+\w.\[\]: ]+)\ntree_sizes=([\d ]+)\n\n"
)
_KEYS = (
    *("num_leaves", "num_cat", "split_feature", "split_gain", "threshold", "decision_type", "left_child"),
    *("right_child", "leaf_value", "leaf_weight", "leaf_count", "internal_value", "internal_weight"),
    *("internal_count", "is_linear", "shrinkage"),
)
_INTEGERS = ("split_feature", "decision_type", "left_child", "right_child", "leaf_count", "internal_count")
_MAY_BE_INFINITE = ("threshold", "split_gain")  # a split between missing values and all others
_DECISIONS = {0, 2, 4, 6, 8, 10}  # numerical, with either default direction and any kind of missing value
_MOST_LEAVES = 1 << 17
_END = "end of trees\n\nfeature_importances:\n\nparameters:\n\nend of parameters\n\npandas_categorical:null\n"


def read_booster_text(text: str) -> "lightgbm.Booster":
    """Return the trees of a model text.

    Args:
        text: As ``Booster.save_model`` writes it: one output, numerical splits, constant leaves.

    Raises:
        ValueError: The text is not such a model; the tree and the key are named.
    """
    import lightgbm  # with scikit-learn a second

    try:
        return lightgbm.Booster(model_str=_checked(text))
    except lightgbm.basic.LightGBMError as error:
        raise ValueError(" ".join(str(error).split())[:200]) from None


def _checked(text: str) -> str:
    """Return header and trees of a model text, each checked."""
    header = re.match(_HEADER, text) if text.isascii() else None
    if not header:
        raise ValueError("the lines before the trees are not those of a model of one output")
    largest, names, infos, sizes = header.groups()
    columns, place = int(largest) + 1, header.end()
    if len(names.split(" ")) != columns or len(infos.split(" ")) != columns:
        raise ValueError(f"feature_names and feature_infos do not have {columns} entries")
    for number, size in enumerate(_numbers("tree_sizes", sizes, int, len(sizes.split(" ")))):
        tree = text[place : place + int(size)]
        try:
            _check_tree(tree, number, columns)
        except ValueError as error:
            raise ValueError(f"tree {number}: {error}") from None
        place += len(tree)
    if not text.startswith("end of trees\n", place):
        raise ValueError("tree_sizes does not fit the trees")
    start = re.sub(r"\nobjective=[^\n]*", "", header.group())
    return f"{start}{text[header.end() : place]}{_END}"


def _check_tree(text: str, number: int, columns: int) -> None:
    first, *lines = text.rstrip("\n").split("\n")
    entries = [line.partition("=")[::2] for line in lines]
    if first != f"Tree={number}" or not text.endswith("\n") or tuple(key for key, _ in entries) != _KEYS:
        raise ValueError(f"its lines are not Tree={number} and {', '.join(_KEYS)}")
    values = dict(entries)
    fixed = {"num_cat": "0", "is_linear": "0"}
    if not re.fullmatch(r"\d{1,6}", values["num_leaves"]) or any(values[key] != fixed[key] for key in fixed):
        raise ValueError("num_leaves is no number, or num_cat or is_linear is not 0")
    leaves = int(values["num_leaves"])
    if not 1 <= leaves <= _MOST_LEAVES:
        raise ValueError(f"num_leaves is {leaves}")
    _numbers("shrinkage", values["shrinkage"], float, 1)
    found = {
        key: _numbers(
            key, values[key], int if key in _INTEGERS else float, leaves - (not key.startswith("leaf_"))
        )
        for key in _KEYS[2:-2]
    }
    if np.any((found["split_feature"] < 0) | (found["split_feature"] >= columns)):
        raise ValueError(f"split_feature is not 0 to {columns - 1}")
    if not _DECISIONS.issuperset(found["decision_type"].tolist()):
        raise ValueError("decision_type is not that of a numerical split")
    children = np.stack([found["left_child"], found["right_child"]])
    own = np.arange(leaves - 1)
    wanted = [*range(-leaves, 0), *range(1, leaves - 1)] if leaves > 1 else []
    if sorted(children.ravel().tolist()) != wanted or np.any((children >= 0) & (children <= own)):
        raise ValueError("left_child and right_child do not make a tree")


def _numbers(key: str, text: str, kind: type, count: int) -> np.ndarray:
    """Return the numbers of a line; they must be finite, but for some keys, and their number must fit."""
    words = text.split(" ") if text else []
    number = r"-?\d{1,10}" if kind is int else r"-?\d+(\.\d+)?(e[-+]?\d{1,3})?"
    number += "|-?inf" if key in _MAY_BE_INFINITE else ""
    values = [kind(word) for word in words if re.fullmatch(number, word)]
    largest = 2**31 - 1 if kind is int else math.inf if key in _MAY_BE_INFINITE else sys.float_info.max
    if len(words) != count or len(values) != count or any(abs(value) > largest for value in values):
        raise ValueError(f"{key} is not a list of {count} finite numbers")
    return np.array(values, np.int64 if kind is int else np.float64)
