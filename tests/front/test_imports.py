"""The directions of import between packages: who may know whom, and that nothing goes round in a circle."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import fastslow

ROOT = Path(fastslow.__file__).parent
MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}
FRONT = "front door"
BASE = {"core", "choices", "competition"}
ALLOWED = {
    "core": {"core"},
    "machines": {"core", "machines"},
    "choices": {"choices"},
    "competition": BASE,
    "kaggle": BASE | {"kaggle"},
    "xla": BASE | {"xla"},
    "features": BASE | {"machines", "xla", "features"},
    "evaluation": BASE | {"xla", "features", "kaggle", "evaluation"},
    "networks": BASE | {"xla", "features", "kaggle", "evaluation", "networks"},
    "rankers": BASE | {"xla", "features", "kaggle", "evaluation", "rankers"},
    "programs": BASE | {"xla", "features", "programs"},
    "placement": BASE | {"xla", "features", "programs", "placement"},
    "ranking": BASE
    | {"xla", "features", "kaggle", "evaluation", "networks", "rankers", "programs", "ranking"},
    "tuning": BASE | {"xla", "features", "programs", "ranking", "tuning"},
    "views": BASE | {"xla", "features", "kaggle", "evaluation", "networks", "rankers", "views"},
    "workflow": BASE | {"machines", "features", "kaggle", "evaluation", "networks", "rankers", "workflow"},
}
ALLOWED["commands"] = {*ALLOWED, "commands"}
"""By package, the packages that it may import; modules of the front door may import all of them."""


def package(module):
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (ROOT / parts[1]).is_dir() else FRONT


@cache
def imports(module):
    """The modules of this package that a module imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            found |= inner or {node.module} & MODULES.keys()
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES.keys()
    return found


def test_every_package_has_a_rule_and_a_sentence():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == ALLOWED.keys()
    for name in packages:
        sentence = ast.get_docstring(ast.parse((ROOT / name / "__init__.py").read_text()))
        assert sentence and sentence.endswith("."), name


def test_a_package_imports_only_what_it_may():
    wrong = [
        f"{module} imports {other}"
        for module in MODULES
        if package(module) != FRONT
        for other in imports(module)
        if package(other) not in ALLOWED[package(module)]
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_do_not_import_each_other_in_a_circle():
    order = list(TopologicalSorter({module: imports(module) for module in MODULES}).static_order())
    assert set(order) == MODULES.keys()


def test_the_top_of_the_package_is_the_front_door_alone():
    assert {path.stem for path in ROOT.glob("*.py")} == {"__init__", "__main__", "cli"}
