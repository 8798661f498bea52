"""Networks that map images to images, or to many outputs per image."""

import math

import jax
import jax.numpy as jnp

from fastslow.programs.zoo.layers import (
    attend,
    batch_norm,
    classify,
    conv,
    conv_transpose,
    dense,
    instance_norm,
    max_pool,
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
