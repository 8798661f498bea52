"""Networks with 3-D convolutions: segmentation of volumes and classification of videos.

Videos and volumes are (batch, depth or time, height, width, features).
"""

import jax
import jax.numpy as jnp

from fastslow.programs.zoo.layers import classify, conv, conv_transpose, frozen_norm, instance_norm, max_pool

relu = jax.nn.relu


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


def inflated_inception(p, x, *, width, depth):
    """I3D: Inception branches with 3-D convolutions and pooling (arXiv:1705.07750)."""
    x = relu(conv(p, x, width, 3, (1, 2, 2)))
    for _ in range(depth):
        single = conv(p, x, width, 1)
        triple = conv(p, relu(conv(p, x, width // 2, 1)), width)
        other = conv(p, relu(conv(p, x, width // 4, 1)), width // 2)
        pooled = conv(p, max_pool(x, 3, 1), width // 2, 1)
        x = relu(jnp.concatenate([single, triple, other, pooled], -1))
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
