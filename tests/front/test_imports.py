"""The directions of import between packages and rooms: who may know whom, without a circle."""

import ast
import os
import subprocess
import sys
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import fastslow

SOURCE = Path(fastslow.__file__).parents[1]
FOLDERS = {
    **dict.fromkeys(("fastslow", "fastslow_programs", "fastslow_placement"), SOURCE),
    "make_sample": SOURCE.parent / "data",
}
"""The shelves, and the folder of each."""
MODULES = {
    ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
    for root, folder in FOLDERS.items()
    for path in (folder / root).rglob("*.py")
}
FRONT = "front door"
BASE = {"core", "competition"}
LEARNED = {*BASE, "hlo", "features"}
MODELS = {*LEARNED, "networks", "rankers", "ensemble"}
FOLDERS_OF_RUNS = {*MODELS, "runs"}
ALLOWED = {
    "fastslow": {
        "core": {"core"},
        "competition": BASE,
        "hlo": {*BASE, "hlo"},
        "features": {*BASE, "hlo", "features"},
        "networks": {*LEARNED, "networks"},
        "rankers": {*LEARNED, "rankers"},
        "ensemble": {*LEARNED, "ensemble"},
        "runs": FOLDERS_OF_RUNS,
        "evaluation": {*FOLDERS_OF_RUNS, "evaluation"},
        "steps": {*FOLDERS_OF_RUNS, "evaluation", "steps"},
        "kaggle": {*BASE, "evaluation", "kaggle"},
        "views": {*FOLDERS_OF_RUNS, "evaluation", "steps", "views"},
        "workflow": {*FOLDERS_OF_RUNS, "evaluation", "steps", "kaggle", "views", "workflow"},
    },
    "fastslow_programs": {
        "compiler": {"compiler"},
        "program": {"compiler", "program"},
        "ranking": {"compiler", "program", "ranking"},
        "tuning": {"compiler", "program", "ranking", "tuning"},
        "commands": {"compiler", "program", "ranking", "tuning", "commands"},
    },
}
"""By package, the packages of the same shelf that it may import. The front door may import all of them."""
BELOW = {
    "fastslow": set(),
    "fastslow_programs": {"fastslow"},
    "fastslow_placement": {"fastslow", "fastslow_programs"},
    "make_sample": {"fastslow", "fastslow_programs", "fastslow_placement"},
}
"""By shelf, the others that it may import; of fastslow all but ``kaggle``."""

SCIENCE = ("competition", "hlo", "features", "networks", "rankers", "ensemble")
"""Packages of fastslow that take arrays and plain options, and know no settings, folders or machines."""
READING = {"errors", "input_files", "npz_io", "isolated"}
"""Modules of core that the science imports: errors, and the safe reading of files. Parsers of others are run
in a process of their own."""

ROOMS = {
    "fastslow.networks": (
        "settings",
        "states",
        "hardware",
        "model",
        "published",
        "predict",
        "segments",
        "training",
    ),
    "fastslow.features": ("nodes", "configs"),
    "fastslow_placement": ("base", "programs"),
}
"""Sub-packages, each of which imports the ones before it when it is imported."""
OPTIONAL = ("fastslow.networks.published", "fastslow.networks.segments")
"""Rooms that are entered from inside functions, where a setting asks for them."""
LARGE = {
    "torch",
    "lightgbm",
    "sklearn",
    "scipy.stats",
    "matplotlib",
    "papermill",
    "zmq",
    "jax",
    "numba",
    "optuna",
}
"""Libraries that take a large part of a second, or seconds, to import."""
CORRIDOR = 15
"""Maximum number of modules of a room."""


def shelf(module):
    return module.split(".")[0]


def package(module):
    first, *rest = module.split(".")
    inside = FOLDERS[first] / first
    return rest[0] if rest and (inside / rest[0]).is_dir() else FRONT


@cache
def imports(module, at_import=False):
    """The modules of our packages that a module imports, also inside functions unless only ``at_import``."""
    tree, found = ast.parse(MODULES[module].read_text()), set()
    for node in tree.body if at_import else ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            found |= inner or {node.module} & MODULES.keys()
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES.keys()
    return found


def test_every_package_has_a_rule_and_a_sentence():
    for root, allowed in ALLOWED.items():
        assert {path.parent.name for path in (SOURCE / root).glob("*/__init__.py")} == allowed.keys()
    for module, path in MODULES.items():
        if path.name == "__init__.py":
            sentence = ast.get_docstring(ast.parse(path.read_text()))
            assert sentence and sentence.endswith("."), module


def test_a_package_imports_only_what_it_may():
    pairs = [(module, other) for module in MODULES for other in imports(module)]
    wrong = [
        f"{module} imports {other}"
        for module, other in pairs
        if (
            shelf(other) not in BELOW[shelf(module)] or package(other) == "kaggle"
            if shelf(other) != shelf(module)
            else shelf(module) in ALLOWED
            and package(module) != FRONT
            and package(other) not in ALLOWED[shelf(module)][package(module)]
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_the_science_imports_of_core_errors_and_safe_reading():
    for module in MODULES:
        if shelf(module) == "fastslow" and package(module) in SCIENCE:
            core = {other.split(".")[2] for other in imports(module) if package(other) == "core"}
            assert core <= READING, f"{module} imports {core - READING}"


def test_a_room_imports_only_the_rooms_before_it():
    for parent, rooms in ROOMS.items():
        found = {path.parent.name for path in MODULES[parent].parent.glob("*/__init__.py")}
        assert found <= {*rooms}, f"{parent}: {found - {*rooms}} is not in ROOMS"
        for module in MODULES:
            module_room = module.removeprefix(f"{parent}.").split(".")[0]
            for other in (
                imports(module, at_import=True) if module.startswith(parent) and module_room in rooms else ()
            ):
                room = other.removeprefix(f"{parent}.").split(".")[0]
                later = rooms[rooms.index(module_room) + 1 :]
                assert not other.startswith(f"{parent}.") or room not in later, f"{module} imports {other}"


def test_no_room_is_a_corridor():
    rooms = [path.parent for path in MODULES.values() if path.name == "__init__.py"]
    sizes = {str(room): len([*room.glob("*.py")]) - 1 for room in rooms}
    assert not {room: size for room, size in sizes.items() if size > CORRIDOR}


def test_modules_do_not_import_each_other_in_a_circle():
    order = list(TopologicalSorter({module: imports(module) for module in MODULES}).static_order())
    assert set(order) == MODULES.keys()


def public_names(module):
    """The names without an underscore that a module defines: functions, classes, constants."""
    for node in ast.parse(MODULES[module].read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        else:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        yield from (name for name in names if not name.startswith("_"))


def test_no_public_name_is_defined_in_two_modules_of_a_shelf():
    """Nor anywhere else in it: one name, one thing. The front door passes names on, it defines none."""
    found = defaultdict(list)
    for module in MODULES:
        for name in public_names(module):
            found[shelf(module), name].append(module)
    twice = [
        f"{name}: {', '.join(defining_modules)}"
        for (_, name), defining_modules in found.items()
        if len(defining_modules) > 1
    ]
    assert not twice, "\n".join(twice)


def test_the_top_of_the_package_is_the_front_door_alone():
    assert {path.stem for path in SOURCE.glob("fastslow/*.py")} == {"__init__", "__main__", "cli"}


COMMANDS = (
    "submit",
    "train",
    "train-network",
    "leaderboard",
    "compare",
    "data",
    "data-quality",
    "convert",
    "measure",
    "rank",
    "tune",
    "place",
)
OF_A_PROGRAM = ("convert", "measure", "rank", "tune", "fleet", "place")


def test_help_and_a_refusal_wait_for_no_large_library():
    """One process for all commands, as none may import such a library."""
    code = f"""
import contextlib, sys
from fastslow.cli import main
assert main(["submit", "preset=samle"]) == 1
assert not {{"pandas", "scipy"}} & sys.modules.keys()
for name in {COMMANDS}:
    assert main([name, "--no_such=1"]) == 1
    with contextlib.suppress(SystemExit):
        main([name, "--help"])
    large = {LARGE} & sys.modules.keys()
    assert not large, (name, large)
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_missing_program_is_refused_before_a_large_library_is_imported():
    code = f"""
import sys
from fastslow.cli import main
for name in {OF_A_PROGRAM}:
    assert main([name, "no/such.npz"]) == 1
    large = {LARGE} & sys.modules.keys()
    assert not large, (name, large)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr.count("no/such.npz: no such file") == len(OF_A_PROGRAM)


def test_a_plan_waits_for_no_large_library(tmp_path):
    code = f"""
import sys
from fastslow.cli import main
assert main(["submit", "--plan"]) == 0
large = {LARGE}
assert not large & sys.modules.keys(), large & sys.modules.keys()
"""
    environment = {**os.environ, "FASTSLOW_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_the_default_network_and_its_training_enter_no_museum():
    code = f"""
import sys
from fastslow.networks.training.train import train
from fastslow.networks.model.network import RankingNetwork
from fastslow.steps.network_settings import TrainSettings
RankingNetwork(4, 3, TrainSettings().architecture())
assert not [name for name in sys.modules if name.startswith({OPTIONAL})], sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_compiled_function_calls_compiled_functions_of_its_own_file_alone():
    """numba's cache is stale without notice where a function of another file has changed."""
    compiled = {}
    for module, path in MODULES.items():
        source = path.read_text()
        if "njit" not in source:
            continue
        functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
        compiled[module] = {
            f.name: f for f in functions if "njit" in "".join(map(ast.unparse, f.decorator_list))
        }
    assert sum(map(len, compiled.values())) > 10
    for module, functions in compiled.items():
        others = {
            name
            for other, compiled_functions in compiled.items()
            if other != module
            for name in compiled_functions
        } - {*functions}
        for function in functions.values():
            called = {
                node.func.id
                for node in ast.walk(function)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            }
            assert not called & others, f"{module}: {function.name} calls {called & others}"


READS = ("read_npz", "program_of", "check_values")
"""What makes a program of a file, or of arrays, without asking whether a program can have them."""
GIVEN = {"fastslow_programs.tuning.target"}  # its arrays are a converted program's, which was asked


def test_whatever_reads_programs_for_a_command_asks_the_rules_of_programs():
    shell = [name for name in MODULES if not name.startswith(tuple(f"fastslow.{room}" for room in SCIENCE))]
    reading = []
    for name in set(shell) - GIVEN - {"make_sample"}:
        source = MODULES[name].read_text()
        if not any(read in source for read in READS):
            continue
        called = {
            node.func.id
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        if called & {*READS}:
            reading.append(name)
            assert called & {"check_program", "check_graph"}, name
    assert len(reading) > 5
