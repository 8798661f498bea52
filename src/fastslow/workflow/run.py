"""Run the notebooks from npz files to a submission, skipping what is up to date."""

import json
import os
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Executor, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import papermill
import zmq
from jupyter_client.kernelspec import NoSuchKernel
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillExecutionError

from fastslow.competition.submission_csv import check_ids, check_submission
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import FastslowError, SettingsError
from fastslow.core.files import atomic_path, remove_abandoned
from fastslow.core.progress import progress
from fastslow.core.settings import PROJECT, find_data, resolve
from fastslow.evaluation.leaderboard import model_means
from fastslow.evaluation.run_record import record_run
from fastslow.evaluation.score_tables import format_distances, format_overview, format_table
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.evaluation.training_files import METRICS
from fastslow.kaggle.credentials import credentials
from fastslow.kaggle.provenance import LAUNCH_RELEASE, warn_of_release
from fastslow.kaggle.upload import upload
from fastslow.steps.ensemble import EnsembleSettings
from fastslow.steps.features import FeatureSettings
from fastslow.workflow.budget import plan_hours
from fastslow.workflow.job_plan import PlannedKernel, PlannedPool
from fastslow.workflow.outlook import NOTEBOOK, look, print_outlook
from fastslow.workflow.presets import MODELS, RULES
from fastslow.workflow.run_settings import RunSettings, add_chosen, make_plan, resume
from fastslow.workflow.step_pools import step_pool
from fastslow.workflow.steps import STAGES, Plan, Step

FAILED = "failed.ipynb"
PAUSE_SECONDS = 2.0  # between two looks at what is running
RUNNING_SECONDS = 60.0  # the same where the output is a file: a line each time
START_SECONDS = 300  # a kernel that dies is noticed at once; many on a busy machine start slowly
_KERNEL_DIED = "the kernel was killed; where memory ran out, run fewer notebooks at a time (JOBS=1)"
_KERNEL_OPTIONS = ("--IPKernelApp.log_level=CRITICAL",)  # it warns of its own shutdown


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
    folder, began = resolve(step.settings.folder), time.monotonic()
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
    """Return why a notebook ended; no error has an empty reason."""
    if isinstance(error, DeadKernelError):
        return _KERNEL_DIED
    name, text = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", str(error))
    return f"{name}: {text or 'it gives no reason; where memory ran out, run fewer notebooks (JOBS=1)'}"


def run_steps(steps: list[Step], jobs: int, cluster: str = "") -> None:
    """Run the steps stage by stage, steps of one stage in parallel, and skip steps that are up to date.

    Args:
        steps: In the order of their stages.
        jobs: Maximum number of notebooks that run in parallel; 0: planned by their needs.
        cluster: Dask cluster that runs them, see :class:`RunSettings`; empty for this machine.

    Raises:
        StepError: A notebook failed; those running beside it are finished first.
        ClusterError: A worker cannot run them, or was lost again and again.
        DataError: The data, or a model that ``ensemble.extra`` names, are missing or broken.
    """
    quiet = not sys.stderr.isatty()
    with progress(total=len(steps), unit="step", disable=quiet) as bar, step_pool(jobs, cluster) as pool:
        for stage in STAGES:
            wanted = [step for step in steps if step.stage == stage]
            # asked once a step: for features it reads the directory of every data file
            looked = [*zip(wanted, pool.map(look, wanted), strict=True)]
            outdated = [(step, changes) for step, (current, changes) in looked if not current]
            current = len(wanted) - len(outdated)
            bar.set_description(stage)
            bar.update(current)
            say = f"{stage}: {current} of {len(wanted)} up to date" if current else stage
            bar.write(say, file=sys.stderr)
            for step, changes in outdated:
                for change in changes:
                    bar.write(f"  {step.name}: {change}", file=sys.stderr)
            _run_stage([step for step, _ in outdated], pool, bar)
            for settings in (step.settings for step in steps if stage == "features"):
                if isinstance(settings, EnsembleSettings):
                    settings.check_extra()  # hours of training must not end at a broken model of the user's


def _run_stage(steps: list[Step], pool: Executor, bar) -> None:
    if isinstance(pool, PlannedPool):
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
                step, seconds = running.pop(future), future.result()
                bar.update()
                bar.write(f"  {step.name}: {seconds:.0f} s{_score_of(step)}", file=sys.stderr)
                for warning in read_manifest(resolve(step.settings.folder)).get("warnings", []):
                    bar.write(f"  warning: {step.name}: {warning}", file=sys.stderr)
    finally:
        for future in running:
            future.cancel()


def _newest(step: Step) -> str:
    """Return the name of a running step, with the last epoch and valid score that it wrote, if any."""
    metrics = resolve(step.settings.folder) / METRICS
    lines = metrics.read_text().splitlines() if metrics.is_file() else []
    last = json.loads(lines[-1]) if lines else {}
    return f"{step.name} (epoch {last['epoch']}, valid {last['valid']:.3f})" if "epoch" in last else step.name


def _score_of(step: Step) -> str:
    valid = read_manifest(resolve(step.settings.folder)).get("valid")
    return f", valid {valid['mean']:.3f} ({valid['weights']})" if valid else ""


def report(plan: Plan) -> None:
    """Print the table of scores of a finished run, read the submission back and print its path.

    Raises:
        DataError: The CSV is missing, or a row is missing, unknown or no ranking.
    """
    csv = resolve(plan.csv)
    record = read_submission_record(csv, "table", "distances", "valid_mean", "test_mean")
    table = pd.DataFrame(record["table"])
    print(format_table(table), format_overview(table), format_distances(record["distances"]), sep="\n\n")
    test = f", test {record['test_mean']:.3f}" if record["test_mean"] is not None else ""
    print(f"\nensemble, mean of the five collections: valid {record['valid_mean']:.3f}{test}")
    checked = check_submission(csv, find_data(plan.data_root))
    rows = sum(checked["rows"].values())
    print(f"{plan.csv}: {rows} rows, read back and checked; table and plot are beside it")
    if checked["file_order"]:
        print(f"warning: {checked['file_order']} layout rows rank as the file does: a constant prediction")
    print_skipped(plan.steps("features"))
    if doubtful := read_submission_record(csv).get("doubtful"):
        print("doubtful labels (fastslow data-quality shows more):")
        print("\n".join(f"  {name}: {doubts}" for name, doubts in doubtful.items()))


def print_skipped(steps: list[Step]) -> None:
    """Name the valid programs on which no model is selected, if there are any."""
    features = [step.settings for step in steps if isinstance(step.settings, FeatureSettings)]
    if names := [program.id for settings in features for program in settings.skipped()]:
        print(f"left out of model selection (features.skip_valid): {', '.join(names)}")


def run(settings: RunSettings) -> None:
    """Run all stages up to the target, skipping what is up to date, and print the scores; or print the plan.

    Raises:
        SettingsError: A setting is wrong, or a run of that name was begun with other ones.
        DataError: The data are missing or broken.
        StepError: A notebook failed.
        KaggleError: The upload failed.
    """
    began, target = time.monotonic(), "submission" if settings.target == "submit" else settings.target
    plan, recorded, chosen, used, refused = resume(settings)
    steps = plan.steps(target)
    if settings.plan:
        print_outlook(steps, plan.preset, refused)
        return
    if refused:
        raise SettingsError(refused)
    if recorded.get("hours") and settings.cluster:
        raise SettingsError("hours: are planned for this machine; give seeds and epochs for a cluster")
    for folder in ("features", "runs", "submissions"):
        remove_abandoned(resolve(folder))
    last = steps[-1].stage
    check_ids(find_data(plan.data_root), plan.collections)  # hours of training must not end at a broken CSV
    doubt = warn_of_release(find_data(plan.data_root)) if plan.data != "sample" else ""
    if doubt and (plan.data == "kaggle" or LAUNCH_RELEASE in doubt):
        print(f"warning: {doubt}", file=sys.stderr)  # before hours of training
    print_skipped(steps)
    record = partial(record_run, resolve(f"runs/{plan.name}"), plan.data_root, plan.preset, recorded)
    if recorded.get("hours") and chosen is None and target != "features":
        try:
            chosen = _fit_hours(plan, target, 3600 * recorded["hours"], began - used)
        finally:
            if chosen is None:
                record(None, time.monotonic() - began + used)
        plan = make_plan(add_chosen(settings, chosen))
        steps = plan.steps(target)
    record(chosen)
    run_steps(steps, plan.jobs, settings.cluster)
    if last == "submission":
        report(plan)
    elif last != "features":
        print(*model_means(resolve(f"runs/{plan.name}")), sep="\n")
    if settings.target == "submit":
        _submit(plan, settings.unproven_order)


def _fit_hours(plan: Plan, target: str, seconds: float, began: float) -> dict[str, Any]:
    """Make a submission of the rule, which is there whatever happens; choose what fits into the time left."""
    kept = {part: own for part, own in plan.overrides.items() if not part.startswith(MODELS["layout"])}
    rules = replace(plan, models=RULES, overrides=kept)
    run_steps(rules.steps("features"), plan.jobs)
    built = time.monotonic()
    run_steps(rules.steps(target), plan.jobs)
    ensembles = time.monotonic() - built  # take about as long again at the end
    chosen, said = plan_hours(plan, seconds - (time.monotonic() - began) - ensembles)
    minutes = (time.monotonic() - began) / 60
    until = f"{minutes:.1f} of {seconds / 60:g} minutes until here, {ensembles / 60:.1f} kept for the end"
    print(f"hours: {until}; {said}", flush=True)
    return chosen


def _submit(plan: Plan, unproven_order: bool) -> None:
    if plan.data != "kaggle":
        print(f"not uploaded: {plan.data_root} is not the Kaggle competition (`make submit DATA=kaggle` is)")
    elif credentials() is None:
        print(
            "not uploaded: no Kaggle credentials. Make a token at kaggle.com > Settings > API, then\n"
            "  export KAGGLE_API_TOKEN=...   (or put kaggle.json into ~/.kaggle/)\n"
            "and type `make submit DATA=kaggle` again: nothing is computed twice."
        )
    else:
        upload(resolve(plan.csv), find_data(plan.data_root), unproven_order)
