from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.networks.model.convolutions import (
    CONVOLUTIONS,
    GcnConv,
    MlpGcnConv,
    SageConv,
)
from helpers.dense_convolutions import (
    dense_gcn,
    dense_mlp_gcn,
    dense_sage,
)
from helpers.level_case import WIDTH, Case, double, random_parameters
from helpers.random_graphs import structures

torch.set_num_threads(1)

cases = st.builds(Case, structures(min_nodes=2), st.integers(0, 1000))
FORMS = {
    "sage": (SageConv, dense_sage),
    "sage_sum": (partial(SageConv, aggregation="sum"), partial(dense_sage, aggregation="sum")),
    "gcn": (GcnConv, dense_gcn),
    "mlp_gcn": (MlpGcnConv, partial(dense_mlp_gcn, slope=0.01)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@given(cases, st.integers(0, 99))
@settings(max_examples=30)
def test_a_convolution_equals_its_dense_form_on_every_pair(name, case, seed):
    make, dense = FORMS[name]
    conv = random_parameters(make(WIDTH, 4), seed)
    case.agree(
        conv, lambda x: conv(x, case.level, case.below), lambda x: dense(x, case.structure[0], double(conv))
    )
