"""Networks of matrix products: on vectors, image patches, graphs and tables."""

import jax
import jax.numpy as jnp

from fastslow.programs.zoo.layers import (
    attend,
    conv,
    dense,
    embed,
    layer_norm,
    mlp,
    transformer_layer,
)


def patches(p, x, width, size=4):
    """Embed non-overlapping square patches of an image as a sequence, by a strided convolution."""
    x = conv(p, x, width, size, size)
    return x.reshape(len(x), -1, width)


def perceptron(p, x, *, width, depth):
    """Residual multi-layer perceptron on vectors."""
    x = dense(p, x, width)
    for _ in range(2 * depth):
        x = x + mlp(p, layer_norm(p, x), 3 * width)
    return dense(p, x, 40)


def mixer(p, x, *, width, depth):
    """MLP-Mixer: MLPs over patches and over features in turn (arXiv:2105.01601)."""
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


def capsules(p, x, *, width, depth, capsules=10, features=8):
    """Capsule network with routing by agreement (arXiv:1710.09829)."""
    x = jax.nn.relu(conv(p, x, width, 5, 2))
    x = conv(p, x, width, 5, 2)
    x = x.reshape(len(x), -1, features)
    votes = jnp.einsum("bif,ifcg->bicg", x, p(x.shape[1], features, capsules, 2 * features))
    logits = jnp.zeros(votes.shape[:3], votes.dtype)
    for _ in range(depth + 1):
        y = jnp.einsum("bic,bicg->bcg", jax.nn.softmax(logits, -1), votes)
        y = y * jax.lax.rsqrt(1 + jnp.square(y).sum(-1, keepdims=True))
        logits = logits + jnp.einsum("bicg,bcg->bic", votes, y)
    return jnp.square(y).sum(-1)


def recommender(p, x, categories, *, width, depth):
    """DLRM: dense features and category embeddings with their pairwise products (arXiv:1906.00091)."""
    for _ in range(depth):
        x = jax.nn.relu(dense(p, x, 2 * width))
    x = dense(p, x, width)
    rows, _ = embed(p, categories, width)
    vectors = jnp.concatenate([x[:, None], rows], 1)
    products = jnp.einsum("bif,bjf->bij", vectors, vectors).reshape(len(x), -1)
    x = jnp.concatenate([x, products], -1)
    for _ in range(depth):
        x = jax.nn.relu(dense(p, x, 2 * width))
    return dense(p, x, 1)


def graph_network(p, x, adjacency, *, width, depth):
    """Graph convolutional network (GCN) on dense adjacency matrices (arXiv:1609.02907)."""
    for _ in range(depth + 1):
        x = jax.nn.relu(adjacency @ dense(p, x, width) + dense(p, x, width))
    pairs = jnp.einsum("bif,bjf->bij", x, x)
    return pairs, dense(p, x.mean(1), 12)
