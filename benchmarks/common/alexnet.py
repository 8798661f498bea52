"""AlexNet's training step as TpuGraphs measured it (``alexnet_train_batch_32``), written in JAX.

Five convolutions, three dense layers with dropout, cross-entropy, SGD; batch 32, float32. Of the 26
configurable nodes of the published graph 25 come out with the same opcode and shapes.
"""

from functools import partial

BATCH = 32
CLASSES = 1000
LEARNING_RATE = 0.01
KERNELS = ((11, 11, 3, 64), (5, 5, 64, 192), (3, 3, 192, 384), (3, 3, 384, 384), (3, 3, 384, 256))
STRIDES = (4, 1, 1, 1, 1)
POOLED = (0, 1, 4)
"""Convolutions that a maximum over windows of 3 x 3 follows."""
WEIGHTS = ((6400, 4096), (4096, 4096), (4096, CLASSES))


def _convolution(x, kernel, bias, stride: int):
    import jax

    padding = "SAME" if stride == 1 else "VALID"
    numbers = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=numbers)
    return jax.nn.relu(y + bias)


def _dropped(x, key):
    import jax
    import jax.numpy as jnp

    return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x * 2, 0.0)


def loss(p, x, y, key):
    """Return the mean cross-entropy of parameters ``p`` on images ``x`` and labels ``y``."""
    import jax
    import jax.numpy as jnp

    for layer, stride in enumerate(STRIDES):
        x = _convolution(x, p[f"k{layer + 1}"], p[f"b{layer + 1}"], stride)
        if layer in POOLED:
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(BATCH, -1)
    first, second = jax.random.split(key)
    for layer, own_key in enumerate((first, second), 1):
        x = _dropped(jax.nn.relu(x @ p[f"w{layer}"] + p[f"c{layer}"]), own_key)
    logits = jax.nn.log_softmax(x @ p["w3"] + p["c3"])
    return -jnp.take_along_axis(logits, y[:, None], 1).mean()


def step(p, x, y, key):
    """Return the parameters after one step of SGD, and the loss before it."""
    import jax

    value, gradients = jax.value_and_grad(loss)(p, x, y, key)
    return {name: p[name] - LEARNING_RATE * gradients[name] for name in p}, value


def training_step():
    """Return the training step and its arguments, for :func:`fastslow_programs.compiler.libtpu.lower`."""
    import jax
    import jax.numpy as jnp

    floats = partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    layers = {"k": KERNELS, "b": [k[-1:] for k in KERNELS], "w": WEIGHTS, "c": [w[-1:] for w in WEIGHTS]}
    parameters = {
        f"{letter}{i}": floats(shape)
        for letter, shapes in layers.items()
        for i, shape in enumerate(shapes, 1)
    }
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    return step, (parameters, floats((BATCH, 224, 224, 3)), labels, key)
