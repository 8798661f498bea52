"""Convolutional image classifiers."""

import jax
import jax.numpy as jnp

from fastslow.programs.zoo.layers import (
    average_pool,
    batch_norm,
    classify,
    conv,
    dense,
    depthwise_conv,
    layer_norm,
    max_pool,
    squeeze_excite,
)

relu = jax.nn.relu


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
    batch, height, breadth, features = x.shape
    patches = x.reshape(batch, height // 4, 4, breadth // 4, 4, features).swapaxes(2, 3)
    x = layer_norm(p, dense(p, patches.reshape(batch, height // 4, breadth // 4, -1), width))
    for _ in range(depth):
        y = layer_norm(p, depthwise_conv(p, x, 7))
        x = x + dense(p, jax.nn.gelu(dense(p, y, 4 * width)), width)
    return classify(p, x)


def densenet(p, x, *, width, depth):
    """DenseNet: every layer reads the outputs of all layers before it (arXiv:1608.06993)."""
    x = conv(p, x, 2 * width, 3, 2)
    for level in range(2):
        for _ in range(depth + 1):
            y = conv(p, relu(batch_norm(p, x)), 2 * width, 1)
            x = jnp.concatenate([x, conv(p, relu(y), width)], -1)
        if not level:
            x = average_pool(conv(p, x, x.shape[-1] // 2, 1))
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


def inception(p, x, *, width, depth):
    """Inception: concatenated branches of 1x1, 3x3, 5x5 convolutions and pooling (arXiv:1409.4842)."""
    x = relu(conv(p, x, width, 3, 2))
    for _ in range(depth):
        single = conv(p, x, width, 1)
        triple = conv(p, relu(conv(p, x, width // 2, 1)), width)
        quintuple = conv(p, relu(conv(p, x, width // 4, 1)), width // 2, 5)
        pooled = conv(p, max_pool(x, 3, 1), width // 2, 1)
        x = relu(jnp.concatenate([single, triple, quintuple, pooled], -1))
    return classify(p, x)


def factorised_inception(p, x, *, width, depth):
    """Inception-v3: branches with 7x7 convolutions factorised into 1x7 and 7x1 (arXiv:1512.00567)."""
    x = relu(conv(p, x, width, 3, 2))
    for _ in range(depth):
        y = relu(conv(p, x, width // 2, 1))
        y = conv(p, relu(conv(p, y, width // 2, (1, 7))), width, (7, 1))
        x = relu(jnp.concatenate([conv(p, x, width, 1), y, average_pool(x, 1)], -1))
    return classify(p, max_pool(x))
