"""Settings of every command that takes a program of your own."""

import re
import zipfile
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from annotated_types import Le
from pydantic import BaseModel, PrivateAttr

from fastslow.competition.catalog import TEST, get_collection
from fastslow.core.settings import (
    NonNegative,
    PositiveFloat,
    Settings,
    Unread,
    find_typed,
    resolve,
    unkeyed,
)
from fastslow_programs.compiler.compile_pool import Labeller
from fastslow_programs.compiler.libtpu import TOPOLOGIES
from fastslow_programs.program.user_program import Source

_LONGEST = 200  # bytes of a name; files have 255, suffixes included


def clean_name(name: str) -> str:
    """Return a name as a file may have it: of letters, digits and ``_ . -``, and cut where it is too long."""
    clean = re.sub(r"[^\w.-]", "_", name).lstrip(".")
    return clean.encode()[:_LONGEST].decode(errors="ignore")


MEASURED = 0  # value of the setting ``configs`` that selects the measured configurations of the file


class SourceSettings(Settings):
    """Settings with a source: a text that names it, or one that no text names."""

    source: str = ""
    """The program."""
    kernel: str = ""
    """The kernel of a TpuGraphs ``.pb`` that holds several, by name or by number from 0."""
    name: str = ""
    """Its name; the source's if empty."""
    cache: bool = True
    """Take as known what ``tune`` and ``measure`` evaluated of this program before, on this device or by this
    compiler, and keep what is evaluated (in ``measured/`` of the output folder)."""

    _given: Source | None = PrivateAttr(None)

    def check_name(self) -> None:
        """Refuse a name that no file can have."""
        self.require(re.fullmatch(r"([\w-][\w.-]*)?", self.name), "name", "made of letters, digits, _ . -")
        self.require(len(self.name.encode()) <= _LONGEST, "name", f"at most {_LONGEST} bytes long")

    def of(self, source: Source) -> Self:
        """Return these settings for a source that no text names, such as a function in memory."""
        settings = self.replace(name=self.name or self.name_of(source))
        BaseModel.__setattr__(settings, "_given", source)
        return settings

    def name_of(self, source: Source) -> str:
        """Return the name of a source where none is given."""
        return clean_name(source.name)

    def check_typed(self) -> None:
        """Refuse a source that is not there."""
        Source.of(self.source, self.kernel)

    @property
    def origin(self) -> Source:
        """The source, parsed.

        Raises:
            SettingsError: It is neither an HLO file nor ``model.py:FUNCTION``.
            DataError: There is no such file.
        """
        return self._given or Source.of(self.source, self.kernel)

    @property
    def is_npz(self) -> bool:
        """Whether the source is a competition file."""
        path = find_typed(self.source)
        return path.suffix == ".npz" or (path.is_file() and zipfile.is_zipfile(path))


class ProgramSettings(SourceSettings):
    """A program and the configurations that are drawn for it."""

    source: str = ""
    """Program to convert: an HLO file (HloModuleProto, HloProto, TpuGraphs' ``.pb`` or text), or
    ``model.py:make``, where ``make()`` returns ``(function, arguments)`` for ``jax.jit``."""
    data_root: str = unkeyed("data/converted")
    """Root of the data folder to write to; the npz is written under its ``npz_all/``."""
    collection: str = "layout:xla:random"
    """Layout collection to write to, whose models will rank the program: ``nlp`` for a language model,
    ``xla`` otherwise."""
    name: str = ""
    """File name of the npz without suffix; the source's if empty."""
    generation: Literal[*TOPOLOGIES] = "v3"
    """TPU generation that a JAX function is compiled for and labels are estimated for; TpuGraphs was measured
    on v3."""
    configs: Annotated[NonNegative, Le(1_000_000)] = 64
    """Maximum number of distinct configurations of tied choices, the default first and the others sampled at
    random; 0 takes the measured configurations and runtimes of a TpuGraphs ``.pb`` instead."""
    seed: NonNegative = 0
    """Seed of the sampled configurations."""
    seconds: PositiveFloat = unkeyed(600.0)
    """Time limit of one compile in seconds; raise it for a large program."""

    def check(self) -> None:
        """Check what the types of the fields do not express."""
        self.check_name()

    @classmethod
    def _hint(cls, name: str) -> str:
        if name == "padding":
            return 'the file is 0-padded, as in the schema; the feature step pads: SET="features.padding=-1"'
        return super()._hint(name)

    @property
    def program(self) -> str:
        """Name of the program: the setting, or the source's name."""
        return self.name or clean_name(self.origin.name)

    def require_read(self) -> None:
        """Refuse settings that a source of this kind does not read.

        A command or a function asks this once, at its beginning: the settings of a step inside it also carry
        what another step reads.

        Raises:
            SettingsError: There is one, and its value is not its default.
        """
        self.require_defaults(self.unread_by_source())

    def unread_by_source(self) -> Unread:
        """Return the settings that a source of this kind does not read, as :meth:`unread` does."""
        unread: dict[str, tuple[str, str]] = {}
        if self.is_npz:
            why = "on an npz, whose configurations are there already", "give the program's HLO"
            unread |= dict.fromkeys(("kernel", "configs", "seed", "cache", "generation", "seconds"), why)
        elif self.is_measured:
            why = "on measured configurations", "draw some: configs=100"
            unread |= dict.fromkeys(("seed", "cache"), why)
        if self.origin.function:
            unread["kernel"] = "on a function, which is one program", "name another function"
        if not self.compiles and not self.is_npz:
            why = "where nothing is compiled for a TPU", f"compile: {self.to_compile}"
            unread |= dict.fromkeys(("generation", "seconds"), why)
            if self.cache and not self.is_measured:  # it looks for what the compiler of that one estimated
                del unread["generation"]
        return unread

    to_compile: ClassVar[str] = ""
    """The setting with which configurations are compiled for a TPU."""

    @property
    def compiles(self) -> bool:
        """Whether something is compiled for a TPU."""
        return bool(self.origin.function)

    @property
    def is_measured(self) -> bool:
        """Whether the configurations are those that a TpuGraphs ``.pb`` measured."""
        return self.configs == MEASURED

    def labeller(self) -> Labeller:
        """Return the workers that compile for the TPU ``generation``; results are kept in ``data_root``."""
        cache = resolve(self.data_root) / "labels.sqlite"
        return Labeller(cache, self.generation, seconds=self.seconds)


class ConvertSettings(ProgramSettings):
    """Settings of the conversion of one program."""

    cache: bool = False
    """Add configurations of this program that ``tune`` and ``measure`` evaluated before, as ``rank`` does."""
    label: bool = False
    """Fill ``config_runtime`` with the compiler's estimated cycles instead of 0 (takes minutes to hours);
    configurations that the compiler refuses are dropped."""
    to_compile: ClassVar[str] = "label=True"

    @property
    def compiles(self) -> bool:
        """Whether something is compiled for a TPU: a function always, a file for its labels.

        Raises:
            SettingsError: The source is neither an HLO file nor ``model.py:FUNCTION``.
            DataError: There is no such file.
        """
        return super().compiles or self.label

    def check(self) -> None:
        """Check what the types of the fields do not express."""
        super().check()
        kind = get_collection(self.collection).kind
        self.require(
            kind == "layout" or self.configs == MEASURED,
            "collection",
            "a layout collection, unless configs=0",
        )
        self.require(not self.label or self.configs != MEASURED, "label", "False, since configs=0 has labels")

    @property
    def npz(self) -> Path:
        """Path of the competition file that the conversion writes."""
        folder = get_collection(self.collection).folder(resolve(self.data_root), TEST)
        return folder / f"{self.program}.npz"

    @property
    def folder(self) -> str:
        """Folder of the graph picture, the table of configurable nodes and the executed notebook."""
        return f"{self.data_root}/programs/{self.program}"


class MeasureSettings(ConvertSettings):
    """Settings of the measurement of one program."""

    source: str = ""
    """Program to measure: an HLO file (HloModuleProto, HloProto, TpuGraphs' ``.pb`` or text), or
    ``model.py:make``, where ``make()`` returns ``(function, arguments)`` for ``jax.jit``."""
    name: str = ""
    """Name of the table and the page; the source's if empty."""
    cache: bool = False
    """Measure also the configurations of this program that ``tune`` and ``measure`` evaluated before."""
    data_root: str = unkeyed("data/converted")
    """Root of the folder to write to; the table and the page are written under its ``measured/``."""
