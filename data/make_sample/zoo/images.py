"""Networks that map images or volumes to images, codes, boxes or classes; generators and discriminators.

A network ``(p, x, *, width, depth)`` takes weights and images or volumes as ``layers.py`` describes. It
returns an image of some features, logits (batch, classes), or the parts that its docstring names.
"""

import jax
import jax.numpy as jnp
from jax.nn import relu

from make_sample.zoo.classifiers import cut_windows
from make_sample.zoo.layers import (
    DIMENSIONS,
    attend,
    average_pool,
    batch_norm,
    classify,
    conv,
    conv_transpose,
    dense,
    depth_to_space,
    frozen_norm,
    instance_norm,
    max_pool,
    shared,
    upsample,
)


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


def super_resolution(p, x, *, width, depth, scale=2):
    """Super-resolution: residual blocks (arXiv:1707.02921) and a sub-pixel convolution (arXiv:1609.05158)."""
    y = conv(p, x, width)
    for _ in range(depth + 1):
        y = y + conv(p, relu(conv(p, y, width)), width)
    return depth_to_space(conv(p, y, scale * scale * x.shape[-1]), scale) + upsample(x, scale)


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


def single_shot(p, x, *, width, depth, anchors=4, outputs=10):
    """SSD: every scale has a box predictor of its own (arXiv:1512.02325)."""
    boxes = []
    for _ in range(3):
        x = relu(conv(p, x, 2 * width, 3, 2))
        for _ in range(depth):
            x = relu(conv(p, relu(conv(p, x, width, 1)), 2 * width))
        boxes.append(conv(p, x, anchors * outputs).reshape(len(x), -1, outputs))
    return jnp.concatenate(boxes, 1)


def yolo(p, x, *, width, depth, outputs=30):
    """YOLOv3: a Darknet of residual blocks and predictions at two scales (arXiv:1804.02767)."""
    x, scales = relu(conv(p, x, width)), []
    for stage in (1, 2):
        x = relu(conv(p, x, width << stage, 3, 2))
        for _ in range(depth):
            x = x + relu(conv(p, relu(conv(p, x, x.shape[-1] // 2, 1)), x.shape[-1]))
        scales.append(x)
    fine, coarse = scales
    coarse = relu(conv(p, coarse, 2 * width, 1))
    fine = jnp.concatenate([fine, upsample(relu(conv(p, coarse, width, 1)))], -1)
    fine = relu(conv(p, relu(conv(p, fine, width, 1)), 2 * width))
    return conv(p, relu(conv(p, coarse, 4 * width)), outputs, 1), conv(p, fine, outputs, 1)


def region_heads(p, x, *, width, depth, size=4):
    """Mask R-CNN's heads: boxes by dense layers, masks by convolutions, per region (arXiv:1703.06870)."""
    x = relu(conv(p, x, width, 3, 2))
    for _ in range(depth):
        x = x + conv(p, relu(conv(p, x, width)), width)
    regions = cut_windows(x, size)
    boxes = relu(dense(p, regions.reshape(len(x), -1, size * size * width), 4 * width))
    boxes = dense(p, relu(dense(p, boxes, 4 * width)), 24)
    masks = regions.reshape(-1, size, size, width)
    for _ in range(depth):
        masks = relu(conv(p, masks, width))
    masks = conv(p, relu(conv_transpose(p, masks, width, 2)), 6, 1)
    return boxes, masks.reshape(len(x), -1, *masks.shape[1:])


def parallel_resolutions(p, x, *, width, depth):
    """HRNet: branches of high and low resolution exchange features in every block (arXiv:1908.07919)."""
    high = relu(conv(p, x, width, 3, 2))
    low = relu(conv(p, high, 2 * width, 3, 2))
    for _ in range(depth):
        high = relu(high + conv(p, relu(conv(p, high, width)), width))
        low = relu(low + conv(p, relu(conv(p, low, 2 * width)), 2 * width))
        from_low, from_high = conv(p, low, width, 1), conv(p, high, 2 * width, 3, 2)
        high, low = relu(high + upsample(from_low)), relu(low + from_high)
    return conv(p, jnp.concatenate([high, upsample(low)], -1), 17, 1)


def optical_flow(p, first, second, *, width, depth):
    """RAFT: a shared update refines the flow from correlations of all pairs of pixels (arXiv:2003.12039)."""

    def encoder(p, x):
        x = relu(conv(p, x, width, 3, 2))
        x = relu(conv(p, relu(conv(p, x, width)), width, 3, 2))
        return conv(p, x, width, 1)

    def update(p, x):
        return conv(p, relu(conv(p, relu(conv(p, x, width)), width)), 2)

    encode = shared(p, encoder, first)
    x, y = encode(first), encode(second)
    pixels = x.shape[1] * x.shape[2]
    pairs = jnp.einsum("bpc,bqc->bpq", x.reshape(len(x), pixels, width), y.reshape(len(y), pixels, width))
    features = jnp.concatenate([x, pairs.reshape(*x.shape[:3], pixels)], -1)
    flow = jnp.zeros((*x.shape[:3], 2), x.dtype)
    refine = shared(p, update, jnp.concatenate([features, flow], -1))
    for _ in range(depth + 1):
        flow = flow + refine(jnp.concatenate([features, flow], -1))
    return flow


def denoiser(p, x, noise, *, width, depth):
    """Diffusion model: a U-Net with attention that knows the level of noise (arXiv:2006.11239)."""
    level = relu(dense(p, noise, 2 * width))

    def block(x, features):
        y = conv(p, jax.nn.silu(frozen_norm(p, x)), features) + dense(p, level, features)[:, None, None]
        y = conv(p, jax.nn.silu(y), features)
        return y + (x if x.shape == y.shape else conv(p, x, features, 1))

    x = conv(p, x, width, 3, 2)
    for _ in range(depth):
        x = block(x, width)
    y = block(max_pool(x), 2 * width)
    q, k, v = (conv(p, y, width, 1).reshape(len(y), -1, 1, width) for _ in range(3))
    y = y + conv(p, attend(q, k, v).reshape(*y.shape[:3], width), 2 * width, 1)
    x = jnp.concatenate([x, upsample(y)], -1)
    for _ in range(depth):
        x = block(x, width)
    return conv(p, upsample(x), 3)


def volume_unet(p, x, *, width, depth):
    """3D U-Net: two convolutions a level, down by pooling and up with skips (arXiv:1606.06650)."""
    skips = []
    for level in range(depth):
        for _ in range(2):
            x = relu(instance_norm(p, conv(p, x, width << level)))
        skips.append(x)
        x = max_pool(x)
    for _ in range(2):
        x = relu(instance_norm(p, conv(p, x, width << depth)))
    for level in reversed(range(depth)):
        x = conv_transpose(p, x, width << level, 2)
        x = jnp.concatenate([skips[level], x], -1)
        for _ in range(2):
            x = relu(instance_norm(p, conv(p, x, width << level)))
    return conv(p, x, 3, 1)


def residual_volumes(p, x, *, width, depth):
    """V-Net: residual stages that strided convolutions connect, down and up (arXiv:1606.04797)."""
    skips, x = [], conv(p, x, width, 5)
    for level in range(2):
        y = x
        for _ in range(depth):
            y = relu(conv(p, y, width << level))
        skips.append(x + y)
        x = relu(conv(p, skips[-1], 2 * width << level, 2, 2))
    for level in (1, 0):
        x = jnp.concatenate([relu(conv_transpose(p, x, width << level, 2)), skips[level]], -1)
        y = conv(p, x, width << level, 1)
        x = y + relu(conv(p, y, width << level))
    return conv(p, x, 2, 1)


def plain_video(p, x, *, width, depth):
    """C3D: 3x3x3 convolutions and pooling, then dense layers (arXiv:1412.0767)."""
    for level in range(3):
        for _ in range(depth):
            x = relu(conv(p, x, width << level))
        x = max_pool(x)
    return classify(p, x)


def factorised_video(p, x, *, width, depth):
    """R(2+1)D: residual blocks of convolutions over space and over time (arXiv:1711.11248)."""

    def block(x, features, stride):
        y = relu(frozen_norm(p, conv(p, x, features, (1, 3, 3), (1, stride, stride))))
        return frozen_norm(p, conv(p, y, features, (3, 1, 1), (stride, 1, 1)))

    x = relu(block(x, width, 1))
    for level in range(2):
        for repeat in range(depth):
            stride = 2 if level and not repeat else 1
            y = block(relu(block(x, width << level, stride)), width << level, 1)
            x = relu(y + (x if x.shape == y.shape else conv(p, x, width << level, 1, stride)))
    return classify(p, x)


def two_rates(p, x, *, width, depth):
    """SlowFast: a wide pathway on few frames and a narrow one on all, connected (arXiv:1812.03982)."""
    slow, fast = conv(p, x[:, ::4], width, (1, 3, 3), (1, 2, 2)), conv(p, x, width // 4, 3, (1, 2, 2))
    for level in range(2):
        for _ in range(depth):
            slow = slow + conv(p, relu(conv(p, slow, slow.shape[-1], (1, 3, 3))), slow.shape[-1], 1)
            fast = fast + conv(p, relu(conv(p, fast, fast.shape[-1], (3, 1, 1))), fast.shape[-1], (1, 3, 3))
        lateral = conv(p, fast, width // 2, (5, 1, 1), (4, 1, 1))
        slow = relu(jnp.concatenate([slow, lateral], -1))
        if not level:
            slow = conv(p, slow, 2 * width, 1, (1, 2, 2))
            fast = conv(p, relu(fast), width // 2, 1, (1, 2, 2))
    return classify(p, jnp.concatenate([slow.mean(1), fast.mean(1)], -1))
