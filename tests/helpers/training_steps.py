"""Training steps as users of optax, flax and equinox write them: each takes a state and a batch.

A step returns the new state and the loss. The first two values of a factory are the step and its state. The
libraries are imported by those who call: every worker of pytest imports this module.
"""

import jax
import jax.numpy as jnp

IMAGES = jnp.linspace(-1.0, 1.0, 16 * 8).reshape(16, 8)
LABELS = jnp.sin(IMAGES[:, :4])


def of_optax():
    """A dict of weights and the state of Adam, in a chain with clipping and a schedule."""
    import optax

    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(1e-2, 20))
    )
    weights = {"first": jnp.eye(8) * 0.5, "second": jnp.ones((8, 4)) * 0.1}

    def loss(weights, images, labels):
        hidden = jnp.tanh(images @ weights["first"])
        return jnp.mean((hidden @ weights["second"] - labels) ** 2)

    def step(weights, state, images, labels):
        value, gradient = jax.value_and_grad(loss)(weights, images, labels)
        change, state = optimiser.update(gradient, state, weights)
        return optax.apply_updates(weights, change), state, value

    return jax.jit(step), (weights, optimiser.init(weights)), (IMAGES, LABELS)


def of_flax():
    """A TrainState, which holds functions, and a random key for dropout."""
    import flax.linen
    import flax.training.train_state
    import optax

    class Network(flax.linen.Module):
        """A dense network with dropout."""

        @flax.linen.compact
        def __call__(self, images):
            """Return scores."""
            hidden = flax.linen.relu(flax.linen.Dense(16)(images))
            return flax.linen.Dense(4)(flax.linen.Dropout(0.1, deterministic=False)(hidden))

    network = Network()
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    weights = jax.jit(network.init)(keys, IMAGES)["params"]
    state = flax.training.train_state.TrainState.create(
        apply_fn=network.apply, params=weights, tx=optax.adam(1e-2)
    )
    state = state.replace(step=jnp.asarray(0))

    def step(state, key, images, labels):
        key, dropped = jax.random.split(key)

        def loss(weights):
            scores = state.apply_fn({"params": weights}, images, rngs={"dropout": dropped})
            return jnp.mean((scores - labels) ** 2)

        value, gradient = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=gradient), key, value

    return jax.jit(step, donate_argnums=()), (state, jax.random.key(2)), (IMAGES, LABELS)


def of_equinox():
    """A module with its activation and a flag among its leaves, under equinox's own jit."""
    import equinox
    import optax

    class Network(equinox.Module):
        """A dense network whose dropout is off."""

        layers: equinox.nn.MLP
        dropout: equinox.nn.Dropout

        def __call__(self, image):
            """Return scores."""
            return self.dropout(self.layers(image))

    layers = equinox.filter_jit(equinox.nn.MLP)(8, 4, 16, 2, key=jax.random.key(0))
    model = Network(layers, equinox.nn.Dropout(0.1, inference=True))
    optimiser = optax.adam(1e-2)
    state = optimiser.init(equinox.filter(model, equinox.is_inexact_array))

    @equinox.filter_jit
    def step(model, state, images, labels):
        def loss(model):
            return jnp.mean((jax.vmap(model)(images) - labels) ** 2)

        value, gradient = equinox.filter_value_and_grad(loss)(model)
        change, state = optimiser.update(gradient, state, model)
        return equinox.apply_updates(model, change), state, value

    return step, (model, state), (IMAGES, LABELS)


def with_functions(key):
    """A TrainState made inside the function, so that no argument has its functions."""
    import flax.training.train_state
    import optax

    return flax.training.train_state.TrainState.create(
        apply_fn=jnp.tanh, params=jax.random.normal(key, (3,)), tx=optax.adam(1e-2)
    )


STEPS = {"optax": of_optax, "flax": of_flax, "equinox": of_equinox}
UNSAVED = {
    "a state with functions that no argument has": (
        with_functions,
        (jax.random.key(0),),
        "a result is a TrainState with .*, which no argument has, so a tuned or placed function could not "
        "return it. Return arrays, or give a value of this type as an argument too",
    ),
    "exponents": (
        lambda x: x.astype(jnp.float8_e8m0fnu),
        (jnp.ones(4),),
        "device draws no values of XLA's type 33; convert it within the function",
    ),
}
