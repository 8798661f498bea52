"""Image classifiers: convolutions, repeated blocks, transformers over patches and windows.

A network ``(p, x, *, width, depth)`` takes weights and images as ``layers.py`` describes, and returns logits
(batch, classes). A block ``(p, x, features, stride)`` of :func:`staged` takes an image. It returns one of
``features`` features, or twice as many (ResNeXt, BoTNet), with height and width divided by ``stride``.
"""

import jax
import jax.numpy as jnp
from jax.nn import relu

from make_sample.zoo.layers import (
    attend,
    average_pool,
    batch_norm,
    classify,
    conv,
    dense,
    depthwise_conv,
    frozen_norm,
    layer_norm,
    max_pool,
    mlp,
    separable_conv,
    space_to_depth,
    squeeze_excite,
    transformer_layer,
)


def stem(p, x, features):
    """Apply the first convolution of a classifier, which halves height and width."""
    return relu(batch_norm(p, conv(p, x, features, 3, 2)))


def residual(p, x, y, stride):
    """Add a residual; a 1x1 convolution projects the input where the shapes differ."""
    if x.shape != y.shape:
        x = conv(p, x, y.shape[-1], 1, stride)
    return relu(x + y)


def resnet_basic(p, x, *, width, depth, excite=False):
    """ResNet with basic blocks of two 3x3 convolutions (arXiv:1512.03385)."""
    x = stem(p, x, width)
    for level in range(2):
        for block in range(depth):
            stride = 2 if level and not block else 1
            y = relu(batch_norm(p, conv(p, x, width << level, 3, stride)))
            y = batch_norm(p, conv(p, y, width << level))
            x = residual(p, x, squeeze_excite(p, y) if excite else y, stride)
    return classify(p, x)


def resnet_bottleneck(p, x, *, width, depth):
    """ResNet with bottleneck blocks of 1x1, 3x3 and 1x1 convolutions (arXiv:1512.03385)."""
    x = stem(p, x, width)
    for level in range(2):
        for block in range(depth):
            stride = 2 if level and not block else 1
            y = relu(batch_norm(p, conv(p, x, width << level, 1)))
            y = relu(batch_norm(p, conv(p, y, width << level, 3, stride)))
            x = residual(p, x, batch_norm(p, conv(p, y, 4 * width << level, 1)), stride)
    return classify(p, x)


def mobilenet(p, x, *, width, depth):
    """MobileNetV2: inverted bottlenecks of 1x1, depthwise and 1x1 convolutions (arXiv:1801.04381)."""
    x = jax.nn.relu6(conv(p, x, width, 3, 2))
    for level in range(2):
        for block in range(depth):
            y = jax.nn.relu6(conv(p, x, 4 * x.shape[-1], 1))
            y = jax.nn.relu6(depthwise_conv(p, y, 3, 1 if block else 2))
            y = conv(p, y, width << level, 1)
            x = x + y if x.shape == y.shape else y
    return classify(p, x)


def shufflenet(p, x, *, width, depth):
    """ShuffleNet V2: half of the features bypass a block, then channels are shuffled (arXiv:1807.11164)."""
    x = relu(conv(p, x, width, 3, 2))
    for _ in range(depth + 1):
        kept, y = jnp.split(x, 2, -1)
        y = depthwise_conv(p, relu(conv(p, y, width // 2, 1)))
        y = relu(conv(p, y, width // 2, 1))
        x = jnp.stack([kept, y], -1).reshape(x.shape)
    return classify(p, x)


def convnext(p, x, *, width, depth):
    """ConvNeXt: blocks of a depthwise 7x7 convolution, a layer norm and an MLP (arXiv:2201.03545)."""
    x = layer_norm(p, dense(p, space_to_depth(x, 4), width))
    for _ in range(depth):
        y = layer_norm(p, depthwise_conv(p, x, 7))
        x = x + dense(p, jax.nn.gelu(dense(p, y, 4 * width)), width)
    return classify(p, x)


def vgg(p, x, *, width, depth):
    """VGG: 3x3 convolutions and pooling, then dense layers on the flattened image (arXiv:1409.1556)."""
    for level in range(3):
        for _ in range(depth):
            x = relu(conv(p, x, width << level))
        x = max_pool(x)
    x = relu(dense(p, x.reshape(len(x), -1), 4 * width))
    return dense(p, x, 50)


def alexnet(p, x, *, width, depth):
    """AlexNet: five convolutions, the third ``depth`` times, and three dense layers (NeurIPS 2012)."""
    x = max_pool(relu(conv(p, x, width, 5, 2)), 3)
    x = max_pool(relu(conv(p, x, 3 * width, 5)), 3)
    for features in (*[6 * width] * depth, 4 * width, 4 * width):
        x = relu(conv(p, x, features))
    x = max_pool(x, 3).reshape(len(x), -1)
    for _ in range(2):
        x = relu(dense(p, x, 8 * width))
    return dense(p, x, 100)


def squeezenet(p, x, *, width, depth):
    """SqueezeNet: fire modules of a 1x1 squeeze and parallel 1x1 and 3x3 expansions (arXiv:1602.07360)."""
    x = max_pool(relu(conv(p, x, width, 3, 2)), 3)
    for level in range(depth + 1):
        squeezed = relu(conv(p, x, width // 2 * (level + 1), 1))
        expanded = [conv(p, squeezed, width * (level + 1), kernel) for kernel in (1, 3)]
        x = relu(jnp.concatenate(expanded, -1))
    return conv(p, x, 50, 1).mean((1, 2))


def inception(p, x, *, width, depth, stride=2, largest=5):
    """Inception: concatenated branches of 1x1, 3x3, 5x5 convolutions and pooling (arXiv:1409.4842)."""
    x = relu(conv(p, x, width, 3, stride))
    for _ in range(depth):
        single = conv(p, x, width, 1)
        triple = conv(p, relu(conv(p, x, width // 2, 1)), width)
        other = conv(p, relu(conv(p, x, width // 4, 1)), width // 2, largest)
        pooled = conv(p, max_pool(x, 3, 1), width // 2, 1)
        x = relu(jnp.concatenate([single, triple, other, pooled], -1))
    return classify(p, x)


def factorised_inception(p, x, *, width, depth):
    """Inception-v3: branches with 7x7 convolutions factorised into 1x7 and 7x1 (arXiv:1512.00567)."""
    x = relu(conv(p, x, width, 3, 2))
    for _ in range(depth):
        y = relu(conv(p, x, width // 2, 1))
        y = conv(p, relu(conv(p, y, width // 2, (1, 7))), width, (7, 1))
        x = relu(jnp.concatenate([conv(p, x, width, 1), y, average_pool(x, 1)], -1))
    return classify(p, max_pool(x))


def shortcut(p, x, y, stride):
    """Add a residual; a 1x1 convolution projects the input where the shapes differ."""
    return y + (x if x.shape == y.shape else conv(p, x, y.shape[-1], 1, stride))


def resnet_v2(p, x, features, stride):
    """ResNet v2: normalisation and activation come before each convolution (arXiv:1603.05027)."""
    y = conv(p, relu(frozen_norm(p, x)), features, 3, stride)
    return shortcut(p, x, conv(p, relu(frozen_norm(p, y)), features), stride)


def regnet(p, x, features, stride):
    """RegNetY: grouped convolutions with squeeze-and-excitation (arXiv:2003.13678).

    Returns:
        The image with ``features`` features, a multiple of 4, and height and width divided by ``stride``.
    """
    y = relu(conv(p, x, features, 1))
    y = squeeze_excite(p, relu(conv(p, y, features, 3, stride, groups=4)))
    return relu(shortcut(p, x, conv(p, y, features, 1), stride))


def efficientnet(p, x, features, stride):
    """EfficientNet: an inverted bottleneck with squeeze-and-excitation (arXiv:1905.11946)."""
    y = jax.nn.silu(conv(p, x, 4 * x.shape[-1], 1))
    y = squeeze_excite(p, jax.nn.silu(frozen_norm(p, depthwise_conv(p, y, 3, stride))))
    y = conv(p, y, features, 1)
    return x + y if x.shape == y.shape else y


def mnasnet(p, x, features, stride):
    """MnasNet: an inverted bottleneck with a 5x5 depthwise convolution (arXiv:1807.11626).

    Returns:
        The image with ``features`` features, and height and width divided by ``stride``.
    """
    y = relu(depthwise_conv(p, relu(conv(p, x, 3 * x.shape[-1], 1)), 5, stride))
    y = frozen_norm(p, conv(p, y, features, 1))
    return x + y if x.shape == y.shape else y


def efficientnet_v2(p, x, features, stride):
    """EfficientNetV2: inverted bottlenecks with one 3x3 convolution (arXiv:2104.00298).

    Returns:
        The image with ``features`` features, and height and width divided by ``stride``.
    """
    y = conv(p, jax.nn.silu(conv(p, x, 2 * x.shape[-1], 3, stride)), features, 1)
    return x + y if x.shape == y.shape else y


def xception(p, x, features, stride):
    """Xception: two depthwise separable convolutions and a shortcut (arXiv:1610.02357)."""
    y = separable_conv(p, relu(x), features, 3, stride)
    return shortcut(p, x, separable_conv(p, relu(y), features), stride)


def repvgg(p, x, features, stride):
    """RepVGG while training: 3x3 and 1x1 convolutions and the identity in parallel (arXiv:2101.03697)."""
    return relu(shortcut(p, x, frozen_norm(p, conv(p, x, features, 3, stride)), stride))


def ghostnet(p, x, features, stride):
    """GhostNet: half of the features are cheap depthwise images of the other half (arXiv:1911.11907)."""
    y = x
    for step in (stride, 1):
        y = relu(conv(p, y, features // 2, 1, step))
        y = jnp.concatenate([y, depthwise_conv(p, y)], -1)
    return shortcut(p, x, y, stride)


def res2net(p, x, features, stride):
    """Res2Net: parts of the features pass through a chain of 3x3 convolutions (arXiv:1904.01169)."""
    first, *parts = jnp.split(relu(conv(p, x, features, 1, stride)), 4, -1)
    chain, y = [first], 0
    for part in parts:
        y = relu(conv(p, part + y, features // 4))
        chain.append(y)
    return relu(shortcut(p, x, conv(p, jnp.concatenate(chain, -1), features, 1), stride))


def vovnet(p, x, features, stride):
    """VoVNet: a chain of convolutions whose outputs are concatenated once, at its end (arXiv:1904.09730)."""
    chain = [max_pool(x) if stride > 1 else x]
    for _ in range(3):
        chain.append(relu(conv(p, chain[-1], features // 2)))
    return relu(frozen_norm(p, conv(p, jnp.concatenate(chain, -1), features, 1)))


def cspnet(p, x, features, stride):
    """CSPNet: half of the features bypass two residual bottlenecks (arXiv:1911.11929)."""
    x = relu(conv(p, x, features, 3, stride)) if stride > 1 or x.shape[-1] != features else x
    kept, y = (relu(conv(p, x, features // 2, 1)) for _ in range(2))
    for _ in range(2):
        y = y + relu(conv(p, relu(conv(p, y, features // 2, 1)), features // 2))
    return relu(conv(p, jnp.concatenate([kept, y], -1), features, 1))


def nasnet(p, x, features, stride):
    """NASNet: a cell found by search, sums of separable convolutions and pooling (arXiv:1707.07012)."""
    x = conv(p, relu(x), features, 1, stride)
    left = separable_conv(p, relu(x), features) + separable_conv(p, relu(x), features, 5)
    right = max_pool(x, 3, 1) + separable_conv(p, relu(left), features)
    return conv(p, jnp.concatenate([left, right], -1), features, 1)


def inception_resnet(p, x, features, stride):
    """Inception-ResNet: branches of convolutions are projected and added to the input (arXiv:1602.07261)."""
    x = relu(conv(p, x, features, 3, stride)) if stride > 1 else x
    double = conv(p, relu(conv(p, x, features // 4, 1)), features // 2)
    triple = relu(conv(p, relu(conv(p, x, features // 4, 1)), features // 2))
    y = jnp.concatenate([conv(p, x, features // 2, 1), double, conv(p, triple, features // 2)], -1)
    return relu(x + conv(p, relu(y), x.shape[-1], 1))


def sknet(p, x, features, stride):
    """SKNet: a gate chooses between convolutions of two dilations for each feature (arXiv:1903.06586)."""
    y = relu(conv(p, x, features, 1, stride))
    branches = [relu(conv(p, y, features, 3, dilation=dilation)) for dilation in (1, 2)]
    summary = relu(sum(branches).mean((1, 2)) @ p(features, features // 2))
    gate = jax.nn.sigmoid(summary @ p(features // 2, features))[:, None, None]
    return relu(shortcut(p, x, conv(p, gate * branches[0] + (1 - gate) * branches[1], features, 1), stride))


def network_in_network(p, x, features, stride):
    """Network in Network: each convolution is followed by two of size 1x1 (arXiv:1312.4400).

    Returns:
        The image with ``features`` features, and height and width divided by ``stride``.
    """
    x = relu(conv(p, x, features, 3, stride))
    return relu(conv(p, relu(conv(p, x, features, 1)), features, 1))


def botnet(p, x, features, stride, heads=4):
    """BoTNet: self-attention between all pixels in a bottleneck, from one projection (arXiv:2101.11605).

    Returns:
        The image with twice ``features`` features, and height and width divided by ``stride``.
    """
    y = relu(conv(p, x, features, 1, stride))
    shape = (len(y), -1, heads, features // heads)
    q, k, v = (part.reshape(shape) for part in jnp.split(conv(p, y, 3 * features, 1), 3, -1))
    y = attend(q, k, v).reshape(y.shape)
    return relu(shortcut(p, x, conv(p, relu(y), 2 * features, 1), stride))


def coatnet(p, x, features, stride):
    """CoAtNet: inverted bottlenecks in the first stage, transformer layers after it (arXiv:2106.04803).

    Returns:
        The image with ``features`` features, and height and width divided by ``stride``.
    """
    if x.shape[1] > 4 and stride == 1:
        return efficientnet(p, x, features, stride)
    x = x if stride == 1 else conv(p, x, features, 1, stride)
    return transformer_layer(p, x.reshape(len(x), -1, features), 4).reshape(x.shape)


def conv_mixer(p, x, features, stride):
    """ConvMixer: a depthwise convolution over pixels, then a 1x1 convolution (arXiv:2201.09792)."""
    x = x if x.shape[-1] == features else conv(p, x, features, 2, stride)
    x = x + jax.nn.gelu(frozen_norm(p, depthwise_conv(p, x, 5)))
    return jax.nn.gelu(frozen_norm(p, conv(p, x, features, 1)))


def staged(p, x, *, width, depth, block, stages=2):
    """Image classifier: a stem, then stages of ``depth`` equal blocks, functions of this module.

    Args:
        p: Weights.
        x: Images.
        width: Features of the stem.
        depth: Blocks per stage.
        block: Name of the function that applies a block.
        stages: Number of stages; all but the first halve the image and double the features.
    """
    x = relu(frozen_norm(p, conv(p, x, width, 3, 2)))
    for stage in range(stages):
        for layer in range(depth):
            x = globals()[block](p, x, width << stage, 2 if stage and not layer else 1)
    return classify(p, x)


def patches(p, x, width, size=4):
    """Embed non-overlapping square patches of an image as a sequence, by a strided convolution."""
    x = conv(p, x, width, size, size)
    return x.reshape(len(x), -1, width)


def mixer(p, x, *, width, depth):
    """MLP-Mixer: MLPs over patches and over features in turn (arXiv:2105.01601).

    Returns:
        Logits (batch, 50).
    """
    x = patches(p, x, width)
    for _ in range(depth):
        x = x + mlp(p, layer_norm(p, x).swapaxes(1, 2), 96).swapaxes(1, 2)
        x = x + mlp(p, layer_norm(p, x), 2 * width)
    return dense(p, x.mean(1), 50)


def vision_transformer(p, x, *, width, depth, heads=4):
    """Vision Transformer (ViT): a transformer over the patches of an image (arXiv:2010.11929)."""
    x = patches(p, x, width)
    x = x + p(x.shape[1], width)
    for _ in range(depth):
        x = transformer_layer(p, x, heads)
    return dense(p, layer_norm(p, x).mean(1), 50)


def cut_windows(x, size):
    """Partition an image into square windows: (batch * windows, pixels, features)."""
    batch, height, breadth, features = x.shape
    x = x.reshape(batch, height // size, size, breadth // size, size, features)
    return x.swapaxes(2, 3).reshape(-1, size * size, features)


def join_windows(x, shape, size):
    """Join the windows of :func:`cut_windows` to an image of the given shape."""
    batch, height, breadth, features = shape
    x = x.reshape(batch, height // size, breadth // size, size, size, features)
    return x.swapaxes(2, 3).reshape(shape)


def window_transformer(p, x, *, width, depth, heads=4, size=4):
    """Swin Transformer: attention within windows that shift in every second layer (arXiv:2103.14030)."""
    x = conv(p, x, width, 2, 2)
    for layer in range(depth):
        shift = size // 2 * (layer % 2)
        y = cut_windows(jnp.roll(layer_norm(p, x), (-shift, -shift), (1, 2)), size)
        parts = jnp.split(dense(p, y, 3 * width), 3, -1)
        q, k, v = (part.reshape(*y.shape[:2], heads, -1) for part in parts)
        y = dense(p, attend(q, k, v, bias=p(heads, size**2, size**2)).reshape(y.shape), width)
        x = x + jnp.roll(join_windows(y, x.shape, size), (shift, shift), (1, 2))
        x = x + mlp(p, layer_norm(p, x), 2 * width)
    return dense(p, x.mean((1, 2)), 50)
