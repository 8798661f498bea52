"""Settings of a ranking, and the program's file, the collection and the run that they name."""

from pathlib import Path
from typing import Annotated, ClassVar

from annotated_types import Ge, Le

from fastslow.competition.catalog import COLLECTIONS, Collection, get_collection
from fastslow.core.npz_io import read_headers
from fastslow.core.settings import NonNegative, Unread, unkeyed
from fastslow_programs.program.program_settings import MEASURED, ConvertSettings, ProgramSettings

_LAYOUT, _TILE = "layout:xla:random", "tile:xla"  # of a file whose folder does not tell
_CONVERSION = tuple(ProgramSettings.model_fields)


class RankSettings(ProgramSettings):
    """Settings of the ranking of one program."""

    main: ClassVar[tuple[str, ...]] = (
        "source",
        "known",
        "run",
        "configs",
        "collection",
        "default",
        "estimate",
        "data_root",
        "name",
        "seed",
    )

    source: str = ""
    """Program to rank: a competition file (npz), an HLO file (HloModuleProto, HloProto, TpuGraphs' ``.pb`` or
    text), or ``model.py:make``, where ``make()`` returns ``(function, arguments)`` for ``jax.jit``."""
    run: str = ""
    """Run that ranks: a folder with an ensemble per collection, such as ``runs/sample``, the folder of one
    ensemble or model, or ``package`` for the models in the package. If empty, the newest complete run of
    yours, smoke and play left out, or else ``package``."""
    data_root: str = unkeyed("data/converted")
    """Root of the folder to write to; the ranking is written under its ``rankings/``."""
    collection: str = ""
    """Collection whose models rank the program; if empty, the folder's collection for an npz in folders as
    published, otherwise ``tile:xla`` for a tile file and ``layout:xla:random`` for a layout. ``nlp`` is for a
    language model."""
    configs: Annotated[NonNegative, Le(1_000_000)] = 1000
    """Maximum number of configurations to draw for a program that is not an npz, the default first; 0 ranks
    the measured configurations of a TpuGraphs ``.pb`` instead, as of a tile ``.pb`` is always done."""
    default: Annotated[int, Ge(-1)] = -1
    """Configuration that the others are compared with, as its position in an npz; -1 for the compiler's
    default where it is known, or else for the commonest option of each choice."""
    estimate: Annotated[NonNegative, Le(10_000)] = 0
    """Compile this many of the fastest configurations for a TPU and give the compiler's estimated cycles
    beside the prediction (seconds to a minute each; needs the program's HLO and the TPU compiler)."""
    known: str = ""
    """CSV file of runtimes that you measured, columns ``id`` (of ``ranking.csv``) and ``runtime``; of a
    competition file ``config``, the position from 0, may replace ``id``. Repeated rows are repeated
    measurements. The ranking learns from it."""
    hlo_folder: str = unkeyed("")
    """As the setting of the features: folder of TpuGraphs' ``.pb`` files, if the run learned from them."""
    to_compile: ClassVar[str] = "estimate=10"

    @property
    def compiles(self) -> bool:
        """Whether something is compiled for a TPU."""
        return super().compiles or self.estimate > 0

    @property
    def is_measured(self) -> bool:
        """Whether the configurations are those that a TpuGraphs ``.pb`` measured."""
        return super().is_measured or self.origin.measured == "tile"

    def unread_by_source(self) -> Unread:
        """See :class:`fastslow_programs.program.program_settings.ProgramSettings`."""
        unread = dict(super().unread_by_source())
        if not self.is_npz and self.origin.measured == "tile" and self.configs != MEASURED:
            unread["configs"] = "on a tile kernel, whose configurations are measured", "set it to 0"
        return unread

    def check(self) -> None:
        """Check what the types of the fields do not express."""
        super().check()
        if self.collection:
            kind = get_collection(self.collection).kind
            measured = "" if not self.source or self.is_npz else self.origin.measured or "layout"
            self.require(measured in ("", kind), "collection", f"a {measured} collection")
        converted = not self.source or not self.is_npz
        self.require(converted or not self.kernel, "kernel", "empty for an npz, which is one program")
        self.require(converted or not self.estimate, "estimate", "0 for an npz, whose HLO is not known")
        tile = bool(self.source) and converted and self.origin.measured == "tile"
        self.require(not tile or not self.estimate, "estimate", "0 for a tile kernel, which has no layouts")

    @property
    def folder(self) -> str:
        """Folder of the tables and the page."""
        return f"{self.data_root}/rankings/{self.program}"

    def find_collection(self) -> Collection:
        """Return the collection whose models rank the program.

        Raises:
            DataError: The source is missing or not an npz.
        """
        if self.collection:
            return get_collection(self.collection)
        if not self.is_npz:
            return get_collection(_TILE if self.origin.measured == "tile" else _LAYOUT)
        path = self.origin.path
        published = path.absolute().parent.parent.as_posix()  # of the split's folder
        for collection in COLLECTIONS:
            if published.endswith(f"/{collection.name.replace(':', '/')}"):
                return collection
        return get_collection(_TILE if "config_feat" in read_headers(path) else _LAYOUT)

    def find_run(self) -> Path:
        """Return the folder of the run that ranks.

        Raises:
            DataError: There is none, it is not finished, or it belongs to another collection.
        """
        # imports torch and pandas, which takes seconds
        from fastslow.runs.run_manifest import find_run
        from fastslow_programs.ranking.models import runs_folder

        return find_run(runs_folder(self.run), self.find_collection())

    def conversion(self) -> ConvertSettings:
        """Return the settings that convert the source, which is not an npz."""
        shared = {name: getattr(self, name) for name in _CONVERSION}
        collection = self.find_collection()
        tile = {"configs": MEASURED} if collection.kind == "tile" else {}
        settings = ConvertSettings(**shared | {"collection": collection.name} | tile)
        return settings.of(self._given) if self._given else settings


def words_of_draw(settings: ProgramSettings) -> list[str]:
    """Return the words that give another command the same configurations and the same folder.

    Args:
        settings: Settings of a ranking or of a measurement. Those that are a ranking's defaults need no word.
    """
    defaults = RankSettings()
    return [
        f"{name}={getattr(settings, name)}"
        for name in ("kernel", "name", "data_root", "seed")
        if getattr(settings, name) != getattr(defaults, name)
    ]
