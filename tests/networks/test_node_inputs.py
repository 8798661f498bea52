import re

import numpy as np
import pytest

from fastslow.competition.node_columns import COLUMN_NAMES
from fastslow.core.errors import SettingsError
from fastslow.features.nodes.node_encodings import EXTRA_COLUMNS
from fastslow.features.scaling import EXPANDED_NODE_FEATURES, Scaler
from fastslow.networks.settings.inputs import PICKED, input_columns, require_inputs
from fastslow.networks.settings.train_settings import TrainSettings
from helpers.cases import cases


def test_the_default_is_the_134_numbers_and_the_six_dimensions_by_128():
    assert input_columns(TrainSettings().node_inputs) == [*range(146)]


def test_thirty_columns_are_picked_each_with_a_reason():
    assert len(PICKED) == 30 and all(PICKED.values()) and {*PICKED} <= {*COLUMN_NAMES}
    columns = input_columns("picked+tiles")
    assert [COLUMN_NAMES[column] for column in columns[:30]] == [*PICKED]
    assert columns[30:] == [*range(134, 146)]


def test_columns_of_the_whole_graph_are_those_of_the_store():
    names = [EXTRA_COLUMNS[column - 146] for column in input_columns("depths+attributes")]
    assert names == [*EXTRA_COLUMNS] and names[:2] == ["num_operands", "num_users"]


def test_columns_that_the_features_lack_are_refused():
    std = np.ones(EXPANDED_NODE_FEATURES)
    require_inputs("numeric+attributes", Scaler(std, std))
    std[input_columns("attributes")] = 0
    require_inputs("numeric+depths", Scaler(std, std))
    with pytest.raises(
        SettingsError, match="node_inputs: the features have no attributes; build .*hlo_folder"
    ):
        require_inputs("numeric+attributes", Scaler(std, std))


@cases(
    "text, problem",
    [
        ("", "'' in '' is none of numeric, tiles, depths, attributes, picked"),
        ("numeric+tile", "'tile' in 'numeric+tile' is none of"),
        ("tiles+tiles", "tiles is given twice"),
        ("numeric+picked", "numeric in 'numeric+picked' contains picked; give one of them"),
    ],
)
def test_inputs_that_are_not_understood_are_refused(text, problem):
    with pytest.raises(SettingsError, match=f"^node_inputs: {re.escape(problem)}"):
        TrainSettings(node_inputs=text)
