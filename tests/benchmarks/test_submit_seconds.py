"""The CPU seconds of processes by their functions, and the rows of the table that they count for."""

import sys

import pytest

import submit_seconds
from helpers.competition_files import ROOT

BUSY = """
import os, subprocess, sys, time

def forked_work():
    while time.process_time() < 0.4:
        pass

def work():
    while time.process_time() < 0.1:
        pass

if child := os.fork():
    os.waitpid(child, 0)
    work()
else:
    forked_work()
    os._exit(0)
"""


def test_the_seconds_of_a_process_and_of_its_fork_count_for_their_functions(tmp_path):
    seconds = submit_seconds.run_sampled([sys.executable, "-c", BUSY], tmp_path)
    for function in ("<string>:work", "<string>:forked_work"):
        assert sum(taken for stack, taken in seconds.items() if function in stack) > 0


def test_a_stack_counts_for_the_first_row_that_it_matches():
    networks = "/x/src/fastslow/networks"
    seconds = {
        f"{networks}/model/layers.py:forward\n{networks}/training/train.py:step": 3.0,
        f"{networks}/predict/dataset.py:predict\n{networks}/training/train.py:run": 2.0,
        "/lib/ipykernel/kernelbase.py:start": 0.5,
        "/lib/elsewhere.py:call": 0.5,
    }
    rows = list(submit_seconds.rows_of(seconds))
    assert [(row["what"], row["CPU s"], row["share"]) for row in rows] == [
        ("networks: steps of training", "3.0", "0.50"),
        ("networks: scores on valid, predictions", "2.0", "0.33"),
        ("notebooks: papermill, Jupyter", "0.5", "0.08"),
        ("others", "0.5", "0.08"),
        ("all", "6.0", "1.00"),
    ]


@pytest.mark.parametrize("part", [part for parts in submit_seconds.PHASES.values() for part in parts])
def test_the_rows_name_files_and_functions_that_are_there(part):
    if part.startswith(("/", "<")):
        return  # of a library
    path, _, function = part.partition(":")
    files = [file for file in (ROOT / "src").rglob("*.py") if path in str(file)]
    assert files
    assert any(f"def {function}" in file.read_text() for file in files)
