"""Networks over time: recurrent ones as scans, and convolutions of audio, speech and other signals.

A network ``(p, x, *, width, depth)`` takes weights and a sequence, a video or tokens, as ``layers.py``
describes. It returns logits (batch, classes), or (batch, time, classes) where it labels every moment.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import relu

from make_sample.zoo.layers import DIMENSIONS, conv, dense, embed, frozen_norm, softmax


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
    """ConvLSTM on a video (batch, time, height, width, features) (arXiv:1506.04214).

    Returns:
        Logits (batch, time, 20).
    """
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


def causal_conv(p, x, features, kernel=2, dilation=1):
    """Apply a dilated convolution over axis 1 of (batch, time, 1, features) that does not look ahead."""
    past = (kernel - 1) * dilation
    padded = jnp.pad(x, ((0, 0), (2 * past, 0), (0, 0), (0, 0)))
    y = conv(p, padded, features, (kernel, 1), dilation=dilation)
    return y[:, past + past // 2 : past + past // 2 + x.shape[1]]


def wavenet(p, x, *, width, depth):
    """WaveNet: gated dilated causal convolutions with skips to the output (arXiv:1609.03499)."""
    x = conv(p, x[:, :, None], width, 1)
    skips = 0
    for layer in range(depth):
        value, gate = (causal_conv(p, x, width, 2, 2 << layer % 3) for _ in range(2))
        y = jnp.tanh(value) * jax.nn.sigmoid(gate)
        skips = skips + conv(p, y, 2 * width, 1)
        x = x + conv(p, y, width, 1)
    return conv(p, relu(conv(p, relu(skips), 2 * width, 1)), 64, 1)[:, :, 0]


def temporal_network(p, x, *, width, depth):
    """TCN: residual blocks of two dilated causal convolutions (arXiv:1803.01271)."""
    x = conv(p, x[:, :, None], width, 1)
    for layer in range(depth):
        y = relu(causal_conv(p, x, width, 3, 1 << layer % 3))
        x = relu(x + causal_conv(p, y, width, 3, 1 << layer % 3))
    return dense(p, x[:, -1, 0], 20)


def speech_network(p, x, *, width, depth):
    """QuartzNet: residual blocks of separable convolutions over time, for speech (arXiv:1910.10261)."""
    x = relu(conv(p, x[:, :, None], width, (5, 1), (2, 1)))
    for _ in range(depth):
        y = x
        for _ in range(2):
            y = conv(p, y, width, (7, 1), groups=width)
            y = relu(frozen_norm(p, conv(p, y, width, 1)))
        x = conv(p, x, width, 1) + y
    return conv(p, relu(conv(p, x, 2 * width, 1)), 29, 1)[:, :, 0]


def source_separation(p, x, *, width, depth):
    """Wave-U-Net: a U-Net over time with a skip at every resolution (arXiv:1806.03185)."""
    x, skips = x[:, :, None, :], []
    for level in range(depth + 1):
        x = relu(conv(p, x, width * (level + 1), (5, 1)))
        skips.append(x)
        x = relu(conv(p, x, width * (level + 1), (3, 1), (2, 1)))
    for level in reversed(range(depth + 1)):
        x = jnp.concatenate([jnp.repeat(x, 2, 1), skips.pop()], -1)
        x = relu(conv(p, x, width * (level + 1), (5, 1)))
    return conv(p, x, 4, 1)[:, :, 0]


def text_in_images(p, x, *, width, depth):
    """CRNN: convolutions, then bidirectional LSTMs along the columns of an image (arXiv:1507.05717)."""
    for _ in range(2):
        x = relu(conv(p, relu(conv(p, x, width)), width, 3, (2, 1)))
    x = x.swapaxes(1, 2).reshape(len(x), x.shape[2], -1)
    for _ in range(depth):
        x = jnp.concatenate([lstm_layer(p, x, width), lstm_layer(p, x, width, reverse=True)], -1)
    return dense(p, x, 37)
