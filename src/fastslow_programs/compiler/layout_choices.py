"""Configurations of a program as TpuGraphs draws them: the choices of alike nodes are tied.

Convolutions and dots that agree in opcode, in the options of each tensor and in the compiler's default layout
of each tensor share one choice per tensor; reshapes that agree in their options share one choice. Read off
the public files, whose groups of columns (:mod:`fastslow.competition.tied_choices`) this rule gives; where a
file does not name the compiler's default, its commonest layout is taken for it.

The compiler does not take all of them (:func:`fastslow_programs.compiler.layout_constraints.taken`). A user's
program has the choices of :func:`imposable`, in which any two configurations are two programs.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fastslow.competition.layouts import ROLES
from fastslow.competition.schema import DEFAULTS
from fastslow_programs.compiler.layout_constraints import is_default, taken
from fastslow_programs.compiler.layout_space import ConfigurableNode, Layout, Layouts, NodeChoice, encode

Configuration = tuple[int, ...]
"""The option that each tied choice takes, 0 or more."""
Takes = Callable[[ConfigurableNode, Sequence[Layout]], tuple[Layout, ...]]
"""What a compiler takes of a node's layouts."""


@dataclass(frozen=True)
class TiedChoice(NodeChoice):
    """One choice for the tensors of alike nodes.

    Args:
        roles: The tensors of each node that it sets: 0 output, 1 input, 2 kernel.
        options: Possible layouts of these tensors.
        nodes: Numbers of the nodes.
        default: Position of the compiler's own option: the first that leaves the tensors to the compiler or
            is its layout. Where that is not known, or none of the options, it is 0, which is row-major.
    """

    nodes: tuple[int, ...]
    default: int


def tie(nodes: list[ConfigurableNode]) -> list[TiedChoice]:
    """Return the tied choices of a program, in the order of their first nodes."""
    alike: dict[tuple, list[ConfigurableNode]] = {}
    for node in nodes:
        alike.setdefault((node.opcode, node.choices, _defaults(node)), []).append(node)
    return [
        TiedChoice(
            roles=choice.roles,
            options=choice.options,
            nodes=tuple(node.node for node in group),
            default=_default_option(choice, group[0]),
        )
        for group in alike.values()
        for choice in group[0].choices
    ]


def imposable(nodes: list[ConfigurableNode], takes: Takes = taken) -> list[TiedChoice]:
    """Return the tied choices of a program, with options that differ in what the compiler takes.

    :func:`tie` gives them with more options. Of options that make the same program only one is left, the
    default where it is among them. So a choice of operands of convolutions or dots has only its default.

    Args:
        nodes: The configurable nodes.
        takes: What the compiler takes of a node's layouts: :func:`taken`, or
            :func:`fastslow_programs.compiler.layout_constraints.taken_here`.
    """
    by_number = {node.node: node for node in nodes}
    return [_imposable(choice, [by_number[n] for n in choice.nodes], takes) for choice in tie(nodes)]


def _imposable(choice: TiedChoice, nodes: Sequence[ConfigurableNode], takes: Takes) -> TiedChoice:
    places: dict[tuple, int] = {}  # of what the compiler takes, the option that is left
    for place in (choice.default, *range(len(choice.options))):
        layouts: list[Layout] = [()] * len(ROLES)
        for role, layout in zip(choice.roles, choice.options[place], strict=True):
            layouts[role] = layout
        places.setdefault(tuple(takes(node, layouts) for node in nodes), place)
    left = sorted(places.values())
    options = tuple(choice.options[place] for place in left)
    return replace(choice, options=options, default=left.index(choice.default))


def _defaults(node: ConfigurableNode) -> tuple[tuple[bool, ...], ...]:
    """Return which layouts of the options of a convolution or a dot are the compiler's own."""
    if node.opcode == "reshape":
        return ()
    options = [(choice.roles, option) for choice in node.choices for option in choice.options]
    return tuple(tuple(_are_default(node, *option)) for option in options)


def _default_option(choice: NodeChoice, node: ConfigurableNode) -> int:
    options = enumerate(choice.options)
    return next((at for at, option in options if all(_are_default(node, choice.roles, option))), 0)


def _are_default(node: ConfigurableNode, roles: tuple[int, ...], option: tuple[Layout, ...]) -> list[bool]:
    return [is_default(node, role, layout) for role, layout in zip(roles, option, strict=True)]


def default_configuration(choices: list[TiedChoice]) -> Configuration:
    """Return the configuration that takes the compiler's own option of each of these choices."""
    return tuple(choice.default for choice in choices)


def encode_defaults(nodes: list[ConfigurableNode]) -> dict[str, np.ndarray]:
    """Return the compiler's own layouts as a row of ``node_config_default``; empty where it was not asked.

    (K, 18) float32 as of :func:`fastslow_programs.compiler.layout_space.encode`, -1 for a tensor whose own
    layout is none of its options.
    """
    layouts: Layouts = {}
    for node in nodes:
        tensors: list[Layout] = [()] * len(ROLES)
        for choice in node.choices if node.default else ():
            for option in choice.options:
                for role, layout in zip(choice.roles, option, strict=True):
                    if layout and is_default(node, role, layout):
                        tensors[role] = layout
        layouts[node.node] = tuple(tensors)
    return {DEFAULTS: encode(layouts, nodes)} if any(node.default for node in nodes) else {}


def layouts_of(configuration: Configuration, choices: list[TiedChoice]) -> Layouts:
    """Return the layouts that a configuration gives to every node of the choices."""
    layouts: dict[int, list[Layout]] = {}
    for option, choice in zip(configuration, choices, strict=True):
        for node in choice.nodes:
            tensors = layouts.setdefault(node, [()] * len(ROLES))
            for role, layout in zip(choice.roles, choice.options[option], strict=True):
                tensors[role] = layout
    return {node: tuple(tensors) for node, tensors in layouts.items()}


def draw_configuration(choices: list[TiedChoice], rng: random.Random) -> Configuration:
    """Sample a random configuration, each choice by its weights."""
    return tuple(_draw(choice, rng) for choice in choices)


def mutate(
    configuration: Configuration, choices: list[TiedChoice], rng: random.Random, rate: float
) -> Configuration:
    """Return a copy of a configuration in which some choices are drawn again.

    Args:
        configuration: The option of each choice.
        choices: The choices with their options and weights.
        rng: Source of randomness.
        rate: Probability that a choice is drawn again, 0 to 1; it may draw the same option.
    """
    return tuple(
        _draw(choice, rng) if rng.random() < rate else option
        for option, choice in zip(configuration, choices, strict=True)
    )


def _draw(choice: TiedChoice, rng: random.Random) -> int:
    return rng.choices(range(len(choice.options)), choice.weights)[0]
