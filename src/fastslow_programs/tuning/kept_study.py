"""The study as it is kept: a journal of Optuna, with a trial and its checksum for each evaluation.

Optuna's ``JournalStorage`` writes and reads the file; ``optuna-dashboard`` and ``optuna.load_study`` read it,
too. A trial is written once, when its evaluation has ended, so a killed process loses only what was running.
The options of a configuration are one user attribute, not a parameter for each choice: a program has up to a
thousand. One process at a time has a study.
"""

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from fastslow.core.artifacts import MANIFEST
from fastslow.core.errors import DataError, SettingsError, counted, explain_storage
from fastslow.core.files import digest, read_json, writer_lock
from fastslow.core.input_files import MAX_TEXT_BYTES, is_there
from fastslow_programs.tuning.history import Evaluation, History, Proposal
from fastslow_programs.tuning.search.space import Space

STUDY = "tuning"
FORM = "2"
"""Number of the form in which evaluations are kept, part of what a study must agree in."""
KEPT = "kept"
"""Key of the manifest beside the journal: the number of evaluations when the result was written."""
_START = b'{"op_code":'  # of every record that Optuna writes
_PADDING = b"\0\r\n\t "  # what a crash or an editor leaves after the last record
_FIRST = 2  # records before those of the trials: the study, and its identity
_MEANING = {"choices": "options of each choice"}  # of a fact of a study, where its name does not tell it
_ANEW = "Start in another folder (name= or data_root=), or delete it"


def import_optuna():
    """Return Optuna, silenced below errors.

    Raises:
        SettingsError: It is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise SettingsError("optuna keeps the study and is not installed: pip install -e '.[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class KeptStudy:
    """The evaluations of one program, in memory and in the journal; see :func:`open_study`.

    Attributes:
        path: The journal.
        history: All evaluations.
        batch: The last batch of proposals: how many evaluations there were before it, how many proposals
            were asked for, and how many were given.
    """

    def __init__(self, path: Path, identity: dict[str, str], space: Space):
        self.path = path
        self.history = History(space)
        self.batch = (0, 0, 0)
        self._optuna = import_optuna()
        self._last = digest(identity)
        path.with_name(f"{path.name}.lock").unlink(missing_ok=True)  # Optuna's, of a process that was killed
        records, rest, line_end = self._whole_records()
        _refuse_a_shortened(path, max(0, records - _FIRST))
        if rest:
            os.truncate(path, path.stat().st_size - rest)
        if rest and not line_end:
            said = "after the last whole record are cut off; an evaluation that they began is done again"
            print(f"{path}: {rest} bytes {said}", file=sys.stderr, flush=True)
        if line_end:
            with path.open("ab") as journal:
                journal.write(line_end)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what is experimental
                backend = self._optuna.storages.journal.JournalFileBackend(str(path))
                storage = self._optuna.storages.JournalStorage(backend)
            if records:
                self._study = self._optuna.load_study(study_name=STUDY, storage=storage)
            else:
                self._study = self._optuna.create_study(study_name=STUDY, storage=storage)
            trials = self._study.trials
            known = self._study.user_attrs.get("identity", {})
            if not isinstance(known, dict):
                raise TypeError(f"its identity is {type(known).__name__}, an object wanted")
        except (LookupError, RecursionError, TypeError, ValueError, AttributeError, AssertionError) as error:
            raise DataError(path, f"is not a study ({type(error).__name__}: {error})", _ANEW) from None
        if not known and not trials and records < _FIRST:
            self._study.set_user_attr("identity", identity)
            known, records = identity, _FIRST
        self._compare(known, identity)
        for trial in trials:
            self._read(trial)
        if records != _FIRST + len(trials):
            held = counted(records - _FIRST, "record")
            problem = f"holds {held} of evaluations, of which {len(trials)} can be read"
            raise DataError(path, problem, f"Restore it. {_ANEW}")

    def _whole_records(self) -> tuple[int, int, bytes]:
        """Return the number of whole records, of the bytes after them, and the line end that the last lacks.

        After them may be a torn record, blank lines, NULs. An editor may take the last line end, or write
        others.
        """
        if not is_there(self.path, MAX_TEXT_BYTES):
            return 0, 0, b""
        content = self.path.read_bytes()
        written = len(content.rstrip(_PADDING))
        end = content.rfind(b"\n", 0, written + 1) + 1  # of the last line that is whole and not blank
        lines = content[:end].splitlines()
        torn = content[end:].strip(_PADDING)
        if torn or (content and not lines):
            lines.append(torn)
        for number, line in enumerate(lines, start=1):
            if not line or line[: len(_START)] != _START[: len(line)]:
                raise DataError(self.path, f"line {number} is no record of a study", f"Restore it. {_ANEW}")
        if torn and _is_json(content[end:written]):
            return len(lines), len(content) - written, b"\n"
        return len(lines) - bool(torn), len(content) - end, b""

    def _compare(self, known: dict[str, str], identity: dict[str, str]) -> None:
        if "form" not in known:
            problem = "is the study of an older version (commit 8c8ffaf1 or before), without checksums"
            raise DataError(self.path, problem, _ANEW)
        differ = [
            f"{_MEANING.get(name, name)}: {known.get(name)}, here {value}"
            for name, value in identity.items()
            if known.get(name) != value
        ]
        if differ:
            problem = f"is the study of something else ({'; '.join(differ)})"
            raise DataError(self.path, problem, f"{another_name(self.path)}, or delete the folder")

    def _read(self, trial) -> None:
        try:
            facts = trial.user_attrs | {"value": trial.value}
            if facts.pop("checksum", None) != (sum_of := digest([self._last, facts])):
                raise ValueError("its checksum is missing or does not match")
            proposal = Proposal(tuple(map(int, facts["codes"].split())), facts["by"], facts["notes"])
            code = facts.get("code", "")  # which older studies do not have
            evaluation = Evaluation(facts["value"], facts["failure"], facts["seconds"], code)
            self.history.add(proposal, evaluation)
            self._last = sum_of
            self.batch = tuple(facts["batch"])
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            problem = (
                f"evaluation {trial.number + 1} is not as it was written, or one before it is lost ({error})"
            )
            raise DataError(self.path, problem, f"Restore it. {_ANEW}") from None

    def keep(self, proposal: Proposal, evaluation: Evaluation, batch: tuple[int, int, int]) -> None:
        """Append an evaluation to the history and to the journal."""
        facts = {
            "codes": " ".join(map(str, proposal.codes)),
            "by": proposal.by,
            "notes": proposal.notes,
            "failure": evaluation.failure,
            "seconds": evaluation.seconds,
            "batch": list(batch),
        }
        if evaluation.code:
            facts["code"] = evaluation.code
        self._last = digest([self._last, facts | {"value": evaluation.value}])
        state = self._optuna.trial.TrialState
        with explain_storage(self.path):
            self._study.add_trial(
                self._optuna.trial.create_trial(
                    state=state.FAIL if evaluation.value is None else state.COMPLETE,
                    value=evaluation.value,
                    user_attrs=facts | {"checksum": self._last},
                )
            )
        self.history.add(proposal, evaluation)
        self.batch = batch


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_a_shortened(path: Path, evaluations: int) -> None:
    """Refuse a journal with fewer evaluations than there were when the result was written beside it.

    Checksums of records tell what was lost before a record, not after the last one.
    """
    if not is_there(manifest := path.with_name(MANIFEST), MAX_TEXT_BYTES):
        return
    try:
        facts = read_json(manifest)
        # older versions have the number in words, as in "256, 2 of them failed"
        kept = int(facts.get(KEPT) or facts["summary"]["evaluations"].partition(",")[0])
    except (DataError, AttributeError, KeyError, TypeError, ValueError):  # what is damaged is written again
        return
    if kept > evaluations:
        problem = f"holds {counted(evaluations, 'evaluation')}, {kept} were kept when the study ended"
        raise DataError(path, problem, f"Restore it. {another_name(path)}, or delete the folder")


def another_name(path: Path) -> str:
    """Return as a remedy a name for a study beside the one of this journal, which no folder has."""
    folder = path.parent
    number = 2
    while (folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    return f"Give this search another name, such as name={folder.name}-{number}"


@contextlib.contextmanager
def open_study(path: Path, identity: dict[str, str], space: Space) -> Iterator[KeptStudy]:
    """Give the study of one program, made if it is not there; another process that wants it waits.

    Args:
        path: The journal.
        identity: Facts that a study must agree in: program, space and evaluator, in words by name.
        space: The program's space.

    Raises:
        SettingsError: Optuna is not installed.
        DataError: The file is no journal, a record was lost, moved or changed, it has fewer evaluations than
            the result beside it, or it is the study of another program or evaluator, or of an older version.
        StorageError: The folder cannot be written.
    """
    import_optuna()  # before a folder is made
    with writer_lock(path.parent):
        with explain_storage(path):
            kept = KeptStudy(path, identity | {"form": FORM}, space)
        yield kept
