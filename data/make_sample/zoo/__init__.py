"""A zoo of JAX programs to make data from: families of networks in two sources, inference and training steps.

``PROGRAMS`` and ``FAMILIES`` are tables and do not import JAX; :attr:`ZooProgram.build` does.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from make_sample.zoo.families import FAMILIES, FAMILY_SPLIT, LONGER, MORE

__all__ = ["FAMILIES", "FAMILY_SPLIT", "LONGER", "MORE", "PROGRAMS", "ZooProgram", "in_turns", "split_of"]


class ZooProgram(NamedTuple):
    """A program of the zoo.

    Attributes:
        name: Unique name of family, step, width, depth, batch and, if not bfloat16, the type.
        source: ``xla`` or ``nlp``, as TpuGraphs names its two sources.
        family: Architecture; all programs of a family are in the same split.
        size: ``small`` for a program of the committed sample, ``large`` for one of the large sample only,
            ``more`` for one with many reshapes or large tensors.
        build: :meth:`make_sample.zoo.families.Family.build` of its variant.
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
    for families, sizes in ((FAMILIES, ("small", "large")), (MORE, ("more",)))
    for family in families
    for size in sizes
    for variant in (family.large if size == "large" else family.small)
}
"""Programs by name, in the order of the families."""


def split_of(program: ZooProgram) -> str:
    """Return the split of a program, decided by its family."""
    return FAMILY_SPLIT[program.source, program.family]


def in_turns(programs: Iterable[ZooProgram]) -> list[ZooProgram]:
    """Order programs such that every split and source has its share of any first few of them."""
    lanes: dict[tuple[str, str], list[ZooProgram]] = {}
    for program in programs:
        lanes.setdefault((program.source, split_of(program)), []).append(program)
    shares = [
        ((place + 0.5) / len(lane), program) for lane in lanes.values() for place, program in enumerate(lane)
    ]
    return [program for _, program in sorted(shares, key=lambda item: item[0])]
