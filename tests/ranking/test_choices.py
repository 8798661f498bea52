"""The choices of a file in words, against the file's own arrays."""

from dataclasses import replace

import numpy as np
import pytest

from fastslow.competition.layouts import LEFT_TO_COMPILER, ROLES
from fastslow_programs.program.configurations import Default
from fastslow_programs.ranking.choices import (
    NamedChoice,
    describe_differences,
    differences,
    effects,
    name_choices,
)
from fastslow_programs.ranking.plots import plot_effects
from helpers.competition_files import layout_arrays, npz_program, tile_arrays, write_npz

UNKNOWN = Default(None, "", known=False)


@pytest.fixture
def layout(tmp_path):
    """Three dots; the second dot's output is tied to the first's, the third has one layout only."""
    arrays = layout_arrays(3, configs=12)
    features = arrays["node_config_feat"].reshape(12, 3, 3, 6)
    features[:, 1, 0] = features[:, 0, 0]
    features[:, 2] = -1
    return npz_program(write_npz(tmp_path / "a.npz", arrays), "layout"), features


def worded(layout):
    named = [str(int(d)) for d in layout if d >= 0]
    return "{" + ",".join(named) + "}" if named else LEFT_TO_COMPILER


def test_every_varying_tensor_is_told_by_its_choice(layout):
    file, features = layout
    choices = name_choices(file, UNKNOWN)
    first, second, _ = file.node_config_ids.tolist()
    wheres = [f"dot {first} and 1 alike: output", *(f"dot {first}: {role}" for role in ROLES[1:])]
    assert [c.where for c in choices] == wheres + [f"dot {second}: {role}" for role in ROLES[1:]]
    places = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)]
    for choice, (row, role) in zip(choices, places, strict=True):
        told = [choice.options[value] for value in choice.values]
        assert told == [worded(features[config, row, role]) for config in range(12)]


def test_the_default_is_the_one_given_or_the_commonest(layout):
    file, _ = layout
    for choice in name_choices(file, Default(5, "")):
        assert choice.default == choice.values[5] and choice.known
    for choice in name_choices(file, UNKNOWN):
        counts = np.bincount(choice.values)
        assert counts[choice.default] == counts.max() and not choice.known


def test_what_a_configuration_changes_in_words(layout):
    file, _ = layout
    names = [f"%n.{i}" for i in range(len(file.node_opcode))]
    choices = name_choices(file, Default(0, ""), names)
    assert not differences(choices, 0)
    config = max(range(12), key=lambda c: len(differences(choices, c)))
    first, *others = differences(choices, config)
    assert others and first.node.startswith("%n.")
    options = [first.options[option] for option in (first.values[config], first.default)]
    new, old = (option.replace("compiler", "left to the compiler") for option in options)
    assert first.change(first.values[config]) == f"{first.where} {new} instead of {old}"


def test_tensors_that_choose_together_are_told_each_with_its_layouts():
    """It said: output and input compiler and compiler instead of {0} and {0,1}."""
    options = ("{0} and {0,1}", "compiler and compiler", "{0} and {1,0}")
    choice = NamedChoice("a and b", 1, ("output", "input"), options, np.arange(3), 0)
    left = "left to the compiler instead of"
    assert choice.change(1) == f"a and b and 1 alike: output {left} {{0}}, input {left} {{0,1}}"
    assert choice.change(2) == "a and b and 1 alike: input {1,0} instead of {0,1}"
    given = replace(choice, default=1).change(0)
    assert given.endswith(
        "output {0} instead of left to the compiler, input {0,1} instead of left to the compiler"
    )
    (axes,) = plot_effects(effects([choice], np.arange(3.0))).axes
    labels = [" ".join(label.get_text().split()) for label in axes.get_yticklabels()]
    assert sorted(labels) == sorted([choice.change(1), choice.change(2)])


def test_bounds_of_a_tile(tmp_path):
    arrays = tile_arrays(2, configs=9)
    file = npz_program(write_npz(tmp_path / "t.npz", arrays), "tile")
    choices = name_choices(file, UNKNOWN)
    words = {"kernel": "kernel operand", "output": "output", "input": "input"}
    assert choices
    bounds = arrays["config_feat"].reshape(9, 3, 8)
    for choice in choices:
        (tensor,) = choice.tensors
        column = bounds[:, ("kernel", "output", "input").index(tensor), choice.bound]
        assert choice.where == f"{words[tensor]} dimension {choice.bound}: tile size"
        assert [float(choice.options[value]) for value in choice.values] == column.tolist()
    parts = {"options": ("1", "8"), "default": 0, "node": "output dimension 0"}
    changed = replace(choices[0], **parts)
    assert changed.change(1) == "output dimension 0: tile size 8 instead of 1"


def test_differences_in_words_tell_how_many_more_there_are():
    values = np.array([0, 1])
    choices = [NamedChoice(f"dot {n}", 0, ("output",), ("{1,0}", "{0,1}"), values, 0) for n in range(4)]
    changes = [choice.change(1) for choice in choices]
    assert describe_differences(choices, 0) == "none"
    assert describe_differences(choices[:2], 1) == "; ".join(changes[:2])
    assert describe_differences(choices, 1) == "; ".join([*changes[:2], "and 2 more"])
