"""Programs of batched products, transposes and reshapes, in float32 and small enough to run in milliseconds.

They are measured on a machine (``make sample LABELS=device``); the committed sample has none of them.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np


def transposed_products(size: int) -> tuple[Callable, tuple]:
    """Return products of transposed matrices, as JAX writes them down."""

    def chain(a, b, c):
        first = jnp.einsum("bij,bkj->bik", a, b)
        return jnp.einsum("bik,bkl->lbi", first, c).reshape(size, -1).T @ a.reshape(size, -1)[:, :8]

    return chain, _shapes((size, size, size), (size, size, size), (size, size, size))


def split_heads(size: int) -> tuple[Callable, tuple]:
    """Return attention whose heads are split and joined by reshapes and transposes.

    Args:
        size: Length of the sequence.

    Returns:
        The function and the shapes of its arguments, float32.
    """

    def attend(x, w, v):
        q, k, u = jnp.split((x @ w).reshape(4, size, 3 * 8, -1).transpose(0, 2, 1, 3), 3, 1)
        weights = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2))
        return (weights @ u).transpose(0, 2, 1, 3).reshape(4, size, -1) @ v

    return attend, _shapes((4, size, 64), (64, 192), (64, 64))


def mixing(size: int) -> tuple[Callable, tuple]:
    """Return layers that mix tokens and channels in turn, with a reshape between them."""

    def mix(x, w, v):
        for _ in range(3):
            x = x + jax.nn.gelu(jnp.einsum("btc,ts->bsc", x, w))
            x = x + jax.nn.gelu((x.reshape(-1, x.shape[-1]) @ v).reshape(x.shape))
        return x

    return mix, _shapes((8, size, 96), (size, size), (96, 96))


def _shapes(*shapes: tuple[int, ...]) -> tuple:
    return tuple(jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes)
