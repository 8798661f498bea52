"""A zoo of JAX programs to make data from: families of networks in two sources, inference and training steps.

``PROGRAMS`` and ``FAMILIES`` are tables and do not import JAX; :attr:`ZooProgram.build` does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from fastslow.programs.zoo.families import FAMILIES, FAMILY_SPLIT, Family, Variant

__all__ = ["FAMILIES", "FAMILY_SPLIT", "PROGRAMS", "ZooProgram"]


@dataclass(frozen=True)
class ZooProgram:
    """A program of the zoo.

    Attributes:
        name: Unique name of family, step, width, depth, batch and, if not bfloat16, the type.
        source: ``xla`` or ``nlp``, as TpuGraphs names its two sources.
        family: Architecture; all programs of a family are in the same split.
        size: ``small`` for a program of the committed sample, ``large`` for one of the large sample only.
        build: Function without arguments that returns a function and the tuple of its argument shapes, trees
            of ``jax.ShapeDtypeStruct``, for ``jax.jit(function).trace(*shapes)``.
    """

    name: str
    source: str
    family: str
    size: str
    build: Callable[[], tuple[Callable, tuple]]


def _build(family: Family, variant: Variant) -> tuple[Callable, tuple]:
    from fastslow.programs.zoo import programs

    module, function = family.network.split(".")
    network = partial(
        getattr(import_module(f"fastslow.programs.zoo.{module}"), function),
        width=variant.width,
        depth=variant.depth,
        **family.settings,
    )
    inputs = programs.argument_shapes(variant.batch, family.floats, family.tokens, variant.dtype)
    return programs.STEPS[variant.step](network, inputs, variant.dtype)


def _programs() -> dict[str, ZooProgram]:
    programs = []
    for family in FAMILIES:
        sizes = [("small", v) for v in family.small] + [("large", v) for v in family.large]
        for size, variant in sizes:
            name = f"{family.name}_{variant.label}"
            programs.append(
                ZooProgram(name, family.source, family.name, size, partial(_build, family, variant))
            )
    return {program.name: program for program in programs}


PROGRAMS: dict[str, ZooProgram] = _programs()
