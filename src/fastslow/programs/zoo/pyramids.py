"""Networks that work at several resolutions: detectors, segmentation, optical flow and denoising."""

import jax
import jax.numpy as jnp

from fastslow.programs.zoo.dense import cut_windows
from fastslow.programs.zoo.layers import (
    attend,
    conv,
    conv_transpose,
    dense,
    frozen_norm,
    max_pool,
    shared,
    upsample,
)

relu = jax.nn.relu


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
