"""Layers of the zoo's networks, in plain jax.numpy.

A network is a function ``network(parameters, *inputs, width, depth, ...)``. It asks ``parameters`` for each
weight by its shape, in the order in which it needs them, so that one definition gives both the list of
weights and the program. Images are (batch, height, width, features), sequences (batch, time, features).
"""

import jax
import jax.numpy as jnp
from jax import lax

IMAGE_DIMENSIONS = ("NHWC", "HWIO", "NHWC")


class Parameters:
    """Hands a network its weights in the order in which it asks for them.

    Args:
        values: The weights; ``None`` hands out zeros and notes their shapes.
        dtype: Type of all weights.
    """

    def __init__(self, values=None, dtype=jnp.float32):
        self.dtype = dtype
        self.shapes = []
        self._values = None if values is None else iter(values)

    def __call__(self, *shape: int) -> jax.Array:
        self.shapes.append(jax.ShapeDtypeStruct(shape, self.dtype))
        return jnp.zeros(shape, self.dtype) if self._values is None else next(self._values)


def parameter_shapes(network, *inputs, dtype) -> list[jax.ShapeDtypeStruct]:
    """Shapes of the weights that a network asks for, in order, without computing anything."""
    parameters = Parameters(dtype=dtype)
    jax.eval_shape(lambda *arrays: network(parameters, *arrays), *inputs)
    return parameters.shapes


def conv(p, x, features, kernel=3, stride=1, dilation=1, groups=1):
    """Convolution of an image (kernel and stride square, or given by axis) without bias."""
    size = (kernel, kernel) if isinstance(kernel, int) else kernel
    strides = (stride, stride) if isinstance(stride, int) else stride
    weights = p(*size, x.shape[-1] // groups, features)
    return lax.conv_general_dilated(
        x,
        weights,
        strides,
        "SAME",
        rhs_dilation=(dilation, dilation),
        dimension_numbers=IMAGE_DIMENSIONS,
        feature_group_count=groups,
    )


def depthwise_conv(p, x, kernel=3, stride=1):
    """Convolution of every feature by itself."""
    return conv(p, x, x.shape[-1], kernel, stride, groups=x.shape[-1])


def conv_transpose(p, x, features, kernel=4, stride=2):
    """Transposed convolution: an image ``stride`` times as high and wide."""
    weights = p(kernel, kernel, x.shape[-1], features)
    return lax.conv_transpose(x, weights, (stride, stride), "SAME", dimension_numbers=IMAGE_DIMENSIONS)


def max_pool(x, size=2, stride=2):
    """Maximum over square windows of an image."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), "SAME")


def average_pool(x, size=2):
    """Mean over non-overlapping square windows of an image."""
    batch, height, width, features = x.shape
    return x.reshape(batch, height // size, size, width // size, size, features).mean((2, 4))


def upsample(x, factor=2):
    """An image with every pixel repeated ``factor`` times along height and width."""
    return jnp.repeat(jnp.repeat(x, factor, 1), factor, 2)


def normalise(p, x, axes):
    """Zero mean and unit variance over ``axes``, then a learnt scale and shift per feature."""
    mean = x.mean(axes, keepdims=True)
    variance = jnp.square(x).mean(axes, keepdims=True) - jnp.square(mean)
    scale = p(x.shape[-1]) * lax.rsqrt(variance + 1e-5)
    return x * scale + (p(x.shape[-1]) - mean * scale)


def batch_norm(p, x):
    """Batch normalisation with the statistics of this batch."""
    return normalise(p, x, tuple(range(x.ndim - 1)))


def instance_norm(p, x):
    """Normalisation of every image and feature over its pixels."""
    return normalise(p, x, (1, 2))


def layer_norm(p, x):
    """Normalisation over the features."""
    return normalise(p, x, (-1,))


def rms_norm(p, x):
    """Division by the root mean square over the features (arXiv:1910.07467)."""
    return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * p(x.shape[-1])


def dense(p, x, features):
    """Affine map of the last axis."""
    return x @ p(x.shape[-1], features) + p(features)


def mlp(p, x, hidden):
    """Two dense layers with a GELU between, back to the width of ``x``."""
    return dense(p, jax.nn.gelu(dense(p, x, hidden)), x.shape[-1])


def gated_mlp(p, x, hidden):
    """SwiGLU (arXiv:2002.05202)."""
    gate = jax.nn.silu(x @ p(x.shape[-1], hidden))
    return (gate * (x @ p(x.shape[-1], hidden))) @ p(hidden, x.shape[-1])


def classify(p, x, classes=50):
    """Mean over the pixels of an image, then a dense layer."""
    return dense(p, x.mean((1, 2)), classes)


def embed(p, tokens, width, vocabulary=1000):
    """Rows of an embedding table for token numbers; the table is returned too."""
    table = p(vocabulary, width)
    return table[tokens], table


def split_heads(x, heads):
    """(batch, time, features) to (batch, time, heads, features per head)."""
    batch, time, features = x.shape
    return x.reshape(batch, time, heads, features // heads)


def merge_heads(x):
    """(batch, time, heads, features per head) to (batch, time, features)."""
    return x.reshape(*x.shape[:2], -1)


def causal_mask(time):
    """True where a position (row) may look at another (column)."""
    return jnp.tril(jnp.ones((time, time), bool))


def softmax(x, mask=None):
    """Softmax over the last axis in float32, back in the type of ``x``."""
    logits = x.astype(jnp.float32)
    if mask is not None:
        logits = jnp.where(mask, logits, -1e9)
    return jax.nn.softmax(logits, -1).astype(x.dtype)


def attend(q, k, v, mask=None, bias=0):
    """Scaled dot-product attention of queries, keys and values (batch, time, heads, features per head)."""
    logits = jnp.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5 + bias
    return merge_heads(jnp.einsum("bhts,bshd->bthd", softmax(logits, mask), v))


def attention(p, x, memory, heads, mask=None):
    """Multi-head attention of ``x`` to ``memory``."""
    width = x.shape[-1]
    q = split_heads(dense(p, x, width), heads)
    k = split_heads(dense(p, memory, width), heads)
    v = split_heads(dense(p, memory, width), heads)
    return dense(p, attend(q, k, v, mask), width)


def transformer_layer(p, x, heads, mask=None):
    """Attention and MLP, each behind a layer norm and with a residual."""
    y = layer_norm(p, x)
    x = x + attention(p, y, y, heads, mask)
    return x + mlp(p, layer_norm(p, x), 2 * x.shape[-1])
