"""Turn a network of the zoo into a function for ``jax.jit``."""

import jax
import jax.numpy as jnp

from fastslow.programs.zoo.layers import Parameters, parameter_shapes

LEARNING_RATE = 0.01


def forward_program(network, inputs, dtype):
    """Return a network as a function of (weights, *inputs), and the shapes of these arguments."""

    def forward(weights, *arrays):
        return network(Parameters(weights, dtype), *arrays)

    return forward, (parameter_shapes(network, *inputs, dtype=dtype), *inputs)


def train_program(network, inputs, dtype):
    """Return a training step, (weights, *inputs) to (loss, weights), and the shapes of its arguments.

    It is a step of gradient descent on the mean square of all outputs.
    """
    forward, arguments = forward_program(network, inputs, dtype)

    def loss(weights, *arrays):
        outputs = jax.tree.leaves(forward(weights, *arrays))
        return sum(jnp.square(output.astype(jnp.float32)).mean() for output in outputs)

    def step(weights, *arrays):
        value, gradients = jax.value_and_grad(loss)(weights, *arrays)
        return value, [w - LEARNING_RATE * g for w, g in zip(weights, gradients, strict=True)]

    return step, arguments


def argument_shapes(batch, floats, tokens, dtype) -> list[jax.ShapeDtypeStruct]:
    """Return the input shapes of a network: arrays of ``dtype``, then int32 token sequences, batch first."""
    arrays = [jax.ShapeDtypeStruct((batch, *shape), dtype) for shape in floats]
    return arrays + [jax.ShapeDtypeStruct((batch, length), jnp.int32) for length in tokens]
