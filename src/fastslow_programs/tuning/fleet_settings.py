"""Settings of a fleet: programs with weights, and one budget."""

import csv
import re
from pathlib import Path
from typing import Literal

from fastslow.core.errors import DataError
from fastslow.core.input_files import MAX_TEXT_BYTES, check_regular
from fastslow.core.settings import resolve
from fastslow_programs.tuning.settings import SearchSettings, TuneSettings

COLUMNS = ("program", "weight")
ALLOCATIONS = ("expected saving", "even")


class FleetSettings(SearchSettings):
    """Settings of the tuning of many programs with one budget."""

    fleet: str = ""
    """CSV with the columns program (as the source of a tuning, relative to the CSV), weight (such as runs a
    day) and, if wanted, collection; equal programs are tuned once, with the sum of their weights."""
    name: str = ""
    """Name of the fleet's folder; that of the CSV if empty."""
    evaluations: int = 256
    """Budget: evaluations of all programs together, failed ones and those of other processes included."""
    batch: int = 4
    """Maximum number of evaluations that one program gets before the fleet decides again. With ``expected
    saving`` a program begins with one, and then gets as many as it has."""
    allocation: Literal[*ALLOCATIONS] = "expected saving"
    """Who gets the next batch: the program of which the model expects the largest saving per cost, or every
    program in turn (``even``), to compare with."""

    def check(self) -> None:
        """Check what the types of the fields do not express."""
        super().check()
        self.require(re.fullmatch(r"([\w-][\w.-]*)?", self.name), "name", "made of letters, digits, _ . -")
        self.require(self.evaluations > 0, "evaluations", "1 or more")
        self.require(self.batch > 0, "batch", "1 or more")

    @property
    def fleet_name(self) -> str:
        """Name of the fleet: the setting, or that of the CSV."""
        return self.name or re.sub(r"[^\w.-]", "_", Path(self.fleet).stem)

    @property
    def folder(self) -> str:
        """Folder of the fleet's results; the studies of its programs are below."""
        return f"{self.data_root}/fleets/{self.fleet_name}"

    def read(self) -> list[tuple[TuneSettings, float]]:
        """Return the settings and the weight of each program of the CSV.

        Raises:
            DataError: The CSV is missing, has no such columns or rows, or a weight is no positive number.
            SettingsError: A program's settings are refused.
        """
        path = resolve(self.fleet)
        remedy = f"Give a CSV whose first line is {','.join(COLUMNS)}"
        check_regular(path, MAX_TEXT_BYTES)
        try:
            with path.open(newline="") as stream:
                rows = list(csv.DictReader(stream))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise DataError(path, f"cannot be read ({error})", remedy) from None
        if not rows or not set(COLUMNS) <= set(rows[0]):
            raise DataError(path, "has no rows with a program and a weight", remedy)
        shared = {k: v for k, v in self.asdict().items() if k in SearchSettings.model_fields}
        shared |= {"data_root": self.folder}
        programs, total = [], 0.0
        for line, row in enumerate(rows, start=2):
            try:
                weight = float("nan" if "_" in (row["weight"] or "_") else row["weight"])
            except ValueError:
                weight = 0.0
            total += weight
            if not (weight > 0 and total < float("inf")) or not row["program"]:
                problem = f"line {line}: {row['program']!r}, {row['weight']!r} is not a program and a weight"
                raise DataError(path, problem, "A weight is a positive number, such as runs a day")
            name, colon, function = row["program"].partition(".py:")
            place = str((path.parent / f"{name}{colon and '.py'}").absolute())
            source = f"{place}:{function}" if colon else place
            stem = re.sub(r"[^\w.-]", "_", Path(name).stem)
            collection = row.get("collection") or ""
            own = TuneSettings(**shared, source=source, collection=collection, name=f"{line - 1:03d}-{stem}")
            programs.append((own, weight))
        return programs
