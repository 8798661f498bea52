"""Fingerprints of code: what changes them, what does not, and what an entry reaches."""

import ast
import shutil

import pytest

from fastslow.core import source
from fastslow.core.source import read_ahead, source_digests
from fastslow.steps.ensemble import ENSEMBLE_ENTRY
from fastslow.steps.features import FEATURES_ENTRY as FEATURES
from fastslow.steps.network_settings import GNN_ENTRY as TRAIN
from fastslow.steps.ranker_settings import RANKER_ENTRY
from fastslow.steps.submission import SUBMISSION_ENTRY
from fastslow.workflow.forked_kernels import ENTRIES
from helpers.cases import cases

STEPS = (TRAIN, FEATURES, RANKER_ENTRY, ENSEMBLE_ENTRY, SUBMISSION_ENTRY)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package's source, to be edited."""
    for name in ("fastslow", "fastslow_placement"):
        shutil.copytree(source._ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(source, "_ROOT", tmp_path)
    clear()
    yield tmp_path / "fastslow"
    clear()


def clear():
    source._parse.cache_clear()
    source._uses.cache_clear()
    source_digests.cache_clear()


def digests(entries):
    return {(entry, name): digest for entry in entries for name, digest in source_digests(entry).items()}


def edit(path, old, new, *entries):
    """Edit a module; return the modules whose digests differ afterwards for every entry, else TRAIN."""
    entries = entries or (TRAIN,)
    before = digests(entries)
    replace(path, old, new)
    clear()
    after = digests(entries)
    changed = {pair for pair in {*before, *after} if before.get(pair) != after.get(pair)}
    names = {name for _, name in changed}
    assert changed == {(entry, name) for entry in entries for name in names}
    return names


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_an_edit_of_a_function_that_is_reached_changes_the_digest_of_its_module(package):
    loss = package / "networks" / "model" / "losses.py"
    assert edit(loss, "return ", "return 2 * ") == {"fastslow.networks.model.losses"}
    unread = {"fastslow.networks.model.losses", "fastslow.hlo.forms"}
    assert source_digests(FEATURES).keys().isdisjoint(unread)


def test_prose_and_formatting_do_not_count(package):
    before, loss = source_digests(TRAIN), package / "networks" / "model" / "losses.py"
    replace(loss, "\n\n\ndef ", "\n\n\n# a comment\ndef ")
    start = loss.read_text().index('"""', loss.read_text().index("def ")) + 3
    replace(loss, loss.read_text()[start : start + 20], "Something else")
    settings = package / "networks" / "settings" / "options.py"
    replace(settings, "Seed of weights", "The seed of weights")
    clear()
    assert source_digests(TRAIN) == before


def test_the_words_of_an_error_do_not_count_and_its_class_does(package):
    validation = package / "networks" / "training" / "validation.py"
    assert edit(validation, "weights of the network are not finite", "weights are odd") == set()
    assert edit(validation, "{EXPLODED:g} times", "{TOLERANCE:g} times") == set()
    raised = 'raise Diverged("weights'
    assert edit(validation, raised, 'raise ValueError("weights') == {"fastslow.networks.training.validation"}


def test_an_edit_that_the_entry_does_not_reach_does_not_count(package):
    for module in ("rankers/fit.py", "evaluation/plots.py", "core/progress.py", "kaggle/client.py"):
        path = package / module
        path.write_text(path.read_text() + "\nANOTHER = 1\n")
    assert edit(package / "features" / "configs" / "violation.py", "import", "ANOTHER = 2\nimport") == set()


def test_imports_inside_functions_and_of_the_package_beside_are_followed():
    training = source_digests(TRAIN)
    assert {"fastslow.networks.published.plain", "fastslow.networks.segments.training"} <= {*training}
    placer = source_digests("fastslow_placement.place:place_and_write")
    assert {"fastslow_placement.base.problem", "fastslow.core.input_files"} <= {*placer}


ROWS = "buffer = member.read(count * row_bytes)"
WHOLE = "return flat.reshape("


def test_a_change_of_how_arrays_are_read_makes_every_step_stale(package):
    """Features read every configuration row by row; what is made from them has their fingerprint."""
    arrays = package / "core" / "npz_io.py"
    assert edit(arrays, ROWS, f"{ROWS}[::-1]", FEATURES) == {"fastslow.core.npz_io"}
    assert edit(arrays, WHOLE, "return flat[::-1].reshape(", *STEPS) == {"fastslow.core.npz_io"}


def test_a_rule_that_refuses_more_makes_nothing_stale(package):
    """Hours of features stay; the modules that refuse return nothing, so they can change no result."""
    rules = package / "competition" / "rules" / "node_rules.py"
    assert edit(rules, "has another number of elements", "has odd elements", *STEPS) == set()
    for name in source._CHECKS:
        statements = ast.parse(source._path(f"fastslow.{name}").read_text()).body
        functions = [statement for statement in statements if isinstance(statement, ast.FunctionDef)]
        public = [function for function in functions if not function.name.startswith("_")]
        assert public and all(ast.unparse(function.returns) == "None" for function in public)


def test_every_module_counts_but_those_that_are_named(package):
    """A named module that was moved leaves no exemption behind, and a new one in core counts."""
    assert all(source._path(name).name != "__init__.py" for name in source.IGNORED)
    (package / "core" / "new.py").write_text("def double(loss):\n    return 2 * loss\n")
    path = package / "networks" / "training" / "train.py"
    path.write_text(f"from fastslow.core.new import double\n{path.read_text()}")
    changed = edit(path, "loss = self.run_epoch()", "loss = double(self.run_epoch())")
    assert changed == {"fastslow.core.new", "fastslow.networks.training.train"}


@cases("entry", ["fastslow.networks.training.train:nothing", "fastslow.nowhere:f", "json:loads"])
def test_an_entry_that_is_no_definition_is_refused(entry):
    with pytest.raises(LookupError, match=entry):
        source_digests(entry)


def test_what_was_read_ahead_is_parsed_once_and_an_edit_after_it_counts(package):
    assert {*ENTRIES} == {*STEPS}, "Jupyter kernels are forked from a process that read these"
    before = source_digests(TRAIN)
    clear()
    read_ahead([TRAIN])
    parsed = source._read.cache_info().misses
    loss = package / "networks" / "model" / "losses.py"
    replace(loss, "return ", "return 3 * ")
    after = source_digests(TRAIN)
    assert source._read.cache_info().misses == parsed + 1
    assert {name for name in before if before[name] != after[name]} == {"fastslow.networks.model.losses"}
