import re

import pytest

from fastslow.competition.node_columns import COLUMN_NAMES
from fastslow.core.errors import ConfigError
from fastslow.networks.config import TrainConfig
from fastslow.networks.node_inputs import PICKED, input_columns


def test_the_default_is_the_134_numbers_and_the_six_dimensions_by_128():
    assert input_columns(TrainConfig().node_inputs) == [*range(146)]


def test_thirty_columns_are_picked_each_with_a_reason():
    assert len(PICKED) == 30 and all(PICKED.values()) and {*PICKED} <= {*COLUMN_NAMES}
    columns = input_columns("picked+more_tiles")
    assert [COLUMN_NAMES[column] for column in columns[:30]] == [*PICKED]
    assert columns[30:] == [*range(146, 194)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' in '' is none of numeric, tiles, more_tiles, picked"),
        ("numeric+tile", "'tile' in 'numeric+tile' is none of"),
        ("tiles+tiles", "tiles is given twice"),
        ("numeric+picked", "numeric in 'numeric+picked' contains picked; give one of them"),
    ],
)
def test_inputs_that_are_not_understood_are_refused(text, problem):
    with pytest.raises(ConfigError, match=f"^node_inputs: {re.escape(problem)}"):
        TrainConfig(node_inputs=text)
