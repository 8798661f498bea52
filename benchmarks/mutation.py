"""Mutation testing: the share of small faults in the source that the tests notice.

``.venv/bin/python benchmarks/mutation.py [--target losses --mutants 40 --seed 0]``, after ``pip install -r
benchmarks/requirements.txt``. It draws places of a module, changes one operator, number, condition or
decorator at each (the operators of cosmic-ray) and runs the tests of the module. A mutant is killed if a test
fails or runs five times longer than before. Annotations are not mutated. Everything happens in a temporary
copy of the repository. Survivors are printed as a diff to read: a real one wants a better test, an equivalent
one cannot be killed.
"""

import argparse
import ast
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from importlib.util import cache_from_source
from pathlib import Path

from common import report
from common.command_line import run_main
from common.options import at_least, make_parser

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {
    "choices": (
        "**/competition/*choice*.py",
        "competition/test_tied_choices.py competition/test_group_sets.py"
        " features/test_choice_sums.py competition/test_reader.py competition/test_default_layouts.py"
        " networks/test_config_states.py features/test_copies.py",
    ),
    "compare": (
        "**/compare*.py",
        "evaluation/test_agreement.py evaluation/test_compare.py evaluation/test_blend.py front/test_api.py",
    ),
    "metrics": ("**/competition/metrics.py", "competition/test_metrics.py evaluation/test_compare.py"),
    "nodes": (
        "**/nodes/node_encodings.py",
        "features/test_pruning.py features/test_node_encodings.py features/test_list_padding.py",
    ),
    "copies": ("**/copies.py", "features/test_copies.py"),
    "submission": (
        "**/competition/submission_c*.py",
        "competition/test_submission_csv.py bad_input/test_texts.py",
    ),
    "ensemble": ("**/ensemble/*.py", "evaluation/test_ensemble.py evaluation/test_baselines.py"),
    "leaderboard": (
        "**/evaluation/leaderboard.py",
        "evaluation/test_leaderboard.py evaluation/test_blend.py",
    ),
    "scaling": ("**/features/scaling.py", "features/test_scaling.py"),
    "rankers": (
        "**/rankers/*.py",
        "rankers/test_node_costs.py rankers/test_objectives.py rankers/test_boosting.py"
        " rankers/test_table_features.py rankers/test_train.py",
    ),
    "named choices": ("**/ranking/choices.py", "ranking/test_effects.py ranking/test_choices.py"),
    "trust": (
        "**/ranking/trust.py",
        "ranking/test_trust.py ranking/test_words.py ranking/test_rank.py ranking/test_packaged.py",
    ),
    "trained": ("**/runs/trained_*.py", "rankers/test_libraries.py bad_input/test_folders.py"),
    "scores": (
        "**/evaluation/score*.py",
        "evaluation/test_solution.py evaluation/test_score_tables.py evaluation/test_scores.py",
    ),
    "simplify": ("**/program/simplify.py", "program/test_simplify.py"),
    "states": ("**/config_states.py", "networks/test_config_states.py"),
    "losses": ("**/losses.py", "networks/test_losses.py"),
    "segments": (
        "**/segments/*.py",
        "networks/test_config_states.py networks/test_segment_training.py"
        " networks/test_segment_partition.py networks/test_segment_loop.py",
    ),
    "published": ("**/networks/published/*.py", "networks/test_plain.py workflow/test_published_presets.py"),
    "known": ("**/known_*.py", "ranking/test_known_runtimes.py"),
    "confirmation": ("**/confirmation.py", "tuning/test_confirmation.py"),
    "jobs": ("**/workflow/job_plan.py", "workflow/test_job_plan.py workflow/test_budget.py"),
    "predictions": (
        "**/runs/predictions.py",
        "evaluation/test_predictions.py bad_input/test_folders.py ranking/test_words.py"
        " evaluation/test_leaderboard.py evaluation/test_ensemble.py ranking/test_inference.py"
        " workflow/test_predict_with.py ranking/test_packaged.py",
    ),
    "manifests": (
        "**/runs/run_manifest.py",
        "evaluation/test_predictions.py bad_input/test_folders.py evaluation/test_leaderboard.py"
        " evaluation/test_ensemble.py ranking/test_inference.py workflow/test_predict_with.py"
        " ranking/test_packaged.py",
    ),
    "npz": ("**/core/npz_io.py", "core/test_npz_io.py competition/test_bombs.py core/test_storage_errors.py"),
    "files": (
        "**/core/files.py",
        "core/test_storage_errors.py core/test_artifacts.py bad_input/test_security.py",
    ),
}
"""Modules below ``src`` and their files of tests below ``tests``, the quickest to fail first."""
MADE = {".git", ".venv", "data", "features", "results", "runs", "submissions"}
"""Folders of the repository that are not copied; ``src/fastslow`` has packages of these names."""
SAID = "said.txt"
SLOWER = 5.0  # times the seconds of the tests on the source as it is


def annotated(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the spans of annotations, as (line, column) of start and end."""
    spans = []
    for node in ast.walk(ast.parse(source)):
        for name in ("annotation", "returns"):
            part = getattr(node, name, None)
            if isinstance(part, ast.expr):
                spans.append(((part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)))
    return spans


def draw(source: str, rng: random.Random) -> list[tuple[int, str, int]]:
    """Return one mutation for each place of a module.

    A place has many mutations, a sum becomes a product or a difference: drawing one of them keeps
    arithmetic from outnumbering conditions.

    Returns:
        Line, operator and occurrence of each, as ``cosmic_ray.mutating.mutate_code`` counts.
    """
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    tree, spans, places = get_ast(source), annotated(source), defaultdict(list)
    for name in sorted(operator_names()):
        if get_operator(name).arguments():
            continue
        operator = get_operator(name)()
        positions = (at for node in ast_nodes(tree) for at in operator.mutation_positions(node))
        for occurrence, (start, _) in enumerate(positions):
            if not any(first <= start < last for first, last in spans):
                places[start, name.partition("_")[0]].append((start[0], name, occurrence))
    return [rng.choice(found) for _, found in sorted(places.items())]


def passes(repository: Path, tests: list[str], limit: float) -> bool:
    """Return whether tests (files below ``tests``) of a copy of the repository pass in ``limit`` seconds."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--hypothesis-seed=0"]
    command = [sys.executable, "-m", "pytest", *options, *(f"tests/{name}" for name in tests)]
    environment = {**os.environ, "PYTHONPATH": str(repository / "src"), "OMP_NUM_THREADS": "1"}
    with (repository / SAID).open("w") as said:
        try:
            run = subprocess.run(
                command, cwd=repository, env=environment, stdout=said, stderr=said, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return False
    return run.returncode == 0


def modules_of(target: str, repository: Path = ROOT) -> list[Path]:
    """Return the modules of a target."""
    return sorted((repository / "src").glob(TARGETS[target][0]))


def copy_repository(repository: Path) -> None:
    """Copy the repository into an empty folder; data are linked, what was made here is left out."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        made = MADE.intersection(names) if Path(folder) == ROOT else set()
        return made | shutil.ignore_patterns("__pycache__", ".*_cache")(folder, names)

    shutil.copytree(ROOT, repository, ignore=left_out, dirs_exist_ok=True)
    (repository / "data").symlink_to(ROOT / "data")


def measure(repository: Path, target: str, count: int, seed: int) -> dict:
    """Kill a sample of a target's mutants.

    Args:
        repository: Copy of the repository, in which modules are mutated.
        target: Name in :data:`TARGETS`.
        count: Mutants, all of them if there are fewer places.
        seed: Seed of the sample.

    Returns:
        ``target``, ``places``, ``mutants``, ``killed``, ``survivors`` (a diff each) and ``seconds``.

    Raises:
        SystemExit: The tests fail on the source as it is.
    """
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    tests = TARGETS[target][1]
    rng, began = random.Random(seed), time.monotonic()
    paths = modules_of(target, repository)
    places = [(path, place) for path in paths for place in draw(path.read_text(), rng)]
    chosen = sorted(rng.sample(places, min(count, len(places))))
    start = time.monotonic()
    if not passes(repository, tests.split(), 1800):
        print((repository / SAID).read_text()[-3000:])
        raise SystemExit(f"{target}: its tests fail before anything is mutated: {tests}")
    limit, survivors = 10 + SLOWER * (time.monotonic() - start), []
    for path, (line, operator, occurrence) in chosen:
        source = path.read_text()
        mutated = mutate_code(source, get_operator(operator)(), occurrence)
        Path(cache_from_source(str(path))).unlink(missing_ok=True)
        path.write_text(mutated)
        try:
            survived = passes(repository, tests.split(), limit)
        finally:
            path.write_text(source)
            Path(cache_from_source(str(path))).unlink(missing_ok=True)
        if survived:
            changed = difflib.unified_diff(source.splitlines(), mutated.splitlines(), lineterm="", n=0)
            lines = [text for text in changed if text[:1] in "+-" and text[:3] not in ("+++", "---")]
            survivors.append("\n".join([f"{path.name}:{line} {operator}", *lines]))
            print(survivors[-1], flush=True)
    killed = len(chosen) - len(survivors)
    print(f"{target}: {killed} of {len(chosen)} mutants killed, {len(places)} places", flush=True)
    return {
        "target": target,
        "places": len(places),
        "mutants": len(chosen),
        "killed": killed,
        "survivors": survivors,
        "seconds": time.monotonic() - began,
    }


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.partition("\n")[0])
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=list(TARGETS), help="default: all")
    parser.add_argument(
        "--mutants", type=at_least(1), default=40, help="mutants of a target (default 40, quick 1)"
    )
    parser.add_argument(
        "--seed", type=at_least(0), default=0, help="seed of the sample of mutants (default 0)"
    )
    options: argparse.Namespace = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        repository = Path(place)
        copy_repository(repository)
        count = 1 if options.quick else options.mutants
        results = [measure(repository, target, count, options.seed) for target in options.target]
    shown = ("target", "places", "mutants", "killed", "seconds")
    print(report.table([report.cells({name: result[name] for name in shown}) for result in results]))
    report.finish({"seed": options.seed, "environment": report.environment(), "targets": results})
    return 0


if __name__ == "__main__":
    run_main(main)
