"""Convolutions over time: audio, speech and other signals (batch, time, features)."""

import jax
import jax.numpy as jnp

from fastslow.programs.zoo.layers import conv, dense, frozen_norm
from fastslow.programs.zoo.recurrent import lstm_layer

relu = jax.nn.relu


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
