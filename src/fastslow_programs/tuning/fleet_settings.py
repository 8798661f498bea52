"""Settings of a fleet: programs with weights, and one budget."""

import re
from pathlib import Path
from typing import Annotated

from annotated_types import Le

from fastslow.core.errors import DataError
from fastslow.core.setting_fields import nearest
from fastslow.core.settings import Positive, resolve
from fastslow_programs.program.csv_rows import read_rows
from fastslow_programs.program.program_settings import clean_name
from fastslow_programs.tuning.settings import SearchSettings, TuneSettings

FLEET_COLUMNS = ("program", "weight", "collection")  # the last one may be left out
_REMEDY = "Give a CSV whose first line is program,weight or program,weight,collection"


class FleetSettings(SearchSettings):
    """Settings of the tuning of many programs with one budget."""

    fleet: str = ""
    """CSV with the columns program (as the source of a tuning, relative to the CSV), weight (such as runs a
    day) and, if wanted, collection; equal programs are tuned once, with the sum of their weights."""
    name: str = ""
    """Name of the fleet's folder; the name of the CSV if empty."""
    evaluations: Annotated[Positive, Le(1_000_000)] = 256
    """Budget: evaluations of all programs together, failed ones included."""
    batch: Annotated[Positive, Le(10_000)] = 4
    """Maximum number of evaluations that one program makes before the fleet decides again. A guided program
    begins with one, and then makes as many as it has made."""

    @property
    def fleet_name(self) -> str:
        """Name of the fleet: the setting, or the name of the CSV."""
        return self.name or clean_name(Path(self.fleet).stem)

    @property
    def folder(self) -> str:
        """Folder of the fleet's results; the studies of its programs are below."""
        return f"{self.data_root}/fleets/{self.fleet_name}"

    def read(self) -> list[tuple[TuneSettings, float]]:
        """Return the settings and the weight of each program of the CSV.

        Raises:
            DataError: The CSV is missing, has no rows, an unknown, missing or repeated column, a row of
                another length, or a weight that is no positive number.
            SettingsError: A program's settings are not allowed.
        """
        path, programs = resolve(self.fleet), []
        rows = read_rows(path, _REMEDY)
        for column in rows[0].keys() - set(FLEET_COLUMNS):
            problem = f"has an unknown column {column!r}{nearest(column, FLEET_COLUMNS)}"
            raise DataError(path, problem, _REMEDY)
        if not {"program", "weight"} <= rows[0].keys():
            raise DataError(path, "has no column program or weight", _REMEDY)
        shared = {k: v for k, v in self.asdict().items() if k in SearchSettings.model_fields}
        shared |= {"data_root": self.folder, "evaluations": max(1, self.evaluations // len(rows))}
        for number, row in enumerate(rows, start=1):
            if not re.fullmatch(r"\d{0,15}\.?\d{1,15}", row["weight"]) or float(row["weight"]) == 0:
                problem = f"row {number}: the weight {row['weight']!r} is no positive number, as runs a day"
                raise DataError(path, problem, _REMEDY)
            name, colon, function = row["program"].partition(".py:")
            place = f"{(path.parent / name).absolute()}{colon}{function}"
            title = f"{number:03d}-" + clean_name(Path(name).stem)
            own = TuneSettings(**shared, source=place, collection=row.get("collection", ""), name=title)
            programs.append((own, float(row["weight"])))
        return programs
