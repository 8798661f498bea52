"""The study as it is kept: an Optuna journal that can be stopped, resumed and written by several processes.

One trial per evaluation. The configuration is one user attribute, not a parameter per choice: a program has
up to a thousand nodes. ``optuna-dashboard`` and ``optuna.load_study`` read the journal.
"""

import contextlib
import os
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from fastslow.core.errors import DataError
from fastslow.core.files import digest, writer_lock
from fastslow.tuning.history import History, Outcome, Proposal
from fastslow.tuning.peers import import_optuna
from fastslow.tuning.space import Space

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

    Raises:
        ConfigError: Optuna is not installed.
        DataError: The file is no journal, or of a study of another program or evaluator.
    """

    def __init__(self, path: Path, identity: dict[str, str], space: Space, longest: float = 3600.0):
        self.path, self.space, self._longest = path, space, longest
        optuna = import_optuna()
        self._states = optuna.trial.TrialState
        path.parent.mkdir(parents=True, exist_ok=True)
        backend = optuna.storages.journal.JournalFileBackend
        try:
            with warnings.catch_warnings(), writer_lock(path.parent):
                warnings.simplefilter("ignore")  # of what is experimental
                storage = optuna.storages.JournalStorage(backend(str(path)))
                self._study = optuna.create_study(
                    study_name=STUDY, storage=storage, direction="minimize", load_if_exists=True
                )
                known = self._study.user_attrs.get("identity")
                if known is None:
                    self._study.set_user_attr("identity", identity)
        except (ValueError, KeyError, TypeError, AttributeError, AssertionError, OSError) as error:
            problem = f"is not a study ({type(error).__name__}: {error})"
            raise DataError(path, problem, "Move it away, or choose another name") from None
        if known not in (None, identity):
            differ = [f"{k}: {known.get(k)} here {v}" for k, v in identity.items() if known.get(k) != v]
            problem = f"is the study of something else ({'; '.join(differ)})"
            raise DataError(path, problem, "Choose another name=, or delete the folder")

    @property
    def process(self) -> str:
        """Host and number of this process."""
        return f"{socket.gethostname()}:{os.getpid()}"

    def read(self) -> History:
        """Return the study's evaluations, those of other processes included; those under way are taken.

        All is of one moment: another process may end an evaluation at any time.
        """
        history = History(self.space)
        for trial in self._study.get_trials(deepcopy=False):
            if _PROPOSAL not in trial.user_attrs:
                continue
            proposal = _read_proposal(trial.user_attrs[_PROPOSAL])
            outcome = trial.user_attrs.get(_OUTCOME)
            if trial.state.is_finished() and outcome and outcome["failure"] != INTERRUPTED:
                history.add(proposal, Outcome(**outcome))
            elif not trial.state.is_finished():
                history.take(proposal)
                history.running += 1
        return history

    @contextlib.contextmanager
    def proposing(self) -> Iterator[History]:
        """Give the history, while no other process proposes; proposals are started within."""
        with writer_lock(self.path.parent):
            yield self.read()

    def start(self, proposal: Proposal) -> int:
        """Note that a proposal is being evaluated, and return the number of its trial."""
        trial = self._study.ask()
        key = digest(list(proposal.codes))
        value = {"codes": _write_codes(proposal.codes), "by": proposal.by, "notes": proposal.notes}
        value |= {"hash": key, "process": self.process, "time": time.time()}
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
        """Free the evaluations of processes that have ended; return their number."""
        freed = 0
        for trial in self._study.get_trials(deepcopy=False, states=(self._states.RUNNING,)):
            attribute = trial.user_attrs.get(_PROPOSAL, {"process": ":0", "time": 0.0})
            if self._is_dead(attribute):
                with contextlib.suppress(ValueError):  # told by another process meanwhile
                    self.finish(trial.number, Outcome(None, INTERRUPTED))
                    freed += 1
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


def _write_codes(codes: tuple[int, ...]) -> str:
    return " ".join(map(str, codes))


def _read_proposal(attribute: dict) -> Proposal:
    return Proposal(tuple(map(int, attribute["codes"].split())), attribute["by"], attribute["notes"])
