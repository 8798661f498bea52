import re

import pytest
import torch

from fastslow.core.errors import SettingsError
from fastslow.networks.model.graph_batch import PreparedGraph
from fastslow.networks.model.readout import Readout
from fastslow.networks.settings.terms import Pooling, parse_readout
from fastslow.networks.settings.train_settings import TrainSettings
from helpers.cases import cases
from helpers.dense_reference import dense_readout
from helpers.level_case import close
from helpers.networks import all_configs, program
from helpers.random_graphs import make_scalers

torch.set_num_threads(1)


@cases("text", ["sum", "mean", "max", "attention", "unit_sum", "mean+sum+sum@configurable+max@configurable"])
def test_a_readout_pools_the_nodes_of_each_configuration(text):
    """``test_model.py`` compares the whole network; here every state is at random."""
    graph = program()
    batch = PreparedGraph(graph, *make_scalers(graph)).batch(all_configs(graph), 1)
    level = batch.levels[1]
    x = torch.randn(len(level.node_ids), 4, generator=torch.Generator().manual_seed(0))
    states = (batch.pooling @ torch.eye(len(x))).nonzero()[:, 1].view(graph.num_configs, graph.num_nodes)
    readout = Readout(text, 4)
    assert readout.channels == 4 * len(text.split("+"))
    value = readout(x, batch.pooling, level, batch.configurable)
    assert value.dtype == torch.float64 and value.isfinite().all()
    parameters = {name: parameter.double() for name, parameter in readout.named_parameters()}
    close(value, dense_readout(x.double()[states], graph, parameters, text))
    assert readout(1e4 * x, batch.pooling, level, batch.configurable).isfinite().all()


def test_a_readout_is_read_strictly():
    assert parse_readout("sum+max@configurable") == [Pooling("sum", False), Pooling("max", True)]
    for text, problem in (
        ("", "'' in '' is not one of sum, mean, max, attention, unit_sum, alone or with @configurable"),
        ("sum+median", "'median' in 'sum+median' is not one of"),
        ("sum@all", "'sum@all' in 'sum@all' is not one of"),
        ("max+sum+max", "max is given twice"),
    ):
        with pytest.raises(SettingsError, match=f"^readout: {re.escape(problem)}"):
            TrainSettings(readout=text)


def test_a_tile_kernel_has_no_configurable_nodes_to_pool():
    with pytest.raises(SettingsError, match="readout: 'sum.sum@configurable' is not for tile"):
        TrainSettings(kind="tile", readout="sum+sum@configurable")
