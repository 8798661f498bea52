"""Recurrent networks, as scans over time."""

import jax
import jax.numpy as jnp
from jax import lax

from fastslow.programs.zoo.layers import DIMENSIONS, dense, embed, softmax


def lstm_cell(cell, gates):
    """Return the new hidden state and cell of an LSTM, given the old cell and the inputs of the gates."""
    update, forget, candidate, output = jnp.split(gates, 4, -1)
    cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(update) * jnp.tanh(candidate)
    return jax.nn.sigmoid(output) * jnp.tanh(cell), cell


def lstm_layer(p, x, width, reverse=False):
    """Apply an LSTM (Hochreiter and Schmidhuber 1997) to a sequence; returns (batch, time, width)."""
    inputs, recurrent = dense(p, x, 4 * width), p(width, 4 * width)

    def step(state, gates):
        state = lstm_cell(state[1], gates + state[0] @ recurrent)
        return state, state[0]

    zeros = jnp.zeros((len(x), width), x.dtype)
    _, outputs = lax.scan(step, (zeros, zeros), inputs.swapaxes(0, 1), reverse=reverse)
    return outputs.swapaxes(0, 1)


def gru_layer(p, x, width):
    """Apply a gated recurrent unit (arXiv:1406.1078) to a sequence; returns (batch, time, width)."""
    inputs, recurrent = dense(p, x, 3 * width), p(width, 3 * width)

    def step(hidden, gates):
        reset, update, candidate = jnp.split(gates, 3, -1)
        from_reset, from_update, from_candidate = jnp.split(hidden @ recurrent, 3, -1)
        update = jax.nn.sigmoid(update + from_update)
        candidate = jnp.tanh(candidate + jax.nn.sigmoid(reset + from_reset) * from_candidate)
        hidden = update * hidden + (1 - update) * candidate
        return hidden, hidden

    _, outputs = lax.scan(step, jnp.zeros((len(x), width), x.dtype), inputs.swapaxes(0, 1))
    return outputs.swapaxes(0, 1)


def lstm(p, x, *, width, depth):
    """Stacked LSTM on a sequence of vectors (Hochreiter and Schmidhuber 1997)."""
    for _ in range(depth):
        x = lstm_layer(p, x, width)
    return dense(p, x, 30)


def gru(p, x, *, width, depth):
    """Stacked GRU on a sequence of vectors (arXiv:1406.1078)."""
    for _ in range(depth):
        x = gru_layer(p, x, width)
    return dense(p, x.reshape(len(x), -1), 30)


def conv_lstm(p, x, *, width, depth):
    """ConvLSTM on a video (batch, time, height, width, features) (arXiv:1506.04214)."""
    for _ in range(depth):
        kernels = p(3, 3, x.shape[-1], 4 * width), p(3, 3, width, 4 * width)

        def step(state, image, kernels=kernels):
            gates = [
                lax.conv_general_dilated(array, kernel, (1, 1), "SAME", dimension_numbers=DIMENSIONS[4])
                for array, kernel in zip((image, state[0]), kernels, strict=True)
            ]
            state = lstm_cell(state[1], sum(gates))
            return state, state[0]

        zeros = jnp.zeros((x.shape[0], *x.shape[2:4], width), x.dtype)
        _, outputs = lax.scan(step, (zeros, zeros), x.swapaxes(0, 1))
        x = outputs.swapaxes(0, 1)
    return dense(p, x.mean((2, 3)), 20)


def tagger(p, tokens, *, width, depth):
    """Bidirectional LSTM with CRF potentials of adjacent tags (arXiv:1508.01991)."""
    x, _ = embed(p, tokens, width)
    for _ in range(depth):
        x = jnp.concatenate([lstm_layer(p, x, width), lstm_layer(p, x, width, reverse=True)], -1)
    tags = dense(p, x, 12)
    return tags[:, 1:, :, None] + tags[:, :-1, None, :] + p(12, 12)


def translator(p, source, target, *, width, depth):
    """LSTM encoder-decoder with multiplicative attention (arXiv:1508.04025)."""
    x, table = embed(p, source, width)
    y = table[target]
    for _ in range(depth):
        x = lstm_layer(p, x, width)
        y = lstm_layer(p, y, width)
    weights = softmax(jnp.einsum("btd,bsd->bts", y @ p(width, width), x))
    context = jnp.einsum("bts,bsd->btd", weights, x)
    return jnp.tanh(dense(p, jnp.concatenate([y, context], -1), width)) @ table.T
