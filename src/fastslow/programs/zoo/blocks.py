"""Image classifiers of repeated blocks in two or more stages of equal shapes."""

import jax
import jax.numpy as jnp

from fastslow.programs.zoo.layers import (
    attend,
    classify,
    conv,
    depthwise_conv,
    frozen_norm,
    max_pool,
    separable_conv,
    squeeze_excite,
    transformer_layer,
)

relu = jax.nn.relu


def shortcut(p, x, y, stride):
    """Add a residual; a 1x1 convolution projects the input where the shapes differ."""
    return y + (x if x.shape == y.shape else conv(p, x, y.shape[-1], 1, stride))


def preactivation(p, x, features, stride):
    """ResNet v2: normalisation and activation come before each convolution (arXiv:1603.05027)."""
    y = conv(p, relu(frozen_norm(p, x)), features, 3, stride)
    return shortcut(p, x, conv(p, relu(frozen_norm(p, y)), features), stride)


def grouped(p, x, features, stride, groups=8):
    """ResNeXt: a bottleneck with a grouped 3x3 convolution (arXiv:1611.05431)."""
    y = relu(conv(p, x, features, 1))
    y = relu(frozen_norm(p, conv(p, y, features, 3, stride, groups=groups)))
    return relu(shortcut(p, x, conv(p, y, 2 * features, 1), stride))


def grouped_excite(p, x, features, stride):
    """RegNetY: grouped convolutions with squeeze-and-excitation (arXiv:2003.13678)."""
    y = relu(conv(p, x, features, 1))
    y = squeeze_excite(p, relu(conv(p, y, features, 3, stride, groups=4)))
    return relu(shortcut(p, x, conv(p, y, features, 1), stride))


def inverted(p, x, features, stride):
    """EfficientNet: an inverted bottleneck with squeeze-and-excitation (arXiv:1905.11946)."""
    y = jax.nn.silu(conv(p, x, 4 * x.shape[-1], 1))
    y = squeeze_excite(p, jax.nn.silu(frozen_norm(p, depthwise_conv(p, y, 3, stride))))
    y = conv(p, y, features, 1)
    return x + y if x.shape == y.shape else y


def inverted_wide(p, x, features, stride):
    """MnasNet: an inverted bottleneck with a 5x5 depthwise convolution (arXiv:1807.11626)."""
    y = relu(depthwise_conv(p, relu(conv(p, x, 3 * x.shape[-1], 1)), 5, stride))
    y = frozen_norm(p, conv(p, y, features, 1))
    return x + y if x.shape == y.shape else y


def fused_inverted(p, x, features, stride):
    """EfficientNetV2: inverted bottlenecks with one 3x3 convolution (arXiv:2104.00298)."""
    y = conv(p, jax.nn.silu(conv(p, x, 2 * x.shape[-1], 3, stride)), features, 1)
    return x + y if x.shape == y.shape else y


def separable(p, x, features, stride):
    """Xception: two depthwise separable convolutions and a shortcut (arXiv:1610.02357)."""
    y = separable_conv(p, relu(x), features, 3, stride)
    return shortcut(p, x, separable_conv(p, relu(y), features), stride)


def parallel(p, x, features, stride):
    """RepVGG while training: 3x3 and 1x1 convolutions and the identity in parallel (arXiv:2101.03697)."""
    return relu(shortcut(p, x, frozen_norm(p, conv(p, x, features, 3, stride)), stride))


def ghost(p, x, features, stride):
    """GhostNet: half of the features are cheap depthwise images of the other half (arXiv:1911.11907)."""
    y = x
    for step in (stride, 1):
        y = relu(conv(p, y, features // 2, 1, step))
        y = jnp.concatenate([y, depthwise_conv(p, y)], -1)
    return shortcut(p, x, y, stride)


def hierarchical(p, x, features, stride):
    """Res2Net: parts of the features pass through a chain of 3x3 convolutions (arXiv:1904.01169)."""
    first, *parts = jnp.split(relu(conv(p, x, features, 1, stride)), 4, -1)
    chain, y = [first], 0
    for part in parts:
        y = relu(conv(p, part + y, features // 4))
        chain.append(y)
    return relu(shortcut(p, x, conv(p, jnp.concatenate(chain, -1), features, 1), stride))


def aggregated(p, x, features, stride):
    """VoVNet: a chain of convolutions whose outputs are concatenated once, at its end (arXiv:1904.09730)."""
    chain = [max_pool(x) if stride > 1 else x]
    for _ in range(3):
        chain.append(relu(conv(p, chain[-1], features // 2)))
    return relu(frozen_norm(p, conv(p, jnp.concatenate(chain, -1), features, 1)))


def cross_stage(p, x, features, stride):
    """CSPNet: half of the features bypass two residual bottlenecks (arXiv:1911.11929)."""
    x = relu(conv(p, x, features, 3, stride)) if stride > 1 or x.shape[-1] != features else x
    kept, y = (relu(conv(p, x, features // 2, 1)) for _ in range(2))
    for _ in range(2):
        y = y + relu(conv(p, relu(conv(p, y, features // 2, 1)), features // 2))
    return relu(conv(p, jnp.concatenate([kept, y], -1), features, 1))


def searched_cell(p, x, features, stride):
    """NASNet: a cell found by search, sums of separable convolutions and pooling (arXiv:1707.07012)."""
    x = conv(p, relu(x), features, 1, stride)
    left = separable_conv(p, relu(x), features) + separable_conv(p, relu(x), features, 5)
    right = max_pool(x, 3, 1) + separable_conv(p, relu(left), features)
    return conv(p, jnp.concatenate([left, right], -1), features, 1)


def inception_residual(p, x, features, stride):
    """Inception-ResNet: branches of convolutions are projected and added to the input (arXiv:1602.07261)."""
    x = relu(conv(p, x, features, 3, stride)) if stride > 1 else x
    double = conv(p, relu(conv(p, x, features // 4, 1)), features // 2)
    triple = relu(conv(p, relu(conv(p, x, features // 4, 1)), features // 2))
    y = jnp.concatenate([conv(p, x, features // 2, 1), double, conv(p, triple, features // 2)], -1)
    return relu(x + conv(p, relu(y), x.shape[-1], 1))


def selective_kernel(p, x, features, stride):
    """SKNet: a gate chooses between convolutions of two dilations for each feature (arXiv:1903.06586)."""
    y = relu(conv(p, x, features, 1, stride))
    branches = [relu(conv(p, y, features, 3, dilation=dilation)) for dilation in (1, 2)]
    summary = relu(sum(branches).mean((1, 2)) @ p(features, features // 2))
    gate = jax.nn.sigmoid(summary @ p(features // 2, features))[:, None, None]
    return relu(shortcut(p, x, conv(p, gate * branches[0] + (1 - gate) * branches[1], features, 1), stride))


def network_in_network(p, x, features, stride):
    """Network in Network: each convolution is followed by two of size 1x1 (arXiv:1312.4400)."""
    x = relu(conv(p, x, features, 3, stride))
    return relu(conv(p, relu(conv(p, x, features, 1)), features, 1))


def attention_bottleneck(p, x, features, stride, heads=4):
    """BoTNet: self-attention between all pixels in a bottleneck, from one projection (arXiv:2101.11605)."""
    y = relu(conv(p, x, features, 1, stride))
    shape = (len(y), -1, heads, features // heads)
    q, k, v = (part.reshape(shape) for part in jnp.split(conv(p, y, 3 * features, 1), 3, -1))
    y = attend(q, k, v).reshape(y.shape)
    return relu(shortcut(p, x, conv(p, relu(y), 2 * features, 1), stride))


def convolution_then_attention(p, x, features, stride):
    """CoAtNet: inverted bottlenecks in the first stage, transformer layers after it (arXiv:2106.04803)."""
    if x.shape[1] > 4 and stride == 1:
        return inverted(p, x, features, stride)
    x = x if stride == 1 else conv(p, x, features, 1, stride)
    return transformer_layer(p, x.reshape(len(x), -1, features), 4).reshape(x.shape)


def depthwise_mixing(p, x, features, stride):
    """ConvMixer: a depthwise convolution over pixels, then a 1x1 convolution (arXiv:2201.09792)."""
    x = x if x.shape[-1] == features else conv(p, x, features, 2, stride)
    x = x + jax.nn.gelu(frozen_norm(p, depthwise_conv(p, x, 5)))
    return jax.nn.gelu(frozen_norm(p, conv(p, x, features, 1)))


BLOCKS = {
    "resnet_v2": preactivation,
    "wide_resnet": preactivation,
    "resnext": grouped,
    "regnet": grouped_excite,
    "efficientnet": inverted,
    "mnasnet": inverted_wide,
    "efficientnet_v2": fused_inverted,
    "xception": separable,
    "repvgg": parallel,
    "ghostnet": ghost,
    "res2net": hierarchical,
    "vovnet": aggregated,
    "cspnet": cross_stage,
    "nasnet": searched_cell,
    "inception_resnet": inception_residual,
    "sknet": selective_kernel,
    "network_in_network": network_in_network,
    "botnet": attention_bottleneck,
    "coatnet": convolution_then_attention,
    "conv_mixer": depthwise_mixing,
}


def staged(p, x, *, width, depth, block, stages=2, widen=1):
    """Image classifier: a stem, then stages of ``depth`` equal ``BLOCKS``, each halving height and width.

    Args:
        p: Weights.
        x: Images.
        width: Features of the stem.
        depth: Blocks per stage.
        block: Name in ``BLOCKS``.
        stages: Number of stages; all but the first halve the image and double the features.
        widen: Features of the first stage, in multiples of ``width`` (arXiv:1605.07146).
    """
    x = relu(frozen_norm(p, conv(p, x, width, 3, 2)))
    for stage in range(stages):
        for layer in range(depth):
            x = BLOCKS[block](p, x, widen * width << stage, 2 if stage and not layer else 1)
    return classify(p, x)
