"""JAX functions in forms that the zoo of the sample lacks, and programs of the zoo's test split.

The zoo has networks with features last and a batch axis, and steps of gradient descent.
"""

import sys
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from fastslow.core.settings import PROJECT

ZOO = ("graph_network", "shufflenet", "regnet", "non_local", "cached_decoder")
"""Families of the zoo's test split, of which the first program is taken."""


def images(pictures, first, second, third, head):
    """Gradients of convolutions as PyTorch orders them: features first, ``x @ w.T``."""

    def loss(first, second, third, head):
        x = pictures
        for weights, stride in ((first, 1), (second, 2), (third, 1)):
            y = lax.conv(x, weights, (stride, stride), "SAME")
            x = jax.nn.relu(y - y.mean((0, 2, 3), keepdims=True)) * 0.1
        return jnp.square(x.reshape(len(x), -1) @ head.T).mean()

    return jax.grad(loss, (0, 1, 2, 3))(first, second, third, head)


def private(pictures, targets, first, second, last):
    """The gradient of each example by itself, clipped and averaged, as differential privacy needs it."""

    def loss(weights, picture, target):
        first, second, last = weights
        x = jnp.tanh(lax.conv(picture[None], first, (2, 2), "SAME"))
        x = jnp.tanh(lax.conv(x, second, (2, 2), "SAME")).reshape(-1, len(last))
        return jnp.square(x @ last - target).sum()

    gradients = jax.vmap(jax.grad(loss), (None, 0, 0))((first, second, last), pictures, targets)
    norms = jnp.sqrt(sum(jnp.square(g).sum(range(1, g.ndim)) for g in gradients))
    return [jnp.tensordot(1 / (1 + norms), g, 1) for g in gradients]


def curvature(points, first, second, last):
    """The Laplacian of a network at points, as equations of physics need it."""

    def value(x):
        return last @ jnp.tanh(second @ jnp.tanh(first @ x))

    return jax.vmap(lambda x: jnp.trace(jax.hessian(value)(x)))(points)


def products(left, right, core, frames):
    """Tensor products without a network: bilinear forms, a chain of matrices, and correlations."""
    form = jnp.einsum("bi,ijk,bj->bk", left, core, right)
    steps = jnp.einsum("bij,bjk,bkl->bil", frames, frames.transpose(0, 2, 1), frames)
    parts = steps.reshape(len(steps), 4, -1, steps.shape[2])
    return form @ form.T, jnp.einsum("bpij,bqij->bpq", parts, parts)


def transport(left, right, weights):
    """Optimal transport between two clouds of points: distances, and twenty scalings in a loop."""
    x, y = (jnp.tensordot(cloud, weights, (2, 1)) for cloud in (left, right))
    cost = jnp.square(x).sum(2)[:, :, None] + jnp.square(y).sum(2)[:, None] - 2 * x @ y.mT
    kernel = jnp.exp(-cost / (1 + cost.mean()))

    def scaled(_, v):
        u = 1 / jnp.einsum("bij,bj->bi", kernel, v)
        return 1 / jnp.einsum("bij,bi->bj", kernel, u)

    v = lax.fori_loop(0, 20, scaled, jnp.ones(y.shape[:2]))
    return jnp.einsum("bij,bj,bjf->bif", kernel, v, y)


_SHAPES = {
    products: ((64, 48), (64, 40), (48, 40, 96), (16, 64, 80)),
    images: ((4, 8, 16, 16), (16, 8, 3, 3), (32, 16, 3, 3), (32, 32, 3, 3), (10, 2048)),
    private: ((8, 8, 8, 8), (8, 12), (16, 8, 3, 3), (24, 16, 3, 3), (24, 12)),
    curvature: ((32, 16), (96, 16), (64, 96), (64,)),
    transport: ((8, 128, 32), (8, 160, 32), (48, 32)),
}


def own_programs() -> dict[str, tuple[Callable, list]]:
    """Return by name the functions of this file with their arguments; nothing is computed."""
    shape = partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    return {function.__name__: (function, [*map(shape, shapes)]) for function, shapes in _SHAPES.items()}


def held_out() -> dict[str, tuple[Callable, tuple]]:
    """Return the same of the zoo's programs."""
    sys.path.append(str(PROJECT / "data"))  # the zoo is no installed package
    from make_sample.zoo.families import FAMILIES

    families = {family.name: family for family in FAMILIES}
    return {f"zoo {name}": families[name].build(families[name].small[0]) for name in ZOO}
