"""Settings of every command that takes a program of your own."""

import re
from typing import Annotated, Literal

from annotated_types import Le

from fastslow.core.settings import NonNegative, PositiveFloat, Settings, resolve, unkeyed
from fastslow.programs.user_program import Source
from fastslow.xla.compile_pool import Labeller
from fastslow.xla.libtpu import TOPOLOGIES

MEASURED = 0  # value of the setting ``configs`` that selects the measured configurations of the file


class ProgramSettings(Settings):
    """A program and the configurations that are drawn for it."""

    source: str = ""
    """Program to convert: an HLO file (HloModuleProto, HloProto, TpuGraphs' ``.pb`` or text), or
    ``model.py:make``, where ``make()`` returns ``(function, arguments)`` for ``jax.jit``."""
    kernel: str = ""
    """Which kernel of a TpuGraphs ``.pb`` that holds several, by name or by number from 0."""
    data_root: str = unkeyed("data/converted")
    """Root of the data folder to write to; the npz is written under its ``npz_all/``."""
    collection: str = "layout:xla:random"
    """Layout collection to write to, whose models will rank the program: ``nlp`` for a language model,
    ``xla`` otherwise."""
    name: str = ""
    """File name of the npz without suffix; that of the source if empty."""
    generation: Literal[*TOPOLOGIES] = "v3"
    """TPU generation that a JAX function is compiled for and labels are estimated for; TpuGraphs was measured
    on v3."""
    configs: Annotated[NonNegative, Le(1_000_000)] = 64
    """Maximum number of distinct configurations of tied choices, the default first and the others sampled at
    random; 0 takes the measured configurations and runtimes of a TpuGraphs ``.pb`` instead."""
    allow_unknown: bool = False
    """Give opcodes that the competition does not number the number 0 instead of refusing the program."""
    seed: NonNegative = 0
    """Seed of the sampled configurations."""
    seconds: PositiveFloat = unkeyed(600.0)
    """Time limit of one compile in seconds; raise it for a large program."""

    def check(self) -> None:
        """Check what the types of the fields do not express."""
        self.require(re.fullmatch(r"([\w-][\w.-]*)?", self.name), "name", "made of letters, digits, _ . -")

    @classmethod
    def _hint(cls, name: str) -> str:
        if name == "padding":
            return 'the file is 0-padded as the schema says; the feature step pads: SET="features.padding=-1"'
        return super()._hint(name)

    @property
    def program(self) -> str:
        """Name of the program: the setting, or that of the source."""
        return self.name or re.sub(r"[^\w.-]", "_", self.origin.name).lstrip(".")

    @property
    def origin(self) -> Source:
        """The source, parsed.

        Raises:
            SettingsError: It is neither an HLO file nor ``model.py:FUNCTION``.
            DataError: There is no such file.
        """
        return Source.of(self.source, self.kernel)

    def labeller(self) -> Labeller:
        """Return what compiles for the generation; results are kept under ``data_root``."""
        cache = resolve(self.data_root) / "labels.sqlite"
        return Labeller(cache, self.generation, seconds=self.seconds)
