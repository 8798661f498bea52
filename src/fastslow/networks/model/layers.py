"""Layers of the network, computed on deduplicated states (``config_states.py``) weighted by multiplicity.

Each layer equals its dense form on all (node, configuration) pairs (``tests/helpers/dense_reference.py``). S
is the number of states of a level, N of nodes, C of configurations, D of channels. Norm and cross-config
attention compare the configurations of the whole set through a statistic of it (``set_statistics.py``).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from fastslow.networks.model.graph_batch import Batch, LevelTensors
from fastslow.networks.settings.inputs import POOLS, Pooling, parse_readout
from fastslow.networks.settings.options import ArchitectureOptions
from fastslow.networks.states.set_statistics import Complete, Moments, SoftmaxMean, as_is
from fastslow.networks.states.sparse import SparseOperator, largest_rows, take_rows

EPSILON = 1e-5
"""Added to the variance by which a norm divides."""


class WeightedInstanceNorm(nn.Module):
    r"""Apply instance normalisation (arXiv 1607.08022) over all (node, configuration) pairs of a graph.

    .. math:: y = (x - \mu) / \sqrt{\sigma^2 + \epsilon} \cdot \gamma + \beta

    Mean and variance weigh each state by the number of pairs that share it, so they equal the dense form's.
    :math:`\gamma` and :math:`\beta` are learned.
    """

    def __init__(self, channels: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = EPSILON

    def moments(self, x: Tensor, level: LevelTensors) -> Moments:
        """Return mean and variance ``(D,)`` of states ``x`` (S, D) over all (node, configuration) pairs."""
        mean = (level.share * x).sum(0)
        return Moments(level.num_configs, mean, (level.share * (x - mean).square()).sum(0))

    def forward(self, x: Tensor, level: LevelTensors, complete: Complete = as_is) -> Tensor:
        """Return the normalised states ``x`` ``(S, D)`` of a level."""
        _, mean, variance = complete(self.moments(x, level))
        return (x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias


class Dropout(nn.Module):
    r"""Set a share p of the values to 0 in training, and divide the others by 1 - p (JMLR 15:1929, 2014).

    As ``torch.nn.Dropout``, which draws 64 random bits for each value. Here each value has 16 bits of them,
    which takes a third of the time on a CPU. So p is a multiple of :math:`2^{-16}`, from 0 to below 1.
    """

    def __init__(self, p: float):
        super().__init__()
        self.dropped = round(p * 2**16)  # of the 2**16 numbers that may be drawn

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``, of any shape, with values dropped; in evaluation mode, ``x`` itself."""
        if not self.training or self.dropped == 0:
            return x
        words = torch.empty(math.ceil(x.numel() / 4), dtype=torch.int64, device=x.device)
        words.random_(-(2**63), None)
        drawn = words.view(torch.int16)[: x.numel()].view(x.shape)  # from -2**15 to 2**15 - 1
        kept = drawn.ge_(self.dropped - 2**15)  # 0 or 1, in place: bool takes six times as long
        return x * kept.to(x.dtype).div_(1 - self.dropped / 2**16)


class SageConv(nn.Module):
    r"""Apply GraphSAGE (arXiv 1706.02216), with weights of its own per edge direction.

    .. math:: y_n = W x_n + b + \operatorname{mean}_{m \in operands(n)} W_o x_m
              + \operatorname{mean}_{m \in users(n)} W_u x_m

    A node without neighbours in a direction receives 0 from it. Rows are projected before they are
    aggregated: there are fewer states below.
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.own = nn.Linear(in_channels, out_channels)
        self.operands = nn.Linear(in_channels, out_channels, bias=False)
        self.users = nn.Linear(in_channels, out_channels, bias=False)

    def forward(self, x: Tensor, level: LevelTensors, below: LevelTensors) -> Tensor:
        """Return the states ``(S, D_out)`` of ``level`` from the states ``(S_below, D_in)`` below it."""
        y = take_rows(self.own(x), level.itself)
        return y + level.operands @ self.operands(x) + level.users @ self.users(x)


class ChannelAttention(nn.Module):
    r"""Gate each channel (the excitation of squeeze-and-excitation, arXiv 1709.01507, computed per row).

    .. math:: y = x \cdot \sigma(W_2 \operatorname{relu}(W_1 x))

    As in the network of the competition's 1st place (TGraph, arXiv 2405.16623). The inner layer has an eighth
    of the channels.
    """

    def __init__(self, channels: int):
        super().__init__()
        inner = max(1, channels // 8)
        self.gate = nn.Sequential(
            nn.Linear(channels, inner), nn.ReLU(), nn.Linear(inner, channels), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the gated states ``x``, ``(S, D)``."""
        return x * self.gate(x)


class CrossConfigAttention(nn.Module):
    r"""Compare the configurations of each node (the competition's 1st place; TGraph, arXiv 2405.16623).

    .. math:: y_{n,c} = x_{n,c} \cdot C \cdot \frac{\exp(x_{n,c} / T)}{\sum_{c'} \exp(x_{n,c'} / T)}

    element-wise per node n and channel, over the C configurations of the set; the temperature T is one
    learned scalar, 0.5 at the start. Over states the sum is weighted by multiplicity. The published form has
    no factor C; with it the magnitude does not depend on the number of configurations, and a node that no
    configuration changes passes through unchanged.
    """

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor, level: LevelTensors, complete: Complete = as_is) -> Tensor:
        """Return the states ``x`` ``(S, D)`` of a level, weighted by their softmax over configurations."""
        logits = x.float() / self.temperature
        with torch.no_grad():  # the largest logit cancels out; it only prevents overflow
            index = level.node_ids[:, None].expand_as(logits)
            top = logits.new_full((level.num_nodes, x.shape[1]), -torch.inf)
            top.scatter_reduce_(0, index, logits, "amax")
        weight = (logits - take_rows(top, level.node_ids)).exp()
        whole = complete(SoftmaxMean(level.num_configs, top, level.per_node @ weight))
        scale = (top - whole.top).exp() / whole.mean
        return x * (weight * take_rows(scale, level.node_ids))


class Readout(nn.Module):
    r"""Pool the nodes of each configuration in one way or several, concatenated.

    .. math::
        \text{sum:}\ & \sum_n x_{n,c} \qquad \text{mean:}\ \frac{1}{N} \sum_n x_{n,c} \qquad
        \text{unit\_sum:}\ \sum_n x_{n,c} / \lVert \sum_n x_{n,c} \rVert_2 \qquad
        \text{max:}\ \max_n x_{n,c}

    over all nodes, or over the configurable ones (of a graph that has none, over all).

    Args:
        text: Such as ``sum`` or ``mean+sum@configurable``.
        channels: Channels D of the states.
    """

    def __init__(self, text: str, channels: int):
        super().__init__()
        self.parts = parse_readout(text)
        self.channels = len(self.parts) * channels  # P D of P poolings

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """Return the pooled nodes ``(C, P D)`` float64 of a whole graph; arguments as for :meth:`sums`."""
        return self.of_sums(self.sums(x, batch), batch.configurable)

    def sums(self, x: Tensor, batch: Batch) -> Tensor:
        """Return the sums (or the maximum) over the nodes of a batch for each pooling, ``(C, P D)`` float64.

        ``x`` ``(S, D)`` are the states of its last level, which may have only some nodes of the graph.
        """
        level = batch.levels[-1]
        chosen = batch.configurable[level.node_ids, None]
        sums = []
        for part in self.parts:
            states = pooled_states(x, part, chosen)
            if POOLS[part.pool].largest:
                sums.append(largest_rows(batch.pooling, states).double())
            else:
                sums.append(self.sum_nodes(states, batch.pooling, level))
        return torch.cat(sums, 1)

    def sum_nodes(self, x: Tensor, pooling: SparseOperator, level: LevelTensors) -> Tensor:
        r"""Return the sum ``(C, D)`` float64 of the states ``x`` ``(S, D)``; ``pooling`` is ``(C, S)``.

        .. math:: y_c = \sum_n \bar x_n + \sum_n (x_{n,c} - \bar x_n)

        with :math:`\bar x_n` the mean of node n over the configurations. This shared part is summed in
        float64: configurations of a large graph differ by less than float32 resolves.
        """
        mean = level.per_node @ x
        varying = pooling @ (x - take_rows(mean, level.node_ids))
        return mean.sum(0, dtype=torch.float64) + varying

    def of_sums(self, sums: Tensor, configurable: Tensor) -> Tensor:
        """Return the readout ``(C, P D)`` from the ``sums`` over all N nodes, ``configurable`` ``(N,)``."""
        totals = sums.unflatten(1, (len(self.parts), -1)).unbind(1)
        finished = []
        for total, part in zip(totals, self.parts, strict=True):
            num_nodes = configurable.sum() if part.configurable else len(configurable)
            finished.append(POOLS[part.pool].finish(total, num_nodes))
        return torch.cat(finished, 1)


def pooled_states(x: Tensor, part: Pooling, chosen: Tensor) -> Tensor:
    """Return the states ``(S, D)`` with those that a pooling leaves out as 0, or as -inf for a maximum.

    ``x`` ``(S, D)`` is returned as it is where the pooling ``part`` is over all nodes. ``chosen`` ``(S, 1)``
    bool tells whether a state's node is configurable.
    """
    if not part.configurable:
        return x
    if POOLS[part.pool].largest:
        return x.masked_fill(~chosen, -torch.inf)
    return x * chosen


class ConfigNorm(nn.Module):
    r"""Standardise each channel over the configurations of a graph (batch norm's formula, arXiv 1502.03167).

    .. math:: y = (x - \mu) / \sqrt{\sigma^2 + \epsilon}

    with mean and variance over the graph's own configurations, in training and at inference alike. Only the
    order within a graph is evaluated, so differences between configurations become comparable across programs
    of any size. A channel in which the configurations do not differ becomes 0.
    """

    def __init__(self):
        super().__init__()
        self.eps = EPSILON

    def forward(self, x: Tensor, complete: Complete = as_is) -> Tensor:
        """Return the standardised ``x``, ``(C, D)``."""
        mean = x.mean(0)
        _, mean, variance = complete(Moments(len(x), mean, (x - mean).square().mean(0)))
        return (x - mean) * torch.rsqrt(variance + self.eps)


class Float64Linear(nn.Linear):
    """Apply a linear layer in float64, also under autocast; its parameters are float32.

    Its input comes from sums over all nodes of a graph, in which configurations differ by less than float32
    resolves.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the product ``(..., D_out)`` in float64 of ``x`` ``(..., D_in)``."""
        return functional.linear(x.double(), self.weight.double(), self.bias.double())


class Head(nn.Module):
    r"""Pool the nodes of each configuration, join its own features, and apply a perceptron.

    .. math::
        z_c &= [\operatorname{pool}_n x_{n,c}, f_c] \\
        s_c &= \operatorname{MLP}([z_c, \operatorname{ConfigNorm}(z)_c])

    The pooling is by default the sum. The features f of a configuration as a whole (violation ratios, copies,
    tile bounds) join after it, as in the report that introduced the violation ratio.

    Args:
        channels: Channels D of the states.
        config_channels: Columns V of the scaled configuration features; 0: none join here.
        architecture: Settings of the layers.
    """

    def __init__(self, channels: int, config_channels: int, architecture: ArchitectureOptions):
        super().__init__()
        self.readout = Readout(architecture.readout, channels)
        self.joins = config_channels > 0
        self.joined_channels = self.readout.channels + config_channels  # J
        self.norm = ConfigNorm()
        self.mlp = self.perceptron(architecture)

    def perceptron(self, architecture: ArchitectureOptions) -> nn.Sequential:
        """Return the layers that :meth:`read_out` applies."""
        width = architecture.hidden_channels
        return nn.Sequential(
            Float64Linear(2 * self.joined_channels, 2 * width),
            nn.GELU(),
            Dropout(architecture.dropout),
            Float64Linear(2 * width, width),
            nn.GELU(),
            Float64Linear(width, 1),
        )

    def forward(self, x: Tensor, batch: Batch, complete: Complete = as_is) -> Tensor:
        """Return a prediction per configuration, ``(C,)`` float32, from the states ``x`` of the last level.

        ``complete`` returns a statistic of the whole configuration set.
        """
        # where no configuration changes a node (tile) there is one for all
        pooled = self.readout(x, batch).expand(len(batch.config_feat), -1)
        return self.read_out(self.join(pooled, batch.config_feat), complete)

    def join(self, pooled: Tensor, config_feat: Tensor) -> Tensor:
        """Return the pooled nodes ``(C, P D)`` and the features ``(C, V)`` of each configuration, joined."""
        return torch.cat([pooled, config_feat], 1) if self.joins else pooled  # float64 like the sums

    def read_out(self, joined: Tensor, complete: Complete) -> Tensor:
        """Return predictions ``(C,)`` from ``joined`` ``(C, J)`` float64; ``complete`` as :meth:`forward`."""
        both = torch.cat([joined, self.norm(joined, complete)], 1)
        return self.mlp(both).squeeze(1).float()
