"""Figures of networks: what they show."""

import re

from fastslow.networks.model.convolutions import CONVOLUTIONS
from fastslow.views.network_figures import list_modules, plot_network
from helpers.cases import cases
from helpers.networks import make_network


@cases("cross_config", [True, False])
@cases("depth", [0, 1, 3])
def test_the_picture_shows_every_block_width_and_parameter(depth, cross_config):
    network = make_network(depth, cross_config, hidden_channels=8)
    (axes,) = plot_network(network).axes
    texts = [text.get_text() for text in axes.texts]
    assert [text for text in texts if text.startswith("block")] == [f"block {i + 1}" for i in range(depth)]
    assert sum("cross-config" in text for text in texts) == depth * cross_config
    counts = [int(n.replace(",", "")) for t in texts for n in re.findall(r"([\d,]+) parameters", t)]
    total = sum(p.numel() for p in network.parameters())
    assert sum(counts) == total and f"{total:,} parameters" in axes.get_title()
    drawn = "\n".join(texts)
    assert "scaled node features: 4" in drawn and "3 configuration features" in drawn
    assert [text for text in texts if text in ("(N, 8)", "(S, 8)", "(C,)")] == [
        "(N, 8)",
        *["(S, 8)"] * (depth + 1),
        "(C,)",
    ]


@cases("convolution", CONVOLUTIONS)
def test_the_picture_names_convolution_and_attention(convolution):
    network = make_network(1, convolution=convolution, node_attention="linear")
    drawn = "\n".join(text.get_text() for text in plot_network(network).axes[0].texts)
    name = {"sage": "GraphSAGE", "gcn": "GCN", "mlp": "residual GCN"}
    assert f"\n{name[convolution.partition('_')[0]]}: " in drawn
    assert "linear attention" in drawn and "+ own state (residual)" in drawn


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
