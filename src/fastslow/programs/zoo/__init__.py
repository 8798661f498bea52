"""A zoo of JAX programs to make data from: families of networks in two sources, inference and training steps.

``PROGRAMS`` and ``FAMILIES`` are tables and do not import JAX; :attr:`ZooProgram.build` does.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from fastslow.programs.zoo.families import FAMILIES, FAMILY_SPLIT

__all__ = ["FAMILIES", "FAMILY_SPLIT", "PROGRAMS", "ZooProgram"]


class ZooProgram(NamedTuple):
    """A program of the zoo.

    Attributes:
        name: Unique name of family, step, width, depth, batch and, if not bfloat16, the type.
        source: ``xla`` or ``nlp``, as TpuGraphs names its two sources.
        family: Architecture; all programs of a family are in the same split.
        size: ``small`` for a program of the committed sample, ``large`` for one of the large sample only.
        build: :meth:`fastslow.programs.zoo.families.Family.build` of its variant.
    """

    name: str
    source: str
    family: str
    size: str
    build: Callable[[], tuple[Callable, tuple]]


PROGRAMS = {
    (name := f"{family.name}_{variant.label}"): ZooProgram(
        name, family.source, family.name, size, partial(family.build, variant)
    )
    for family in FAMILIES
    for size, variants in (("small", family.small), ("large", family.large))
    for variant in variants
}
"""Programs by name, in the order of the families."""
