"""Downloads against a loopback server: resumed, checked, unpacked safely, and not done twice."""

import functools
import io
import os
import random
import shutil
import socketserver
import tarfile
import threading
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fastslow.competition.catalog import COLLECTIONS, COMPETITION, SPLITS, get_collection
from fastslow.core.errors import DataError, SettingsError
from fastslow.kaggle import archives, client, download
from fastslow.kaggle.client import KaggleError
from fastslow.kaggle.download import DownloadSettings, SplitFiles
from fastslow.kaggle.provenance import PROVENANCE
from fastslow.kaggle.unpacking import unpack
from helpers.cases import cases
from helpers.competition_files import REAL, competition_arrays, needs_real
from helpers.kaggle_stub import DROP, KaggleStub, clean_environment

XLA = get_collection("layout:xla:default")
VALID, TEST = SplitFiles(XLA, "valid"), SplitFiles(XLA, "test")
KAGGLE_ZIP = "/data/competition.zip"


@pytest.fixture(autouse=True)
def pauses(monkeypatch, tmp_path):
    """No waiting between tries, and nothing of this machine's set-up; the list of pauses asked for."""
    home = tmp_path / "home"
    home.mkdir()
    clean_environment(monkeypatch, home)
    asked = []
    monkeypatch.setattr(archives, "time", SimpleNamespace(sleep=asked.append))
    return asked


@pytest.fixture
def stub():
    with KaggleStub() as server:
        yield server


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data root"


def fetch(root: Path, source: str = "auto", splits=SPLITS, collections=(), **options) -> list[Path]:
    """Download with settings by position."""
    names = {"splits": list(splits), "collections": list(collections)}
    return download.download(DownloadSettings(root=str(root), source=source, **names, **options))


@functools.cache  # a zip holds the time of day
def npz(name: str, kind: str = "layout") -> bytes:
    content = io.BytesIO()
    np.savez(content, **competition_arrays(kind, seed=len(name), configs=2))
    return content.getvalue()


def members(split: SplitFiles, before: str = "npz/") -> dict[str, bytes]:
    names = [f"{split.name}-program {number}" for number in range(split.count)]
    return {f"{before}{split.path}/{name}.npz": npz(name) for name in names}


def tar_of(files: dict[str, bytes], *extra: tarfile.TarInfo) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as opened:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            opened.addfile(info, io.BytesIO(data))
        for info in extra:
            opened.addfile(info)
    return content.getvalue()


def zip_of(files: dict) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as opened:
        for name, data in files.items():
            opened.writestr(name, data)
    return content.getvalue()


def serve(stub: KaggleStub, split: SplitFiles, content: bytes) -> str:
    path = f"/v0/{split.archive}"
    stub.files[path] = content
    return path


def fetch_google(stub: KaggleStub, root: Path, *splits: SplitFiles, **options) -> list[Path]:
    names = [split.name for split in splits]
    return fetch(root, "google", names, ["layout:xla:default"], base_url=f"{stub.url}/v0", **options)


def content_of(root: Path, split: SplitFiles) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in split.folder(root).iterdir()}


def expected(split: SplitFiles) -> dict[str, bytes]:
    return {Path(name).name: data for name, data in members(split).items()}


def left_in(root: Path) -> set[str]:
    """Everything under the root but the lock, the record of sources and folders on the way."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} - {".lock", PROVENANCE}


def test_google_splits_end_up_in_their_folders_once(stub, root):
    paths = [serve(stub, split, tar_of(members(split))) for split in (VALID, TEST)]
    assert fetch_google(stub, root, VALID, TEST) == [VALID.folder(root), TEST.folder(root)]
    for split in (VALID, TEST):
        assert content_of(root, split) == expected(split)
    assert len(left_in(root)) == VALID.count + TEST.count, "an archive or a part was left"
    asked = stub.calls.copy()
    assert set(asked) == set(paths)
    assert fetch_google(stub, root, VALID, TEST) == []
    assert stub.calls == asked, "a second run asked the server"
    (VALID.folder(root) / "valid-program 3.npz").unlink()
    assert fetch_google(stub, root, VALID, TEST) == [VALID.folder(root)]
    assert content_of(root, VALID) == expected(VALID)


def test_dropped_connection_resumes(stub, root, pauses):
    content = tar_of(members(VALID))
    path = serve(stub, VALID, content)
    stub.cuts[path] = [4000, 0, 700]
    stub.answers[path] = [DROP, 503]  # Two failures of the question for the size.
    fetch_google(stub, root, VALID)
    assert content_of(root, VALID) == expected(VALID)
    assert stub.ranges == [None, "bytes=4000-", "bytes=4000-", "bytes=4700-"]
    assert pauses == [1, 2, 1, 2, 1], "a new byte must start the pauses afresh"


def test_a_server_that_always_closes_is_given_up(stub, root, pauses, monkeypatch):
    """One new byte a connection would otherwise take days, and a part that is begun again for ever."""
    content = tar_of(members(VALID))
    path = serve(stub, VALID, content)
    stub.cuts[path] = [1] * 1000
    with pytest.raises(DataError, match="failed 50 times in a row without a new megabyte"):
        fetch_google(stub, root, VALID)
    assert len(stub.ranges) == 50
    stub.answers[path] = [503, 416] * 500  # the part is thrown away at every other request
    stub.cuts[path] = [1] * 1000
    with pytest.raises(DataError, match="times in a row without a new"):
        archives.fetch(f"{stub.url}{path}", root / "x.tar")


@pytest.mark.parametrize("name", ["x.tar.part", "x.tar"])
def test_a_part_or_a_target_that_is_no_file_is_named(stub, tmp_path, name):
    path = serve(stub, VALID, b"abc" * 1000)
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match=f"{name}: is a named pipe, a file is wanted"):
        archives.fetch(f"{stub.url}{path}", tmp_path / "x.tar")
    assert not stub.ranges, "before the download"


def test_the_next_run_resumes(stub, tmp_path, monkeypatch):
    content = random.Random(0).randbytes(3_000_000)
    path, target = serve(stub, VALID, content), tmp_path / "a b" / "x.tar"
    stub.cuts[path] = [2_100_000]
    monkeypatch.setattr(archives, "_TRIES", 1)
    with pytest.raises(DataError, match="failed 1 times in a row.*resumes where it stopped"):
        archives.fetch(f"{stub.url}{path}", target)
    assert archives.local_size(target) == 2_100_000 and not target.exists()
    archives.fetch(f"{stub.url}{path}", target)
    assert stub.ranges == [None, "bytes=2100000-"] and stub.parts == 1
    assert target.read_bytes() == content
    assert os.listdir(target.parent) == ["x.tar"]


def begun(target: Path, content: bytes) -> None:
    """An earlier run's part."""
    target.with_name(f"{target.name}.part").write_bytes(content)


def test_a_whole_part_is_not_downloaded_again(stub, tmp_path):
    path, target = serve(stub, VALID, b"abc" * 1000), tmp_path / "x.tar"
    begun(target, b"abc" * 1000)
    archives.fetch(f"{stub.url}{path}", target)
    assert target.read_bytes() == b"abc" * 1000
    assert stub.ranges == ["bytes=3000-"]


@pytest.mark.parametrize("status", [416, 206])
def test_a_part_that_the_server_cannot_continue_is_downloaded_anew(stub, tmp_path, pauses, status):
    """It is longer than the file, or the server sends another part than was asked for."""
    path, target = serve(stub, VALID, b"b" * 900), tmp_path / "x.tar"
    begun(target, b"a" * 950)
    stub.answers[path] = [status]
    archives.fetch(f"{stub.url}{path}", target)
    assert target.read_bytes() == b"b" * 900 and stub.ranges == [None]


def test_wrong_size_and_missing_file_and_no_server(stub, root, pauses):
    path = serve(stub, VALID, tar_of(members(VALID)))
    stub.sizes[path] = len(stub.files[path]) + 100
    with pytest.raises(DataError, match="xla_default_valid.tar: failed 8 times in a row"):
        fetch_google(stub, root, VALID)
    assert pauses == [1, 2, 4, 8, 16, 32, 60]
    asked = stub.calls[f"/v0/{TEST.archive}"]
    with pytest.raises(DataError, match="the server answers 404"):
        fetch_google(stub, root, TEST)
    assert stub.calls[f"/v0/{TEST.archive}"] == asked + 1, "a missing file was asked for twice"
    with pytest.raises(DataError, match="refuses the connection"):
        fetch(root, "google", ["test"], [XLA.name], base_url="http://127.0.0.1:9/v0/")
    assert not VALID.folder(root).exists()


def test_wrong_counts_and_broken_content_are_refused_whole(stub, root):
    files = members(VALID)
    few, first = dict(list(files.items())[1:]), next(iter(files))
    broken = files | {first: b"no npz"}
    tile, middle = files | {first: npz("a", "tile")}, len(files[first]) // 2
    flipped = files | {first: files[first][:middle] + b"x" + files[first][middle + 1 :]}
    foreign = files | {first: zip_of({"other.npy": b""})}
    cut = tar_of(files)[: -len(tar_of(files)) // 3]
    for content, message in (
        (tar_of(few), "holds 6 npz files of layout:xla:default valid, the competition has 7. Delete it"),
        (tar_of(broken), "valid-program 0.npz in it: cannot be read .BadZipFile"),
        (tar_of(foreign), "valid-program 0.npz in it: cannot be read .ValueError: EOF"),
        (tar_of(tile), "valid-program 0.npz in it: key node_config_ids is missing .a layout file has"),
        (tar_of(flipped), "valid-program 0.npz in it: cannot be read .BadZipFile: Bad CRC-32"),
        (cut, "broken archive .unexpected end of data.. Delete it"),
        (b"\n<!DOCTYPE html>sign in</html>" * 99, "is a web page, such as a sign-in page.*Sign in to"),
    ):
        serve(stub, VALID, content)
        with pytest.raises(DataError, match=message):
            fetch_google(stub, root, VALID)
        assert left_in(root) == {f"archives/{VALID.archive}"}
        (root / "archives" / VALID.archive).unlink()
    serve(stub, VALID, tar_of(files))
    fetch_google(stub, root, VALID)


def test_a_zip_without_its_middle_is_a_broken_archive(tmp_path):
    whole, archive = zip_of(members(VALID)), tmp_path / "a.zip"
    for start, stop in ((1000, 4000), (len(whole) // 2, len(whole) - 300), (10, len(whole) - 30)):
        archive.write_bytes(whole[:start] + whole[stop:])
        with pytest.raises(DataError, match="a.zip: broken archive .*Delete it"):
            unpack(archive, tmp_path / "out", lambda member: "out.npz")


def test_a_zip_made_on_windows_has_folders(tmp_path):
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        for name in ("npz\\", "npz\\layout\\", "npz\\layout\\a.npz"):
            opened.writestr(name, b"1" if name.endswith("npz") else b"")
    unpack(archive, tmp_path / "out", lambda member: member)
    assert [path.name for path in (tmp_path / "out").rglob("*.npz")] == ["a.npz"]
    assert (tmp_path / "out" / "npz" / "layout" / "a.npz").read_bytes() == b"1"


@pytest.mark.parametrize("name", [f"{COMPETITION}.zip", VALID.archive])
def test_an_archive_that_is_a_dangling_link_is_named(root, name):
    (root / "archives").mkdir(parents=True)
    (root / "archives" / name).symlink_to("nowhere")
    with pytest.raises(DataError, match=f"{name}: is a link that leads nowhere"):
        fetch(root, "auto", ["valid"], [XLA.name], base_url="http://127.0.0.1:9")


ANSWERS = {  # the lines of a server's answer: the message
    "HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n": "Content-Length|does not send its size",
    "HTTP/1.1 302 Found\r\nLocation: http://[::1\r\nContent-Length: 0\r\n\r\n": "Check the address",
    "HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\n\r\nabc": "failed 8 times in a row",
    "": "failed 8 times in a row .*timed out",
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_odd_or_silent_server_is_an_error_in_words(tmp_path, monkeypatch, capsys, answer):
    monkeypatch.setattr(archives, "_TIMEOUT_S", 0.2)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), odd_server(answer)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/x.tar"
        with pytest.raises(DataError, match=ANSWERS[answer]):
            archives.fetch(url, tmp_path / "x.tar")
        server.shutdown()
    if "failed" in ANSWERS[answer]:
        assert "x.tar: " in (said := capsys.readouterr().err) and "Trying again in 1 s" in said


def test_without_a_network_a_download_ends_at_once(capsys):
    with pytest.raises(DataError, match="no.host.invalid cannot be found: this machine has no network"):
        archives.remote_size("http://no.host.invalid/x.tar")
    with pytest.raises(DataError, match=r"x\.tar: 127\.0\.0\.1:9 refuses the connection\. Check the network"):
        archives.remote_size("http://127.0.0.1:9/x.tar")
    assert "Trying again" not in capsys.readouterr().err


def odd_server(answer: str):
    """A handler that reads a request and sends this, and keeps the connection a while if it is nothing."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(10_000)
            self.request.sendall(answer.encode("latin-1"))
            if not answer:
                time.sleep(1)

    return Handler


@cases("suffix", ["tar", "zip"])
def test_any_damage_is_one_kind_of_error(tmp_path, suffix):
    files = {name: data * 3 for name, data in members(VALID).items()}
    whole = bytearray(tar_of(files) if suffix == "tar" else zip_of(files))
    dice = random.Random(1)
    archive = tmp_path / f"a.{suffix}"
    refused = 0
    for trial in range(60):
        damaged = whole.copy()
        for _ in range(dice.randint(1, 20)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        archive.write_bytes(damaged[: dice.randrange(len(damaged))] if trial % 3 == 0 else damaged)
        try:
            unpack(archive, tmp_path / "out", lambda member: "out.npz")
        except DataError:
            refused += 1
    assert refused > 20


def test_disk_space_is_checked_before_the_download_and_before_unpacking(stub, root, monkeypatch):
    content = tar_of(members(VALID))
    path = serve(stub, VALID, content)
    usage = shutil.disk_usage("/")._replace(free=int(2.04 * len(content)) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DataError, match="the data needs 14[0-9]kB, 14[0-9]kB are free. Free some space"):
        fetch_google(stub, root, VALID)
    assert stub.ranges == [], "the download began"
    (root / "archives").mkdir()
    (root / "archives" / f"{VALID.archive}.part").write_bytes(content[:9])  # Need not come again.
    fetch_google(stub, root, VALID)
    assert stub.calls[path] == 3

    (root / "archives").mkdir()
    (root / "archives" / f"{COMPETITION}.zip").write_bytes(zip_of(members(TEST)))
    usage = usage._replace(free=100)
    with pytest.raises(DataError, match="unpacking predict-ai-model-runtime.zip needs"):
        fetch(root, "auto", ["test"], [XLA.name])
    assert not TEST.folder(root).exists()


def kaggle(stub: KaggleStub, monkeypatch, tmp_path, before: str) -> None:
    files = members(VALID, before) | members(TEST, before)
    sample = {"sample_submission.csv": b"ID,TopConfigs\n"}
    stub.files[KAGGLE_ZIP] = zip_of(sample | files | {"npz_all/__MACOSX/._x.npz": b"", "pb/a.pb": b""})
    for name, value in stub.environment(tmp_path / "home").items():
        monkeypatch.setenv(name, value)


def test_kaggle_zip_with_a_dropped_connection(stub, root, monkeypatch, tmp_path):
    kaggle(stub, monkeypatch, tmp_path, "npz_all/npz_all/npz/")
    monkeypatch.setattr(client, "_PAUSES_S", (0.0,))
    stub.answers["DownloadDataFiles"] = [DROP]
    names = {"splits": ["valid"], "collections": ["layout-xla-default"]}
    assert fetch(root, **names, keep_archives=True) == [VALID.folder(root)]
    assert content_of(root, VALID) == expected(VALID)
    assert (root / "sample_submission.csv").read_bytes() == b"ID,TopConfigs\n"
    zip_name = f"archives/{COMPETITION}.zip"
    assert {name for name in left_in(root) if not name.startswith("npz_all/")} == {
        "sample_submission.csv",
        zip_name,
    }
    calls = stub.calls["DownloadDataFiles"]
    assert fetch(root, "auto", ["valid", "test"], [XLA.name]) == [TEST.folder(root)]
    assert stub.calls["DownloadDataFiles"] == calls, "the zip that was kept was downloaded again"
    assert content_of(root, TEST) == expected(TEST)
    assert zip_name not in left_in(root)


def test_kaggle_without_access_leaves_nothing(stub, root, monkeypatch, tmp_path):
    kaggle(stub, monkeypatch, tmp_path, "npz_all/npz/")
    stub.answers["DownloadDataFiles"] = [403]
    with pytest.raises(KaggleError, match="Accept the rules at"):
        fetch(root, "auto", ["valid"], [XLA.name])
    assert stub.calls["DownloadDataFiles"] == 1, "it was asked again"
    monkeypatch.delenv("KAGGLE_KEY")
    with pytest.raises(KaggleError, match="no Kaggle credentials found"):
        fetch(root, "kaggle", SPLITS, [c.name for c in COLLECTIONS])
    assert left_in(root) == set()


def test_a_relative_root_is_under_the_home_that_other_commands_read(stub, tmp_path, monkeypatch):
    serve(stub, VALID, tar_of(members(VALID)))
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path / "large disk"))
    names = {"splits": "valid", "collections": "layout-xla-default"}  # as typed
    settings = DownloadSettings(source="google", base_url=f"{stub.url}/v0", **names)
    assert download.download(settings) == [VALID.folder(tmp_path / "large disk" / "data" / "raw")]
    assert content_of(tmp_path / "large disk" / "data" / "raw", VALID) == expected(VALID)


@cases(
    "address",
    [
        "ftp://me:hunter22@h/v0",
        "http://me:hun/ter22@h",
        "hunter22",
        "http://me:a@hunter22@h/",
        "https://h/v0?key=hunter22",
        "https://h/v0#hunter22",
        "http://h/a hunter22",
    ],
)
def test_an_address_that_is_none_or_holds_a_secret_is_refused_and_not_shown(address):
    with pytest.raises(SettingsError, match="base_url: wanted is http") as caught:
        DownloadSettings(base_url=address)
    assert "ter22" not in str(caught.value)


def test_archives_put_there_by_hand_need_no_network(root):
    (root / "archives").mkdir(parents=True)
    (root / "archives" / VALID.archive).write_bytes(tar_of(members(VALID)))
    (root / f"{download._SCRATCH}killed").mkdir()
    fetch(root, "google", ["valid"], [XLA.name], base_url="http://127.0.0.1:9")
    assert content_of(root, VALID) == expected(VALID)
    assert {path.name for path in root.iterdir()} == {".lock", "npz_all", PROVENANCE}


def test_foreign_files_in_the_way_are_refused(stub, root):
    folder = VALID.folder(root)
    folder.mkdir(parents=True)
    (folder / "mine.npz").write_bytes(b"")
    serve(stub, VALID, tar_of(members(VALID)))
    for _ in range(2):
        with pytest.raises(DataError, match="holds 8 npz files, the competition has 7. Move the folder away"):
            fetch_google(stub, root, VALID)
    assert (folder / "mine.npz").exists()


@cases(
    "text, said",
    [
        ("source=ftp", "source: 'ftp' is not one of auto"),
        ("splits=dev", "splits: 'dev' is none of train"),
        ("collections=tile", "^collections: 'tile' is none of tile:xla"),
        ("root=\0", "root"),
        ("keep_archives=1", "keep_archives"),
    ],
)
def test_a_wrong_setting_is_refused(text, said):
    with pytest.raises(SettingsError, match=said):
        DownloadSettings.from_texts([text])


@needs_real
def test_counts_agree_with_the_real_sample_submission():
    ids = [line.rpartition(":")[0] for line in (REAL / "sample_submission.csv").read_text().splitlines()[1:]]
    for collection in COLLECTIONS:
        assert SplitFiles(collection, "test").count == sum(line.startswith(collection.name) for line in ids)
