"""JAX functions of two towers and of loops, to be placed; ``make`` for ``fastslow place``."""

import jax
import jax.numpy as jnp
import numpy as np

TABLE = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


@jax.custom_vjp
def rounded(x):
    return jnp.round(x * 8) / 8


rounded.defvjp(lambda x: (rounded(x), None), lambda _, g: (g,))


def network(weights, x):
    """Two towers, whose loss and gradients come back beside an argument, a constant and zeros."""

    def loss(weights):
        left = right = x
        for one, other in weights["layers"]:
            left = jax.nn.relu(left @ one) + rounded(right)
            right = jax.checkpoint(jnp.tanh)(right @ other) @ TABLE
        return (left * right).mean()

    value, slopes = jax.value_and_grad(loss)(weights)
    return {"loss": value, "slopes": slopes, "same": x, "table": jnp.asarray(TABLE), "zeros": jnp.zeros(3)}


def loops(weights, x):
    """A short loop backwards, one of unknown length, a branch and random numbers."""

    def step(state, row):
        state = jnp.sin(state @ row) + x
        return state, state.sum(0)

    state, sums = jax.lax.scan(step, x, weights["stack"], reverse=True)
    state = jax.lax.while_loop(lambda s: s.sum() < 3, lambda s: s + 1, state)
    state = jax.lax.cond(sums[0, 0] > 0, lambda s: s + 1, lambda s: s @ s, state)
    return state + jax.random.normal(jax.random.key(1), state.shape), sums, jax.lax.top_k(state, 2)


def arguments():
    rng = np.random.default_rng(0)

    def draw(*shape):
        return jnp.asarray(rng.standard_normal(shape), jnp.float32)

    return {"layers": [(draw(8, 8), draw(8, 8)) for _ in range(2)], "stack": draw(4, 8, 8)}, draw(8, 8)


def make():
    return network, arguments()
