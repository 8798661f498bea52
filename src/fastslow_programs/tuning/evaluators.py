"""Sources of a configuration's value: the TPU compiler, a file's labels, this machine, a user's command.

An evaluator is a context: within it, ``evaluate`` takes configurations and yields evaluations as they come.
To add one, write a class as :class:`Evaluator` describes and name it in :data:`EVALUATORS`.
"""

import contextlib
import json
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fastslow.competition.runtimes import RUNTIME, are_runtimes
from fastslow.core.errors import DataError, SettingsError, counted
from fastslow.core.files import file_digest
from fastslow.core.isolated import TIMED_OUT, Killed, Workers, run_command
from fastslow.core.tables import percent
from fastslow.hlo.messages import HloProto, Module
from fastslow_programs.compiler.bench import NOISY, Bench
from fastslow_programs.compiler.compile_pool import Labeller
from fastslow_programs.compiler.device import ROUNDS, device_identity, device_name
from fastslow_programs.program.csv_rows import NUMBER
from fastslow_programs.program.measured import module_digest
from fastslow_programs.tuning.history import Evaluation, Proposal

CONFIGURATION, PROGRAM = "configuration.json", "program.hlo.pb"
_SHOWN = 300  # characters of a message that are kept
_DIGITS = 12  # of a digest of a file of a command
_SCRIPT = b"#!"  # begins a file that a shell gives to another program

Evaluate = Callable[[Sequence[Proposal]], Iterator[tuple[int, Evaluation]]]


class Evaluator:
    """A source of the values of configurations.

    Args:
        settings: A :class:`fastslow_programs.tuning.settings.SearchSettings`.
        target: The :class:`fastslow_programs.tuning.target.Target`, whose evaluator it becomes.
        labeller: The compiler: isolated workers with limits, and the cache of their results.

    Attributes:
        unread: Names of the settings of a search that it does not read; they must keep their defaults.
        evaluates_spaces: Whether it evaluates configurations of a space of the user's, which have no HLO.
        reads_labels: Whether it reads the labels of a competition file; the others need the program's HLO.
        compiles: Whether it needs the TPU compiler.
        noisy: Whether two evaluations of a configuration differ, so that the fastest must be confirmed.
        paired: Whether a value is a ratio to the default, which ran in turn with the configuration.
        kept: Whether its identity tells all that values of a program depend on, so that they are kept.
        unit: Time of a value of 1, where values are ratios: values of several programs are compared as times.
        name: Name of the value, in words, with its unit.
        identity: Facts that a study must agree in to share values.
        remark: A warning about the measurements, empty where there is none.
    """

    unread: ClassVar[tuple[str, ...]] = ()
    evaluates_spaces: ClassVar[bool] = False
    reads_labels: ClassVar[bool] = False
    compiles: ClassVar[bool] = False
    noisy: ClassVar[bool] = False
    paired: ClassVar[bool] = False
    kept: ClassVar[bool] = False
    unit: float = 1.0
    remark = ""
    name: str
    identity: str

    def __init__(self, settings: Any, target: Any, labeller: Labeller | None = None):
        self._settings, self._target, self._labeller = settings, target, labeller

    def running(self) -> contextlib.AbstractContextManager[Evaluate]:
        """Give a function of proposals that yields positions and evaluations, in the order of completion."""
        raise NotImplementedError

    def without_constraints(self) -> Evaluation | None:
        """Evaluate the program as the user compiles it; None where the default has no constraints."""
        return None


class Replay(Evaluator):
    """Looks a configuration up among the labels of a file."""

    unread = (
        "cache",
        "confirm",
        "repeats",
        "processes",
        "seconds",
        "attempts",
        "generation",
        "options",
        "space",
    )
    reads_labels = True

    def __init__(self, *given):
        super().__init__(*given)
        self.name = f"the labels of {self._settings.origin.path.name}"
        self.identity = "replay"

    @property
    def unit(self) -> float:
        """Runtime of a label of 1."""
        return float(self._target.unit)

    @contextlib.contextmanager
    def running(self) -> Iterator[Evaluate]:
        """See :class:`Evaluator`."""
        labels, rows = self._target.labels, self._target.space.rows

        def evaluate(proposals: Sequence[Proposal]) -> Iterator[tuple[int, Evaluation]]:
            for place, row in enumerate(rows(np.array([proposal.codes for proposal in proposals]))):
                yield place, Evaluation(float(labels[row]))

        yield evaluate


class Compiled(Evaluator):
    """Compiles the constrained program and takes the compiler's estimated cycles."""

    unread = ("confirm", "repeats", "options", "space")
    compiles = kept = True

    def __init__(self, settings: Any, target: Any, labeller: Labeller):
        super().__init__(settings, target, labeller)
        self.name = f"the {labeller.generation} compiler's estimated cycles"
        self.identity = labeller.identity()

    @contextlib.contextmanager
    def running(self) -> Iterator[Evaluate]:
        """See :class:`Evaluator`; a program that was compiled before is looked up."""
        module_of = self._target.module_of
        with self._labeller.workers() as label:

            def evaluate(proposals: Sequence[Proposal]) -> Iterator[tuple[int, Evaluation]]:
                programs = [module_of(p.codes).SerializeToString(deterministic=True) for p in proposals]
                for place, record in enumerate(label(programs, "")):
                    yield place, _estimated(record)

            yield evaluate

    def without_constraints(self) -> Evaluation:
        """See :class:`Evaluator`: constraints cost cycles themselves, also where they bind the default."""
        program = self._target.module.SerializeToString(deterministic=True)
        with self._labeller.workers() as label:
            (record,) = label([program], "compiling without constraints")
        return _estimated(record)


def _estimated(record: dict) -> Evaluation:
    """Return a record of the compiler as an evaluation."""
    failure = f"{record['failure']}: {record['message']}" if "failure" in record else ""
    return Evaluation(record.get("cycles"), failure.strip()[:_SHOWN], record.get("seconds", 0.0))


class CommandEvaluator(Evaluator):
    """Runs a command for each configuration; the last line that it prints is the value of a run.

    The value of the configuration is the median of ``repeats`` runs. All configurations of a batch run once,
    then all of them again in the opposite order, so that a machine that becomes slower favours none.
    The paths of the configuration and, where there is one, of the program are appended to the command line.
    After the time limit the command and all that it started are killed. Its identity has the content of the
    files that the command line names: values of an edited script are values of another one.

    Raises:
        SettingsError: The command line cannot be read, its program does not exist, or a file that it names
            cannot be read.
    """

    unread = ("cache", "options", "space")
    evaluates_spaces = noisy = True

    def __init__(self, *given):
        super().__init__(*given)
        command = self._settings.command
        self.name = f"what {command!r} prints"
        self._words = _words(command)  # refused before there is a study of it
        runs = counted(self._settings.repeats, "run")
        contents = [f"{word} is {digits}" for word, digits in _contents(self._words).items()]
        self.identity = ", ".join([f"command {command}", f"median of {runs}", *contents])

    @contextlib.contextmanager
    def running(self) -> Iterator[Evaluate]:
        """See :class:`Evaluator`."""
        limits = self._settings
        with Workers(limits.processes or 1) as workers:

            def evaluate(proposals: Sequence[Proposal]) -> Iterator[tuple[int, Evaluation]]:
                calls = {place: (self._words, self._inputs(p.codes)) for place, p in enumerate(proposals)}
                runs: dict[int, list[Evaluation]] = {place: [] for place in calls}
                for _ in range(limits.repeats):
                    for place, outcome in workers.each(
                        _measure, calls, limits.seconds, limits.attempts, _has_failed
                    ):
                        if isinstance(outcome, Killed):
                            spent = limits.seconds if outcome.kind == TIMED_OUT else 0.0
                            outcome = Evaluation(None, f"{outcome.kind}: {outcome}"[:_SHOWN], spent)
                        runs[place].append(outcome)
                    sound = [place for place in calls if not runs[place][-1].failure]
                    calls = {place: calls[place] for place in reversed(sound)}
                yield from ((place, median_run(outcomes)) for place, outcomes in runs.items())

            yield evaluate

    def _inputs(self, codes: tuple[int, ...]) -> dict[str, bytes]:
        """Return the files of a configuration by their names."""
        files = {CONFIGURATION: json.dumps(self._target.as_json(codes), indent=1).encode()}
        if module_of := self._target.module_of:
            files[PROGRAM] = serialised(module_of(codes))
        return files


def median_run(runs: Sequence[Evaluation]) -> Evaluation:
    """Return the runs of one configuration as one evaluation: the median, or the failure of the last run."""
    seconds = round(sum(run.seconds for run in runs), 3)
    if runs[-1].failure:
        return Evaluation(None, runs[-1].failure, seconds)
    return Evaluation(float(np.median([run.value for run in runs])), "", seconds)


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise SettingsError("command", f"{command!r} cannot be read ({error})") from None
    program = words[0] if words else ""
    folders = [""] if "/" in program else os.get_exec_path()
    if not program or not any(Path(folder, program).is_file() for folder in folders):
        raise SettingsError("command", f"{program!r} is no file that can be run; give its path")
    return words


def _contents(words: list[str]) -> dict[str, str]:
    """Return the digest of each file that a command names, by its word.

    A program of the machine has none, such as an interpreter: the first word counts as a script, or where its
    file is below the working folder.
    """
    program = Path(shutil.which(words[0]) or words[0])
    files = {word: Path(word) for word in words[1:]}
    is_of_user = program.resolve().is_relative_to(Path.cwd()) or _is_script(program)
    if is_of_user:
        files = {words[0]: program} | files
    try:
        return {word: file_digest(path)[:_DIGITS] for word, path in files.items() if os.path.isfile(path)}
    except OSError as error:
        raise SettingsError("command", f"a file that it names cannot be read ({error})") from None


def _is_script(path: Path) -> bool:
    """Return whether a file begins as a script does."""
    try:
        with path.open("rb") as file:
            return file.read(len(_SCRIPT)) == _SCRIPT
    except OSError:
        return False


def _measure(words: list[str], files: dict[str, bytes]) -> Evaluation:
    """Return the outcome of one execution of a command; a call for a worker."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in files]
        for path, content in zip(paths, files.values(), strict=True):
            path.write_bytes(content)
        try:
            status, out, err = run_command([*words, *map(str, paths)])
        except OSError as error:
            return Evaluation(None, f"does not start: {error}")
    seconds = round(time.monotonic() - began, 3)
    if status:
        said = (err or out or "no output")[-_SHOWN:]
        return Evaluation(None, f"failed: it ended with {status}: {said}", seconds)
    return Evaluation(*_number(out), seconds)


def _has_failed(outcome: "Evaluation | Killed") -> bool:
    return isinstance(outcome, Killed) or outcome.value is None


class DeviceEvaluator(Evaluator):
    """Measures programs on this machine, see :mod:`fastslow_programs.compiler.bench`.

    A value is the time over the unconstrained program's, or in a space of the user's, over the default's.
    """

    unread = ("repeats", "processes", "attempts", "generation")
    evaluates_spaces = noisy = paired = kept = True

    def __init__(self, *given):
        super().__init__(*given)
        self._noise: list[np.ndarray] = []
        self._base: list[np.ndarray] = []  # seconds of the unconstrained program
        self.name = f"time over the default's, measured on {device_name()}"
        self.identity = device_identity()

    @property
    def unit(self) -> float:
        """Nanoseconds of the default; measured once more where a study was read and nothing was evaluated."""
        if not self._base:
            with Bench(self._target.local, ROUNDS, self._settings.seconds).running() as times:
                self._base.append(times([]).seconds)
        return 1e9 * float(np.nanmedian(np.concatenate(self._base)))

    @property
    def remark(self) -> str:
        """Whether the machine is too noisy, by what was measured since the evaluator was made."""
        noise = float(np.median(np.concatenate(self._noise))) if self._noise else 0.0
        return f"too noisy: two runs of one program differ by {percent(noise)}" if noise > NOISY else ""

    @contextlib.contextmanager
    def running(self) -> Iterator[Evaluate]:
        """See :class:`Evaluator`."""
        target = self._target
        with Bench(target.local, ROUNDS, self._settings.seconds).running() as times:

            def evaluate(proposals: Sequence[Proposal]) -> Iterator[tuple[int, Evaluation]]:
                began = time.monotonic()
                modules, refused = {}, {}
                for place, proposal in enumerate(proposals):
                    try:
                        modules[place] = target.module_of(proposal.codes)
                    except DataError as error:  # a function of the user's may refuse a configuration
                        refused[place] = str(error)[:_SHOWN]
                measured = times([*modules.values()])
                self._noise.append(measured.noise)
                if np.isfinite(measured.seconds[:, :2]).any():
                    self._base.append(measured.seconds[:, :2])
                each = round((time.monotonic() - began) / max(1, len(proposals)), 3)
                yield from ((place, Evaluation(None, said, each)) for place, said in refused.items())
                for column, (place, failure) in enumerate(zip(modules, measured.failures, strict=True)):
                    value = None if failure else float(np.median(measured.ratios[:, column]))
                    code = module_digest(modules[place]) if target.is_traced_anew else ""
                    yield place, Evaluation(value, failure, each, code)

            yield evaluate


EVALUATORS: dict[str, type[Evaluator]] = {
    "compiler": Compiled,
    "replay": Replay,
    "command": CommandEvaluator,
    "device": DeviceEvaluator,
}
"""Evaluators by the name that the setting ``evaluator`` gives."""


def _number(text: str) -> tuple[float | None, str]:
    last = text.splitlines()[-1].strip() if text else ""
    if not NUMBER.fullmatch(last):
        return None, f"printed no number: its last line is {last[:80]!r}"
    value = float(last)
    if not are_runtimes(value):
        return None, f"printed {last}: a value is {RUNTIME}, lower is faster"
    return value, ""


def serialised(module: Module) -> bytes:
    """Return a module as an ``HloProto``, which XLA's tools and ``make convert`` read."""
    return HloProto(hlo_module=module).SerializeToString(deterministic=True)
