"""Networks that map images to images, to codes or to many outputs; generators and discriminators."""

import math

import jax
import jax.numpy as jnp

from fastslow.programs.zoo.layers import (
    DIMENSIONS,
    attend,
    average_pool,
    batch_norm,
    classify,
    conv,
    conv_transpose,
    dense,
    frozen_norm,
    instance_norm,
    max_pool,
    shared,
    upsample,
)

relu = jax.nn.relu


def unet(p, x, *, width, depth):
    """U-Net: encoder and decoder with skip connections at equal resolution (arXiv:1505.04597)."""
    skips = []
    for level in range(depth + 1):
        x = relu(conv(p, x, width << level))
        x = relu(conv(p, x, width << level))
        skips.append(x)
        x = max_pool(x)
    x = skips.pop()
    for level in reversed(range(depth)):
        x = jnp.concatenate([conv(p, upsample(x), width << level, 2), skips.pop()], -1)
        x = relu(conv(p, x, width << level))
    return conv(p, x, 5, 1)


def autoencoder(p, x, *, width, depth):
    """Convolutional autoencoder with a short code."""
    features = x.shape[-1]
    for level in range(depth + 1):
        x = relu(conv(p, x, width << level, 3, 2))
    image = x.shape
    code = dense(p, x.reshape(len(x), -1), width)
    x = relu(dense(p, code, math.prod(image[1:]))).reshape(image)
    for level in reversed(range(depth + 1)):
        x = relu(conv(p, upsample(x), width << level))
    return conv(p, x, features)


def generator(p, code, *, width, depth):
    """DCGAN generator: transposed convolutions from a code to an image (arXiv:1511.06434)."""
    x = dense(p, code, 16 * (width << depth)).reshape(len(code), 4, 4, width << depth)
    for level in reversed(range(depth + 1)):
        x = relu(batch_norm(p, conv_transpose(p, x, width << level)))
    return jnp.tanh(conv_transpose(p, x, 3))


def super_resolution(p, x, *, width, depth, scale=2):
    """Super-resolution: residual blocks (arXiv:1707.02921) and a sub-pixel convolution (arXiv:1609.05158)."""
    batch, height, breadth, channels = x.shape
    y = conv(p, x, width)
    for _ in range(depth + 1):
        y = y + conv(p, relu(conv(p, y, width)), width)
    y = conv(p, y, scale * scale * channels).reshape(batch, height, breadth, scale, scale, channels)
    y = y.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height * scale, breadth * scale, channels)
    return y + upsample(x, scale)


def detector(p, x, *, width, depth, anchors=3, classes=6):
    """RetinaNet: feature pyramid with box and class heads shared by all levels (arXiv:1708.02002)."""
    maps = []
    for level in range(2 + depth):
        x = relu(conv(p, x, width * (level + 1), 3, 2))
        maps.append(x)
    lateral = [conv(p, image, width, 1) for image in maps[1:]]
    for level in reversed(range(len(lateral) - 1)):
        lateral[level] += upsample(lateral[level + 1])
    heads = []
    for outputs in (4, classes):
        scores = [conv(p, relu(conv(p, image, width)), anchors * outputs) for image in lateral]
        heads.append(jnp.concatenate([image.reshape(len(image), -1, outputs) for image in scores], 1))
    return heads[0], jax.nn.log_softmax(heads[1].astype(jnp.float32))


def segmenter(p, x, *, width, depth):
    """DeepLabv3: atrous spatial pyramid of parallel dilated convolutions (arXiv:1706.05587)."""
    for _ in range(depth):
        x = relu(batch_norm(p, conv(p, x, width, 3, 2)))
    branches = [conv(p, x, width, 3, dilation=dilation) for dilation in (1, 2, 4)]
    mean = jnp.broadcast_to(dense(p, x.mean((1, 2), keepdims=True), width), x.shape[:3] + (width,))
    x = relu(conv(p, jnp.concatenate([*branches, mean], -1), width, 1))
    return upsample(conv(p, x, 10, 1), 2**depth)


def style_transfer(p, x, *, width, depth):
    """Style transfer: residual network with instance norm, and its Gram matrix (arXiv:1603.08155)."""
    x = relu(instance_norm(p, conv(p, x, width, 5, 2)))
    for _ in range(depth + 1):
        y = relu(instance_norm(p, conv(p, x, width)))
        x = x + instance_norm(p, conv(p, y, width))
    pixels = x.reshape(len(x), -1, width)
    gram = jnp.einsum("bpc,bpd->bcd", pixels, pixels) / pixels.shape[1]
    return conv(p, upsample(x), 3), gram


def hourglass(p, x, *, width, depth):
    """Stacked hourglass network for key points: downsample, upsample, residual (arXiv:1603.06937)."""
    x = relu(conv(p, x, width, 3, 2))
    for _ in range(depth):
        y = relu(conv(p, max_pool(x), 2 * width))
        y = upsample(relu(conv(p, relu(conv(p, max_pool(y), 2 * width)), 2 * width)))
        y = relu(conv(p, y, width))
        x = relu(conv(p, x, width, 1)) + upsample(y)
    return conv(p, x, 17, 1)


def non_local(p, x, *, width, depth):
    """Non-local network: convolutions with attention between all pixels (arXiv:1711.07971)."""
    x = relu(conv(p, x, width, 3, 2))
    for _ in range(depth):
        y = relu(conv(p, x, width))
        q, k, v = (conv(p, y, width // 2, 1).reshape(len(x), -1, 1, width // 2) for _ in range(3))
        x = x + conv(p, attend(q, k, v).reshape(*x.shape[:3], -1), width, 1)
    return classify(p, x)


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
