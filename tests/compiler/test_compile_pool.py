"""Labelling in worker processes with a stub compiler: failures, limits and the cache."""

import base64
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fastslow.core.errors import DataError, SettingsError
from fastslow.core.isolated import CRASHED, OUT_OF_MEMORY, TIMED_OUT
from fastslow.hlo.messages import Module
from fastslow_programs.compiler.compile_pool import REFUSED, Labeller, program_before_layout
from fastslow_programs.compiler.libtpu import CompilerError
from helpers.dot_module import small_module

MEMORY = 1 << 30


class FakeCompiler:
    """A stub compiler whose programs are scripts: JSON that says what to do."""

    def __init__(self, generation):
        self.generation = generation

    @staticmethod
    def version():
        return "1.0"


class NewerCompiler(FakeCompiler):
    @staticmethod
    def version():
        return "2.0"


class MissingLibrary(FakeCompiler):
    def __init__(self, generation):
        raise OSError("libtpu.so: cannot open shared object file")


def play(compiler, module, log):
    """The task: record the call, then do what the program says."""
    script = json.loads(module)
    if "diary" in script:
        with open(script["diary"], "a") as diary:
            diary.write(f"{os.getpid()} {script.get('name')}\n")
    match script.get("do"):
        case "refuse":
            raise CompilerError("no such opcode: foo")
        case "abort":
            os.write(2, b"F1121 10:11:12.13 42 layout.cc:7] Check failed: rank == 4\n    @ 0x7f some frame\n")
            os.abort()
        case "abort once":
            flag = Path(script["flag"])
            if not flag.exists():
                flag.touch()
                os.abort()
        case "sleep":
            time.sleep(script["seconds"])
        case "allocate":
            bytearray(4 * MEMORY)
    return {"cycles": script.get("cycles", 1), "generation": compiler.generation}


def other_play(compiler, module, log):
    return play(compiler, module, log)


def program(**script):
    return json.dumps(script).encode()


def labeller(folder, **settings):
    plain = {"task": play, "compiler": FakeCompiler, "processes": 1, "memory": MEMORY, "seconds": 30.0}
    return Labeller(folder / "labels.sqlite", **plain | settings)


def label_once(modules, folder, **settings):
    with labeller(folder, **settings).workers() as label:
        return label(modules)


@pytest.fixture
def diary(tmp_path):
    """A file in which programs record that they ran."""
    path = tmp_path / "diary"
    path.touch()
    return path


def names(diary):
    return [line.split()[1] for line in diary.read_text().splitlines()]


def remembered(folder):
    with contextlib.closing(sqlite3.connect(folder / "labels.sqlite")) as cache:
        found = [json.loads(record) for (record,) in cache.execute("SELECT record FROM labels")]
    assert all(record.pop("checksum") for record in found)
    return found


def test_records_come_in_the_order_of_the_programs(tmp_path):
    modules = [program(do="sleep", seconds=0.3 if n == 0 else 0, cycles=n) for n in (0, 1, 2, 3, 1)]
    records = label_once(modules, tmp_path, processes=2, generation="v4")
    assert [record["cycles"] for record in records] == [0, 1, 2, 3, 1]
    origin = {"compiler": "libtpu 1.0", "topology": "v4:2x2x1", "generation": "v4"}
    assert all(record.items() >= origin.items() for record in records)
    assert records[0]["seconds"] >= 0.3 > records[2]["seconds"] >= 0


class LayoutCompiler(FakeCompiler):
    """A stub compiler that changes nothing before layout assignment and knows one layout."""

    def layout_assignment(self, module):
        return Module.FromString(module), {"dot.3": [[0, 1], [1, 0], [1, 0]]}


def test_a_program_before_layouts_is_remembered_with_the_compilers_own(tmp_path):
    module = small_module().SerializeToString(deterministic=True)
    settings = {"task": program_before_layout, "compiler": LayoutCompiler}
    (record,) = label_once([module], tmp_path, **settings)
    assert base64.b64decode(record["module"]) == module
    assert record["layouts"] == {"dot.3": [[0, 1], [1, 0], [1, 0]]}
    assert label_once([module], tmp_path, **settings) == [record] == remembered(tmp_path)


def test_failures_are_distinguished_and_do_not_affect_other_programs(tmp_path, diary):
    """It takes the four seconds of the limit, and those of new processes after a death."""
    log = {"diary": str(diary)}
    modules = {
        REFUSED: program(do="refuse", name="refused", **log),
        CRASHED: program(do="abort", name="crashed", **log),
        TIMED_OUT: program(do="sleep", seconds=60, name="slow", **log),
        OUT_OF_MEMORY: program(do="allocate", name="large", **log),
        None: program(cycles=7, name="well", **log),
    }
    records = label_once(list(modules.values()), tmp_path, seconds=4.0)
    found = dict(zip(modules, records, strict=True))
    for kind in (REFUSED, CRASHED, TIMED_OUT, OUT_OF_MEMORY):
        assert found[kind]["failure"] == kind and found[kind]["message"] and "cycles" not in found[kind]
    assert found[None]["cycles"] == 7
    assert found[REFUSED]["message"] == "no such opcode: foo"
    assert found[CRASHED]["message"].endswith("Check failed: rank == 4"), "its last words, no stack trace"
    tried = names(diary)
    assert tried.count("crashed") == 2 and tried.count("slow") == tried.count("large") == 1

    kinds = sorted(record.get("failure", "") for record in remembered(tmp_path))
    assert kinds == ["", CRASHED, REFUSED], "what depends on the machine is not remembered"


def test_a_crash_that_does_not_repeat_is_no_failure(tmp_path):
    module = program(do="abort once", flag=str(tmp_path / "flag"), cycles=5)
    assert label_once([module], tmp_path)[0]["cycles"] == 5
    (tmp_path / "flag").unlink()
    record = label_once([module], tmp_path / "strict", attempts=1)[0]
    assert record["failure"] == CRASHED


def test_equal_programs_and_what_is_remembered_are_not_done_again(tmp_path, diary):
    modules = [program(name=n, diary=str(diary)) for n in "ab"]
    *first, equal = label_once([*modules, modules[0]], tmp_path)
    assert equal == first[0] and sorted(names(diary)) == ["a", "b"]
    assert label_once(modules[::-1], tmp_path) == first[::-1]
    assert sorted(names(diary)) == ["a", "b"]
    for changed in ({"generation": "v2"}, {"compiler": NewerCompiler}, {"task": other_play}):
        label_once(modules[:1], tmp_path, **changed)
    assert sorted(names(diary)) == ["a", "a", "a", "a", "b"]
    label_once(modules, tmp_path, memory=0, processes=2, seconds=9.0, attempts=1)
    assert len(names(diary)) == 5, "limits change no label"


def test_labels_under_other_flags_of_the_compiler_are_other_labels(tmp_path, diary, monkeypatch):
    """They were kept under the name of the plain compiler's, and given back without the flags."""
    module = [program(diary=str(diary), name="a")]
    plain = labeller(tmp_path).identity()
    for flags, runs in (("", 1), ("--xla_jf_conv_input_fusion=false", 2), ("", 2)):
        monkeypatch.setenv("LIBTPU_INIT_ARGS", flags)
        label_once(module, tmp_path)
        assert len(names(diary)) == runs
        assert (labeller(tmp_path).identity() == plain) == (not flags)


def test_an_interrupted_run_keeps_what_it_has(tmp_path, diary, monkeypatch):
    from fastslow_programs.compiler.label_cache import LabelCache

    def interrupted(cache, key, record, write=LabelCache.write):
        write(cache, key, record)
        raise KeyboardInterrupt

    programs = [program(name=n, diary=str(diary)) for n in "abc"]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(LabelCache, "write", interrupted)
        label_once(programs, tmp_path)
    kept = len(remembered(tmp_path))
    assert kept == 1
    diary.write_text("")
    assert len(label_once(programs, tmp_path)) == 3
    assert len(names(diary)) == 2


OPEN_AT_ONCE = """
import multiprocessing, sys
from fastslow_programs.compiler.label_cache import open_cache

ORIGIN = {"compiler": "a", "topology": "b"}

def open_and_write(path, name, at_once):
    at_once.wait()
    with open_cache(path) as cache:
        cache.write(name, ORIGIN)
        cache.write("shared", ORIGIN)

if __name__ == "__main__":
    from pathlib import Path
    processes = multiprocessing.get_context("fork")
    for number in range(10):
        path, at_once = Path(sys.argv[1], f"{number}.sqlite"), processes.Barrier(4)
        runs = [processes.Process(target=open_and_write, args=(path, name, at_once)) for name in "abcd"]
        for run in runs:
            run.start()
        for run in runs:
            run.join(timeout=60)
        with open_cache(path) as cache:
            assert all(cache.read(name) for name in ("shared", *"abcd")), path
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_any_number_of_runs_may_make_the_cache(tmp_path):
    run = subprocess.run([sys.executable, "-c", OPEN_AT_ONCE, tmp_path], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_a_compiler_that_cannot_start_is_said_and_not_needed_for_nothing(tmp_path):
    assert label_once([], tmp_path, compiler=MissingLibrary) == []
    with pytest.raises(SettingsError, match=r"does not start.*(.|\n)*libtpu.so: cannot open"):
        label_once([program(name=str(n)) for n in range(50)], tmp_path, compiler=MissingLibrary)


def test_a_file_that_is_no_cache_is_refused(tmp_path):
    (tmp_path / "labels.sqlite").write_text("not a database " * 100)
    with pytest.raises(DataError, match="labels.sqlite: is not a cache of labels .*Delete it"):
        label_once([], tmp_path)
