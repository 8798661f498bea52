import re

import pytest
import torch

from fastslow.core.errors import SettingsError
from fastslow.networks.settings.terms import Pooling, parse_readout
from fastslow.networks.settings.train_settings import TrainSettings

torch.set_num_threads(1)


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
