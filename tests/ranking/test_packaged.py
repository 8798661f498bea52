"""The models in the package: packed, unpacked and read as the run itself, and taken where there is no run."""

import hashlib
import shutil

import numpy as np
import pytest

import fastslow
from common.pack_models import EXPECTED, MOST_BYTES, pack_models
from fastslow.competition.catalog import COLLECTIONS, TEST, get_collection, list_programs
from fastslow.core.errors import DataError
from fastslow.core.npz_io import read_arrays
from fastslow.core.settings import resolve
from fastslow.runs import packaged
from fastslow.runs.predictions import read_predictions
from fastslow.steps.finished_run import FinishedRun
from fastslow.steps.unseen import read_unseen
from fastslow.workflow.settings.presets import PACKAGED
from fastslow_programs.ranking.models import read_models, runs_folder
from fastslow_programs.ranking.settings import RankSettings
from fastslow_programs.ranking.trust import Seen
from fastslow_programs.tuning.settings import FleetSettings, TuneSettings
from helpers.competition_files import layout_arrays, write_npz
from helpers.workspace import SAMPLE

STALE = (
    "features or models changed since these models were trained: pack the models again: "
    "make submit && make sample SIZE=more && .venv/bin/python benchmarks/more_programs.py"
    " && PYTHONPATH=benchmarks .venv/bin/python -m common.pack_models"
)


@pytest.fixture(scope="module")
def smoke(finished, tmp_path_factory):
    """The archive of the smoke run; what the run predicted, and has seen."""
    first, again = (tmp_path_factory.mktemp("packed") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FASTSLOW_HOME", str(finished[0]))
        archive = pack_models("smoke", out=str(first))
        same = pack_models("smoke", out=str(again)).read_bytes()
        assert archive.read_bytes() == same, "the same run gives the same bytes"
        runs = resolve("runs/smoke")
        stored = {c.slug: read_predictions(runs / f"ensemble-{c.slug}")[TEST] for c in COLLECTIONS}
        return archive, stored, {kind: Seen.of(runs, kind) for kind in ("layout", "tile")}


@pytest.fixture
def packed(smoke, data_home, tmp_path, monkeypatch):
    """A copy of it in place of the models in the package, in a home with data and no run."""
    archive, stored, seen = smoke
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(packaged, "FOLDER", tmp_path / "models")
    return shutil.copytree(archive.parent, packaged.FOLDER) / archive.name, stored, seen


def test_they_predict_as_the_run_did(packed):
    _, stored, seen = packed
    folder = runs_folder()
    assert folder.parent.name == "fastslow" and folder == runs_folder()
    for collection in COLLECTIONS:
        run = FinishedRun(folder / f"ensemble-{collection.slug}")
        programs = list_programs(resolve("data/sample"), collection, TEST)
        found = run.predict(read_unseen(run.folder, [program.path for program in programs]))
        for name, prediction in stored[collection.slug].items():
            np.testing.assert_allclose(found[name], prediction, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(np.argsort(found[name]), np.argsort(prediction))
    for kind, packed_seen in seen.items():
        again = read_models().seen(kind)
        assert all(np.array_equal(vars(packed_seen)[key], vars(again)[key]) for key in vars(packed_seen))


def test_they_are_named_by_a_word_wherever_a_run_is(packed, data_home):
    """MODELS=package was taken, and RUN=package looked for a folder of that name."""
    folder = packaged.packaged_models()
    assert runs_folder(PACKAGED) == folder == fastslow.load_models(PACKAGED).folder
    write_npz(data_home / "program.npz", layout_arrays(3, dots=4, configs=12))
    used = folder / "ensemble-layout-xla-random"
    assert RankSettings(source="program.npz", run=PACKAGED).find_run() == used
    assert TuneSettings(source="program.npz", run=PACKAGED).find_run() == used
    (data_home / "list.csv").write_text("program,weight\nprogram.npz,1\n")
    ((tuned, _),) = FleetSettings(fleet="list.csv", run=PACKAGED).read()
    assert tuned.find_run() == used
    assert fastslow.rank(data_home / "program.npz", models=PACKAGED).run == f"{folder.name}/{used.name}"
    assert fastslow.tune(data_home / "program.npz", models=PACKAGED, evaluations=2).best


def test_what_a_killed_process_had_unpacked_is_removed(packed, tmp_path):
    cache = tmp_path / "cache" / "fastslow"
    left = cache / ".models-killed" / "ensemble"
    left.mkdir(parents=True)
    (cache / ".mine").mkdir()
    folder = packaged.packaged_models()
    assert {path.name for path in cache.iterdir()} == {folder.name, ".mine", ".lock"}
    assert packaged._unpack(packaged.FOLDER / packaged.ARCHIVE, folder) == folder, "another was first"


def test_rankers_of_another_run_decide_where_networks_have_no_weight(home, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(packaged, "FOLDER", tmp_path / "models")
    pack_models("smoke", rankers="smoke", out=str(tmp_path / "models"))
    collection = get_collection("layout-xla-random")
    whole, run = (
        FinishedRun(folder / f"ensemble-{collection.slug}")
        for folder in (resolve("runs/smoke"), packaged.packaged_models())
    )
    (program, *_) = list_programs(resolve("data/sample"), collection, TEST)
    graphs = read_unseen(run.folder, [program.path])
    name, added = program.path.stem, f"smoke-ranker-{collection.slug}-s0"
    np.testing.assert_array_equal(run.predict(graphs)[name], whole.predict(graphs)[name])
    assert run.weights(graphs.graph(TEST, name))[added] == 0
    monkeypatch.setattr(FinishedRun, "is_far", lambda *_: True)
    weights = run.weights(graphs.graph(TEST, name))
    assert weights == {f"gnn-{collection.slug}-s0": 0, f"ranker-{collection.slug}-s0": 0.5, added: 0.5}
    assert "1 gnn, 1 ranker, 1 ranker of smoke" in " ".join(read_models(packaged.packaged_models()).words())


def test_the_solution_of_other_data_than_the_run_is_left_out(home):
    whole, path = Seen.of(resolve("runs/smoke"), "layout"), resolve("data/sample/solution.csv")
    path.write_text(path.read_text().rstrip().rpartition("\n")[0] + "\n")
    cut = Seen.of(resolve("runs/smoke"), "layout")
    path.unlink()
    valid = Seen.of(resolve("runs/smoke"), "layout")
    assert [len(scored.score) for scored in (whole, cut, valid)] == [8, 7, 4]


def test_a_damaged_archive_or_file_is_refused(packed):
    archive, *_ = packed
    weights = next(runs_folder().glob("gnn-*/model.pt"))
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"model\.pt: changed after it was written"):
        FinishedRun(weights.parent)
    content = archive.read_bytes()
    archive.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"models\.tar\.xz: is damaged .* Install fastslow again"):
        runs_folder()
    archive.unlink()
    with pytest.raises(DataError, match="holds no complete run"):
        runs_folder()


def test_without_a_writable_cache_they_go_to_a_temporary_folder(packed, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    packaged._temporary.cache_clear()
    folder = runs_folder()
    assert len([*folder.glob("ensemble-*")]) == len(COLLECTIONS)
    assert runs_folder() == folder, "they are unpacked once a process"
    packaged._temporary().cleanup()
    packaged._temporary.cache_clear()
    assert not folder.exists()


def test_the_shipped_models_are_small_and_as_old_as_the_features_code(tmp_path, monkeypatch):
    """All members of five ensembles are unpacked and predict, which takes seconds."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive = packaged.FOLDER / packaged.ARCHIVE
    assert archive.stat().st_size <= MOST_BYTES
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:12]
    models = read_models()
    assert models.folder.name == f"models-{digest}" and len(models.words()) == len(COLLECTIONS)
    assert (models.folder / EXPECTED).is_file(), STALE
    expected = read_arrays(models.folder / EXPECTED)
    assert {key.split("/")[0] for key in expected} == {collection.slug for collection in COLLECTIONS}
    for collection in COLLECTIONS:
        run, folder = models.of(collection), collection.folder(SAMPLE, TEST)
        names = [key.partition("/")[2] for key in expected if key.startswith(f"{collection.slug}/")]
        paths = [folder / f"{name}.npz" for name in names]
        try:
            found = run.predict(read_unseen(run.folder, paths))
        except DataError as error:
            pytest.fail(f"{STALE} ({error})")
        for path in paths:
            prediction = expected[f"{collection.slug}/{path.stem}"]
            np.testing.assert_allclose(found[path.stem], prediction, rtol=1e-4, atol=1e-5, err_msg=STALE)
