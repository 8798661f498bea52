"""Settings of a tuning."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from annotated_types import Le

from fastslow.competition.runtimes import are_runtimes
from fastslow.core.errors import DataError
from fastslow.core.settings import (
    FractionBelowOne,
    NonNegative,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    Settings,
    Threads,
    Unread,
    find_typed,
    resolve,
    unkeyed,
)
from fastslow_programs.compiler.libtpu import TOPOLOGIES
from fastslow_programs.program.csv_rows import NUMBER, read_rows
from fastslow_programs.program.program_settings import MEASURED, SourceSettings, clean_name
from fastslow_programs.program.user_program import Source
from fastslow_programs.ranking.settings import RankSettings
from fastslow_programs.tuning.confirmation import Plan
from fastslow_programs.tuning.evaluators import EVALUATORS
from fastslow_programs.tuning.search.strategies import GUIDED

STRATEGIES = (GUIDED, "random")
NO_RUN = "none"
_QUOTED = 80  # characters of a cell in a message
_FORM = "Give a CSV whose first line is program,weight or program,weight,collection"


class SearchSettings(Settings):
    """Settings that a tuning and a fleet share: the proposal and the evaluation of configurations."""

    evaluator: Literal["", *EVALUATORS] = ""
    """Source of a configuration's value: the TPU ``compiler``'s estimated cycles, ``replay`` of the labels of
    an npz or a measured ``.pb``, this machine's own ``device`` (CPU, GPU or TPU through JAX), or a
    ``command`` of yours. If empty, replay for an npz or a tile ``.pb``, otherwise the compiler."""
    strategy: Literal[*STRATEGIES] = GUIDED
    """Method that proposes configurations: ``guided`` takes the predicted fastest, then the nearest to the
    fastest so far, and in a space of yours what Optuna's TPE proposes; ``random`` draws them."""
    run: str = ""
    """Trained run whose prediction guides: a folder such as ``runs/sample``, the folder of one ensemble or
    model, or ``package`` for the models in the package. If empty, the newest complete one of yours, or else
    ``package``. With ``none`` values alone guide."""
    evaluations: Annotated[Positive, Le(1_000_000)] = 64
    """Budget: evaluations of the whole study, failed ones included."""
    budget_seconds: NonNegativeFloat = unkeyed(0.0)
    """Budget: seconds after which this process proposes nothing more; 0 for no limit."""
    batch: Annotated[Positive, Le(10_000)] = 8
    """Configurations that are proposed together: guidance is better with few, evaluators that work in
    parallel are faster with many."""
    command: str = ""
    """Evaluator ``command`` only. Command line to which two paths are appended: the configuration as JSON and
    (not for a space of yours) the constrained HLO; the last line of its output is the value, lower is
    faster."""
    confirm: FractionBelowOne = 0.5
    """Evaluators ``command`` and ``device`` only. Share of the evaluations that compares the fastest
    configuration with the default again, as values are noisy; 0 to believe single measurements."""
    repeats: Annotated[Positive, Le(100)] = 3
    """Evaluator ``command`` only. Runs of the command in one evaluation, whose median is the value; 1 for a
    command that repeats by itself, or whose values are exact."""
    seconds: PositiveFloat = unkeyed(600.0)
    """Time limit of one evaluation, or of one run of a command, in seconds; what takes longer counts as
    failed. On a device a candidate may take ten times as long as the default, or 30 s if that is longer."""
    attempts: Annotated[Positive, Le(100)] = unkeyed(2)
    """Number of attempts at a failing command, or at a program that crashes the compiler."""
    processes: Threads = unkeyed(0)
    """Evaluations side by side: 0 is one per core for the compiler and 1 for a command."""
    generation: Literal[*TOPOLOGIES] = "v3"
    """TPU generation that a program is compiled for; TpuGraphs was measured on v3."""
    data_root: str = unkeyed("data/converted")
    """Root of the folder to write to; a study is kept under its ``tuned/``."""
    seed: NonNegative = 0
    """Seed of the search."""

    def check(self) -> None:
        """Check what the types of the fields do not express."""
        guided = self.strategy == GUIDED or self.run in ("", NO_RUN)
        self.require(
            guided, "run", f"read by strategy={self.strategy}: leave it out, or set strategy={GUIDED}"
        )
        given = bool(self.command)
        self.require(given or self.evaluator != "command", "command", "given, as evaluator=command needs it")
        self.require(not given or self.evaluator == "command", "command", "read: set evaluator=command")


class TuneSettings(SearchSettings, SourceSettings):
    """Settings of the tuning of one program."""

    main: ClassVar[tuple[str, ...]] = (
        "source",
        "run",
        "evaluator",
        "command",
        "evaluations",
        "budget_seconds",
        "strategy",
        "batch",
        "collection",
        "data_root",
        "name",
        "seed",
    )

    source: str = ""
    """Program to tune: a labelled competition file (npz), an HLO file (HloModuleProto, HloProto, TpuGraphs'
    ``.pb`` or text), ``model.py:make``, where ``make()`` returns ``(function, arguments)`` for ``jax.jit``,
    or a space of yours (``space.json``)."""
    collection: str = ""
    """Collection whose models guide; if empty, the folder's collection for an npz in folders as published,
    otherwise ``tile:xla`` for a tile file and ``layout:xla:random`` for a layout. ``nlp`` is for a language
    model."""
    options: Literal["", "auto", "numerics"] = ""
    """Evaluator ``device`` only. Options of the compiler to search: ``auto`` for a short list of this kind of
    device, ``numerics`` for those too that change numerics, such as fast math. Outputs must agree with the
    default's."""
    space: Literal["", "layouts", "options", "both"] = ""
    """What is searched: ``layouts``, ``options`` of the compiler, or ``both``. If empty, options where
    ``options`` is given, else layouts."""
    name: str = ""
    """Name of the study and of its folder; if empty, the source's, with ``-options`` or ``-both`` where these
    are searched, else with an evaluator that is not the default. Another name starts another study of the
    same program."""

    def check(self) -> None:
        """Check what the types of the fields do not express."""
        super().check()
        self.check_name()
        self.require(
            self.run in ("", NO_RUN) or self.searches_layouts, "run", "read: no models guide among options"
        )
        if self.is_space:
            self.require(self.run in ("", NO_RUN), "run", "read: no models guide in a space of yours")
            possible = [name for name, kind in EVALUATORS.items() if kind.evaluates_spaces]
            is_possible = self.kind_of_evaluator in possible
            self.require(is_possible, "evaluator", f"possible for a space: {' or '.join(possible)}")
        elif self.source:
            measured = "tile" if self.is_npz else self.origin.measured
            kind = f"a {measured} .pb" if measured else "a file without runtimes"
            if self.is_npz:
                kind = "an npz"
            replay = EVALUATORS[self.kind_of_evaluator].reads_labels
            possible = {"tile": replay, "layout": True, "": not replay}[measured]
            self.require(possible, "evaluator", f"possible for {kind}")
        if self.plan:
            enough = f"enough for a verdict by evaluator={self.kind_of_evaluator}"
            remedy = f"give {self.smallest} or more, or confirm=0 to believe single measurements"
            self.require(self.evaluations >= self.smallest, "evaluations", f"{enough}: {remedy}")

    def unread(self) -> Unread:
        """Return the settings that the evaluator does not read, or not for this source, once it is known."""
        if not self.source and not self.evaluator:
            return {}
        kind = self.kind_of_evaluator
        unread = dict.fromkeys(
            EVALUATORS[kind].unread, (f"with evaluator={kind}", "choose another evaluator")
        )
        if not self.source:
            return unread
        if self.is_space:
            of_programs = ("kernel", "collection", "cache", "generation", "options", "space")
            return unread | dict.fromkeys(of_programs, ("on a space of yours", "tune a program"))
        if self.searches_options:
            unread["cache"] = "where options are searched", "search layouts"
        if self.space == "layouts":
            unread["options"] = "where layouts are searched", "set space=both"
        if not self._is_guided and not EVALUATORS[kind].reads_labels:
            unread["collection"] = "where no models guide", f"set strategy={GUIDED} and a run"
        if kind == "command" and not self.is_npz and not self.origin.function:
            unread["generation"] = "where nothing is compiled for a TPU", "set evaluator=compiler"
        return unread

    @property
    def searches_options(self) -> bool:
        """Whether options of the compiler are searched."""
        return self.space in ("options", "both") or bool(self.options and not self.space)

    @property
    def searches_layouts(self) -> bool:
        """Whether layouts are searched."""
        return self.space in ("layouts", "both") or not self.searches_options

    @property
    def _is_guided(self) -> bool:
        """Whether models guide, if there are any."""
        return self.strategy == GUIDED and self.run != NO_RUN and self.searches_layouts

    def of(self, source: Source) -> Self:
        """See :class:`fastslow_programs.program.program_settings.SourceSettings`."""
        settings = super().of(source)
        runs = not EVALUATORS[settings.kind_of_evaluator].reads_labels
        settings.require(runs, "evaluator", "possible for a function")
        return settings

    @property
    def kind_of_evaluator(self) -> str:
        """Name in ``EVALUATORS``: the setting ``evaluator``, or the default of the source's kind."""
        return self.evaluator or self._default_evaluator

    @property
    def _default_evaluator(self) -> str:
        """The default of the source's kind."""
        if self.is_space or self.searches_options:
            return "device"
        labelled = self.source and (self.is_npz or self.origin.measured == "tile")
        return "replay" if labelled else "compiler"

    @property
    def plan(self) -> Plan | None:
        """Evaluations that are kept to confirm the fastest; None where values are exact or believed."""
        return Plan.of(self.evaluations, self.confirm, EVALUATORS[self.kind_of_evaluator])

    @property
    def smallest(self) -> int:
        """Smallest number of evaluations that can end with a verdict."""
        return self.plan.smallest if self.plan else 1

    @property
    def program(self) -> str:
        """Name of the study."""
        return self.name or self.name_of(self.origin)

    def name_of(self, source: Source) -> str:
        """Return the source's name, with an end where another evaluator or search makes it another study."""
        name = super().name_of(source)
        if self.searches_options:
            return clean_name(f"{name}-both" if self.searches_layouts else f"{name}-options")
        if self.evaluator in ("", self._default_evaluator):
            return name
        return clean_name(f"{name}-{self.evaluator}")

    @property
    def folder(self) -> str:
        """Folder of the study and its results."""
        return f"{self.data_root}/tuned/{self.program}"

    def ranking(self) -> RankSettings:
        """Return the settings that tell what the source is, and which run and collection are meant."""
        run = "" if self.run == NO_RUN else self.run
        replay = {"configs": MEASURED} if self.evaluator == "replay" else {}
        shared = {k: v for k, v in self.asdict().items() if k in RankSettings.model_fields}
        settings = RankSettings(**shared | {"run": run} | replay)
        return settings.of(self._given) if self._given else settings

    def find_run(self) -> Path | None:
        """Return the run that guides; None for an unguided strategy, or where none is wanted.

        Raises:
            DataError: There is none, it is not finished, or it belongs to another collection.
        """
        return self.ranking().find_run() if self._is_guided and not self.is_space else None

    @property
    def is_space(self) -> bool:
        """Whether the source is a space of the user's."""
        path = find_typed(self.source)
        if path.suffix != ".json" or not path.is_file():
            return False
        return b'"choices"' in path.read_bytes().replace(b"\0", b"")  # UTF-16 has one beside each letter

    @property
    def journal(self) -> Path:
        """Path of the study's journal."""
        return resolve(self.folder) / "study.journal"


class FleetSettings(SearchSettings):
    """Settings of the tuning of many programs with one budget."""

    fleet: str = ""
    """CSV with the columns program (as the source of a tuning, relative to the CSV), weight (such as runs a
    day) and, if wanted, collection; equal programs are tuned once, with the sum of their weights."""
    name: str = ""
    """Name of the fleet's folder; the name of the CSV if empty."""
    evaluations: Annotated[Positive, Le(1_000_000)] = 256
    """Budget: evaluations of all programs together, failed ones included; shared by weight x default."""

    def check_typed(self) -> None:
        """Refuse a list that is not there, or that names a program which is not."""
        self.typed().read()

    def typed(self) -> Self:
        """Return the settings that a user typed, whose relative paths start at the working folder."""
        return self.from_working_folder("fleet", "data_root", "run")

    @property
    def folder(self) -> str:
        """Folder of the fleet's results; the studies of its programs are below."""
        return f"{self.data_root}/fleets/{self.name or clean_name(Path(self.fleet).stem)}"

    def read(self) -> list[tuple[TuneSettings, float]]:
        """Return the settings and the weight of each program of the CSV.

        Raises:
            DataError: The CSV is missing, has no rows, an unknown, missing or repeated column, a row of
                another length, or a weight that is no positive number.
            SettingsError: A program's settings are not allowed.
        """
        path = resolve(self.fleet)
        programs = []
        rows = read_rows(path, _FORM)
        if not {"program", "weight"} <= rows[0].keys() <= {"program", "weight", "collection"}:
            raise DataError(path, f"has the columns {', '.join(rows[0])}", _FORM)
        shared = {k: v for k, v in self.asdict().items() if k in SearchSettings.model_fields}
        shared["data_root"] = self.folder
        for number, row in enumerate(rows, start=1):
            if not NUMBER.fullmatch(row["weight"]) or not are_runtimes(float(row["weight"])):
                weight = repr(row["weight"][:_QUOTED])
                problem = f"row {number}: the weight {weight} is no positive number, as runs a day"
                raise DataError(path, problem, _FORM)
            if not row["program"].strip():
                raise DataError(path, f"row {number}: the program is empty", _FORM)
            name, colon, function = row["program"].partition(".py:")
            file = resolve(name) if name.startswith("~") else path.parent / name
            place = f"{file.absolute()}{colon}{function}"
            title = clean_name(f"{number:03d}-{Source.of(place).name}")
            collection = row.get("collection", "")
            program = TuneSettings(**shared, source=place, collection=collection, name=title)
            programs.append((program, float(row["weight"])))
        return programs
