"""Networks that split, merge and flatten axes, for files with as many reshapes as the real ones.

They are as frameworks write them: a dense layer is a product of two matrices, a reshape splits off the heads,
weights are slices of one vector or of a stack. Arguments are as ``layers.py`` describes.
"""

from functools import partial
from importlib import import_module
from itertools import accumulate
from math import prod

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import relu

from make_sample.zoo.layers import (
    Parameters,
    attend,
    causal_mask,
    classify,
    conv,
    depth_to_space,
    embed,
    layer_norm,
    parameter_shapes,
    softmax,
    space_to_depth,
)


def flat_dense(p, x, features):
    """Apply a dense layer as a product of two matrices, as TensorFlow's BERT does."""
    y = x.reshape(-1, x.shape[-1]) @ p(x.shape[-1], features) + p(features)
    return y.reshape(*x.shape[:-1], features)


def flat_mlp(p, x, hidden):
    """Apply two such layers with a GELU in between; the output is as wide as ``x``."""
    return flat_dense(p, jax.nn.gelu(flat_dense(p, x, hidden)), x.shape[-1])


def flat_attention(p, x, memory, heads, mask=None):
    """Apply multi-head attention whose heads are split and merged by reshapes (arXiv:1706.03762)."""
    width = x.shape[-1]
    q, k, v = (flat_dense(p, y, width) for y in (x, memory, memory))
    q, k, v = (y.reshape(*y.shape[:-1], heads, width // heads) for y in (q, k, v))
    return flat_dense(p, attend(q, k, v, mask).reshape(x.shape), width)


def flat_layer(p, x, heads=4, mask=None):
    """Apply a pre-norm transformer layer of these (arXiv:2002.04745)."""
    y = layer_norm(p, x)
    x = x + flat_attention(p, y, y, heads, mask)
    return x + flat_mlp(p, layer_norm(p, x), 2 * x.shape[-1])


def flat_embed(p, tokens, width):
    """Return the embeddings of tokens, which are looked up as one vector of numbers, and the table."""
    rows, table = embed(p, tokens.reshape(-1), width)
    return rows.reshape(*tokens.shape, width), table


def one_vector(p, *inputs, width, depth, inner):
    """Another network of the zoo, whose weights are slices of one vector, as in FSDP (arXiv:2304.11277)."""
    module, function = inner.split(".")
    apply = getattr(import_module(f"make_sample.zoo.{module}"), function)
    apply = partial(apply, width=width, depth=depth)
    shapes = [s.shape for s in parameter_shapes(apply, *inputs, dtype=p.dtype)]
    ends = [*accumulate(map(prod, shapes))]
    parts = zip(jnp.split(p(ends[-1]), ends[:-1]), shapes, strict=True)
    weights = [part.reshape(shape) for part, shape in parts]
    return apply(Parameters(weights, p.dtype), *inputs)


def flat_encoder(p, tokens, *, width, depth, heads=4):
    """BERT with flat layers and heads for words and for the sentence (arXiv:1810.04805)."""
    x, table = flat_embed(p, tokens, width)
    x = layer_norm(p, x + p(tokens.shape[1], width))
    for _ in range(depth):
        x = layer_norm(p, x + flat_attention(p, x, x, heads))
        x = layer_norm(p, x + flat_mlp(p, x, 2 * width))
    words = jax.nn.gelu(flat_dense(p, x, width)).reshape(-1, width) @ table.T
    return words.reshape(len(x), -1, len(table)), jnp.tanh(flat_dense(p, x[:, 0], width))


def flat_decoder(p, tokens, *, width, depth):
    """GPT-2 with flat layers; their weights are slices of stacks, as of a loop that was unrolled."""
    x, table = flat_embed(p, tokens, width)

    def layer(p, x):
        return flat_layer(p, x, mask=causal_mask(tokens.shape[1]))

    stacks = [p(depth, *s.shape) for s in parameter_shapes(layer, x, dtype=p.dtype)]
    for number in range(depth):
        own = [lax.index_in_dim(stack, number, keepdims=False) for stack in stacks]
        x = layer(Parameters(own, p.dtype), x)
    return (layer_norm(p, x).reshape(-1, width) @ table.T).reshape(*tokens.shape, -1)


def flat_translator(p, source, target, *, width, depth, heads=4):
    """Encoder-decoder of flat layers (arXiv:1706.03762)."""
    x, table = flat_embed(p, source, width)
    y = table[target.reshape(-1)].reshape(*target.shape, width)
    for _ in range(depth):
        x = flat_layer(p, x, heads)
    for _ in range(depth):
        z = layer_norm(p, y)
        y = y + flat_attention(p, z, z, heads, causal_mask(target.shape[1]))
        y = y + flat_attention(p, layer_norm(p, y), x, heads)
        y = y + flat_mlp(p, layer_norm(p, y), 2 * width)
    return (y.reshape(-1, width) @ table.T).reshape(*target.shape, -1)


def token_experts(p, tokens, *, width, depth, experts=4):
    """GShard: tokens of the whole batch are dispatched to experts of limited capacity (arXiv:2006.16668)."""
    x, _ = flat_embed(p, tokens, width)
    capacity = 2 * tokens.size // experts
    for _ in range(depth):
        y = layer_norm(p, x)
        x = x + flat_attention(p, y, y, 4)
        y = layer_norm(p, x).reshape(-1, width)
        gates = softmax(y @ p(width, experts))
        chosen = jax.nn.one_hot(gates.argmax(-1), experts, dtype=jnp.float32)
        places = (jnp.cumsum(chosen, 0) * chosen - 1).astype(jnp.int32).reshape(-1)
        dispatch = jax.nn.one_hot(places, capacity, dtype=x.dtype).reshape(len(y), -1)
        inputs = (dispatch.T @ y).reshape(experts, capacity, width)
        hidden = relu(jnp.einsum("ecd,edh->ech", inputs, p(experts, width, 2 * width)))
        outputs = jnp.einsum("ech,ehd->ecd", hidden, p(experts, 2 * width, width)).reshape(-1, width)
        x = x + (gates.max(-1, keepdims=True) * (dispatch @ outputs)).reshape(x.shape)
    return flat_dense(p, x, 300)


def group_norm(p, x, groups=8):
    """Apply group normalisation: features are normalised in groups (arXiv:1803.08494)."""
    y = x.reshape(len(x), -1, groups, x.shape[-1] // groups)
    mean = y.mean((1, 3), keepdims=True)
    y = (y - mean) * lax.rsqrt(jnp.square(y - mean).mean((1, 3), keepdims=True) + 1e-5)
    return y.reshape(x.shape) * p(x.shape[-1]) + p(x.shape[-1])


def diffusion(p, x, times, *, width, depth):
    """Noise predictor with group norms, attention over pixels and pixel shuffles (arXiv:2006.11239)."""
    skip = x = conv(p, space_to_depth(x), width)
    for _ in range(depth):
        y = conv(p, jax.nn.silu(group_norm(p, x)), width) + flat_dense(p, times, width)[:, None, None]
        x = x + conv(p, jax.nn.silu(group_norm(p, y)), width)
        y = group_norm(p, x).reshape(len(x), -1, width)
        x = x + flat_attention(p, y, y, 2).reshape(x.shape)
    return depth_to_space(conv(p, jnp.concatenate([x, skip], -1), 12, 1))


def sub_pixel(p, x, *, width, depth, size=2):
    """Super-resolution by pixel shuffles, between residual blocks on coarse pixels (arXiv:1609.05158)."""
    x = conv(p, space_to_depth(x, size), width)
    for _ in range(depth):
        y = conv(p, depth_to_space(relu(conv(p, x, 2 * width)), 2), width // 2)
        x = x + conv(p, space_to_depth(y, 2), width, 1)
    return depth_to_space(conv(p, depth_to_space(conv(p, x, 4 * width, 1)), 3 * size**2), size)


def masked_autoencoder(p, x, *, width, depth, size=4):
    """Vision transformer from patches to patches (arXiv:2111.06377)."""
    patches = space_to_depth(x, size)
    y = flat_dense(p, patches, width).reshape(len(x), -1, width)
    y = y + p(y.shape[1], width)
    for _ in range(depth):
        y = flat_layer(p, y)
    return depth_to_space(flat_dense(p, layer_norm(p, y), patches.shape[-1]).reshape(patches.shape), size)


def axial(p, x, *, width, depth):
    """Axial attention: along rows, then along columns, each a sequence of its own (arXiv:1912.12180)."""
    x = conv(p, x, width, 4, 2)
    for _ in range(depth):
        for _ in range(2):
            rows = layer_norm(p, x).reshape(-1, *x.shape[2:])
            x = (x + flat_attention(p, rows, rows, 4).reshape(x.shape)).swapaxes(1, 2)
        x = x + flat_mlp(p, layer_norm(p, x), 2 * width)
    return classify(p, x)


def frames(p, x, *, width, depth):
    """LRCN: the frames of videos as one batch of images, then attention between frames (arXiv:1411.4389)."""
    batch, time = x.shape[:2]
    x = x.reshape(-1, *x.shape[2:])
    for _ in range(2):
        x = relu(group_norm(p, conv(p, x, width, 3, 2)))
    x = x.reshape(batch, time, -1)
    x = flat_dense(p, x, 2 * width)
    for _ in range(depth):
        x = flat_layer(p, x)
    return flat_dense(p, x.reshape(batch, -1), 12)


def interactions(p, x, categories, *, width, depth):
    """DLRM: products of all pairs of features in a row beside them (arXiv:1906.00091)."""
    rows, _ = flat_embed(p, categories, width)
    for _ in range(depth):
        x = flat_dense(p, relu(flat_dense(p, x, 2 * width)), width)
        vectors = jnp.concatenate([x.reshape(len(x), 1, width), rows], 1)
        pairs = jnp.einsum("bif,bjf->bij", vectors, vectors).reshape(len(x), -1)
        x = jnp.concatenate([x, pairs, rows.reshape(len(x), -1)], -1)
        rows = rows + flat_mlp(p, rows, width)
    return flat_dense(p, x, 1).reshape(-1)
