"""Execute the notebooks of steps, stage by stage, and report on a finished run."""

import contextlib
import fnmatch
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path

import pandas as pd
import papermill
import zmq
from jupyter_client.kernelspec import NoSuchKernel
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillExecutionError

from fastslow.competition.catalog import COLLECTIONS
from fastslow.competition.submission_checks import check_submission
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import FastslowError, counted, storage_error
from fastslow.core.files import atomic_path, only_warned
from fastslow.core.progress import progress, ticking
from fastslow.core.settings import PROJECT, find_data, resolve
from fastslow.evaluation.score_tables import format_distances, format_scores
from fastslow.evaluation.submission_record import read_submission_record, update_record
from fastslow.evaluation.training_files import METRICS, NOTEBOOK
from fastslow.steps.ensemble import EnsembleSettings
from fastslow.steps.features import FeatureSettings
from fastslow.workflow.forked_kernels import FEWER
from fastslow.workflow.job_plan import PlannedKernel, StepPool
from fastslow.workflow.outlook import look
from fastslow.workflow.settings.presets import STAGES
from fastslow.workflow.step_pools import step_pool
from fastslow.workflow.steps import Plan, Step

FAILED = "failed.ipynb"
PAUSE_SECONDS = 2.0  # between two looks at what is running
RUNNING_SECONDS = 60.0  # the same where the output is a file: a line each time
_BAR = (
    "{n_fmt}/{total_fmt} [{elapsed}]{postfix}"  # 80 characters hold a step and its score, no bar beside them
)
START_SECONDS = 300  # a kernel that dies is noticed at once; many on a busy machine start slowly
_KERNEL_DIED = f"the kernel was killed; {FEWER}"
_ERRNO = re.compile(r"\[Errno (\d+)\]")  # in the text of an OSError, whatever raised it again
_KERNEL_OPTIONS = (
    "--IPKernelApp.log_level=CRITICAL",  # it warns of its own shutdown
    "--InlineBackend.print_figure_kwargs={'bbox_inches': None}",  # with "tight" a figure is drawn twice
)


class StepError(FastslowError):
    """A notebook failed; the message holds its error and where the executed notebook is."""


def run_step(step: Step) -> float:
    """Execute a step's notebook into the folder that it writes.

    Returns:
        Seconds that it took.

    Raises:
        StepError: A cell failed, or the Jupyter kernel died. The notebook up to there is kept as
            ``failed.ipynb``.
        StorageError: The operating system refuses a file.
    """
    began = time.monotonic()
    folder = resolve(step.settings.folder)
    failed = folder / FAILED
    with atomic_path(folder / NOTEBOOK) as output:
        try:
            papermill.execute_notebook(
                _literal(step.notebook),
                _literal(output),
                parameters=step.settings.asdict(),
                kernel_name="python3",
                progress_bar=False,
                start_timeout=START_SECONDS,
                kernel_manager_class=PlannedKernel,
                shutdown_kernel="immediate",  # one kernel of five would take three seconds to end
                cwd=str(PROJECT),
                extra_arguments=[*_KERNEL_OPTIONS],
            )
        except (PapermillExecutionError, DeadKernelError) as error:
            os.replace(output, failed)
            raise StepError(f"{step.name}: {_reason(error)}\n  the notebook up to there: {failed}") from None
        except (RuntimeError, NoSuchKernel, zmq.ZMQError) as error:
            raise StepError(f"{step.name}: its kernel did not start: {_reason(error)}") from None
    failed.unlink(missing_ok=True)
    return time.monotonic() - began


def _literal(path: Path) -> str:
    """Return a path as papermill takes it: it would fill parameters into braces."""
    return str(path).replace("{", "{{").replace("}", "}}")


def _reason(error: Exception) -> str:
    """Return why a notebook ended; no error has an empty reason, and one of the system has its remedy."""
    if isinstance(error, DeadKernelError):
        return _KERNEL_DIED
    name = getattr(error, "ename", type(error).__name__)
    text = getattr(error, "evalue", str(error))
    number = _ERRNO.search(text)
    code = int(number[1]) if number else getattr(error, "errno", None)
    if code and (explained := storage_error(OSError(code, text))):
        return f"{name}: {text}. {explained.args[2]}"
    return f"{name}: {text or f'it gives no reason; {FEWER}'}"


def run_steps(steps: list[Step], jobs: int, cluster: str = "") -> None:
    """Run the steps stage by stage, steps of one stage in parallel, and skip steps that are up to date.

    Args:
        steps: In the order of their stages.
        jobs: Maximum number of notebooks that run in parallel; 0: planned by their needs.
        cluster: Dask cluster that runs them, see
            :class:`~fastslow.workflow.settings.run_settings.RunSettings`; empty for this machine.

    Raises:
        StepError: A notebook failed; those running beside it are finished first.
        ClusterError: A worker cannot run them, or was lost again and again.
        DataError: The data, or a model that ``ensemble.extra`` names, are missing or broken.
    """
    quiet = not sys.stderr.isatty()
    shown = {"total": len(steps), "bar_format": _BAR, "disable": quiet}
    with progress(**shown) as bar, step_pool(jobs, cluster) as pool:
        for stage in STAGES:
            of_stage = [step for step in steps if step.stage == stage]
            if not of_stage:
                continue
            # asked once a step: for features it reads the directory of every data file
            looked = [*zip(of_stage, pool.map(look, of_stage), strict=True)]
            outdated = [(step, changes) for step, (current, changes) in looked if not current]
            current = len(of_stage) - len(outdated)
            bar.update(current)
            say = f"{stage}: {current} of {len(of_stage)} up to date" if current else stage
            bar.write(say, file=sys.stderr)
            for step, changes in outdated:
                for change in changes:
                    bar.write(f"  {step.name}: {change}", file=sys.stderr)
            _run_stage([step for step, _ in outdated], pool, bar)
            if stage == "features":  # hours of training must not end at a broken model of the user's
                for step in steps:
                    if isinstance(step.settings, EnsembleSettings):
                        step.settings.check_extra()


def _run_stage(steps: list[Step], pool: StepPool, bar) -> None:
    pool.expect(steps)
    running = {pool.submit(run_step, step): step for step in steps}
    pause = RUNNING_SECONDS if bar.disable else PAUSE_SECONDS
    try:
        while running:
            done, _ = wait(running, timeout=pause, return_when=FIRST_COMPLETED)
            now = ", ".join(_newest(step) for future, step in running.items() if future.running())
            if bar.disable and not done:
                bar.write(f"  running: {now}", file=sys.stderr)
            bar.set_postfix_str(now)
            for future in done:
                step = running.pop(future)
                seconds = future.result()
                bar.update()
                bar.write(f"  {step.name}: {seconds:.0f} s{_score_of(step)}", file=sys.stderr)
                for warning in read_manifest(resolve(step.settings.folder)).get("warnings", []):
                    bar.write(f"  warning: {step.name}: {warning}", file=sys.stderr)
    finally:
        for future in running:
            future.cancel()


def _newest(step: Step) -> str:
    """Return the name of a running step, with the last epoch, of how many, and valid score that it wrote."""
    metrics = resolve(step.settings.folder) / METRICS
    lines = metrics.read_text().splitlines() if metrics.is_file() else []
    last = json.loads(lines[-1]) if lines else {}
    if "epoch" not in last:
        return step.name
    collections = [collection.slug for collection in COLLECTIONS if collection.slug in last]
    of = f"{len(collections)} layouts" if len(collections) > 1 else collections[0]
    on = "" if of in step.name else f" on {of}"  # 80 characters have no room for it twice
    epoch = f"epoch {last['epoch']} of {step.settings.epochs}"
    return f"{step.name} ({epoch}, valid {last['valid']:.3f}{on})"


def _score_of(step: Step) -> str:
    valid = read_manifest(resolve(step.settings.folder)).get("valid")
    if not valid:
        return ""
    if "by_collection" in valid:  # a training, of several layouts at once; the name of others has theirs
        return f", {_scored(valid['mean'], [*valid['by_collection']])}"
    return f", valid {valid['mean']:.3f} ({valid['weights']})"


def _scored(score: float, collections: list[str]) -> str:
    """Return a valid score of a training in words, with its collection, or of how many it is the mean."""
    of = f"mean of {len(collections)} layouts" if len(collections) > 1 else collections[0]
    return f"valid {score:.3f}, {of}"


def report(plan: Plan, warnings: list[str]) -> None:
    """Print the table of scores of a finished run, read the submission back and print its path.

    Args:
        plan: The plan that was run.
        warnings: What the command warned of, which the submission's record keeps.

    Raises:
        DataError: The CSV is missing, or a row is missing, unknown or no ranking.
    """
    csv = resolve(plan.csv)
    record = read_submission_record(csv, "table", "distances", "valid_mean", "test_mean")
    if record.get("warnings", []) != warnings:
        update_record(csv, warnings=warnings)
    print(format_scores(pd.DataFrame(record["table"])))
    if record["distances"]:  # to train programs, which given models need none of
        print(f"\n{format_distances(record['distances'])}")
    test = f", test {record['test_mean']:.3f}" if record["test_mean"] is not None else ""
    print(f"\nensemble, mean of the five collections: valid {record['valid_mean']:.3f}{test}")
    checked = check_submission(csv, find_data(plan.data_root))
    rows = sum(checked["rows"].values())
    print(f"{plan.csv}: {counted(rows, 'row')}, read back and checked; table and plot are beside it")
    if checked["file_order"]:
        print(f"warning: {checked['file_order']} layout rows rank as the file does: a constant prediction")
    print_skipped(plan.steps("features"))
    if doubtful := read_submission_record(csv).get("doubtful"):
        print("doubtful labels (fastslow data-quality shows more):")
        print("\n".join(f"  {name}: {doubts}" for name, doubts in doubtful.items()))
    from fastslow.views.submission_page import write_submission_page  # matplotlib

    steps = {step.name: resolve(step.settings.folder) for step in plan.steps()}
    with only_warned():
        with counting("page"):
            page = write_submission_page(csv, resolve(f"runs/{plan.name}"), steps)
        print(f"page: {page}")


@contextlib.contextmanager
def counting(what: str) -> Iterator[None]:
    """Count the seconds in a terminal, beside the name of what takes them, and leave nothing there."""
    shown = {"total": 1, "desc": what, "leave": False, "disable": not sys.stderr.isatty()}
    with progress(bar_format="{desc} [{elapsed}]", **shown) as bar, ticking(bar):
        yield


def print_skipped(steps: list[Step]) -> None:
    """Name the valid programs on which no model is selected, and the patterns that match none."""
    features = [step.settings for step in steps if isinstance(step.settings, FeatureSettings)]
    if names := [program.id for settings in features for program in settings.skipped()]:
        print(f"left out of model selection (features.skip_valid): {', '.join(names)}")
    patterns = dict.fromkeys(pattern for settings in features for pattern in settings.skip_valid)
    if unmatched := [pattern for pattern in patterns if not fnmatch.filter(names, pattern)]:
        print(f"no valid program matches (features.skip_valid): {', '.join(unmatched)}")
