"""Runs the notebooks from npz files to a submission, skipping what is up to date.

``python -m fastslow.workflow --help``; the Makefile calls nothing else for its main targets.
"""

import argparse
import json
import logging
import os
import signal
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import papermill
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillExecutionError

from fastslow.core.artifacts import commit, read_manifest
from fastslow.core.errors import ConfigError, DataError
from fastslow.core.files import atomic_path
from fastslow.core.progress import progress
from fastslow.core.settings import PROJECT, resolve
from fastslow.evaluation.results import format_table
from fastslow.kaggle.client import KaggleError, SubmissionResult, submit, wait_for_score
from fastslow.kaggle.credentials import credentials
from fastslow.kaggle.ledger import read_record, update_record
from fastslow.kaggle.submission import check_submission
from fastslow.presets import PRESETS
from fastslow.steps import DATA_ROOTS, STAGES, Plan, Step, parse_overrides

NOTEBOOK = "notebook.ipynb"
FAILED = "failed.ipynb"
PAUSE_SECONDS = 2.0  # between two looks at what is running
LOG_SECONDS = 60.0  # the same where the output is a file: a line each time
_KERNEL_DIED = "the kernel was killed; where memory ran out, run fewer notebooks at a time (JOBS=1)"


class StepError(RuntimeError):
    """A notebook failed; the message holds its error and where the executed notebook lies."""


def run_step(step: Step) -> float:
    """Execute a step's notebook into the folder it writes; the seconds it took.

    Raises:
        StepError: A cell failed, or the kernel died. The notebook up to there is kept as ``failed.ipynb``.
    """
    folder = resolve(step.config.folder)
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    failed = folder / FAILED
    with atomic_path(folder / NOTEBOOK) as output:
        try:
            papermill.execute_notebook(
                str(step.notebook),
                str(output),
                parameters=step.config.asdict(),
                kernel_name="python3",
                progress_bar=False,
                cwd=str(PROJECT),
                extra_arguments=["--IPKernelApp.log_level=CRITICAL"],  # it warns of its own shutdown
            )
        except (PapermillExecutionError, DeadKernelError) as error:
            os.replace(output, failed)
            reason = _KERNEL_DIED if isinstance(error, DeadKernelError) else f"{error.ename}: {error.evalue}"
            raise StepError(f"{step.name}: {reason}\n  the notebook up to there: {failed}") from None
    failed.unlink(missing_ok=True)
    return time.monotonic() - began


def run_steps(steps: list[Step], jobs: int) -> None:
    """Run the steps stage by stage, those of a stage side by side, and leave out what is up to date.

    Args:
        steps: In the order of their stages.
        jobs: Notebooks at a time.

    Raises:
        StepError: A notebook failed; those running beside it are finished first.
        DataError: The data are missing or broken.
    """
    quiet = not sys.stderr.isatty()
    with progress(total=len(steps), unit="step", disable=quiet) as bar, ThreadPoolExecutor(jobs) as pool:
        for stage in STAGES:
            wanted = [step for step in steps if step.stage == stage]
            # asked once a step: for features it reads the directory of every data file
            artifacts = [(step, step.config.artifact()) for step in wanted]
            outdated = [(step, artifact) for step, artifact in artifacts if not artifact.is_current()]
            current = len(wanted) - len(outdated)
            bar.set_description(stage)
            bar.update(current)
            say = f"{stage}: {current} of {len(wanted)} up to date" if current else stage
            bar.write(say, file=sys.stderr)
            for step, artifact in outdated:
                for change in artifact.changes():
                    bar.write(f"  {step.name}: {change}", file=sys.stderr)
            _run_stage([step for step, _ in outdated], pool, bar)


def _run_stage(steps: list[Step], pool: ThreadPoolExecutor, bar) -> None:
    running = {pool.submit(run_step, step): step for step in steps}
    pause = LOG_SECONDS if bar.disable else PAUSE_SECONDS
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
    finally:
        for future in running:
            future.cancel()


def _newest(step: Step) -> str:
    """A running step with the epoch and valid score that it wrote last, if it writes any."""
    metrics = resolve(step.config.folder) / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.is_file() else []
    last = json.loads(lines[-1]) if lines else {}
    return f"{step.name} (epoch {last['epoch']}, valid {last['valid']:.3f})" if "epoch" in last else step.name


def _score_of(step: Step) -> str:
    valid = read_manifest(resolve(step.config.folder)).get("valid")
    return f", valid {valid['mean']:.3f} ({valid['weights']})" if valid else ""


def upload(csv: Path, data_root: Path) -> None:
    """Check a submission once more, send it to Kaggle and wait for its score.

    A file that Kaggle already took is not sent again: only its score is asked for.

    Raises:
        DataError: The CSV is not as it must be, or not the one its record was written for.
        KaggleError: Nothing was uploaded, or there is no score yet; the message says which and what to type.
    """
    check_submission(csv, data_root)
    record = update_record(csv)
    if "upload" in record:
        result = SubmissionResult(
            **{**record["upload"], "earlier_refs": frozenset(record["upload"]["earlier_refs"])}
        )
        print(f"{csv.name}: uploaded before; asking for its score")
    else:
        result = submit(csv, f"fastslow {record['name']} {commit()}, valid mean {record['valid_mean']:.4f}")
        update_record(csv, upload={**asdict(result), "earlier_refs": sorted(result.earlier_refs)})
        print(f"{csv.name}: uploaded; waiting for its score")
    score = wait_for_score(result)
    update_record(csv, kaggle={"public": score.public_score, "private": score.private_score})
    print(f"Kaggle: public {score.public_score}, private {score.private_score}")


def report(plan: Plan) -> None:
    """Print the table of scores and where everything lies."""
    csv = resolve(plan.csv)
    record = read_record(csv)
    print(format_table(pd.DataFrame(record["table"])))
    test = f", test {record['test_mean']:.3f}" if record["test_mean"] is not None else ""
    print(f"\nensemble, mean of the five collections: valid {record['valid_mean']:.3f}{test}")
    rows = sum(record["checked"]["rows"].values())
    print(f"{plan.csv}: {rows} rows, read back and checked; table and plot lie beside it")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fastslow.workflow", description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=(*STAGES, "submit"), help="last stage to run; submit also uploads")
    roots = ", ".join(f"{name} ({root})" for name, root in DATA_ROOTS.items())
    parser.add_argument("--data", default="sample", help=f"{roots}, or a folder that holds npz_all/")
    parser.add_argument(
        "--preset", choices=tuple(PRESETS), help="settings to start from (default: that of the data)"
    )
    parser.add_argument("--name", help="name of the run (default: that of the data, or smoke)")
    parser.add_argument("--seeds", type=int, help="seeds of each model (default: 3, smoke: 1)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="notebooks side by side (default: cores)"
    )
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="SECTION.NAME=VALUE",
        help="settings, such as gnn.layout.epochs=20",
    )
    return parser


def make_plan(options: argparse.Namespace) -> Plan:
    """The plan of a command line.

    Raises:
        ConfigError: An option is out of range.
    """
    usual = 1 if options.preset == "smoke" else 3
    seeds = usual if options.seeds is None else options.seeds
    if seeds < 1 or options.jobs < 1:
        raise ConfigError(f"seeds, jobs: {seeds}, {options.jobs}; 1 or more wanted")
    known = options.data in DATA_ROOTS
    preset = options.preset or (options.data if known else "kaggle")
    folder = options.data if known else resolve(options.data).resolve().name
    name = options.name or (preset if preset == "smoke" else folder)
    if not name or Path(name).name != name or name.startswith("."):
        raise ConfigError(f"name: {name!r} is not a plain folder name")
    return Plan(options.data, name, preset, seeds, parse_overrides(options.set), options.jobs)


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; the exit status."""
    options = _parser().parse_args(arguments)
    logging.getLogger("papermill").setLevel(logging.ERROR)
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # side by side, kernels must not fight for cores
    try:
        plan = make_plan(options)
        last = STAGES.index("submission" if options.target == "submit" else options.target)
        run_steps([step for step in plan.steps() if STAGES.index(step.stage) <= last], plan.jobs)
        if STAGES[last] == "submission":
            report(plan)
        if options.target == "submit":
            _submit(plan)
    except (ConfigError, DataError, StepError, KaggleError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _submit(plan: Plan) -> None:
    if plan.data != "kaggle":
        print(f"not uploaded: {plan.data_root} is not the Kaggle competition (`make submit DATA=kaggle` is)")
    elif credentials() is None:
        print(
            "not uploaded: no Kaggle credentials. Make a token at kaggle.com > Settings > API, then\n"
            "  export KAGGLE_API_TOKEN=...   (or put kaggle.json into ~/.kaggle/)\n"
            "and type `make submit DATA=kaggle` again: nothing is computed twice."
        )
    else:
        upload(resolve(plan.csv), resolve(plan.data_root))


if __name__ == "__main__":
    # Ctrl-C ends it and its notebooks at once; Python's own handler would wait for the running ones
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main())
