"""A sample competition of runtimes measured here: its files, its noise, resumption, what is left out."""

import numpy as np
import pandas as pd
import pytest

from fastslow.competition.catalog import get_collection, list_programs
from fastslow.core.errors import DataError, SettingsError
from fastslow.features.configs.default_layouts import knows_default_layouts
from fastslow_programs.compiler.layout_constraints import is_default
from helpers.competition_files import npz_program
from make_sample import measured_sample
from make_sample.measured_sample import (
    REPLICATES,
    MeasuredSampleSettings,
    make_measured_sample,
    measure_program,
    row_major_nodes,
)
from make_sample.zoo import PRODUCTS, split_of

pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")

PROGRAM = "transposed_products_32_f32"


def settings_of(folder, **more):
    common = {"programs": PROGRAM, "configurations": 5, "rounds": 4}
    return MeasuredSampleSettings(out=str(folder / "made"), cache=str(folder / "cache"), **common | more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the cached measurement of a small program."""
    folder = tmp_path_factory.mktemp("measured")
    assert measure_program(PRODUCTS[PROGRAM], settings_of(folder)).seconds > 0
    return folder


@pytest.fixture
def cached(folder, monkeypatch):
    """The same, where nothing more may be measured and noise leaves nothing out."""
    monkeypatch.setattr(measured_sample, "Bench", lambda *_: pytest.fail("it is measured again"))
    monkeypatch.setattr(measured_sample, "RELIABLE", -1.0)
    return folder


def test_the_competition_is_made_from_what_was_measured(cached):
    made = make_measured_sample(settings_of(cached))
    collection = get_collection("layout:xla:random")
    (program,) = list_programs(made, collection, "train")
    file = npz_program(program.path, "layout", labelled=True)
    assert split_of(PRODUCTS[PROGRAM]) == "train"
    assert len(file.runtime) == len(set(map(bytes, file.choices.values))) == 5
    assert knows_default_layouts(file)
    halves = pd.read_csv(made / REPLICATES)
    assert set(halves["ID"]) == {f"{collection.name}:{program.name}"}
    assert halves["config_index"].tolist() == [0, 1, 2, 3, 4]
    between = (halves[["first", "second"]].min(axis=1) * 0.5, halves[["first", "second"]].max(axis=1) * 2)
    assert ((file.runtime > between[0]) & (file.runtime < between[1])).all()
    assert (made / "solution.csv").read_text() == "ID,config_index,runtime\n", "it has no test program"
    assert PROGRAM in (made / "README.md").read_text()


def test_labels_are_medians_over_rounds_and_halves_are_in_the_order_of_the_file(cached):
    measured = measure_program(PRODUCTS[PROGRAM], settings_of(cached))
    graph, halves = measured.graph(0)
    labels = dict(measured.searches["random"].labels)
    assert sorted(graph.labels) == sorted(labels.values())
    by_label = {labels[configuration]: pair for configuration, pair in measured.halves.items()}
    pairs = halves[["first", "second"]].to_numpy()
    np.testing.assert_allclose(pairs, [by_label[label] for label in graph.labels], atol=0.1)
    nodes = row_major_nodes(measured.module)
    assert nodes and all(node.default for node in nodes)
    for node in nodes:
        for choice in node.choices:
            for role, layout in zip(choice.roles, choice.options[0], strict=True):
                assert is_default(node, role, layout), "defaults are row-major"


def test_a_noisy_program_is_left_out(cached, monkeypatch):
    monkeypatch.setattr(measured_sample, "RELIABLE", 1.1)
    with pytest.raises(SettingsError, match=f"none has it: {PROGRAM} .replicate tau"):
        make_measured_sample(settings_of(cached))


def test_large_slow_and_poor_programs_are_left_out(cached, monkeypatch):
    assert measure_program(PRODUCTS[PROGRAM], settings_of(cached, configurations=24)) == "8 configurations"
    monkeypatch.setattr(measured_sample, "SLOWEST", 0.0)
    assert "takes longer" in measure_program(PRODUCTS[PROGRAM], settings_of(cached, rounds=3))
    monkeypatch.setattr(measured_sample, "LARGEST", 3)
    assert measure_program(PRODUCTS[PROGRAM], settings_of(cached)).endswith(" nodes")


def test_a_damaged_measurement_is_refused_by_name(cached, tmp_path):
    (own,) = [path for path in (cached / "cache").iterdir() if "failures" in path.read_text()]
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / own.name).write_text('{"seconds": "none"}')
    with pytest.raises(DataError, match=own.name):
        measure_program(PRODUCTS[PROGRAM], settings_of(tmp_path))
