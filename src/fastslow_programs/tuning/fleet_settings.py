"""Settings of a fleet: programs with weights, and one budget."""

import csv
import re
from pathlib import Path
from typing import Annotated

from annotated_types import Le

from fastslow.core.errors import DataError
from fastslow.core.input_files import MAX_TEXT_BYTES, check_regular
from fastslow.core.setting_fields import nearest
from fastslow.core.settings import Positive, resolve
from fastslow_programs.tuning.settings import SearchSettings, TuneSettings

COLUMNS = ("program", "weight", "collection")  # the last one may be left out
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
        return self.name or re.sub(r"[^\w.-]", "_", Path(self.fleet).stem)

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
        shared = {k: v for k, v in self.asdict().items() if k in SearchSettings.model_fields}
        rows = _read_rows(path)
        shared |= {"data_root": self.folder, "evaluations": max(1, self.evaluations // len(rows))}
        for line, row in enumerate(rows, start=2):
            if not re.fullmatch(r"\d{0,15}\.?\d{1,15}", row["weight"]) or float(row["weight"]) == 0:
                problem = (
                    f"line {line}: the weight {row['weight']!r} is no positive number, such as runs a day"
                )
                raise DataError(path, problem, _REMEDY)
            name, colon, function = row["program"].partition(".py:")
            place = f"{(path.parent / name).absolute()}{colon}{function}"
            title = f"{line - 1:03d}-" + re.sub(r"[^\w.-]", "_", Path(name).stem)
            own = TuneSettings(**shared, source=place, collection=row.get("collection", ""), name=title)
            programs.append((own, float(row["weight"])))
        return programs


def _read_rows(path: Path) -> list[dict[str, str]]:
    check_regular(path, MAX_TEXT_BYTES)
    try:
        with path.open(newline="") as stream:
            header, *rows = [row for row in csv.reader(stream) if row] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(path, f"cannot be read ({error})", _REMEDY) from None
    for column in header:
        if column not in COLUMNS or header.count(column) > 1:
            what = "a repeated" if column in COLUMNS else "an unknown"
            hint = "" if column in COLUMNS else nearest(column, COLUMNS)
            raise DataError(path, f"has {what} column {column!r}{hint}", _REMEDY)
    if not rows or not set(COLUMNS[:2]) <= set(header):
        raise DataError(path, "has no rows with a program and a weight", _REMEDY)
    for line, row in enumerate(rows, start=2):
        if len(row) != len(header) or not row[header.index("program")]:
            raise DataError(path, f"line {line}: {row} is not {', '.join(header)}", _REMEDY)
    return [dict(zip(header, row, strict=True)) for row in rows]
