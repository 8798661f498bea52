"""The table of a network's modules."""

from fastslow.views.network_table import list_modules
from helpers.networks import make_network


def test_every_parameter_is_in_the_table():
    network = make_network(2)
    table = list_modules(network)
    assert table["module"].iloc[-1] == "sum"
    assert table["parameters"].iloc[:-1].sum() == table["parameters"].iloc[-1]
    modules = dict(network.named_modules())
    owners = {name.rpartition(".")[0] for name, _ in network.named_parameters()}
    assert {*table["module"].iloc[:-1]} == owners
    for row in table.iloc[:-1].itertuples():
        assert row.type == type(modules[row.module]).__name__
