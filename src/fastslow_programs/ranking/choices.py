"""The choices that the configurations of a file make, in words, and what each does to the prediction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fastslow.competition.layouts import LEFT_TO_COMPILER, ROLES, format_layout
from fastslow.competition.opcodes import opcode_name
from fastslow.competition.reader import Program
from fastslow.competition.schema import TILE_DIMENSIONS, TILE_ROLES, TILE_WIDTH
from fastslow.features.scaling import unit_ranks
from fastslow_programs.program.configurations import Default

_DIFFERENCES = 2  # in words
_AND = " and "  # between tensors that choose together, and between their layouts
_TILE_WORDS = {"kernel": "kernel operand"}
"""Words for a tensor of a tile: the second operand has the name of the fused kernel that it enters."""
EFFECT_COLUMNS = (
    "choice",
    "where",
    "nodes",
    "option",
    "default",
    "configs",
    "effect",
    "standard_error",
    "explained",
)


@dataclass(frozen=True)
class NamedChoice:
    """One choice that every configuration of a file makes.

    Args:
        node: Name or number of the first node that it sets (layout), or the tensor and the dimension (tile).
        tied: Number of further nodes that always choose alike.
        tensors: The tensors that it sets, of ``ROLES`` or, for tile, one of ``TILE_ROLES``.
        options: Each option in words, such as ``{1,0}`` (minor-to-major) or ``128``.
        values: ``(C,)`` int, the option that each configuration takes.
        default: The option that others are compared with.
        known: Whether that is the compiler's own option.
        bound: For tile, the dimension whose bound it sets.
        nodes: Numbers of the nodes that it sets; none for a tile.
    """

    node: str
    tied: int
    tensors: tuple[str, ...]
    options: tuple[str, ...]
    values: np.ndarray
    default: int
    known: bool = False
    bound: int | None = None
    nodes: tuple[int, ...] = ()

    @property
    def tensor(self) -> str:
        """The tensors in words, such as ``output and input``; for tile what of the dimension is chosen."""
        return _AND.join(self.tensors) if self.bound is None else "tile size"

    @property
    def where(self) -> str:
        """Node and tensor in words, for tile the dimension whose tile size is chosen."""
        more = f" and {self.tied} alike" if self.tied else ""
        return f"{self.node}{more}: {self.tensor}"

    def change(self, option: int) -> str:
        """Return a change in words: ``dot 3: output {0,1} instead of {1,0}``; ``option`` is a position."""
        return change_in_words(self.where, self.options[option], self.options[self.default])


def change_in_words(where: str, option: str, default: str) -> str:
    """Return a change in words, each tensor that changes with its layouts.

    Args:
        where: As :attr:`NamedChoice.where`: a node, and the tensors that choose together. Or the name of
            another choice, such as a compiler's option.
        option: An option of theirs in words, a layout for each tensor.
        default: The default's, in words.
    """
    node, _, tensors = where.rpartition(": ")
    parts = [text.split(_AND) for text in (tensors, option, default)]
    if not node or len(set(map(len, parts))) > 1:
        return f"{where} {option} instead of {default}"
    named = {LEFT_TO_COMPILER: f"left to the {LEFT_TO_COMPILER}"}
    changes = [
        f"{tensor} {named.get(new, new)} instead of {named.get(old, old)}"
        for tensor, new, old in zip(*parts, strict=True)
        if new != old
    ]
    return f"{node}: {', '.join(changes)}"


def name_choices(program: Program, default: Default, names: Sequence[str] | None = None) -> list[NamedChoice]:
    """Name the choices in which the configurations of a program differ.

    Args:
        program: A layout program or a tile kernel.
        default: What others are compared with, see
            :func:`fastslow_programs.program.configurations.find_default`; where it is not known, the
            commonest option of a choice is taken for it.
        names: Name of each node of the graph; by default its opcode and number.
    """
    if program.choices is None:
        named = list(_tile_choices(program))
        options = None
    else:
        named = list(_layout_choices(program, names))
        options = default.options
        options = options if options is None else options[program.choices.varying]
    if options is None and default.config is not None:
        options = [choice.values[default.config] for choice in named]
    if options is None:
        options = np.full(len(named), -1)
    return [
        replace(
            choice,
            default=int(option if option >= 0 else np.bincount(choice.values).argmax()),
            known=bool(default.known and option >= 0),
        )
        for choice, option in zip(named, options, strict=True)
    ]


def _layout_choices(program: Program, names: Sequence[str] | None) -> Iterator[NamedChoice]:
    choices, ids = program.choices, program.node_config_ids
    words = [format_layout(layout) for layout in program.layouts.tolist()]
    for group in choices.varying:
        rows, roles = np.nonzero(choices.group == group)
        first = rows[0]
        node = int(ids[first])
        named = names[node] if names else f"{opcode_name(int(program.node_opcode[node]))} {node}"
        tensors = tuple(ROLES[role] for role in roles[rows == first])
        codes = choices.codes[first, roles[rows == first], : choices.options[group]]
        options = tuple(_AND.join(words[code] for code in option) for option in codes.T)
        nodes = tuple(ids[np.unique(rows)].tolist())
        values = choices.values[:, group].astype(np.int64)
        yield NamedChoice(named, len(nodes) - 1, tensors, options, values, 0, nodes=nodes)


def _tile_choices(program: Program) -> Iterator[NamedChoice]:
    bounds = program.config_feat.reshape(-1, len(TILE_ROLES), TILE_WIDTH)[..., :TILE_DIMENSIONS]
    for role, tensor in enumerate(TILE_ROLES):
        for dimension in range(TILE_DIMENSIONS):
            distinct, values = np.unique(bounds[:, role, dimension], return_inverse=True)
            if len(distinct) > 1:
                options = tuple(f"{value:g}" for value in distinct)
                where = f"{_TILE_WORDS.get(tensor, tensor)} dimension {dimension}"
                yield NamedChoice(where, 0, (tensor,), options, values, 0, bound=dimension)


def differences(choices: Sequence[NamedChoice], config: int) -> list[NamedChoice]:
    """Return the choices in which a configuration differs from the default."""
    return [choice for choice in choices if choice.values[config] != choice.default]


def describe_differences(choices: Sequence[NamedChoice], config: int) -> str:
    """Return the first differences of a configuration from the default in words, and the number of others."""
    changed = differences(choices, config)
    if not changed:
        return "none"
    words = [choice.change(int(choice.values[config])) for choice in changed[:_DIFFERENCES]]
    more = len(changed) - len(words)
    return "; ".join(words) + (f"; and {more} more" if more else "")


def effects(choices: Sequence[NamedChoice], prediction: np.ndarray) -> pd.DataFrame:
    """Return how much each option of each choice moves a configuration in the ranking.

    The unit is percentage points of the ranking, 0 (fastest) to 100, as predictions of different models and
    ensembles have none of their own. The *marginal effect* of an option is the mean place of the
    configurations that take it minus the mean place of the configurations that take the default's option. Its
    standard error is the one of a difference of two means. Where configurations were drawn at random the
    other choices average out; where a search proposed them (``default`` collections) an effect may belong to
    a choice that went along.

    Args:
        choices: The choices of a file.
        prediction: ``(C,)`` lower = predicted faster.

    Returns:
        One row per option that is not the default's, of the choice that explains most first. Columns:
        ``choice`` (its number), ``where``, ``nodes``, ``option`` and ``default`` in words, ``configs`` that
        take it, ``effect`` (negative is faster), ``standard_error`` (NaN below two configurations on a side),
        and ``explained``. The latter is the share of the variance of the places that the choice by itself
        explains, 0 to 1, adjusted for its number of options (epsilon squared; Kelley, PNAS 21, 1935).
    """
    place = 100 * unit_ranks(prediction)
    rows = []
    for number, choice in enumerate(choices):
        groups = [place[choice.values == option] for option in range(len(choice.options))]
        explained = _explained(groups, place)
        default = groups[choice.default]
        for option, group in enumerate(groups):
            if option != choice.default and len(group):
                words = choice.options[option], choice.options[choice.default]
                effect = group.mean() - default.mean() if len(default) else np.nan
                errors = _standard_error(group, default)
                rows.append(
                    (number, choice.where, choice.tied + 1, *words, len(group), effect, errors, explained)
                )
    table = pd.DataFrame(rows, columns=EFFECT_COLUMNS).astype(dict.fromkeys(EFFECT_COLUMNS[-3:], float))
    order = ["explained", "choice", "effect"]
    return table.sort_values(order, ascending=[False, True, True], kind="stable", ignore_index=True)


def _standard_error(one: np.ndarray, other: np.ndarray) -> float:
    if min(len(one), len(other)) < 2:
        return np.nan
    return float(np.sqrt(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other)))


def _explained(groups: Sequence[np.ndarray], place: np.ndarray) -> float:
    present = [group for group in groups if len(group)]
    total = place.var() * len(place)
    free = len(place) - len(present)
    if total == 0 or free <= 0:
        return 0.0
    within = sum(group.var() * len(group) for group in present)
    return max(0.0, float(1 - (within / free) / (total / (len(place) - 1))))
