"""Spaces of the user's: what a file may hold, which configurations it allows, and searches of them."""

import itertools
import json
import shlex
import sys

import numpy as np
import pytest

import fastslow
from fastslow.core.errors import DataError, SettingsError
from fastslow_programs.tuning.history import Evaluation, History
from fastslow_programs.tuning.search.strategies import Random, Tpe
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.user_space import UserSpace
from helpers.cases import cases

pytestmark = pytest.mark.usefixtures("undrawn")
CHOICES = {"tile": [64, 16, 32], "unroll": [1, 2, 4, 8], "flag": ["", "--fast"], "fuse": [True, False]}
COMMAND = {"evaluator": "command", "command": "true"}
RUN = """
import json, sys
values = json.load(open(sys.argv[1]))["values"]
assert len(sys.argv) == 2 and isinstance(values["fuse"], bool) and values["unroll"] != 8, "no such kernel"
print(abs(values["tile"] - 32) + 10 * (4 - values["unroll"]) + (3 if values["flag"] else 7) + 1)
"""
MAKE = """
import jax.numpy as jnp

def make(steps=1, wide=False):
    if steps == 3:
        raise ValueError("3 does not divide 8")
    return lambda x: sum(part.sum() for part in jnp.split(x, steps)), (jnp.arange(16.0 if wide else 8.0),)
"""


def space_of(folder, **facts):
    path = folder / "my space.json"
    path.write_text(json.dumps({"choices": CHOICES, **facts}))
    return path


def test_the_constraints_allow_what_python_does(tmp_path):
    """Against brute force over all combinations."""
    constraints = ["tile * unroll <= 128 or flag == '--fast'", "not (fuse and tile == 16)"]
    user_space = UserSpace(space_of(tmp_path, constraints=constraints))
    allowed = [
        dict(zip(CHOICES, values, strict=True))
        for values in itertools.product(*CHOICES.values())
        if (values[0] * values[1] <= 128 or values[2]) and not (values[3] and values[0] == 16)
    ]
    found = [user_space.values(codes) for codes in user_space.space.listed]
    assert len(found) == len(allowed) and all(values in found for values in allowed)
    assert user_space.values(user_space.space.default) == {
        "tile": 64,
        "unroll": 1,
        "flag": "",
        "fuse": True,
    }, "the first"
    ordered = [choice.ordered for choice in user_space.space.choices]
    assert ordered == [True, True, False, False] and user_space.options["tile"] == sorted(CHOICES["tile"])
    named = UserSpace(space_of(tmp_path, constraints=["tile < 64"], default={"tile": 32, "fuse": False}))
    assert named.values(named.space.default) == {"tile": 32, "unroll": 1, "flag": "", "fuse": False}


def test_a_constraint_may_divide_by_what_an_earlier_one_keeps_from_0(tmp_path):
    constraints = ["unroll > 1", "tile % (unroll - 1) == 0"]
    user_space = UserSpace(space_of(tmp_path, constraints=constraints, default={"unroll": 2}))
    assert all(user_space.values(codes)["unroll"] > 1 for codes in user_space.space.listed)


@cases(
    "constraint",
    [
        "tile ** 2 + unroll ** 2 < 5000",
        "2 ** unroll < tile * 4",
        "(flag == '') & (tile in [64, 16]) | (fuse == 0)",
        "tile in [64, unroll] or unroll not in (1, -2)",
        "fuse + (tile > 64) <= 1",
        "(fuse) + fuse+ (flag != '' ) < 3",
        "unroll * fuse - (tile == 16) >= 1",
        "-fuse < 0 or True + fuse == 2",
        "fuse ** unroll == (fuse or tile == 16)",
    ],
)
def test_powers_lists_truths_and_joined_comparisons_may_be_used(tmp_path, constraint):
    """Against Python."""
    user_space = UserSpace(space_of(tmp_path, constraints=[constraint]))
    names = [dict(zip(CHOICES, values, strict=True)) for values in itertools.product(*CHOICES.values())]
    allowed = [values for values in names if eval(constraint, {}, values)]
    listed = [user_space.values(codes) for codes in user_space.space.listed]
    assert len(listed) == len(allowed) and all(values in listed for values in allowed)


@cases("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
def test_a_space_of_any_encoding_of_unicode_is_one(tmp_path, encoding):
    path = space_of(tmp_path)
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    path.write_bytes(mark + path.read_text().encode(encoding))
    assert TuneSettings(source=str(path), **COMMAND).is_space
    assert UserSpace(path).options.keys() == CHOICES.keys()


def test_a_large_space_without_constraints_is_not_listed(tmp_path):
    choices = {f"c{n}": [*range(10)] for n in range(12)}
    user_space = UserSpace(space_of(tmp_path, choices=choices))
    assert user_space.space.size == 10**12 and user_space.space.listed is None
    constraints = ["c0 + c1 + c2 + c3 + c4 + c5 < 3"]
    with pytest.raises(DataError, match="1,000,000 combinations.*Leave out constraints"):
        _ = UserSpace(space_of(tmp_path, choices=choices, constraints=constraints)).space


@cases("strategy", [Random(), Tpe()])
def test_of_a_large_space_the_choices_that_constraints_name_are_combined(tmp_path, strategy):
    choices = {f"c{n}": [*range(10)] for n in range(12)}
    constraints = ["c7 < c3", "c3 != 5"]
    path = space_of(tmp_path, choices=choices, constraints=constraints, default={"c3": 1})
    space = UserSpace(path).space
    assert space.listed is None and space.size == (45 - 5) * 10**10
    rng = np.random.default_rng(0)
    history = History(space)
    for _ in range(3):
        for proposal in strategy.propose(history, 8, rng):
            assert proposal.codes[7] < proposal.codes[3] != 5
            history.add(proposal, Evaluation(1.0 + sum(proposal.codes)))
    assert len({proposal.codes for proposal, _ in history.done}) == 24
    wished = np.full((50, 12), 5)
    wished[:, 0] = range(50)
    assert (space.fresh(wished % 10, set(), 50, rng)[:, [3, 7]] != 5).any(1).all()
    with pytest.raises(DataError, match='default does not fulfil.*"c3": 1, .*"c7": 0, .* is allowed'):
        _ = UserSpace(space_of(tmp_path, choices=choices, constraints=constraints)).space


def test_few_configurations_of_many_combinations_are_listed(tmp_path):
    choices = {f"c{n}": [*range(10)] for n in range(6)}
    constraints = ["c0 * c1 * c2 == 1"]
    default = {f"c{n}": 1 for n in range(6)}
    space = UserSpace(space_of(tmp_path, choices=choices, constraints=constraints, default=default)).space
    assert space.listed.shape == (1000, 6) and len(np.unique(space.listed, axis=0)) == 1000
    assert (space.listed[:, :3] == 1).all()


@cases(
    ("facts", "said"),
    [
        ({"choices": {}}, "choices is {}"),
        ({"choices": {"a": []}}, r"choices.a is \[\]"),
        ({"choices": {"a": [None]}}, "choices.a.0 is None: .*an option is a finite number, a text, true or"),
        (
            {"choices": {"a": [1, [2]]}},
            r"choices.a.1 is \[2\]: .*an option is a finite number, a text, true or",
        ),
        ({"choices": {"a": [1, float("nan")]}}, "choices.a.1 is nan: .*an option is a finite number, a text"),
        ({"choices": {"a": [1, 1]}}, "choices.a has an option twice"),
        ({"choices": {"a": [True, "True"]}}, 'choices.a has an option twice: true and "True"'),
        ({"choices": {"a": [1, True, 2]}}, "choices.a has an option twice: 1 and true"),
        ({"choices": {"a": [1, 1.0]}}, r"choices.a has an option twice: 1 and 1\.0"),
        ({"choices": {"a": ["", "''"]}}, 'choices.a has an option twice: "" and "\'\'"'),
        ({"constraints": ["index < 2"]}, "'index' is not defined. It may use tile, unroll, flag, fuse"),
        ({"constraints": ["columns == 'tile'"]}, "'columns' is not defined. It may use tile"),
        ({"choices": {"a b": [1, 2]}}, "a b.*pattern"),
        ({"choices": {"a": [1]}}, "a single configuration"),
        ({"constraint": []}, "constraint is .*not permitted"),
        ({"default": {"tile": 5}}, "default.tile is 5, no option"),
        ({"default": {"fuse": 1}}, "default.fuse is 1, no option"),
        ({"constraints": ["tile > 64"]}, "nothing fulfils constraint 'tile > 64'"),
        ({"constraints": ["tile + 1"]}, "neither true nor false"),
        ({"constraints": ["tale < 16"]}, "tale.*It may use tile, unroll, flag, fuse"),
        ({"constraints": ["tile // 0 > 1"]}, "ZeroDivisionError: 0 is 0 for some options"),
        ({"constraints": ["tile % (unroll - 1) == 0"]}, "unroll - 1 is 0 for some options: exclude them"),
        ({"constraints": ["tile / (tile - 16) > 1"]}, "tile - 16 is 0 for some options"),
        ({"constraints": ["flag in '--fast'"]}, r"in wants a list, such as \[16, 32\], not '--fast'"),
        ({"constraints": ["unroll in tile"]}, "in wants a list, .* not tile"),
        ({"constraints": ["tile not in [unroll * 2, 16]"]}, r"unroll \* 2 is computed in the list"),
        ({"constraints": ["tile in [[16, 32]]"]}, r"\[16, 32\] is computed in the list"),
        ({"constraints": ["tile in [unroll]"]}, r"\[unroll\] is a list of one name: use =="),
        ({"constraints": ["tile <"]}, "constraint 'tile <': SyntaxError"),
        ({"constraints": ["tile * 2 ** 60 * unroll > 0"]}, "OverflowError: its numbers are too large"),
        (
            {"constraints": ["tile.to_csv('pwned.csv') != 3"]},
            r"tile.to_csv\('pwned.csv'\) is no name, number",
        ),
        ({"constraints": ["abs(tile) > 1"]}, r"abs\(tile\) is no name, number"),
        ({"constraints": ["tile[0] > 1"]}, r"tile\[0\] is no name, number"),
        ({"constraints": ["@tile > 1"]}, "constraint '@tile > 1': SyntaxError"),
        ({"constraints": ["`tile` > 1"]}, "a backtick is not allowed"),
        ({"constraints": ["tile < 32 # or unroll"]}, "a comment is not allowed"),
        ({"constraints": ["inf > tile"]}, "name 'inf' is not defined. It may use tile"),
        ({"constraints": ["9**9**9 > tile"]}, r"9 \*\* 9 is above 64 in a power"),
        ({"constraints": ["9**9**9**9 > tile"]}, r"9 \*\* 9 is above 64 in a power"),
        ({"constraints": ["(tile**60)**60 > 1"]}, r"tile \*\* 60 is above 18446744073709551616 in a power"),
        ({"constraints": ["'a' * 10**9 == flag"]}, "'a' can only be compared"),
        ({"constraints": ["flag * 10**9 == flag"]}, "flag can only be compared"),
        ({"constraints": ["[1] * 10**9 == tile"]}, r"\[1\] can only be compared"),
        ({"constraints": [f"tile > 99{' ' * 500}"]}, r"nothing fulfils constraint 'tile > 99 {191}\.\.\.'"),
        ({"constraints": ["tile < 64"]}, 'default does not fulfil.*"default": {"tile": 16, "unroll": 1'),
    ],
)
def test_what_is_no_space_is_refused_by_name(tmp_path, facts, said):
    with pytest.raises(DataError, match=f"my space.json.*{said}"):
        fastslow.tune(space_of(tmp_path, **facts), **COMMAND)


@cases("text", ["", "[]", "{", '{"choices": {"a": [NaN, 1]}}'])
def test_a_file_of_another_form_is_refused(tmp_path, text):
    (tmp_path / "space.json").write_text(text)
    with pytest.raises(DataError, match='space.json.*(Give {"choices"|is not HLO|is empty)'):
        fastslow.tune(tmp_path / "space.json", **COMMAND)


@cases("strategy", ["guided", "random"])
def test_a_command_is_searched_whole_and_resumed(tmp_path, strategy):
    (tmp_path / "run.py").write_text(RUN)
    path = space_of(tmp_path, constraints=["tile * unroll < 512"])
    command = shlex.join([sys.executable, "-IS", str(tmp_path / "run.py")])
    options = {"command": command, "confirm": 0.0, "strategy": strategy}
    options |= {"evaluator": "command", "out": tmp_path / "out"}
    fastslow.tune(path, evaluations=8, **options)
    tuned = fastslow.tune(path, evaluations=45, **options)
    assert len(tuned.table) == 44 and tuned.table["failure"].str.contains("no such kernel").sum() == 8
    best = tuned.best["values"]
    assert (best["tile"], best["unroll"], best["flag"]) == (32, 4, "--fast")
    assert tuned.best["value"] == 4 and tuned.table["value"][0] == 70


def test_a_function_is_measured_on_this_machine(tmp_path):
    pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")
    (tmp_path / "kernel.py").write_text(MAKE)
    choices = {"steps": [1, 2, 3, 4], "wide": [False, True]}
    facts = {"choices": choices, "constraints": ["steps < 4 or not wide"], "function": "kernel.py:make"}
    tuned = fastslow.tune(space_of(tmp_path, **facts), evaluations=7, confirm=0.0, out=tmp_path / "out")
    assert len(tuned.table) == 7 and (tuned.table["failure"] != "").sum() == 4
    assert tuned.table["failure"].str.contains("3 does not divide 8").sum() == 2
    assert "values" in tuned.best and not tuned.best["values"]["wide"]
    (folder,) = (tmp_path / "out" / "tuned").iterdir()
    assert fastslow.load_tuned(folder)(np.arange(8, dtype=np.float32)) == 28
    with pytest.raises(DataError, match="names no function to measure"):
        fastslow.tune(space_of(tmp_path, choices=choices))
    with pytest.raises(DataError, match=r"a function, kernel.py:make, which evaluator=command does not run"):
        fastslow.tune(space_of(tmp_path, **facts), evaluator="command", command="true")
    with pytest.raises(DataError, match="make takes other arguments than steps, deep .*'deep'"):
        fastslow.tune(
            space_of(tmp_path, choices={"steps": [1, 2], "deep": [1, 2]}, function="kernel.py:make")
        )


def test_a_study_does_not_go_on_with_other_code_of_any_configuration(tmp_path):
    """Also of one that the function refuses now."""
    path = space_of(tmp_path, choices={"steps": [1, 2, 4]}, function="kernel.py:make")
    settings = {"evaluator": "device", "confirm": 0.0, "evaluations": 3, "out": tmp_path / "out"}
    kernel = tmp_path / "kernel.py"
    kernel.write_text(MAKE)
    fastslow.tune(path, **settings)
    kernel.write_text(f"{MAKE}\n# a comment\n")
    assert len(fastslow.tune(path, **settings).table) == 3
    faster = MAKE.replace("jnp.split(x, steps)", "([x * 2] if steps == 4 else jnp.split(x, steps))")
    for edited in (faster, MAKE.replace("steps == 3", "steps == 4")):
        kernel.write_text(edited)
        with pytest.raises(DataError, match=r"the study of other code: what {'steps': 4} runs has changed"):
            fastslow.tune(path, **settings)


@cases(
    ("settings", "said"),
    [
        ({"evaluator": "compiler"}, "evaluator: .*command or device"),
        ({"models": "somewhere", **COMMAND}, "run: .*no models guide"),
    ],
)
def test_settings_that_fit_no_space_are_refused(tmp_path, settings, said):
    with pytest.raises(SettingsError, match=said):
        fastslow.tune(space_of(tmp_path), **settings)
