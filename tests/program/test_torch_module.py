"""A PyTorch module ranks and runs as the JAX function that torchax makes of it."""

import sys

import numpy as np
import pytest
import torch

import fastslow
from fastslow.core.errors import SettingsError
from fastslow_programs.compiler.tracing import Call
from fastslow_programs.program.torch_module import as_jax


def test_a_module_gives_the_numbers_of_torch():
    pytest.importorskip("torchax")
    jax, x = pytest.importorskip("jax"), torch.linspace(-1, 1, 12).reshape(2, 6)
    module = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.LayerNorm(3))
    function, arguments, _ = as_jax(Call(module, (x,)))
    (found,) = jax.jit(function)(*arguments)
    np.testing.assert_allclose(found, module(x).detach(), rtol=1e-5, atol=1e-6)
    with pytest.raises(SettingsError, match="cannot read Module .*forward"):
        as_jax(Call(torch.nn.Module(), (x,)))


class Residual(torch.nn.Module):
    """It takes a dict of two tensors of one shape."""

    def forward(self, tensors):
        return 2 * tensors["skip"] - tensors["image"]


def test_a_dict_of_tensors_is_read_by_its_keys_in_any_order():
    pytest.importorskip("torchax")
    jax = pytest.importorskip("jax")
    tensors = {"skip": torch.full((2, 6), 5.0), "image": torch.ones(2, 6)}  # JAX sorts the keys
    function, arguments, _ = as_jax(Call(Residual(), (tensors,)))
    (found,) = jax.jit(function)(*arguments)
    np.testing.assert_array_equal(found, np.full((2, 6), 9.0))


class Scaled(torch.nn.Module):
    """It takes two tensors by keyword, of which one may be left out."""

    def forward(self, image, scale, mask=None):
        return image * scale if mask is None else image * scale - mask


@pytest.mark.parametrize("names", [("scale",), ("scale", "mask")])
def test_keyword_arguments_reach_the_module(names):
    pytest.importorskip("torchax")
    jax = pytest.importorskip("jax")
    given = {name: torch.full((2, 6), number) for name, number in zip(names, (3.0, 1.0), strict=False)}
    function, arguments, keywords = as_jax(Call(Scaled(), (torch.ones(2, 6),), given))
    (found,) = jax.jit(function)(*arguments, **keywords)
    np.testing.assert_array_equal(found, np.full((2, 6), 4.0 - len(names)))


class Noise(torch.nn.Module):
    """It draws in both modes."""

    def forward(self, x):
        return x + torch.rand_like(x)


def test_a_module_that_draws_random_numbers_is_refused_by_its_layers():
    pytest.importorskip("torchax")
    x = torch.zeros(2, 6)
    linear, dropout = torch.nn.Linear(6, 6), torch.nn.Dropout(0.1)
    module = torch.nn.Sequential(linear, dropout, torch.nn.Sequential(torch.nn.AlphaDropout(0.1)))
    said = r"Sequential draws .* in training mode \(Dropout 1, AlphaDropout 2.0\), .*\. Call .eval\(\) on it"
    with pytest.raises(SettingsError, match=said):
        as_jax(Call(module, (x,)))
    call = as_jax(Call(module.eval(), (x,)))
    assert call.function.__name__ == "Sequential"
    with pytest.raises(SettingsError, match=r"in evaluation mode \(Noise\), .* Give what it draws"):
        as_jax(Call(Noise().eval(), (x,)))


def test_a_module_is_placed_from_python():
    pytest.importorskip("torchax")
    pytest.importorskip("jax")
    given = {"scale": torch.full((2, 6), 3.0)}
    placed = fastslow.place(Scaled(), torch.ones(2, 6), keywords=given, devices=2)
    assert "multiply" in placed.problem.graph.opcodes


def test_what_takes_tensors_and_is_no_module_is_refused_with_the_way_to_one():
    x = torch.ones(2, 6)
    linear = torch.nn.Linear(6, 3)
    with pytest.raises(SettingsError, match=r"forward takes tensors of PyTorch .* whose forward calls it"):
        as_jax(Call(linear.forward, (x,)))
    with pytest.raises(SettingsError, match=r"softmax takes tensors of PyTorch .* whose forward calls it"):
        as_jax(Call(torch.nn.functional.softmax, ({"input": [x]},)))
    with pytest.raises(SettingsError, match=r"ExportedProgram takes .*\. Give its \.module\(\)"):
        as_jax(Call(torch.export.export(linear, (x,)), (x,)))


def test_without_torchax_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchax", None)
    with pytest.raises(SettingsError, match=r"pip install 'fastslow\[pytorch\]'"):
        as_jax(Call(torch.nn.Identity()))
    assert as_jax(Call(max, (1, 2))) == Call(max, (1, 2))


class Branching(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


class Picking(torch.nn.Module):
    def forward(self, x):
        return x[x.nonzero()[:, 0]]


@pytest.mark.parametrize("module", [Branching(), Picking(), torch.nn.EmbeddingBag(5, 4)])
def test_what_cannot_be_traced_is_refused_with_a_remedy(module):
    """Some fail in torch.export, some in torchax, which calls them when JAX traces."""
    pytest.importorskip("torchax")
    jax = pytest.importorskip("jax")
    x = torch.zeros(3, 2, dtype=torch.int64 if isinstance(module, torch.nn.EmbeddingBag) else torch.float32)
    said = f"source: torch.export and torchax cannot read {type(module).__name__} .*. Replace that part of"
    with pytest.raises(SettingsError, match=said):
        function, arguments, _ = as_jax(Call(module, (x,)))
        jax.eval_shape(function, *arguments)


def test_a_recurrent_layer_that_drops_values_is_refused():
    """Its export has no dropout, whatever the mode: another program was ranked without a word."""
    pytest.importorskip("torchax")
    x = torch.ones(3, 2, 4)
    module = torch.nn.LSTM(4, 4, num_layers=2, dropout=0.5)
    with pytest.raises(SettingsError, match=r"LSTM draws random numbers in training mode \(LSTM\)"):
        as_jax(Call(module, (x,)))
    as_jax(Call(module.eval(), (x,)))
    as_jax(Call(torch.nn.LSTM(4, 4, num_layers=2), (x,)))
