"""Generators, discriminators and comparisons of images."""

import jax
import jax.numpy as jnp

from fastslow.programs.zoo.layers import (
    DIMENSIONS,
    average_pool,
    classify,
    conv,
    dense,
    frozen_norm,
    max_pool,
    shared,
    upsample,
)

relu = jax.nn.relu


def masked_conv(p, x, features, kernel=3):
    """Apply a convolution that sees the pixels above and to the left only (arXiv:1601.06759)."""
    middle = kernel // 2
    row, column = jnp.arange(kernel)[:, None], jnp.arange(kernel)
    seen = (row < middle) | ((row == middle) & (column < middle))
    weights = p(kernel, kernel, x.shape[-1], features) * seen[:, :, None, None].astype(x.dtype)
    return jax.lax.conv_general_dilated(x, weights, (1, 1), "SAME", dimension_numbers=DIMENSIONS[4])


def pixel_cnn(p, x, *, width, depth):
    """PixelCNN: gated residual blocks of masked convolutions predict each pixel (arXiv:1606.05328)."""
    x = conv(p, x, width, 1)
    for _ in range(depth):
        y = masked_conv(p, relu(conv(p, x, width // 2, 1)), width)
        value, gate = jnp.split(y, 2, -1)
        x = x + conv(p, jnp.tanh(value) * jax.nn.sigmoid(gate), width, 1)
    return conv(p, relu(conv(p, x, 2 * width, 1)), 48, 1)


def variational_autoencoder(p, x, noise, *, width, depth):
    """Convolutional VAE: a normally distributed code between residual stages (arXiv:1312.6114)."""
    for stage in range(2):
        x = relu(conv(p, x, width << stage, 3, 2))
        for _ in range(depth):
            x = x + conv(p, relu(x), width << stage)
    flat = x.reshape(len(x), -1)
    mean, scale = dense(p, flat, noise.shape[-1]), jax.nn.softplus(dense(p, flat, noise.shape[-1]))
    y = relu(dense(p, mean + scale * noise, flat.shape[-1])).reshape(x.shape)
    for stage in (1, 0):
        for _ in range(depth):
            y = y + conv(p, relu(y), y.shape[-1])
        y = relu(conv(p, upsample(y), width << stage))
    return conv(p, y, 3), mean, scale


def residual_generator(p, code, *, width, depth):
    """BigGAN-like generator: residual blocks whose norms depend on the code (arXiv:1809.11096)."""
    x = dense(p, code, 32 * width).reshape(len(code), 4, 4, 2 * width)
    for _ in range(2):
        x = upsample(x)
        for _ in range(depth):
            scale = dense(p, code, x.shape[-1])[:, None, None]
            y = conv(p, relu(x * scale), width)
            x = conv(p, x, width, 1) + conv(p, relu(frozen_norm(p, y)), width)
    return jnp.tanh(conv(p, relu(x), 3))


def discriminator(p, real, fake, *, width, depth):
    """GAN discriminator: one residual network judges real and generated images (arXiv:1802.05957)."""

    def judge(p, x):
        for stage in range(2):
            x = conv(p, x, width << stage, 1)
            for _ in range(depth):
                x = x + conv(p, relu(conv(p, relu(x), width << stage)), width << stage)
            x = average_pool(x)
        return classify(p, jax.nn.leaky_relu(x), 1)

    judge = shared(p, judge, real)
    return relu(1 - judge(real)), relu(1 + judge(fake))


def siamese(p, first, second, *, width, depth):
    """Siamese network: distances between the embeddings of two images (arXiv:1503.03832)."""

    def encoder(p, x):
        x = relu(conv(p, x, width, 5, 2))
        for _ in range(depth):
            x = relu(conv(p, relu(conv(p, x, 2 * width)), width, 1))
        return dense(p, max_pool(x).reshape(len(x), -1), width)

    encode = shared(p, encoder, first)
    x, y = encode(first), encode(second)
    return dense(p, jnp.abs(x - y), 1), x, y
