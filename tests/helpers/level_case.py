"""One layer on its own: random states, and a comparison of both forms on all (configuration, node) pairs."""

from dataclasses import replace

import numpy as np
import torch

from fastslow.competition.tied_choices import factorise
from fastslow.networks.model.graph_batch import PreparedGraph, message_edges
from fastslow.networks.states.config_states import Reach
from helpers.dense_reference import state_table
from helpers.random_graphs import make_graph, make_scalers

WIDTH = 5


def close(value, reference, tolerance=2e-5):
    """Equal to float32 rounding, relative to the largest magnitude of the reference."""
    scale = max(1.0, float(reference.detach().abs().max()) if reference.numel() else 1.0)
    torch.testing.assert_close(value.double(), reference, rtol=0, atol=tolerance * scale)


def random_parameters(module, seed):
    """Fill a module with random parameters, so that none is at a value that hides it."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return module


class Case:
    """Random features of the states of level 1, and the tensors of levels 1 and 2."""

    def __init__(self, structure, seed, width=WIDTH):
        graph = make_graph(structure)
        if not len(structure[0]):
            graph = replace(graph, pairs=graph.pairs[:0])  # a graph without edges stays one
        self.structure = structure = (message_edges(graph), *structure[1:])
        prepared = PreparedGraph(graph, *make_scalers(graph))
        batch = prepared.batch(np.arange(len(structure[3])), 2)
        self.below, self.level = batch.levels[1], batch.levels[2]
        codes = structure[3]
        # PreparedGraph lets one configuration stand for all where nothing is configurable
        codes = codes if codes.shape[1] else codes[:1]
        choices = factorise(codes)
        reaches = [Reach(*structure[:3], choices, depth) for depth in (1, 2)]
        tables = [state_table(reach.states(choices.values)) for reach in reaches]
        self.below_table, self.table = (torch.from_numpy(table) for table in tables)
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn((len(self.below.node_ids), width), generator=generator, requires_grad=True)

    def agree(self, module, sparse_form, dense_form, below=False):
        """Values and gradients (of the input and of every parameter) of both forms agree on all pairs."""
        table = self.below_table if below else self.table
        value, reference = sparse_form(self.x)[table], dense_form(self.x.double()[self.below_table])
        close(value, reference)
        weight = torch.sin(torch.arange(reference.numel(), dtype=torch.float64)).reshape(reference.shape)
        wanted = [self.x, *module.parameters()]
        gradients = torch.autograd.grad((value.double() * weight).sum(), wanted, allow_unused=True)
        references = torch.autograd.grad((reference * weight).sum(), wanted, allow_unused=True)
        for gradient, expected in zip(gradients, references, strict=True):
            assert (gradient is None) == (expected is None)
            if gradient is not None:
                close(gradient, expected.double(), tolerance=1e-4)


def double(module):
    return {name: parameter.double() for name, parameter in module.named_parameters()}
