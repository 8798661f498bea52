"""Variants of attention, and language models that use them."""

import jax
import jax.numpy as jnp

from fastslow.programs.zoo.layers import (
    attend,
    attention,
    causal_mask,
    dense,
    embed,
    from_heads,
    layer_norm,
    mlp,
    softmax,
    to_heads,
)


def rotate(x):
    """Apply rotary position embedding to (batch, time, ..., features per head) (arXiv:2104.09864)."""
    time, half = x.shape[1], x.shape[-1] // 2
    angle = jnp.outer(jnp.arange(time), 10000.0 ** (-jnp.arange(half) / half))
    angle = jnp.expand_dims(angle, range(1, x.ndim - 2))
    cosine, sine = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return jnp.concatenate([left * cosine - right * sine, left * sine + right * cosine], -1)


def grouped_query_attention(p, x, heads, groups):
    """Apply causal grouped-query attention (arXiv:2305.13245) with rotary position embedding."""
    width, features = x.shape[-1], x.shape[-1] // heads
    q = jnp.einsum("btc,cghd->btghd", x, p(width, groups, heads // groups, features))
    k, v = (to_heads(p, x, groups, groups * features, bias=False) for _ in range(2))
    logits = jnp.einsum("btghd,bsgd->bghts", rotate(q), rotate(k)) * features**-0.5
    values = jnp.einsum("bghts,bsgd->btghd", softmax(logits, causal_mask(x.shape[1])), v)
    return jnp.einsum("btghd,ghdc->btc", values, p(*values.shape[2:], width))


def talking_heads_attention(p, x, heads):
    """Apply talking-heads attention: heads are mixed before and after the softmax (arXiv:2003.02436)."""
    q, k, v = (to_heads(p, x, heads, x.shape[-1]) for _ in range(3))
    logits = jnp.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
    weights = softmax(jnp.einsum("bhts,hg->bgts", logits, p(heads, heads)))
    weights = jnp.einsum("bhts,hg->bgts", weights, p(heads, heads))
    return from_heads(p, jnp.einsum("bhts,bshd->bthd", weights, v), x.shape[-1])


def multi_query_attention(p, x, heads):
    """Apply causal multi-query attention: all heads share one key and one value (arXiv:1911.02150)."""
    width = x.shape[-1]
    q = to_heads(p, x, heads, width, bias=False)
    k, v = jnp.split(x @ p(width, 2 * width // heads), 2, -1)
    logits = jnp.einsum("bthd,bsd->bhts", q, k) * k.shape[-1] ** -0.5
    weights = softmax(logits, causal_mask(x.shape[1]))
    return from_heads(p, jnp.einsum("bhts,bsd->bthd", weights, v), width, bias=False)


def shift_distances(x):
    """Convert logits by relative distance to logits by position, valid for past positions only.

    Padding and a reshape shift each row by one more than the row before (arXiv:1901.02860, appendix B).

    Args:
        x: (..., time, distance), distances in descending order to 0.

    Returns:
        (..., time, position).
    """
    *batch, time, _ = x.shape
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(1, 0)])
    return padded.reshape(*batch, time + 1, time)[..., 1:, :]


def relative_attention(p, x, heads):
    """Apply causal attention with relative positions, as in Transformer-XL (arXiv:1901.02860)."""
    time, width = x.shape[1:]
    q, k, v = (to_heads(p, x, heads, width) for _ in range(3))
    by_distance = jnp.einsum("bthd,rhd->bhtr", q, p(time, heads, width // heads))
    return from_heads(p, attend(q, k, v, causal_mask(time), shift_distances(by_distance)), width)


def linear_attention(p, x, heads):
    """Apply linear attention: a feature map replaces the softmax (arXiv:2006.16236)."""
    q, k, v = (to_heads(p, x, heads, x.shape[-1]) for _ in range(3))
    q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    memory = jnp.einsum("bshd,bshe->bhde", k, v)
    scale = jnp.einsum("bthd,bhd->bth", q, k.sum(1))[..., None]
    return from_heads(p, jnp.einsum("bthd,bhde->bthe", q, memory) / scale, x.shape[-1])


def block_attention(p, x, heads, size=16):
    """Apply local attention to the same and the previous block, as in Longformer (arXiv:2004.05150)."""
    batch, time, width = x.shape
    blocks = x.reshape(batch, time // size, size, width)
    q, k, v = (to_heads(p, blocks, heads, width) for _ in range(3))
    k, v = (jnp.concatenate([jnp.roll(y, 1, 1), y], 2) for y in (k, v))
    weights = softmax(jnp.einsum("bnthd,bnshd->bnhts", q, k) * q.shape[-1] ** -0.5)
    return from_heads(p, jnp.einsum("bnhts,bnshd->bnthd", weights, v), width).reshape(x.shape)


def low_rank_attention(p, x, heads, rank=16):
    """Apply Linformer attention: keys and values are projected along time to ``rank`` (arXiv:2006.04768)."""
    projection, width = p(rank, x.shape[1]), x.shape[-1]
    q, k, v = (to_heads(p, x, heads, width) for _ in range(3))
    k, v = (jnp.einsum("rs,bshd->brhd", projection, y) for y in (k, v))
    return from_heads(p, attend(q, k, v), width)


def disentangled_attention(p, x, heads, distances=16):
    """Apply DeBERTa's disentangled attention, with content-to-position terms (arXiv:2006.03654)."""
    time, width = x.shape[1:]
    q, k, v = (to_heads(p, x, heads, width) for _ in range(3))
    table = p(distances, width)
    key_rows, query_rows = (to_heads(p, table, heads, width, bias=False) for _ in range(2))
    distance = jnp.clip(jnp.arange(time)[:, None] - jnp.arange(time) + distances // 2, 0, distances - 1)
    one_hot = jax.nn.one_hot(distance, distances, dtype=x.dtype)
    bias = jnp.einsum("bthr,tsr->bhts", jnp.einsum("bthd,rhd->bthr", q, key_rows), one_hot)
    bias += jnp.einsum("bshr,tsr->bhts", jnp.einsum("bshd,rhd->bshr", k, query_rows), one_hot)
    return from_heads(p, attend(q, k, v, bias=bias * (3 * q.shape[-1]) ** -0.5), width)


def retention(p, x, heads):
    """Apply RetNet's retention: an exponential decay over time replaces the softmax (arXiv:2307.08621)."""
    time, width = x.shape[1:]
    q, k, v, gate = (to_heads(p, x, heads, width, bias=False) for _ in range(4))
    age = jnp.arange(time)[:, None] - jnp.arange(time)
    rates = 1 - 2.0 ** (-5 - jnp.arange(heads))[:, None, None]
    decay = jnp.where(age >= 0, rates ** jnp.maximum(age, 0), 0).astype(x.dtype)
    values = jnp.einsum("bhts,bshd->bthd", jnp.einsum("bthd,bshd->bhts", q, k) * decay, v)
    return from_heads(p, jax.nn.silu(gate) * values, width, bias=False)


def random_feature_attention(p, x, heads, features=32):
    """Apply Performer's attention: positive random features estimate the softmax (arXiv:2009.14794)."""
    q, k, v = (to_heads(p, x, heads, x.shape[-1]) for _ in range(3))
    projection = p(q.shape[-1], features)

    def positive(y):
        return jnp.exp(jnp.tanh(y @ projection) - jnp.square(y).mean(-1, keepdims=True) / 2)

    q, k = positive(q), positive(k)
    scale = jnp.einsum("bthf,bhf->bth", q, k.sum(1))[..., None]
    memory = jnp.einsum("bshf,bshe->bhfe", k, v)
    return from_heads(p, jnp.einsum("bthf,bhfe->bthe", q, memory) / scale, x.shape[-1])


def landmark_attention(p, x, heads, size=4):
    """Apply Nyström attention: means of ``size`` tokens stand for the sequence (arXiv:2102.03902)."""
    q, k, v = (to_heads(p, x, heads, x.shape[-1]) for _ in range(3))
    few_q, few_k = (y.reshape(len(y), -1, size, *y.shape[2:]).mean(2) for y in (q, k))
    read = softmax(jnp.einsum("bthd,bmhd->bhtm", q, few_k))
    middle = softmax(jnp.einsum("bmhd,bnhd->bhmn", few_q, few_k))
    write = softmax(jnp.einsum("bnhd,bshd->bhns", few_q, k))
    values = jnp.einsum("bhmn,bhnd->bhmd", middle, jnp.einsum("bhns,bshd->bhnd", write, v))
    return from_heads(p, jnp.einsum("bhtm,bhmd->bthd", read, values), x.shape[-1])


def state_space(p, x, heads, states=16):
    """Apply Mamba-2's state space as masked products with decays (arXiv:2405.21060)."""
    time, width = x.shape[1:]
    gate, values = (to_heads(p, x, heads, width, bias=False) for _ in range(2))
    write, read = x @ p(width, states), x @ p(width, states)
    rates = jnp.cumsum(jax.nn.softplus((x @ p(width, heads)).astype(jnp.float32)), 1)
    age = jnp.where(causal_mask(time)[..., None], rates[:, :, None] - rates[:, None], jnp.inf)
    products = jnp.einsum("btn,bsn->bts", read, write)[..., None] * jnp.exp(-age).astype(x.dtype)
    values = jnp.einsum("btsh,bshd->bthd", products, values)
    return from_heads(p, jax.nn.silu(gate) * values, width, bias=False)


KINDS = {
    "talking_heads": talking_heads_attention,
    "multi_query": multi_query_attention,
    "relative": relative_attention,
    "linear": linear_attention,
    "block": block_attention,
    "low_rank": low_rank_attention,
    "disentangled": disentangled_attention,
    "retention": retention,
    "random_features": random_feature_attention,
    "landmarks": landmark_attention,
    "state_space": state_space,
}


def transformer(p, tokens, *, width, depth, kind, heads=4):
    """Transformer with one of the ``KINDS`` of attention and a token predictor (arXiv:1706.03762)."""
    x, table = embed(p, tokens, width)
    for _ in range(depth):
        x = x + KINDS[kind](p, layer_norm(p, x), heads)
        x = x + mlp(p, layer_norm(p, x), 2 * width)
    return layer_norm(p, x) @ table.T


def perceiver(p, tokens, *, width, depth, heads=4, latents=24):
    """Perceiver: a few latent vectors attend to the sequence and to each other (arXiv:2103.03206)."""
    memory, _ = embed(p, tokens, width)
    memory = memory + p(tokens.shape[1], width)
    x = jnp.broadcast_to(p(latents, width), (len(tokens), latents, width))
    for _ in range(depth):
        for source in (memory, x):
            x = x + attention(p, layer_norm(p, x), source, heads)
        x = x + mlp(p, layer_norm(p, x), 2 * width)
    return dense(p, x.reshape(len(x), -1), 10)


def sentence_pair(p, premise, hypothesis, *, width, depth):
    """Decomposable attention: two sentences are aligned, compared and summed (arXiv:1606.01933)."""
    x, table = embed(p, premise, width)
    y = table[hypothesis]
    for _ in range(depth):
        scores = jnp.einsum("btd,bsd->bts", jax.nn.relu(dense(p, x, width)), jax.nn.relu(dense(p, y, width)))
        to_y = jnp.einsum("bts,bsd->btd", softmax(scores), y)
        to_x = jnp.einsum("bst,btd->bsd", softmax(scores.swapaxes(1, 2)), x)
        x = jax.nn.relu(dense(p, jnp.concatenate([x, to_y], -1), width))
        y = jax.nn.relu(dense(p, jnp.concatenate([y, to_x], -1), width))
    return dense(p, jnp.concatenate([x.sum(1), y.sum(1)], -1), 3)
