"""Turn a network of the zoo into a function for ``jax.jit``."""

import jax
import jax.numpy as jnp
from jax import lax

from fastslow.programs.zoo.layers import Parameters, parameter_shapes

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
