"""Artifacts are whole or absent, also where a process is killed in the middle."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fastslow.core import artifacts
from fastslow.core.artifacts import CHECKSUM, MANIFEST, Artifact, commit, read_manifest, write_manifest
from fastslow.core.errors import DataError, StorageError
from fastslow.core.files import atomic_path, read_json, remove_abandoned, write_json
from helpers.cases import cases


def start(code, *arguments):
    """Run code in another Python process that says "ready" when it is where the test wants it."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_file_appears_whole(tmp_path):
    path = tmp_path / "new" / "folder" / "x.csv"
    with atomic_path(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        assert temporary.parent == path.parent and temporary.suffix == ".csv"
        temporary.write_text("whole")
    assert path.read_text() == "whole"
    assert os.listdir(path.parent) == ["x.csv"]
    with pytest.raises(DataError, match=f"^{path}: no ID. Write"), atomic_path(path) as temporary:
        raise DataError(temporary, "no ID", "Write it again")
    with pytest.raises(DataError, match="^other: no ID"), atomic_path(path):
        raise DataError("other", "no ID", "Write it again")


WRITE_HALF = """
import sys, time
from fastslow.core.files import atomic_path
with atomic_path(sys.argv[1]) as temporary:
    temporary.write_text('"ha')
    print("ready", flush=True)
    time.sleep(60)
"""


def test_a_writer_killed_in_the_middle_leaves_the_old_file(tmp_path):
    """And the next one removes what it left, whatever file it writes in that folder."""
    write_json(tmp_path / "x.json", "old")
    for name in ("x.json", "y.json"):
        process = start(WRITE_HALF, tmp_path / name)
        assert process.stdout.readline() == "ready\n"
        kill(process)
        assert read_json(tmp_path / "x.json") == "old"
        (left,) = set(os.listdir(tmp_path)) - {"x.json"}
        assert left.startswith(f".{name}.")  # hidden: no reader takes it for a file of its own


def test_only_temporary_files_without_an_owner_are_removed(tmp_path):
    folder = tmp_path / "run" / "train"
    folder.mkdir(parents=True)
    names = (".lock", ".hidden", "x.tmp", ".x.json.tmp.json", "x.0123456789ab.tmp.json")
    others = (".notes.2024.tmp", ".y.npz.4711.tmp.npz")  # many programs put their process number there
    kept = [folder / name for name in (*names, *others)]
    for path in kept:
        path.write_text("of somebody")
    (folder / ".y.npz.0123456789ab.tmp.npz").write_text("of a killed process")
    owner = start(WRITE_HALF, folder / "x.json")
    assert owner.stdout.readline() == "ready\n"
    try:
        remove_abandoned(tmp_path)
        (temporary,) = set(folder.iterdir()) - {*kept}
    finally:
        kill(owner)
    assert temporary.read_text() == '"ha'
    with atomic_path(folder / "z.json") as mine:
        remove_abandoned(tmp_path)
        assert mine.is_file() and not temporary.exists()
    assert set(folder.iterdir()) == {*kept, folder / "z.json"}
    remove_abandoned(tmp_path / "missing")


def test_writers_and_removers_at_once(tmp_path):
    """However a remover meets a writer, the writer's file arrives."""
    stop = threading.Event()

    def remove():
        while not stop.is_set():
            remove_abandoned(tmp_path)

    thread = threading.Thread(target=remove)
    thread.start()
    try:
        for number in range(100):
            write_json(tmp_path / f"{number}.json", number)
    finally:
        stop.set()
        thread.join()
    assert sorted(os.listdir(tmp_path)) == sorted(f"{number}.json" for number in range(100))


@cases("text", ["", '{"a": 1', b"\xff\xfe".decode("latin-1")])
def test_what_is_not_json_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match="x.json: (not JSON|is no UTF-8 text).*Delete it"):
        read_json(tmp_path / "x.json")
    with pytest.raises(DataError, match="y.json: no such file"):
        read_json(tmp_path / "y.json")


def make(folder, **settings):
    return Artifact(folder, {"epochs": 3, **settings}, {"data": "d"})


def test_a_folder_is_current_until_something_changes(tmp_path):
    folder = tmp_path / "with space" / "run"
    assert not make(folder).is_current()
    with make(folder).building() as needed:
        assert needed
        make(folder).finish(score=0.5)
    assert make(folder).is_current()
    with make(folder).building() as needed:
        assert not needed
    assert not make(folder, epochs=4).is_current()
    assert not make(folder, extra=1).is_current()
    assert not Artifact(folder, {"epochs": 3}, {"data": "e"}).is_current()
    manifest = read_manifest(folder)
    assert manifest["settings"] == {"epochs": 3} and manifest["score"] == 0.5
    assert {"commit", "python", "versions", "created"} <= manifest.keys()


def test_changes_are_told_by_name(tmp_path):
    assert make(tmp_path).changes() == []
    make(tmp_path).finish()
    assert make(tmp_path).changes() == []
    other = Artifact(tmp_path, {"epochs": 4, "new": True}, {"data": "e"})
    assert other.changes() == ["epochs: 3 -> 4", "new: None -> True", "data changed"]
    longer = Artifact(tmp_path, {"epochs": 3, "runs": ["a"] * 9}, {"data": "d"})
    assert longer.changes() == ["runs: None -> 9 values"]


def test_much_changed_code_is_told_by_its_packages(tmp_path, monkeypatch):
    make(tmp_path).finish()
    told = []
    for names in (["core.a", "core.b"], ["core.a", "core.b", "core.c", "networks.model.layers"]):
        monkeypatch.setattr(Artifact, "code", {f"fastslow.{name}": "digest" for name in names})
        told += make(tmp_path).changes()
    assert told == ["core/a.py, core/b.py changed", "code of 4 modules in core, networks changed"]


@pytest.mark.parametrize("held", [{"model": "ranker", "collection": "tile:xla"}, {"model": "gnn"}, {}])
def test_a_step_leaves_the_finished_work_of_another_step(tmp_path, held):
    """Such as the features notebook that was given the folder of a trained run, or of a part of it."""
    made = replace(make(tmp_path / "run", **held), entry="fastslow.core.records:check_record")
    with made.building():
        made.finish(score=0.5)
    before = (tmp_path / "run" / MANIFEST).read_bytes()
    features = make(tmp_path / "run", collection="layout:xla:random")
    for step in (features, Artifact(tmp_path / "new", {}, {}, parts=(features,))):
        refused = pytest.raises(DataError, match="run: holds the finished work of another step.*Give another")
        with refused, step.building():
            raise AssertionError("it would be written")
    assert (tmp_path / "run" / MANIFEST).read_bytes() == before
    again = make(tmp_path / "run", **held, hops=2)
    with again.building() as needed:
        assert needed


def finish_with_files(folder, names=("a.bin", "sub/b.bin"), **more):
    artifact = Artifact(folder, {"epochs": 3}, {"data": "d"}, **more)
    with artifact.building() as needed:
        if needed:
            for path in [*(folder / name for name in names), *artifact.products, *artifact.records]:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"content of {path.name}")
            artifact.finish(names)
    return artifact, needed


@cases("name", ["a.bin", "sub/b.bin", "../products/c.csv"])
@cases("fault", ["lost", "changed after it was written", "same length"])
def test_a_file_that_is_not_as_it_was_written_is_made_again(tmp_path, name, fault):
    products = {"products": (tmp_path / "products" / "c.csv",)}
    artifact, needed = finish_with_files(tmp_path / "run", **products)
    assert needed and artifact.is_current() and artifact.changes() == []
    path = (tmp_path / "run" / name).resolve()
    content = path.read_text()
    if fault == "lost":
        path.unlink()
    else:
        path.write_text(content[::-1] if fault == "same length" else "broken")
    assert not artifact.is_current()
    assert artifact.changes() == [f"{name}: {'lost' if fault == 'lost' else 'changed after it was written'}"]
    assert finish_with_files(tmp_path / "run", **products)[1]
    assert artifact.is_current() and path.read_text() == content


def test_folders_below_the_one_that_a_user_named_for_a_product_are_left(tmp_path):
    abandoned = tmp_path / "home" / ".c.csv.0123456789ab.tmp.csv"
    other = tmp_path / "home" / "project" / abandoned.name
    other.parent.mkdir(parents=True)
    for path in (abandoned, other):
        path.write_text("half")
    finish_with_files(tmp_path / "run", products=(tmp_path / "home" / "c.csv",))
    assert other.exists() and not abandoned.exists()


def test_a_builder_that_keeps_whole_files_does_not_keep_a_damaged_one(tmp_path):
    artifact, _ = finish_with_files(tmp_path)
    (tmp_path / "a.bin").write_text("broken")
    with artifact.building() as needed:
        assert needed and not (tmp_path / "a.bin").exists() and (tmp_path / "sub/b.bin").exists()


def test_a_record_may_change_but_not_be_lost(tmp_path):
    artifact, _ = finish_with_files(tmp_path / "run", records=(tmp_path / "r.json",))
    (tmp_path / "r.json").write_text("uploaded")
    assert artifact.is_current()
    (tmp_path / "r.json").unlink()
    assert not artifact.is_current()


def test_a_large_file_is_not_read_again_unless_its_time_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts, "LARGE_BYTES", 5)
    artifact, _ = finish_with_files(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(artifacts, "file_digest", lambda path: pytest.fail(f"{path} is read"))
        assert artifact.is_current()
    os.utime(tmp_path / "a.bin", (0, 0))
    assert artifact.is_current()
    (tmp_path / "a.bin").write_text("CONTENT of a.bin")
    assert not artifact.is_current()


def unsealed(folder):
    """The manifest of a folder without its checksum."""
    return {key: value for key, value in read_manifest(folder).items() if key != CHECKSUM}


@given(data=st.data())
@settings(max_examples=30)
def test_an_edited_manifest_is_refused_and_its_folder_made_again(tmp_path_factory, data):
    """Any leaf of it, from a weight to a count: whatever the edit, it names the file and the remedy."""
    folder = tmp_path_factory.mktemp("run")
    facts = {"weights": {"a": 0.33, "b": 0.67}, "trees": 5, "graphs": [1, 2], "objective": "regression"}
    artifact = Artifact(folder, {"hops": 2}, {"data": "d"})
    artifact.finish(**facts)
    manifest = json.loads((folder / MANIFEST).read_text())
    key = data.draw(st.sampled_from(sorted(manifest)))
    value = data.draw(st.sampled_from([0.73, 6, [2, 1], {}, "another", {"a": 0.73, "b": 0.67}, {"hops": 3}]))
    assume(manifest[key] != value)
    assert read_manifest(folder)["weights"] == facts["weights"] and artifact.is_current()
    (folder / MANIFEST).write_text(json.dumps({**manifest, key: value}))
    with pytest.raises(DataError, match=r"manifest.json: .*Delete it and run the step that makes it again"):
        read_manifest(folder)
    assert not artifact.is_current()
    with artifact.building() as needed:
        assert needed and not (folder / MANIFEST).exists()


@cases("text", ["null", "{}", "{"])
def test_a_damaged_manifest_is_no_hindrance(tmp_path, text):
    artifact, _ = finish_with_files(tmp_path)
    (tmp_path / MANIFEST).write_text(text)
    assert not artifact.is_current()
    artifact.changes()
    assert finish_with_files(tmp_path)[1] and artifact.is_current()


def test_a_manifest_cannot_name_a_file_elsewhere_for_removal(tmp_path):
    victims = [tmp_path / "victim", tmp_path / "run2" / "victim"]
    artifact, _ = finish_with_files(tmp_path / "run")
    names = [str(victims[0]), "../run2/victim", "sub/../../run2/victim"]
    victims[1].parent.mkdir()
    for victim in victims:
        victim.write_text("of the user")
    facts = {"sha256": "0", "bytes": 1, "changed_ns": 1}
    manifest = {**unsealed(tmp_path / "run"), "outputs": dict.fromkeys(names, facts)}
    write_manifest(tmp_path / "run", manifest)
    assert finish_with_files(tmp_path / "run")[1]
    assert all(victim.read_text() == "of the user" for victim in victims)


def test_an_unfinished_folder_never_counts(tmp_path):
    make(tmp_path).finish()
    with pytest.raises(RuntimeError), make(tmp_path, epochs=4).building():
        raise RuntimeError
    assert not (tmp_path / MANIFEST).exists()
    assert not make(tmp_path).is_current()  # its content may be half of the new one
    with pytest.raises(DataError, match="not finished"):
        read_manifest(tmp_path)
    with pytest.raises(DataError, match="nowhere: no such folder. Make it so"):
        read_manifest(tmp_path / "nowhere", "Make it so")


HOLD = """
import sys, time
from fastslow.core.files import writer_lock
with writer_lock(sys.argv[1]):
    print("ready", flush=True)
    time.sleep(60)
"""


def test_a_second_writer_waits_and_says_so(tmp_path):
    holder = start(HOLD, tmp_path)
    assert holder.stdout.readline() == "ready\n"
    waiter = start(HOLD, tmp_path)
    try:
        assert "another run is writing here; waiting" in waiter.stderr.readline()
        time.sleep(0.2)
        assert waiter.poll() is None
        kill(holder)  # however it ends, the lock goes with it
        assert waiter.stdout.readline() == "ready\n"
    finally:
        kill(holder)
        kill(waiter)


def test_the_commit_is_of_this_code(tmp_path, monkeypatch):
    ask = commit.__wrapped__  # conftest keeps the answer for all other tests
    expected = ask()
    assert expected == "unknown" or len(expected.removesuffix("+")) == 12
    monkeypatch.chdir(tmp_path)
    assert ask() == expected
    monkeypatch.setenv("PATH", str(tmp_path))  # no git
    assert ask() == "unknown"


def test_a_key_that_is_there_twice_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"a": {"b": 1, "c": 2, "b": 3}}')
    with pytest.raises(DataError, match="x.json: has the key 'b' twice"):
        read_json(tmp_path / "x.json")


def test_an_output_never_takes_the_place_of_what_is_no_file(tmp_path):
    pipe, folder, file = tmp_path / "pipe", tmp_path / "folder", tmp_path / "file"
    os.mkfifo(pipe)
    folder.mkdir()
    file.touch()
    for path, said in (
        (pipe, "is a named pipe"),
        (folder, "is a folder"),
        (tmp_path / "file" / "x.csv", "x.csv: .*file is no folder"),
        ("/dev/full", "is a device"),
    ):
        with pytest.raises(StorageError, match=said), atomic_path(path):
            pytest.fail("it is written")
    assert pipe.is_fifo() and folder.is_dir() and file.is_file()
    with pytest.raises(StorageError, match="^/proc/x.csv: "), atomic_path("/proc/x.csv"):
        pytest.fail("it is written")
