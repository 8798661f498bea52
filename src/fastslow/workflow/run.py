"""Run the notebooks from npz files to a submission, skipping what is up to date.

What takes seconds to import is imported once the settings are checked and written down.
"""

import contextlib
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fastslow.competition.catalog import TEST, list_programs
from fastslow.competition.submission_checks import check_ids
from fastslow.core.cluster.dask_cluster import check_scheduler
from fastslow.core.errors import DataError, FastslowError, SettingsError, counted
from fastslow.core.files import check_writable, remove_abandoned
from fastslow.core.settings import find_data, resolve
from fastslow.evaluation.blend import BlendSettings, blend_submissions, write_blend
from fastslow.evaluation.run_record import record_run
from fastslow.evaluation.scores import solution_of
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.features.nodes.protobuf import require_protobufs
from fastslow.steps.ensemble import EnsembleSettings
from fastslow.steps.features import FeatureSettings, recipe_settings
from fastslow.steps.network_settings import TrainSettings, differences
from fastslow.workflow.begun_run import add_chosen, begin, begun_with, make_plan, resume
from fastslow.workflow.outlook import look, print_outlook, print_wrapped
from fastslow.workflow.settings.presets import MODELS, PACKAGED, RULES
from fastslow.workflow.settings.run_settings import RunSettings
from fastslow.workflow.steps import Plan, Step, check_data, parse_overrides

ON_KAGGLE = "on-kaggle"  # name of a run there
SESSION_HOURS = 9.0  # that a session of Kaggle with GPUs certainly has
KAGGLE_HOURS = 8.5  # of these, for a run there
_NOT_SENT = {"target", "data", "name", "hours", "set", "cluster", "plan", "unproven_order", "predict_with"}
"""Settings that the notebook on Kaggle gives itself, or that say nothing there."""
_OF_THIS_MACHINE = {"extra", "init", "logger", "hlo_folder"}
"""Settings of steps that name runs, code or files which Kaggle does not have."""
FEW_EPOCHS = 8  # a budget lets networks with at most so many start from trained weights
COUNT_SECONDS = 10.0  # between two records of how much of a budget is used


def run(settings: RunSettings) -> None:
    """Run all stages up to the target, skipping what is up to date, and print the scores; or print the plan.

    Raises:
        SettingsError: A setting is wrong, or a run of that name was begun with other ones.
        DataError: The data are missing or broken.
        StepError: A notebook failed.
        KaggleError: The upload failed.
    """
    began = time.monotonic()
    target = "submission" if settings.target == "submit" else settings.target
    resumed = resume(settings)
    plan, recorded, chosen, used, refused, changed = resumed
    steps = plan.steps(target)
    planned = f"{counted(len(steps), 'step')} to {target}"
    what = f"runs/{plan.name}: data {plan.data_root}, preset {plan.preset}, {planned}"
    hours = recorded.get("hours")
    if hours and (settings.plan or chosen is not None):
        for sentence in _say_hours(hours, chosen, plan):
            print_wrapped(sentence)
    check_data(plan.data)
    _check_patterns(plan, steps)
    if hours and settings.cluster:
        raise SettingsError("hours", "are planned for this machine; give seeds and epochs for a cluster")
    if settings.plan:
        if not refused and _has_data(plan):
            refused = _refusal(settings, plan, steps)
        print_wrapped(what)
        if changed and not resumed.refused:
            print_wrapped(changed)
        print_outlook(steps, "" if plan.predict_with else plan.preset, plan.data, refused)
        return
    if refused:
        raise SettingsError(refused)
    _check_run(settings, plan, steps)
    record = partial(record_run, resolve(f"runs/{plan.name}"), plan.data_root, plan.preset, recorded)
    said = "\n".join(filter(None, [what, changed]))
    print(said, file=sys.stderr, flush=True)  # papermill and the first step take seconds
    begin(settings, resumed)  # the record is there whatever ends this process

    from fastslow.evaluation.leaderboard import model_means
    from fastslow.workflow import execution

    for folder in ("features", "runs", "submissions"):
        remove_abandoned(resolve(folder))
    last = steps[-1].stage
    doubt = _doubt_of_release(plan)
    for warning in _warnings(plan, doubt):
        print(f"warning: {warning}", file=sys.stderr)  # before hours of training
    execution.print_skipped(steps)
    if hours and chosen is None and target != "features":
        with _counting(lambda: record(None, time.monotonic() - began + used)):
            chosen = _fit_hours(plan, target, 3600 * hours, began - used)
        record(chosen)
        plan = make_plan(add_chosen(begun_with(settings, recorded), chosen))
        steps = plan.steps(target)
    execution.run_steps(steps, plan.jobs, settings.cluster)
    if last == "submission":
        execution.report(plan, _warnings(plan, doubt))
    elif last != "features":
        print(*model_means(resolve(f"runs/{plan.name}")), sep="\n")
    if settings.target == "submit":
        _submit(plan, settings.unproven_order)


def _doubt_of_release(plan: Plan) -> str:
    """Return why to doubt the row order of the data; empty for the sample and for a user's own data."""
    from fastslow.kaggle.provenance import LAUNCH_RELEASE, warn_of_release

    doubt = warn_of_release(find_data(plan.data_root)) if plan.data != "sample" else ""
    return doubt if plan.data == "kaggle" or LAUNCH_RELEASE in doubt else ""


def _warnings(plan: Plan, doubt: str) -> list[str]:
    """Return what the command warns of and its submission records: a doubt of the data, and filled rows."""
    filled = ", ".join(collection.name for collection in plan.filled)
    said = f"{filled}: no model predicts it; ridge regression fills its rows" if filled else ""
    return [*filter(None, (doubt, said))]


def run_on_kaggle(settings: RunSettings) -> None:
    """Run all stages on Kaggle's own GPUs, fetch the run and its CSV, and upload the CSV.

    Raises:
        SettingsError: A setting is wrong or names what is only here, or something of that name is here.
        KaggleError: Kaggle did not take the run, or it failed there.
    """
    from fastslow.kaggle.kernel import train_on_kaggle
    from fastslow.kaggle.upload import upload

    settings = settings.replace(name=settings.name or ON_KAGGLE, hours=settings.hours or KAGGLE_HOURS)
    _refuse_what_kaggle_lacks(settings)
    make_plan(settings).steps("submission")  # a wrong setting is an error here, before hours on Kaggle
    given = settings.model_fields_set - _NOT_SENT
    values = {name: getattr(settings, name) for name in sorted(given)}
    texts = [f"{n}={','.join(v) if isinstance(v, list) else v}" for n, v in values.items()]
    csv = train_on_kaggle(settings.name, settings.hours, shlex.join([*texts, *settings.set]))
    if settings.target == "submit":
        upload(csv, None)


def _refuse_what_kaggle_lacks(settings: RunSettings) -> None:
    """Refuse hours that no session there has, and what names something of this machine: only code is sent."""
    if settings.hours > SESSION_HOURS:
        problem = f"{settings.hours:g} is more than a session with GPUs has on Kaggle"
        raise SettingsError("hours", f"{problem}; give at most {SESSION_HOURS:g}")
    if settings.init not in ("", PACKAGED):
        raise SettingsError("init", f"{settings.init} is not on Kaggle; give init={PACKAGED}, or none")
    if settings.logger:
        remedy = "do without: metrics.jsonl of each training is fetched"
        raise SettingsError("logger", f"{settings.logger} has no account and no code on Kaggle; {remedy}")
    for section, values in parse_overrides(settings.set).items():
        for name in sorted(_OF_THIS_MACHINE & values.keys()):
            remedy = "blend the CSVs afterwards (`fastslow blend`)" if name == "extra" else "do without"
            raise SettingsError(f"{section}.{name}", f"{values[name]} is not on Kaggle; {remedy}")


def blend_csvs(settings: BlendSettings) -> None:
    """Blend submissions into a CSV, and upload it if asked.

    Raises:
        SettingsError: The CSV to write must not be replaced, or it is to be uploaded and is checked against
            no test files, or against the files of another competition.
        DataError: A submission is missing or broken, or does not fit the others or the test files.
        KaggleError: The upload failed.
    """
    root = settings.test_files()
    if settings.upload:
        _require_competition(root)
    csv = write_blend(settings, blend_submissions(settings.paths(), settings.weights, root))
    if settings.upload:
        from fastslow.kaggle.upload import upload

        upload(csv, root, settings.unproven_order)


def _require_competition(root: Path | None) -> None:
    """Refuse to upload a blend that no test files check, or that files of another competition check."""
    if root is None:
        problem = "an upload is checked against the test files, and no record of these CSVs names them"
        raise SettingsError("data_root", f"{problem}; give data_root=FOLDER")
    if solution_of(root):
        raise SettingsError("upload", f"{root} is not the Kaggle competition, whose test labels nobody has")


def _check_run(settings: RunSettings, plan: Plan, steps: Sequence[Step]) -> None:
    """Refuse what would end a run after hours.

    Raises:
        SettingsError: The cluster does not answer, a device is not there, or networks cannot start as wished.
        DataError: A CSV of the competition or a trained model is broken, files are missing, or a model that
            ``ensemble.extra`` names is broken or of other data.
        StorageError: The CSV cannot be written.
    """
    if steps[-1].stage == "submission":  # the other steps write their first file within seconds
        check_writable(resolve(plan.csv))
    check_scheduler(settings.cluster)
    check_ids(find_data(plan.data_root), [*plan.collections, *plan.filled])
    _check_files(plan, steps)
    _check_trained(plan)
    _check_init(steps)
    if not settings.cluster:  # whose workers have other devices
        _check_devices(plan, steps)


def _refusal(settings: RunSettings, plan: Plan, steps: Sequence[Step]) -> str:
    """Return why :func:`_check_run` refuses a run; empty where it does not."""
    try:
        _check_run(settings, plan, steps)
    except FastslowError as error:
        return str(error)
    return ""


def _check_files(plan: Plan, steps: Sequence[Step]) -> None:
    """Refuse missing files of any split, and models of the user's that do not fit features which are built.

    Raises:
        SettingsError: A pattern of ``skip_valid`` leaves no valid program, or a network reads attributes that
            the features are built without.
        DataError: A folder of programs or protobufs has no file, or a model is broken or of other data.
    """
    built = {step.settings.folder: step for step in steps if step.stage == "features"}
    for step in built.values():
        with plan.naming(*step.section.partition(".")[::2]):
            if step.settings.hlo_folder:
                require_protobufs(resolve(step.settings.hlo_folder))
            step.settings.programs()
    for step in steps:
        if isinstance(step.settings, TrainSettings) and "attributes" in step.settings.node_inputs.split("+"):
            with plan.naming(*step.section.partition(".")[::2]):
                if not all(built[folder].settings.hlo_folder for folder in step.settings.features):
                    problem = "attributes come from TpuGraphs' protobufs; name their folder with"
                    raise SettingsError("node_inputs", f"{problem} features.hlo_folder")
        if isinstance(step.settings, EnsembleSettings) and step.settings.extra:
            current, _ = look(built[step.settings.features])
            if current:  # others are checked once their features are
                step.settings.check_extra()


def _check_trained(plan: Plan) -> None:
    """Refuse trained models that cannot predict, before the features of all programs are built.

    Raises:
        DataError: They belong to another collection, are not finished or damaged, or read other features.
    """
    for collection in plan.collections if plan.predict_with else ():
        from fastslow.steps.trained_ensemble import check_trained  # torch takes seconds

        programs = list_programs(find_data(plan.data_root), collection, TEST)
        smallest = min(programs, key=lambda program: program.path.stat().st_size)
        trained = plan.trained(collection)
        assert trained
        check_trained(trained, smallest)


def _check_init(steps: Sequence[Step]) -> None:
    """Refuse networks to start from that have another architecture or read other features.

    Raises:
        SettingsError: They have, or do.
        DataError: They are not finished.
    """
    features = {step.settings.folder: step.settings for step in steps if step.stage == "features"}
    for settings in (step.settings for step in steps if isinstance(step.settings, TrainSettings)):
        if not settings.init:
            continue
        settings.check_init()
        there = recipe_settings(resolve(settings.init)).identity()
        for folder in settings.features:
            here = features[folder].identity()
            if values := differences(there, here, here.keys() - {"collection"}):
                problem = f"{settings.init} reads features of other settings: {values}"
                raise SettingsError("init", f"{problem}. Give features these values, or leave init empty")


def _check_patterns(plan: Plan, steps: Sequence[Step]) -> None:
    """Refuse patterns of runs that match none, or of valid programs that leave none: this needs no features.

    Raises:
        SettingsError: They do not, or leave none.
    """
    has_data = _has_data(plan)
    for step in steps:
        with plan.naming(*step.section.partition(".")[::2]):
            if isinstance(step.settings, EnsembleSettings):
                step.settings.extra_folders()
            elif has_data and isinstance(step.settings, FeatureSettings) and step.settings.skip_valid:
                with contextlib.suppress(DataError):  # missing files, which _check_files names
                    step.settings.programs()


def _has_data(plan: Plan) -> bool:
    """Return whether the competition's files are here; a plan is made without."""
    return (find_data(plan.data_root) / "npz_all").is_dir()


def _check_devices(plan: Plan, steps: Sequence[Step]) -> None:
    """Refuse a device for networks that is not there, before the features of all programs are built.

    Raises:
        SettingsError: It is not there, or torch cannot compute on it.
    """
    for step in steps:
        if isinstance(step.settings, TrainSettings):
            with plan.naming(*step.section.partition(".")[::2]):
                step.settings.identity()


def _say_hours(hours: float, chosen: Mapping[str, Any] | None, plan: Plan) -> Iterator[str]:
    """Yield in words what a budget of hours chose, or when it will choose."""
    if chosen is None:
        first = "features and a submission of ridge regression come first"
        yield f"hours={hours:g}: {first}, then seeds, epochs and trees are chosen by the speed measured here"
        yield from filter(None, _start_of_few_epochs(plan)[1:])
        return
    values = " ".join(f"{name}={value}" for name, value in chosen.items())
    yield f"hours={hours:g}: {values} was chosen" if values else f"hours={hours:g}: everything fits"


@contextlib.contextmanager
def _counting(record: Callable[[], None]) -> Iterator[None]:
    """Call ``record`` every few seconds and at the end: what is killed has used what was recorded last."""
    over = threading.Event()

    def count() -> None:
        while not over.wait(COUNT_SECONDS):
            with contextlib.suppress(DataError):  # such as a full disk, which the steps report
                record()

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        record()


def _fit_hours(plan: Plan, target: str, seconds: float, began: float) -> dict[str, Any]:
    """Make a submission of the rule, which is there whatever happens; choose what fits into the time left."""
    from fastslow.workflow import execution
    from fastslow.workflow.budget import plan_hours

    models = MODELS["layout"]
    kept = {part: given for part, given in plan.overrides.items() if not part.startswith(models)}
    rules = replace(plan, models=RULES, overrides=kept)
    execution.run_steps(rules.steps("features"), plan.jobs)
    built = time.monotonic()
    execution.run_steps(rules.steps(target), plan.jobs)
    ensembles = time.monotonic() - built  # take about as long again at the end
    chosen, said = plan_hours(plan, seconds - (time.monotonic() - began) - ensembles)
    minutes = (time.monotonic() - began) / 60
    until = f"{minutes:.1f} of {seconds / 60:g} minutes until here, {ensembles / 60:.1f} kept for the end"
    print(f"hours: {until}; {said}", flush=True)
    epochs = [value for name, value in chosen.items() if name.startswith("gnn.layout") and "epochs" in name]
    if epochs and min(epochs) <= FEW_EPOCHS:
        start, why = _start_of_few_epochs(plan)
        print(f"hours: {why}", flush=True)
        chosen |= start
    return chosen


def _start_of_few_epochs(plan: Plan) -> tuple[dict[str, str], str]:
    """Return what networks start from to which a budget leaves few epochs: a setting, and why, in words.

    With 1 to 8 epochs, networks that start from trained weights are ahead of networks that start from nothing
    (``benchmarks/tables/warm_start.md``). The weights must be of the same architecture and features.
    """
    few = f"networks with {FEW_EPOCHS} epochs or fewer"
    if plan.init:
        return {}, f"{few} start from {plan.init}, as all do"
    try:
        steps = replace(plan, init=PACKAGED).steps("train")
        _check_init(steps)
    except SettingsError as error:
        return {}, f"{few} start from nothing; {error.named('init=package')}"
    if not any(isinstance(step.settings, TrainSettings) for step in steps):
        return {}, ""
    return {"init": PACKAGED}, f"{few} start from the package's networks"


def _submit(plan: Plan, unproven_order: bool) -> None:
    from fastslow.kaggle.credentials import credentials
    from fastslow.kaggle.provenance import check_release
    from fastslow.kaggle.upload import upload

    if plan.data != "kaggle":
        print(f"not uploaded: {plan.data_root} is not the Kaggle competition (`make submit DATA=kaggle` is)")
        return
    csv, root = resolve(plan.csv), find_data(plan.data_root)
    if credentials():
        upload(csv, root, unproven_order)
        return
    try:
        check_release(csv, read_submission_record(csv), root, unproven_order)
    except FastslowError as error:
        print(f"not uploaded: {error}")  # a token would not help
        return
    print(
        "not uploaded: no Kaggle credentials. Make a token at kaggle.com > Settings > API, then\n"
        "  export KAGGLE_API_TOKEN=...   (or put kaggle.json into ~/.kaggle/)\n"
        f"and type `{_same_command(plan, unproven_order)}` again: nothing is computed twice."
    )


def _same_command(plan: Plan, unproven_order: bool) -> str:
    """Return the shortest command that finds this run up to date, and uploads it."""
    usual = resume(RunSettings(data=plan.data))
    is_usual = usual.plan.name == plan.name and not usual.refused
    run_typed = f"DATA={plan.data}" if is_usual else f"NAME={shlex.quote(plan.name)}"
    return f"make submit {run_typed}{' SET=unproven_order=True' * unproven_order}"
