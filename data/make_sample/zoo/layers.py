"""Layers of the zoo's networks, in plain jax.numpy, and the steps that make programs of networks.

A network is a function ``network(p, *inputs, width, depth, ...)``. ``p`` is :class:`Parameters`: the network
requests each weight by shape, ``p(3, 3, 8, 16)``, so that one definition yields both the list of weights and
the program. ``width`` is the number of features of the first layer, and ``depth`` the number of layers or
blocks. It returns an array, or a tuple of arrays, whose first axis is the batch: logits where the network
classifies. Images are (batch, height, width, features), volumes and videos (batch, depth or time, height,
width, features), sequences (batch, time, features), tokens (batch, time) int32. A layer takes ``p`` and an
array ``x`` of one of these shapes, and returns an array of the same rank.
"""

import jax
import jax.numpy as jnp
from jax import lax

DIMENSIONS = {4: ("NHWC", "HWIO", "NHWC"), 5: ("NDHWC", "DHWIO", "NDHWC")}
"""Dimension numbers of a convolution by the rank of its input: an image or a volume."""


class Parameters:
    """Weights of a network, in the order in which it requests them.

    Args:
        values: The weights; ``None`` returns zeros and records their shapes.
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
    """Return the shapes of a network's weights in order, without computing anything."""
    parameters = Parameters(dtype=dtype)
    jax.eval_shape(lambda *arrays: network(parameters, *arrays), *inputs)
    return parameters.shapes


def shared(p, network, x):
    """Return ``network`` as a function of only its input; all calls share the weights requested here."""
    weights = [p(*s.shape) for s in parameter_shapes(network, x, dtype=p.dtype)]
    return lambda x: network(Parameters(weights, p.dtype), x)


def _each_axis(size, x) -> tuple[int, ...]:
    """Return a size per spatial axis of ``x``; a single number counts for all."""
    return (size,) * (x.ndim - 2) if isinstance(size, int) else size


def conv(p, x, features, kernel=3, stride=1, dilation=1, groups=1):
    """Apply a 2-D or 3-D convolution without bias; kernel and stride are one number or given per axis."""
    weights = p(*_each_axis(kernel, x), x.shape[-1] // groups, features)
    return lax.conv_general_dilated(
        x,
        weights,
        _each_axis(stride, x),
        "SAME",
        rhs_dilation=_each_axis(dilation, x),
        dimension_numbers=DIMENSIONS[x.ndim],
        feature_group_count=groups,
    )


def depthwise_conv(p, x, kernel=3, stride=1):
    """Apply a depthwise convolution: one filter per feature."""
    return conv(p, x, x.shape[-1], kernel, stride, groups=x.shape[-1])


def separable_conv(p, x, features, kernel=3, stride=1):
    """Apply a depthwise and a 1x1 convolution (arXiv:1610.02357)."""
    return conv(p, depthwise_conv(p, x, kernel, stride), features, 1)


def conv_transpose(p, x, features, kernel=4, stride=2):
    """Apply a transposed convolution, which scales every spatial axis by ``stride``."""
    weights = p(*_each_axis(kernel, x), x.shape[-1], features)
    strides = _each_axis(stride, x)
    return lax.conv_transpose(x, weights, strides, "SAME", dimension_numbers=DIMENSIONS[x.ndim])


def max_pool(x, size=2, stride=2):
    """Apply max pooling over windows, square or cubic."""
    window, strides = ((1, *_each_axis(n, x), 1) for n in (size, stride))
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, "SAME")


def average_pool(x, size=2):
    """Apply average pooling over non-overlapping square windows."""
    batch, height, width, features = x.shape
    return x.reshape(batch, height // size, size, width // size, size, features).mean((2, 4))


def upsample(x, factor=2):
    """Upsample an image to its ``factor``-fold height and width by nearest neighbour."""
    return jnp.repeat(jnp.repeat(x, factor, 1), factor, 2)


def space_to_depth(x, size=2):
    """Move squares of pixels into features: (batch, height / size, width / size, features * size ** 2)."""
    batch, height, width, features = x.shape
    y = x.reshape(batch, height // size, size, width // size, size, features).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(batch, height // size, width // size, -1)


def depth_to_space(x, size=2):
    """Move features into squares of pixels, the inverse of :func:`space_to_depth`: a pixel shuffle."""
    batch, height, width, features = x.shape
    y = x.reshape(batch, height, width, size, size, -1).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(batch, height * size, width * size, -1)


def normalise(p, x, axes):
    """Normalise to zero mean and unit variance over ``axes``, then scale and shift each feature."""
    mean = x.mean(axes, keepdims=True)
    variance = jnp.square(x).mean(axes, keepdims=True) - jnp.square(mean)
    scale = p(x.shape[-1]) * lax.rsqrt(variance + 1e-5)
    return x * scale + (p(x.shape[-1]) - mean * scale)


def batch_norm(p, x):
    """Apply batch normalisation with the statistics of this batch (arXiv:1502.03167)."""
    return normalise(p, x, tuple(range(x.ndim - 1)))


def frozen_norm(p, x):
    """Scale and shift each feature of ``x`` (..., features): batch normalisation with fixed statistics."""
    return x * p(x.shape[-1]) + p(x.shape[-1])


def instance_norm(p, x):
    """Apply instance normalisation, over the pixels of each image and feature (arXiv:1607.08022)."""
    return normalise(p, x, tuple(range(1, x.ndim - 1)))


def layer_norm(p, x):
    """Apply layer normalisation over the features (arXiv:1607.06450)."""
    return normalise(p, x, (-1,))


def rms_norm(p, x):
    """Apply RMS normalisation over the features (arXiv:1910.07467)."""
    return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * p(x.shape[-1])


def dense(p, x, features):
    """Apply a dense layer to the last axis."""
    return x @ p(x.shape[-1], features) + p(features)


def mlp(p, x, hidden):
    """Apply two dense layers with a GELU (arXiv:1606.08415) in between; the output is as wide as ``x``."""
    return dense(p, jax.nn.gelu(dense(p, x, hidden)), x.shape[-1])


def gated_mlp(p, x, hidden):
    """Apply a SwiGLU feed-forward layer (arXiv:2002.05202)."""
    gate = jax.nn.silu(x @ p(x.shape[-1], hidden))
    return (gate * (x @ p(x.shape[-1], hidden))) @ p(hidden, x.shape[-1])


def squeeze_excite(p, x):
    """Apply squeeze-and-excitation: scale features by a gate on their global average (arXiv:1709.01507)."""
    features = x.shape[-1]
    gate = jax.nn.relu(dense(p, x.mean((1, 2)), features // 4))
    return x * jax.nn.sigmoid(dense(p, gate, features))[:, None, None]


def classify(p, x, classes=50):
    """Apply global average pooling and a dense layer, the head of a classifier."""
    return dense(p, x.mean(tuple(range(1, x.ndim - 1))), classes)


def embed(p, tokens, width, vocabulary=1000):
    """Return the embeddings of tokens, and the embedding table."""
    table = p(vocabulary, width)
    return table[tokens], table


def to_heads(p, x, heads, width, bias=True):
    """Apply a dense layer from (..., features) to (..., heads, ``width`` / heads).

    The heads are a dimension of the product, not split off by a reshape: so the language models of TpuGraphs
    have them.
    """
    y = jnp.einsum("...c,chd->...hd", x, p(x.shape[-1], heads, width // heads))
    return y + p(heads, width // heads) if bias else y


def from_heads(p, x, width, bias=True):
    """Apply a dense layer from (..., heads, features per head) to (..., ``width``)."""
    y = jnp.einsum("...hd,hdc->...c", x, p(*x.shape[-2:], width))
    return y + p(width) if bias else y


def causal_mask(time):
    """Return the causal attention mask, (time, time) bool: True where a row may attend to a column."""
    return jnp.tril(jnp.ones((time, time), bool))


def softmax(x, mask=None):
    """Apply a softmax over the last axis, computed in float32 and returned in the type of ``x``."""
    logits = x.astype(jnp.float32)
    if mask is not None:
        logits = jnp.where(mask, logits, -1e9)
    return jax.nn.softmax(logits, -1).astype(x.dtype)


def attend(q, k, v, mask=None, bias=0):
    """Apply scaled dot-product attention (arXiv:1706.03762).

    Args:
        q: Queries, (batch, time, heads, features per head).
        k: Keys, likewise.
        v: Values, likewise.
        mask: True where a query may attend to a key; None for everywhere.
        bias: Added to the logits (batch, heads, time, time).

    Returns:
        The values attended to, (batch, time, heads, features per head).
    """
    logits = jnp.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5 + bias
    return jnp.einsum("bhts,bshd->bthd", softmax(logits, mask), v)


def attention(p, x, memory, heads, mask=None):
    """Apply multi-head attention of ``x`` to ``memory`` (arXiv:1706.03762)."""
    width = x.shape[-1]
    q = to_heads(p, x, heads, width)
    k, v = (to_heads(p, memory, heads, width) for _ in range(2))
    return from_heads(p, attend(q, k, v, mask), width)


def transformer_layer(p, x, heads, mask=None):
    """Apply a pre-norm transformer layer: attention and MLP with residuals (arXiv:2002.04745)."""
    y = layer_norm(p, x)
    x = x + attention(p, y, y, heads, mask)
    return x + mlp(p, layer_norm(p, x), 2 * x.shape[-1])


LEARNING_RATE = 0.01
ADAM_RATE = 0.001


def forward_program(network, inputs, dtype):
    """Return a network as a function of (weights, *inputs), and the shapes of these arguments."""

    def forward(weights, *arrays):
        return network(Parameters(weights, dtype), *arrays)

    return forward, (parameter_shapes(network, *inputs, dtype=dtype), *inputs)


def _gradient(network, inputs, dtype):
    """Return (weights, *inputs) to (loss, gradients), and the shapes of its arguments.

    The loss is the mean square of all outputs.
    """
    forward, arguments = forward_program(network, inputs, dtype)

    def loss(weights, *arrays):
        outputs = jax.tree.leaves(forward(weights, *arrays))
        return sum(jnp.square(output.astype(jnp.float32)).mean() for output in outputs)

    return jax.value_and_grad(loss), arguments


def train_program(network, inputs, dtype):
    """Return a step of gradient descent, (weights, *inputs) to (loss, weights), and its argument shapes."""
    gradient, arguments = _gradient(network, inputs, dtype)

    def step(weights, *arrays):
        value, gradients = gradient(weights, *arrays)
        return value, [w - LEARNING_RATE * g for w, g in zip(weights, gradients, strict=True)]

    return step, arguments


def adam_program(network, inputs, dtype):
    """Return a step of Adam (arXiv:1412.6980) without bias correction, and the shapes of its arguments.

    The step maps (weights, means, squares, *inputs) to (loss, weights, means, squares).
    """
    gradient, (weights, *arrays) = _gradient(network, inputs, dtype)

    def step(weights, means, squares, *arrays):
        value, gradients = gradient(weights, *arrays)
        means = [m + 0.1 * (g - m) for m, g in zip(means, gradients, strict=True)]
        squares = [s + 0.001 * (g * g - s) for s, g in zip(squares, gradients, strict=True)]
        moments = zip(weights, means, squares, strict=True)
        return value, [w - ADAM_RATE * m * lax.rsqrt(s + 1e-8) for w, m, s in moments], means, squares

    return step, (weights, weights, weights, *arrays)


def argument_shapes(batch, floats, tokens, dtype) -> list[jax.ShapeDtypeStruct]:
    """Return the input shapes of a network: arrays of ``dtype``, then int32 token sequences, batch first."""
    arrays = [jax.ShapeDtypeStruct((batch, *shape), dtype) for shape in floats]
    return arrays + [jax.ShapeDtypeStruct((batch, length), jnp.int32) for length in tokens]


STEPS = {"forward": forward_program, "train": train_program, "adam": adam_program}
"""Makers of a variant's program, by step: (network, inputs, dtype) to a function and its argument shapes."""
