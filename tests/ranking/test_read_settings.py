"""Every setting of a command changes its result for a source, or is refused there."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

import fastslow
from fastslow.core.errors import FastslowError, SettingsError
from fastslow.hlo.messages import TuningData
from fastslow_programs.api import Converted
from fastslow_programs.program.program_settings import ConvertSettings
from fastslow_programs.ranking.settings import RankSettings
from helpers.cases import cases
from helpers.competition_files import layout_arrays, write_npz
from helpers.dot_module import measured_module, varied_module
from helpers.stub_labeller import StubLabeller

pytestmark = pytest.mark.usefixtures("undrawn")
OTHER = {
    "name": "other",
    "collection": "layout:nlp:random",
    "kernel": "1",
    "configs": 7,
    "seed": 5,
    "cache": None,
    "generation": "v4",
    "seconds": 3.0,
    "default": 1,
    "estimate": 3,
    "label": None,
    "hlo_folder": "/proc",
    "run": "runs/other",
}
"""Another value than the default of each setting; None for one that is True or False."""
UNSEEN = {("program.hlo.pb", "cache"), ("program.hlo.pb", "generation")}
"""What changes a ranking only where something is kept of the program: ``tuning/test_cache.py`` tries it."""


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A folder with a file of every kind, and a compiler that is a stub."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path / "home"))  # no runs: the models in the package rank
    monkeypatch.setattr("fastslow_programs.program.program_settings.Labeller", StubLabeller)
    for module in ("program.user_program", "ranking.rank"):
        monkeypatch.setattr(f"fastslow_programs.{module}.require_compiler", lambda: None)
    write_npz(tmp_path / "file.npz", layout_arrays(3, dots=4, configs=40))
    (tmp_path / "program.hlo.pb").write_bytes(varied_module(2).SerializeToString())
    two = [measured_module([500, 300, 400], layouts=[[0, 1], [1, 0], [1]], nodes=(2, 3)) for _ in range(2)]
    two[1].runs[0].profile.compute_time_ns = 100
    two[1].module.name = "second"
    (tmp_path / "measured.pb").write_bytes(TuningData(modules=two).SerializeToString())
    tile = measured_module([10, 20, 30], default=0, bounds=[[n + 1, 2] for n in range(3)])
    (tmp_path / "tile.pb").write_bytes(TuningData(modules=[tile]).SerializeToString())
    return tmp_path


SOURCES = {
    "file.npz": {},
    "program.hlo.pb": {"configs": 12},
    "measured.pb": {"configs": 0, "kernel": "0"},
    "tile.pb": {},
}


def result(call, source, **settings):
    """Return everything that a function says of a source, its table, and of a conversion file and arrays."""
    found = call(source, **settings)
    said = [found.words(), found.table.to_json()]
    if isinstance(found, Converted):
        arrays = {key: array.tolist() for key, array in found.arrays.items()}
        said += [found.program.collection.name, found.program.name, arrays]
    return said


def ignored(call, kind, source, given):
    """Return the settings that neither change the result nor are refused."""
    usual, found = result(call, source, **given), []
    for name, value in OTHER.items():
        field = kind.model_fields.get(name)
        if field is None or (source.name, name) in UNSEEN:
            continue
        other = not field.default if isinstance(field.default, bool) else value
        try:
            if result(call, source, **given | {name: other}) == usual:
                found.append(name)
        except FastslowError as error:
            assert name in str(error)
    return found


@cases("name", [*SOURCES])
def test_of_a_ranking(sources, name):
    rank = partial(fastslow.rank, models=fastslow.load_models())  # read once
    assert not ignored(rank, RankSettings, sources / name, SOURCES[name])


@cases("name", ["program.hlo.pb", "measured.pb"])
def test_of_a_conversion(sources, name):
    assert not ignored(fastslow.convert, ConvertSettings, sources / name, SOURCES[name])


@cases(
    "settings, said",
    [
        ({"configs": 7}, "configs: 7 has no effect on an npz.*leave it at 1000"),
        ({"seed": 5}, "seed: 5 has no effect on an npz"),
        ({"generation": "v4"}, "generation: 'v4' has no effect on an npz"),
        ({"run": "runs/x"}, "run: name it as models='runs/x'"),
    ],
)
def test_what_a_file_does_not_read_is_refused(sources, settings, said):
    with pytest.raises(SettingsError, match=said):
        fastslow.rank(sources / "file.npz", **settings)


def test_a_run_is_named_as_models_in_every_function(sources):
    with pytest.raises(SettingsError, match="run: name it as models='x'"):
        fastslow.tune(sources / "file.npz", run="x", evaluations=3)


def test_known_runtimes_of_a_program_need_the_identity(sources):
    ranking = fastslow.rank(sources / "program.hlo.pb", configs=12)
    table = ranking.table.sort_values("config")[["config", "id"]].assign(runtime=np.arange(1.0, 13))
    learnt = fastslow.rank(sources / "program.hlo.pb", configs=30, known=table[["id", "runtime"]])
    known = learnt.table.dropna(subset="known").set_index("id")["known"]
    pd.testing.assert_series_equal(known.sort_values(), table.set_index("id")["runtime"], check_names=False)
