"""Programs with one thing changed, drawn by a seed: those that cannot exist are refused by name."""

import re
from pathlib import Path

import numpy as np
import pytest

from fastslow.competition.catalog import ProgramFile, get_collection
from fastslow.competition.reader import program_of
from fastslow.competition.rules.program_rules import check_program
from fastslow.core.errors import DataError
from fastslow.hlo import forms
from fastslow.hlo.graph_arrays import graph_arrays
from fastslow.hlo.messages import Module
from fastslow.hlo.module_checks import check_module
from fastslow.hlo.reader import read_hlo_modules
from fastslow.hlo.texts import split_text
from fastslow_placement.programs.hlo_graph import graph_of_module
from fastslow_placement.programs.program_graph import graph_of_arrays
from helpers.broken_programs import break_module, break_nodes, break_text
from helpers.cases import cases
from helpers.cost_graphs import DEVICE
from helpers.workspace import SAMPLE

CORPUS = (Path(__file__).parents[1] / "hlo" / "corpus.txt").read_text()
NAMES = (
    "of_many_kinds loop conditional convolution batched_dots collectives effects ragged_dot newer_collectives"
)
# what may leave a program that can exist: a number of the same shape, another function of one number
CAN_EXIST = r"operand (another|swapped)|another (root|id)|opcode |type (16 to 11|11 to 16)|_dilation|infeed"
FILES = sorted(SAMPLE.glob("npz_all/npz/layout/*/*/train/*.npz"))
# of a graph of which columns do not tell: who uses a parameter, which of two tensors, an operand used twice
COLUMNS_ALLOW = r"edge |another size|one more rank|type |opcode |rows of|parameter_number"


def texts():
    for name in NAMES.split():
        text = re.search(rf"^==== {name}\.hlo[^\n]*\n(.*?)(?=^====|\Z)", CORPUS, re.M | re.S)[1]
        yield split_text(text)[0]


def test_modules_with_one_thing_changed_are_refused_or_can_exist():
    pytest.importorskip("jaxlib.xla_client", reason="text needs jaxlib, an optional requirement")
    codes = [forms.to_hlo(text) for text in texts()]
    passed = []
    for seed in range(400):
        code, what = break_module(codes[seed % len(codes)], seed)
        module = Module.FromString(code)
        try:
            check_module(Path("x.pb"), module)
            graph_of_module(module, "x.pb", "x", DEVICE)
            graph_arrays(module)
        except DataError as error:
            assert "x.pb" in str(error)
        else:
            passed.append(what)
    assert [what for what in passed if not re.search(CAN_EXIST, what)] == []
    assert len(passed) < 40


@cases("seed", range(12))
def test_texts_with_a_part_changed_are_refused_or_read(tmp_path, seed):
    pytest.importorskip("jaxlib.xla_client", reason="text needs jaxlib, an optional requirement")
    every = [*texts()]
    path = tmp_path / "x.hlo"
    path.write_text(break_text(every[seed % len(every)], seed)[0])
    try:
        read_hlo_modules(path)
    except DataError as error:
        assert "x.hlo" in str(error)


def test_files_with_one_thing_changed_in_their_graph_are_refused_or_can_exist():
    collection = get_collection("layout:xla:default")
    passed = []
    for seed in range(240):
        path = FILES[seed % 24]
        with np.load(path) as npz:
            arrays = {key: npz[key] for key in npz.files}
        changed, what = break_nodes(arrays, seed)
        try:
            check_program(program_of(ProgramFile(collection, "train", path), changed))
            graph_of_arrays(changed, path, "x", DEVICE)
        except DataError as error:
            assert path.name in str(error)
        else:
            passed.append(what)
    assert [what for what in passed if not re.search(COLUMNS_ALLOW, what)] == []
    assert len(passed) < 60
