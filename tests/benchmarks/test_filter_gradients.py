"""Measured, labelled and predicted effects of tied choices, on a made-up program and a made-up label."""

import itertools
from argparse import Namespace

import numpy as np
import pytest

import filter_gradients
from fastslow.competition.reader import read_competition_file
from fastslow.xla.graph_arrays import graph_arrays
from fastslow.xla.layout_space import configurable_nodes
from fastslow.xla.messages import Module
from helpers.competition_files import write_npz
from helpers.dot_module import add

NUMBERS = {
    "input_batch": 4,
    "input_spatial": [1, 2, 3],
    "input_feature": 0,
    "kernel_spatial": [1, 2, 3],
    "kernel_input_feature": 0,
    "kernel_output_feature": 4,
    "output_spatial": [0, 1, 2],
    "output_batch": 3,
    "output_feature": 4,
}
FORWARD = NUMBERS | {
    **{"input_batch": 0, "input_feature": 4, "output_batch": 0, "output_spatial": [1, 2, 3]},
    **{"kernel_spatial": [0, 1, 2], "kernel_input_feature": 3},
}
SAME = {"dimensions": [{"size": 3, "padding_low": 1, "padding_high": 1, "stride": 1}] * 3}
WHOLE = {"dimensions": [{"size": 4, "padding_low": 1, "padding_high": 1, "stride": 1}] * 3}
COMMON, OTHER = (4, 3), (3, 4)


@pytest.fixture
def file(tmp_path):
    """A convolution and two filter gradients, of 8 and of 16 channels; the layouts of all outputs vary.

    The second gradient's uncommon layout doubles the runtime, the first's adds a tenth, the rest nothing.
    """
    module = Module(name="steps", entry_computation_name="main", entry_computation_id=1)
    main = module.computations.add(name="main", id=1)
    image = add(main, "parameter", (2, 4, 4, 4, 3))
    kernel = add(main, "parameter", (3, 3, 3, 3, 8), parameter_number=1)
    add(main, "convolution", (2, 4, 4, 4, 8), image, kernel, convolution=FORWARD, window=SAME)
    for number, channels in enumerate((8, 16), 2):
        wanted = add(main, "parameter", (2, 4, 4, 4, channels), parameter_number=number)
        shape = (3, 3, 3, 3, channels)
        main.root_id = add(main, "convolution", shape, image, wanted, convolution=NUMBERS, window=WHOLE)
    nodes = configurable_nodes(module)
    assert len(nodes) == 3
    drawn = [row for row in itertools.product((0, 1), repeat=3) for _ in range(3 - sum(row) // 2)]
    configs = np.full((len(drawn), 3, 3, 6), -1, np.float32)
    configs[:, :, 1:, :2] = COMMON
    for config, row in enumerate(drawn):
        for node, uncommon in enumerate(row):
            configs[config, node, 0, :2] = OTHER if uncommon else COMMON
    arrays = graph_arrays(module) | {
        "node_config_ids": np.array([node.node for node in nodes]),
        "node_config_feat": configs.reshape(len(drawn), 3, 18),
        "config_runtime": np.array([1000 * (1 + row[2]) * (1 + 0.1 * row[1]) for row in drawn]).astype(int),
    }
    return read_competition_file(write_npz(tmp_path / "steps.npz", arrays), "layout", labelled=True)


def test_filter_gradients_are_told_from_other_convolutions(file):
    first, second = filter_gradients.filter_gradients(file)
    assert first.shapes == ((3, 3, 3, 3, 8), (2, 4, 4, 4, 3), (2, 4, 4, 4, 8)) and first.nodes == 1
    assert second.shapes[0] == (3, 3, 3, 3, 16) and second.element_bytes == 4
    assert {*first.layouts} == {COMMON, OTHER}


def test_a_choice_moves_the_ranking_by_what_it_costs(file):
    moved = filter_gradients.places(file.choices, file.runtime)
    gradients = [gradient.group for gradient in filter_gradients.filter_gradients(file)]
    (forward,) = set(moved) - {*gradients}
    assert moved[gradients[1]] > moved[gradients[0]] > 10 > abs(moved[forward])
    reversed_effects = filter_gradients.places(file.choices, -file.runtime)
    assert all(reversed_effects[g] == pytest.approx(-effect) for g, effect in moved.items())


def test_estimates_are_scored_as_predictors(file, monkeypatch):
    def compiled(gradients, cache, processes):
        """Estimate the first gradient rightly and the second the wrong way round."""
        cycles = {(0, COMMON): 10e6, (0, OTHER): 11e6, (1, COMMON): 20e6, (1, OTHER): 17e6}
        by_layout = [np.array([cycles[n, layout] for layout in g.layouts]) for n, g in enumerate(gradients)]
        return [COMMON, OTHER], by_layout

    monkeypatch.setattr(filter_gradients, "estimate_all", compiled)
    options = Namespace(quick=False, labels=file.path.parent, processes=1)
    found = filter_gradients.compare(file, {"oracle": file.runtime}, options)
    taus = found["tau"]
    assert taus["oracle"] == pytest.approx(1) and taus["estimates of the gradients"] < 0
    assert taus["median time of the same gradients (bound)"] == pytest.approx(1)
    first, second = found["choices"]
    assert (first["estimated"], first["own layout"]) == (1.0, "commonest")
    assert (second["estimated"], second["own layout"]) == (-3.0, "the other")
    assert second["measured"] == pytest.approx(1) and first["measured"] == pytest.approx(0.1)
    assert first["places: oracle"] == first["places: measured"]
    text = filter_gradients.page({"steps": found}, {"run": "sample", "commit": "abc", "libtpu": "0"})
    assert "+1.00" in text and "-3.00" in text and "+100.0%" in text
