"""A record of the label cache is what it should be, or refused with file, record and remedy."""

import contextlib
import json
import sqlite3

import pytest

from fastslow.core.errors import DataError
from fastslow_programs.compiler.label_cache import (
    CyclesRecord,
    KernelsRecord,
    LabelRecord,
    ModuleRecord,
    open_cache,
)
from helpers.cases import cases

ORIGIN = {"compiler": "libtpu 1", "topology": "v3:2x2", "seconds": 0.1}
CYCLES = ORIGIN | {"cycles": 7, "estimated": 3, "without_estimate": 0}
KERNEL = {"chosen": 5, "candidates": [[[8, 128], [8], 5], [[], [1], 9]]}
KERNELS = ORIGIN | {"kernels": {"fusion.1": KERNEL}, "module": "Cgtq"}
MODULE = ORIGIN | {"module": "Cg==", "layouts": {"dot.1": [[1, 0], []]}}
FAILURE = {"compiler": "c", "topology": "t", "failure": "crashed", "message": "said"}
GOOD = [
    (CYCLES, CyclesRecord),
    (KERNELS, KernelsRecord),
    (MODULE, ModuleRecord),
    (FAILURE, CyclesRecord),
    (ORIGIN, LabelRecord),
]


def stored(path, text):
    with open_cache(path) as cache:
        cache.write("k" * 64, text)
    return path


def read(path, wanted):
    with open_cache(path) as cache:
        return cache.read("k" * 64, wanted)


@cases("record, wanted", GOOD)
def test_what_was_written_is_read(tmp_path, record, wanted):
    path = tmp_path / "labels.sqlite"
    assert read(path, wanted) is None
    assert read(stored(path, json.dumps(record)), wanted) == record


BROKEN = {
    "no JSON": ("{'cycles': 1}", CyclesRecord, "damaged"),
    "cut": (json.dumps(CYCLES)[:-3], CyclesRecord, "damaged"),
    "empty": ("", CyclesRecord, "damaged"),
    "bytes": (b"\xff\xfe\x00", LabelRecord, "damaged"),
    "deep": ("[" * 100_000, CyclesRecord, "damaged"),
    "null": ("null", CyclesRecord, "a JSON object is wanted, not NoneType"),
    "a list": ("[1]", CyclesRecord, "a JSON object is wanted, not list"),
    "a key less": (json.dumps(ORIGIN), CyclesRecord, "it lacks the key cycles"),
    "cycles as text": (json.dumps(CYCLES | {"cycles": "7"}), CyclesRecord, "cycles is '7'"),
    "negative": (json.dumps(CYCLES | {"cycles": -7}), CyclesRecord, "cycles is -7"),
    "NaN": (json.dumps(CYCLES | {"cycles": float("nan")}), CyclesRecord, "cycles is nan"),
    "no origin": (json.dumps({"cycles": 7}), LabelRecord, "it lacks the key compiler"),
    "a failure without a word": (
        json.dumps(ORIGIN | {"failure": "x"}),
        CyclesRecord,
        "lacks the key message",
    ),
    "no base64": (json.dumps(MODULE | {"module": "no base64!"}), ModuleRecord, "module is 'no base64!'"),
    "layouts": (json.dumps(MODULE | {"layouts": {"dot": [["a"]]}}), ModuleRecord, "layouts.dot.0.0 is 'a'"),
    "a candidate": (
        json.dumps(KERNELS | {"kernels": {"f": KERNEL | {"candidates": [[1]]}}}),
        KernelsRecord,
        "kernels.f.candidates.0 is",
    ),
}


@cases("name", BROKEN)
def test_a_damaged_record_is_refused_by_name(tmp_path, name):
    text, wanted, said = BROKEN[name]
    path = stored(tmp_path / "labels.sqlite", text)
    with pytest.raises(DataError, match=f"labels.sqlite: the record k{{12}}.*{said}") as caught:
        read(path, wanted)
    assert "Delete the file, or this record (DELETE FROM labels WHERE key = 'kkk" in str(caught.value)
    _, _, remedy = caught.value.args
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(remedy.partition("(")[2].partition(")")[0])
    assert read(path, wanted) is None
