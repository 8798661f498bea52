"""The file of a study: one JSON record a line, checked on reading, cut back to its last whole record.

It replaces Optuna's own reader of the same format, which stops at the first torn line and appends to it.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fastslow.core.errors import DataError
from fastslow.core.input_files import MAX_TEXT_BYTES, check_regular

_START = b'{"op_code":'  # of every record that Optuna writes
_LINE = "line"  # key of a record's number, which Optuna ignores

_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Value = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Codes = Annotated[str, Field(pattern=r"^(\d{1,5}( \d{1,5})*)?$")]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class PlannedRecord(_Strict):
    """A configuration of a batch: its options as numbers, who proposed it, and the proposer's notes."""

    codes: _Codes
    by: str
    notes: dict[str, Any]


class ProposalRecord(PlannedRecord):
    """A proposal that is being evaluated: by whom, since when; the first of a batch lists the batch."""

    hash: str
    process: Annotated[str, Field(pattern=r"^.*:\d{1,9}$")]
    time: _Seconds
    batch: list[PlannedRecord] = []


class OutcomeRecord(_Strict):
    """What an evaluation gave: a value, or a failure."""

    value: _Value | None
    failure: str
    seconds: _Seconds

    @model_validator(mode="after")
    def _check(self):
        if (self.value is None) != bool(self.failure):
            raise ValueError("an outcome has either a value or a failure")
        return self


class _Attributes(BaseModel):
    model_config = ConfigDict(strict=True)
    identity: dict[str, str] = {}
    proposal: ProposalRecord = None
    outcome: OutcomeRecord = None


class Record(BaseModel):
    """A line of the journal; keys that only Optuna reads are not listed."""

    model_config = ConfigDict(strict=True)
    op_code: Annotated[int, Field(ge=0, le=10)]
    worker_id: str
    line: int = None
    study_id: Annotated[int, Field(ge=0)] = 0
    trial_id: Annotated[int, Field(ge=0)] = 0
    values: list[_Value] | None = None
    user_attr: _Attributes = _Attributes()


class Journal:
    """A study's journal, read and appended to as a backend of Optuna's ``JournalStorage``.

    Args:
        path: The file, made if it is not there.
        check: Called with each record; raises ``ValueError`` where it does not fit the study.

    Raises:
        DataError: The file is no regular file or no journal; a record that is read is broken, or lines were
            lost or moved. The message has the number of the line.
    """

    def __init__(self, path: Path, check):
        from optuna.storages.journal import JournalFileSymlinkLock

        check_regular(path, MAX_TEXT_BYTES)
        path.touch()
        with path.open("rb") as stream:
            start = stream.read(len(_START))
        if start != _START[: len(start)]:
            raise DataError(path, "is not the journal of a study", "Move it away, or choose another name")
        self.path, self._check, self._lock = path, check, JournalFileSymlinkLock(str(path))
        self._offsets = [0]  # of each whole line, and of the one that comes next

    def cut(self) -> str:
        """Cut the file back to its last whole record; return what was cut off, in words, if anything."""
        from optuna.storages.journal._file import get_lock_file

        with get_lock_file(self._lock):
            return self._cut()

    def read_logs(self, log_number_from: int) -> Iterator[dict]:
        """Yield the checked records from a position on; a line that is being written is not there yet."""
        self._advance()
        with self.path.open("rb") as stream:
            stream.seek(self._offsets[log_number_from])
            for number in range(log_number_from + 1, len(self._offsets)):
                yield self._read(number, stream.readline())

    def append_logs(self, logs: list[dict]) -> None:
        """Append records with their line numbers, after the last whole record."""
        from optuna.storages.journal._file import get_lock_file

        with get_lock_file(self._lock):
            self._cut()
            numbered = [log | {_LINE: line} for line, log in enumerate(logs, len(self._offsets))]
            text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in numbered)
            with self.path.open("ab") as stream:
                stream.write(text.encode())
                stream.flush()
                os.fsync(stream.fileno())

    def _advance(self) -> int:
        """Note where each new whole line begins; return the bytes of the torn one at the end."""
        with self.path.open("rb") as stream:
            stream.seek(self._offsets[-1])
            for line in stream:
                if not line.endswith(b"\n"):
                    return len(line)
                self._offsets.append(self._offsets[-1] + len(line))
        return 0

    def _cut(self) -> str:
        torn = self._advance()
        if not torn:
            return ""
        os.truncate(self.path, self._offsets[-1])
        return f"line {len(self._offsets)} was torn: its {torn} bytes are cut off, and it is done again"

    def _read(self, number: int, line: bytes) -> dict:
        try:
            log = json.loads(line.decode())
            record = Record.model_validate(log)
            if record.line not in (None, number):
                raise ValueError(f"it was written as line {record.line}: lines are missing or moved")
            self._check(record)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            self.refuse(number, f"{'.'.join(map(str, first['loc'])) or 'record'}: {first['msg']}")
        except (ValueError, RecursionError) as error:
            self.refuse(number, str(error))
        return log

    def refuse(self, number: int, problem: str) -> None:
        """Raise :class:`DataError` for a line, with the remedy."""
        remedy = f"Restore the file, keep its first {number - 1} lines, or choose another name= to begin anew"
        raise DataError(self.path, f"line {number} is no record of this study: {problem}", remedy)
