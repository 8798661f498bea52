"""The study as it is kept: an Optuna journal that can be stopped, resumed and written by several processes.

One trial per evaluation. The configuration is one user attribute, not a parameter per choice: a program has
up to a thousand nodes. ``optuna-dashboard`` and ``optuna.load_study`` read the journal.
"""

import contextlib
import os
import socket
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from fastslow.core.errors import DataError, explain_storage
from fastslow.core.files import digest, writer_lock
from fastslow_programs.tuning.history import History, Outcome, Proposal
from fastslow_programs.tuning.journal import Journal, Record
from fastslow_programs.tuning.peers import import_optuna
from fastslow_programs.tuning.search.space import Space

STUDY = "tuning"
_PROPOSAL, _OUTCOME = "proposal", "outcome"
_GRACE = 60.0  # seconds after the time limit at which another machine's evaluation counts as interrupted
INTERRUPTED = "interrupted"


class Ledger:
    """The study of one program.

    Args:
        path: The journal, made if it is not there.
        identity: What a study must agree in: program, space and evaluator, in words by name.
        space: The program's space.
        longest: Seconds that an evaluation takes at most.

    Attributes:
        cut: What was cut off a torn journal, in words; empty if nothing.

    Raises:
        SettingsError: Optuna is not installed.
        DataError: The file is no journal, a record is broken (see
        :class:`fastslow_programs.tuning.journal.Journal`),
            or it is of a study of another program or evaluator.
        StorageError: The folder cannot be written.
    """

    def __init__(self, path: Path, identity: dict[str, str], space: Space, longest: float = 3600.0):
        self.path, self.space, self._longest = path, space, longest
        self._identity, self._is_ours = identity, True
        optuna = import_optuna()
        self._states = optuna.trial.TrialState
        with warnings.catch_warnings(), writer_lock(path.parent), explain_storage(path):
            warnings.simplefilter("ignore")  # of what is experimental
            journal = Journal(path, self._check)
            self.cut = journal.cut()
            if self.cut:
                print(f"{path}: {self.cut}", file=sys.stderr, flush=True)
            known = self._open(optuna, journal)
        if known != identity:
            differ = [f"{k}: {known.get(k)} here {v}" for k, v in identity.items() if known.get(k) != v]
            problem = f"is the study of something else ({'; '.join(differ)})"
            raise DataError(path, problem, "Choose another name=, or delete the folder")

    def _open(self, optuna, journal: Journal) -> dict[str, str]:
        """Open or make the study, and return its identity."""
        try:
            storage = optuna.storages.JournalStorage(journal)
            self._study = optuna.create_study(
                study_name=STUDY, storage=storage, direction="minimize", load_if_exists=True
            )
            if "identity" not in self._study.user_attrs:
                self._study.set_user_attr("identity", self._identity)
            return self._study.user_attrs["identity"]
        except DataError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
            problem = f"is not a study ({type(error).__name__}: {error})"
            raise DataError(self.path, problem, "Move it away, or choose another name") from None

    def _check(self, record: Record) -> None:
        """Raise ``ValueError`` where a record's configurations are none of the space."""
        if record.user_attr.identity:  # of something else, it is refused as a whole
            self._is_ours = record.user_attr.identity == self._identity
        proposal = record.user_attr.proposal if self._is_ours else None
        for planned in [proposal, *proposal.batch] if proposal else []:
            codes = _read_codes(planned.codes)
            if not self.space.contains(codes):
                raise ValueError(f"codes: {planned.codes!r} is no configuration of the program")
        if proposal and proposal.hash != digest(list(_read_codes(proposal.codes))):
            raise ValueError("codes: they are not those that were written")

    @property
    def process(self) -> str:
        """Host and number of this process."""
        return f"{socket.gethostname()}:{os.getpid()}"

    def read(self) -> History:
        """Return the study's evaluations, those of other processes included; those under way are taken.

        All is of one moment: another process may end an evaluation at any time. What a batch announced and
        nobody evaluates, since its process ended, is pending.
        """
        history, announced = History(self.space), []
        for trial in self._study.get_trials(deepcopy=False):
            if _PROPOSAL not in trial.user_attrs:
                continue
            attribute = trial.user_attrs[_PROPOSAL]
            announced += map(_read_proposal, attribute.get("batch", []))
            outcome = trial.user_attrs.get(_OUTCOME)
            if trial.state.is_finished() and outcome and outcome["failure"] != INTERRUPTED:
                history.add(_read_proposal(attribute), Outcome(**outcome))
            elif not trial.state.is_finished():
                history.take(_read_proposal(attribute))
                history.running += 1
        history.pending = [proposal for proposal in announced if not history.is_taken(proposal)]
        return history

    @contextlib.contextmanager
    def proposing(self) -> Iterator[History]:
        """Give the history, while no other process proposes; proposals are started within."""
        with writer_lock(self.path.parent):
            yield self.read()

    def start(self, proposal: Proposal, batch: Sequence[Proposal] = ()) -> int:
        """Note that a proposal is being evaluated, and return the number of its trial.

        Args:
            proposal: The proposal.
            batch: With the first of a batch, all that were proposed together: a study that is interrupted
                resumes with them.
        """
        trial = self._study.ask()
        value = _write_proposal(proposal) | {"hash": digest(list(proposal.codes)), "process": self.process}
        value |= {"time": time.time()}
        if batch:
            value["batch"] = [_write_proposal(planned) for planned in batch]
        trial.set_user_attr(_PROPOSAL, value)
        return trial.number

    def finish(self, number: int, outcome: Outcome) -> None:
        """Keep what an evaluation gave."""
        trial = self._study.get_trials(deepcopy=False)[number]
        self._study._storage.set_trial_user_attr(trial._trial_id, _OUTCOME, vars(outcome))
        if outcome.value is None:
            self._study.tell(number, state=self._states.FAIL)
        else:
            self._study.tell(number, outcome.value)

    def release_dead(self) -> int:
        """Free the evaluations of processes that have ended; return their number.

        One whose outcome was kept is completed instead. Another process that has begun a trial, and has not
        written its proposal yet, holds the lock.
        """
        freed = 0
        with writer_lock(self.path.parent):
            for trial in self._study.get_trials(deepcopy=False, states=(self._states.RUNNING,)):
                attributes = trial.user_attrs
                if self._is_dead(attributes.get(_PROPOSAL, {"process": ":0", "time": 0.0})):
                    outcome = Outcome(**attributes.get(_OUTCOME, {"value": None, "failure": INTERRUPTED}))
                    with contextlib.suppress(ValueError):  # told by another process meanwhile
                        self.finish(trial.number, outcome)
                        freed += outcome.failure == INTERRUPTED
        return freed

    def _is_dead(self, attribute: dict) -> bool:
        host, _, process = attribute["process"].rpartition(":")
        if host == socket.gethostname():
            try:
                os.kill(int(process), 0)
            except ProcessLookupError:
                return True
            except PermissionError:
                pass
        return time.time() - attribute["time"] > self._longest + _GRACE


def _write_proposal(proposal: Proposal) -> dict:
    return {"codes": " ".join(map(str, proposal.codes)), "by": proposal.by, "notes": proposal.notes}


def _read_proposal(attribute: dict) -> Proposal:
    return Proposal(_read_codes(attribute["codes"]), attribute["by"], attribute["notes"])


def _read_codes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))
