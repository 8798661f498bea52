"""Networks on vectors, tables, graphs, points and boards: they decide, rank or represent."""

import jax
import jax.numpy as jnp
from jax.nn import relu

from make_sample.zoo.layers import conv, dense, embed, frozen_norm, layer_norm, mlp, shared, softmax


def perceptron(p, x, *, width, depth):
    """Residual multi-layer perceptron on vectors."""
    x = dense(p, x, width)
    for _ in range(2 * depth):
        x = x + mlp(p, layer_norm(p, x), 3 * width)
    return dense(p, x, 40)


def recommender(p, x, categories, *, width, depth):
    """DLRM: dense features and category embeddings with their pairwise products (arXiv:1906.00091)."""
    for _ in range(depth):
        x = relu(dense(p, x, 2 * width))
    x = dense(p, x, width)
    rows, _ = embed(p, categories, width)
    vectors = jnp.concatenate([x[:, None], rows], 1)
    products = jnp.einsum("bif,bjf->bij", vectors, vectors).reshape(len(x), -1)
    x = jnp.concatenate([x, products], -1)
    for _ in range(depth):
        x = relu(dense(p, x, 2 * width))
    return dense(p, x, 1)


def graph_network(p, x, adjacency, *, width, depth):
    """Graph convolutional network (GCN) on dense adjacency matrices (arXiv:1609.02907)."""
    for _ in range(depth + 1):
        x = relu(adjacency @ dense(p, x, width) + dense(p, x, width))
    pairs = jnp.einsum("bif,bjf->bij", x, x)
    return pairs, dense(p, x.mean(1), 12)


def policy_and_value(p, x, *, width, depth):
    """AlphaZero: a residual tower on a board with a policy and a value head (arXiv:1712.01815)."""
    x = relu(frozen_norm(p, conv(p, x, width)))
    for _ in range(depth):
        y = relu(frozen_norm(p, conv(p, x, width)))
        x = relu(x + frozen_norm(p, conv(p, y, width)))
    policy = dense(p, relu(conv(p, x, 2, 1)).reshape(len(x), -1), 82)
    value = relu(dense(p, relu(conv(p, x, 1, 1)).reshape(len(x), -1), width))
    return policy, jnp.tanh(dense(p, value, 1))


def double_dqn(p, state, following, *, width, depth, actions=6):
    """Double DQN with dueling heads: values of a state and of the next one (arXiv:1511.06581)."""

    def values(x):
        x = relu(conv(p, x, width, 4, 2))
        x = relu(conv(p, x, 2 * width, 3, 2))
        for _ in range(depth):
            x = relu(conv(p, x, 2 * width))
        x = x.reshape(len(x), -1)
        value, advantage = (dense(p, relu(dense(p, x, 4 * width)), n) for n in (1, actions))
        return value + advantage - advantage.mean(-1, keepdims=True)

    return values(state) - 0.99 * jax.lax.stop_gradient(values(following))


def wide_and_deep(p, x, categories, *, width, depth):
    """Wide & Deep: a linear model of crossed features beside a deep network (arXiv:1606.07792)."""
    rows, _ = embed(p, categories, 16)
    crossed = (x[:, :, None] * x[:, None, :]).reshape(len(x), -1)
    deep = jnp.concatenate([x, rows.reshape(len(x), -1)], -1)
    for _ in range(2):
        deep = relu(dense(p, deep, 2 * width))
    for _ in range(depth):
        deep = deep + relu(dense(p, relu(dense(p, deep, 2 * width)), 2 * width))
    return dense(p, crossed, 1) + dense(p, deep, 1)


def cross_network(p, x, categories, *, width, depth):
    """DCN V2: products of input features, beside a deep network (arXiv:2008.13535)."""
    rows, _ = embed(p, categories, 16)
    inputs = dense(p, jnp.concatenate([x, rows.reshape(len(x), -1)], -1), 2 * width)
    crossed = deep = inputs
    for _ in range(depth):
        low_rank = dense(p, crossed @ p(2 * width, width // 2), 2 * width)
        crossed = crossed + inputs * low_rank
        deep = relu(dense(p, deep, 2 * width))
    return dense(p, jnp.concatenate([crossed, deep], -1), 1)


def radiance_field(p, points, directions, *, width, depth, frequencies=4):
    """NeRF: colour and density of points from sines of their coordinates, with a skip (arXiv:2003.08934)."""

    def waves(x):
        angles = x[..., None] * (2.0 ** jnp.arange(frequencies)).astype(x.dtype)
        return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1).reshape(*x.shape[:-1], -1)

    places = x = waves(points)
    for _ in range(2):
        for _ in range(depth):
            x = relu(dense(p, x, width))
        x = jnp.concatenate([x, places], -1)
    x = dense(p, x, width)
    colour = relu(dense(p, jnp.concatenate([x, waves(directions)], -1), width // 2))
    return jax.nn.sigmoid(dense(p, colour, 3)), relu(dense(p, x, 1))


def sine_network(p, points, code, *, width, depth):
    """SIREN: sines as activations, modulated by a code of the signal (arXiv:2006.09661)."""
    x = jnp.sin(30 * dense(p, points, width))
    for _ in range(2 * depth):
        code = relu(dense(p, code, width))
        x = jnp.sin(dense(p, x, width) * code[:, None])
    return dense(p, x, 3)


def deep_autoencoder(p, x, *, width, depth):
    """Autoencoder of dense layers: stages of equal width down to a code and up again (Hinton 2006)."""
    sizes = [4 * width, 2 * width, width, 2 * width, 4 * width]
    features = x.shape[-1]
    for size in sizes:
        for _ in range(depth):
            x = relu(dense(p, x, size))
    return dense(p, x, features)


def point_network(p, x, *, width, depth):
    """PointNet: dense layers on each point beside the maximum over all points (arXiv:1612.00593)."""
    for _ in range(depth):
        x = relu(dense(p, relu(dense(p, x, width)), 2 * width))
        everything = jnp.broadcast_to(x.max(1, keepdims=True), x.shape)
        x = relu(dense(p, jnp.concatenate([x, everything], -1), width))
    return dense(p, x, 13), dense(p, x.max(1), 40)


def graph_attention(p, x, adjacency, *, width, depth, heads=4):
    """Graph attention network (GAT) on dense adjacency matrices (arXiv:1710.10903)."""
    for _ in range(depth):
        y = dense(p, x, width).reshape(*x.shape[:2], heads, width // heads)
        senders, receivers = (jnp.einsum("bihd,hde->bhie", y, p(heads, width // heads, 8)) for _ in range(2))
        scores = jax.nn.leaky_relu(jnp.einsum("bhie,bhje->bhij", receivers, senders))
        weights = softmax(scores, adjacency[:, None] > 0)
        x = jax.nn.elu(jnp.einsum("bhij,bjhd->bihd", weights, y).reshape(*x.shape[:2], width))
    return dense(p, x, 7)


def message_passing(p, x, edges, *, width, depth):
    """Message passing: messages along edges from both ends, summed in the nodes (arXiv:1704.01212)."""
    x = dense(p, x, width)
    for _ in range(depth):
        ends = dense(p, x, width)[:, :, None] + dense(p, x, width)[:, None, :]
        edges = relu(ends + dense(p, edges, width))
        update = relu(dense(p, jnp.concatenate([x, edges.sum(2)], -1), width))
        x = layer_norm(p, x + dense(p, update, width))
    return dense(p, x.sum(1), 1)


def contrastive(p, first, second, *, width, depth):
    """Contrastive pretraining: similarities of two views through one encoder (arXiv:2002.05709)."""

    def encoder(p, x):
        x = dense(p, x, width)
        for _ in range(depth):
            x = x + dense(p, relu(dense(p, x, 2 * width)), width)
        return dense(p, relu(dense(p, x, width)), width // 2)

    encode = shared(p, encoder, first)
    x, y = encode(first), encode(second)
    return jax.nn.log_softmax((x @ y.T).astype(jnp.float32))
