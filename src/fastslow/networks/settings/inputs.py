"""Names of the columns of a node, and of the features of a whole configuration, that a network reads."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fastslow.competition.node_columns import COLUMN_NAMES
from fastslow.core.errors import SettingsError
from fastslow.features.scaling import ATTRIBUTES, DEPTHS, NUMERIC, TILES, Scaler
from fastslow.networks.settings.columns import PICKED, PUBLISHED_COLUMNS

CONFIG_INPUTS = ("all", "published", "violation", "none")
VIOLATION = "violation_ratio"
_SLICES = {"numeric": NUMERIC, "tiles": TILES, "depths": DEPTHS, "attributes": ATTRIBUTES}
_GROUPS = {name: [*range(part.start, part.stop)] for name, part in _SLICES.items()}
_GROUPS["picked"] = [COLUMN_NAMES.index(name) for name in PICKED]
_REMEDIES = {"attributes": "features.hlo_folder, a folder of TpuGraphs' protobufs"}


def input_columns(text: str) -> list[int]:
    """Return the columns of :func:`~fastslow.features.scaling.expand_node_features` that a network reads.

    Args:
        text: Groups joined by ``+``: ``numeric``, ``tiles``, ``depths``, ``attributes``, ``picked``.

    Raises:
        SettingsError: A group is unknown or given twice, or ``picked`` is joined with ``numeric``.
    """
    names = text.split("+")
    for name in names:
        if name not in _GROUPS:
            raise SettingsError("node_inputs", f"{name!r} in {text!r} is none of {', '.join(_GROUPS)}")
        if names.count(name) > 1:
            raise SettingsError("node_inputs", f"{name} is given twice in {text!r}")
    if {"numeric", "picked"} <= {*names}:
        raise SettingsError("node_inputs", f"numeric in {text!r} contains picked; give one of them")
    return [column for name in names for column in _GROUPS[name]]


def require_inputs(text: str, scaler: Scaler) -> None:
    """Refuse columns that the features were built without.

    Args:
        text: As for :func:`input_columns`.
        scaler: Scaler of all node columns, fitted on the train graphs.

    Raises:
        SettingsError: No column of a group varies over the train graphs.
    """
    for name in {*text.split("+")} & _REMEDIES.keys():
        if not scaler.std[_GROUPS[name]].any():
            raise SettingsError(
                "node_inputs", f"the features have no {name}; build them with {_REMEDIES[name]}"
            )


def config_columns(text: str, names: Sequence[str]) -> list[int]:
    """Return the positions in ``names`` of the features that ``text``, one of CONFIG_INPUTS, reads."""
    columns = {"all": names, "published": PUBLISHED_COLUMNS, "violation": (VIOLATION,), "none": ()}[text]
    return [names.index(name) for name in columns]


class NodePool(NamedTuple):
    """One way to pool the nodes of a graph."""

    # returns what the head reads from the sum over the nodes (or their maximum), (C, D), and their number
    finish: Callable[[Any, Any], Any]
    largest: bool = False  # whether nodes are pooled by the maximum of each channel, and not by their sum


def _unit(pooled: Any, num_nodes: Any) -> Any:
    return pooled / pooled.norm(2, 1, keepdim=True).clamp_min(1e-12)


POOLS = {
    "sum": NodePool(lambda pooled, num_nodes: pooled),
    "mean": NodePool(lambda pooled, num_nodes: pooled / num_nodes),
    "unit_sum": NodePool(_unit),
    "max": NodePool(lambda pooled, num_nodes: pooled, largest=True),
}
"""The registry: poolings of the nodes of a graph, by name."""
CONFIGURABLE = "configurable"
"""After ``@``: pool only the configurable nodes."""


class Term(NamedTuple):
    """One loss of a weighted sum."""

    name: str
    parameter: float | None  # margin or temperature; None where the loss has none
    weight: float  # the weights of all terms add up to 1


def parse_terms(text: str, known: Mapping[str, float | None]) -> list[Term]:
    """Read the setting ``loss``, a weighted sum ``NAME[@PARAMETER][:WEIGHT]+...``; a weight is 1 by default.

    Args:
        text: The sum.
        known: Names of losses and the default of their parameter; None: the loss has none.

    Returns:
        The terms, their weights divided by the sum of all (as TpuGraphs' baselines do).

    Raises:
        SettingsError: A name is unknown or repeated, a loss takes no parameter, or a number is out of range.
    """
    terms: dict[str, Term] = {}
    for part in text.split("+"):
        named, colon, weight = part.partition(":")
        name, at, parameter = named.partition("@")
        if name not in known:
            raise SettingsError("loss", f"{name!r} in {text!r} is none of {', '.join(known)}")
        if name in terms:
            raise SettingsError("loss", f"{name} is given twice in {text!r}")
        if at and known[name] is None:
            raise SettingsError("loss", f"{name} takes no parameter, {text!r} gives it {parameter!r}")
        value = _number(text, parameter) if at else known[name]
        terms[name] = Term(name, value, _number(text, weight) if colon else 1.0)
    total = sum(term.weight for term in terms.values())
    return [term._replace(weight=term.weight / total) for term in terms.values()]


def _number(text: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 1e-20 <= value <= 1e20:  # in float32 what is computed from it is finite
        form = "NAME[@PARAMETER][:WEIGHT]+..., for example pairwise_hinge@0.5:1+mse_log:0.02"
        raise SettingsError(
            "loss", f"{number!r} in {text!r} is no number of 1e-20 to 1e20; the form is {form}"
        )
    return value


class Pooling(NamedTuple):
    """One part of a readout."""

    pool: str  # one of POOLS
    configurable: bool  # whether it pools only the configurable nodes


def parse_readout(text: str) -> list[Pooling]:
    """Read the poolings that a readout concatenates, ``POOL[@configurable]+...``.

    Raises:
        SettingsError: A pooling is unknown or given twice, or what follows an @ is not ``configurable``.
    """
    parts: list[Pooling] = []
    for named in text.split("+"):
        pool, at, nodes = named.partition("@")
        if pool not in POOLS or (at and nodes != CONFIGURABLE):
            known = f"one of {', '.join(POOLS)}, alone or with @{CONFIGURABLE}"
            raise SettingsError("readout", f"{named!r} in {text!r} is not {known}")
        if (part := Pooling(pool, bool(at))) in parts:
            raise SettingsError("readout", f"{named} is given twice in {text!r}")
        parts.append(part)
    return parts
