"""Language models: kinds of attention, encoders, decoders and encoder-decoders.

A network ``(p, tokens, *, width, depth)`` takes weights and tokens (batch, time) as ``layers.py`` describes.
A decoder returns logits (batch, time, vocabulary), a classifier logits (batch, classes). A kind of attention
``(p, x, heads)`` takes and returns a sequence (batch, time, features).
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import relu

from make_sample.zoo.layers import (
    Parameters,
    attend,
    attention,
    causal_mask,
    conv,
    dense,
    embed,
    from_heads,
    gated_mlp,
    layer_norm,
    mlp,
    parameter_shapes,
    rms_norm,
    shared,
    softmax,
    to_heads,
    transformer_layer,
)
from make_sample.zoo.sequences import causal_conv


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


def retention_attention(p, x, heads):
    """Apply RetNet's retention: an exponential decay over time replaces the softmax (arXiv:2307.08621)."""
    time, width = x.shape[1:]
    q, k, v, gate = (to_heads(p, x, heads, width, bias=False) for _ in range(4))
    age = jnp.arange(time)[:, None] - jnp.arange(time)
    rates = 1 - 2.0 ** (-5 - jnp.arange(heads))[:, None, None]
    decay = jnp.where(age >= 0, rates ** jnp.maximum(age, 0), 0).astype(x.dtype)
    values = jnp.einsum("bhts,bshd->bthd", jnp.einsum("bthd,bshd->bhts", q, k) * decay, v)
    return from_heads(p, jax.nn.silu(gate) * values, width, bias=False)


def random_features_attention(p, x, heads, features=32):
    """Apply Performer's attention: positive random features estimate the softmax (arXiv:2009.14794)."""
    q, k, v = (to_heads(p, x, heads, x.shape[-1]) for _ in range(3))
    projection = p(q.shape[-1], features)

    def positive(y):
        return jnp.exp(jnp.tanh(y @ projection) - jnp.square(y).mean(-1, keepdims=True) / 2)

    q, k = positive(q), positive(k)
    scale = jnp.einsum("bthf,bhf->bth", q, k.sum(1))[..., None]
    memory = jnp.einsum("bshf,bshe->bhfe", k, v)
    return from_heads(p, jnp.einsum("bthf,bhfe->bthe", q, memory) / scale, x.shape[-1])


def landmarks_attention(p, x, heads, size=4):
    """Apply Nyström attention: means of ``size`` tokens represent the sequence (arXiv:2102.03902)."""
    q, k, v = (to_heads(p, x, heads, x.shape[-1]) for _ in range(3))
    few_q, few_k = (y.reshape(len(y), -1, size, *y.shape[2:]).mean(2) for y in (q, k))
    read = softmax(jnp.einsum("bthd,bmhd->bhtm", q, few_k))
    middle = softmax(jnp.einsum("bmhd,bnhd->bhmn", few_q, few_k))
    write = softmax(jnp.einsum("bnhd,bshd->bhns", few_q, k))
    values = jnp.einsum("bhmn,bhnd->bhmd", middle, jnp.einsum("bhns,bshd->bhnd", write, v))
    return from_heads(p, jnp.einsum("bhtm,bhmd->bthd", read, values), x.shape[-1])


def state_space_attention(p, x, heads, states=16):
    """Apply Mamba-2's state space as masked products with decays (arXiv:2405.21060)."""
    time, width = x.shape[1:]
    gate, values = (to_heads(p, x, heads, width, bias=False) for _ in range(2))
    write, read = x @ p(width, states), x @ p(width, states)
    rates = jnp.cumsum(jax.nn.softplus((x @ p(width, heads)).astype(jnp.float32)), 1)
    age = jnp.where(causal_mask(time)[..., None], rates[:, :, None] - rates[:, None], jnp.inf)
    products = jnp.einsum("btn,bsn->bts", read, write)[..., None] * jnp.exp(-age).astype(x.dtype)
    values = jnp.einsum("btsh,bshd->bthd", products, values)
    return from_heads(p, jax.nn.silu(gate) * values, width, bias=False)


def transformer(p, tokens, *, width, depth, kind, heads=4):
    """Transformer with a kind of attention and a token predictor (arXiv:1706.03762)."""
    x, table = embed(p, tokens, width)
    for _ in range(depth):
        x = x + globals()[f"{kind}_attention"](p, layer_norm(p, x), heads)
        x = x + mlp(p, layer_norm(p, x), 2 * width)
    return layer_norm(p, x) @ table.T


def sentence_pair(p, premise, hypothesis, *, width, depth):
    """Decomposable attention: two sentences are aligned, compared and summed (arXiv:1606.01933).

    Args:
        p: The weights.
        premise: Tokens (batch, time).
        hypothesis: Tokens (batch, time) of the other sentence.
        width: Features of a token.
        depth: Number of comparisons.

    Returns:
        Logits (batch, 3).
    """
    x, table = embed(p, premise, width)
    y = table[hypothesis]
    for _ in range(depth):
        scores = jnp.einsum("btd,bsd->bts", relu(dense(p, x, width)), relu(dense(p, y, width)))
        to_y = jnp.einsum("bts,bsd->btd", softmax(scores), y)
        to_x = jnp.einsum("bst,btd->bsd", softmax(scores.swapaxes(1, 2)), x)
        x = relu(dense(p, jnp.concatenate([x, to_y], -1), width))
        y = relu(dense(p, jnp.concatenate([y, to_x], -1), width))
    return dense(p, jnp.concatenate([x.sum(1), y.sum(1)], -1), 3)


def bert(p, tokens, *, width, depth, heads=4):
    """BERT: post-norm transformer encoder with a token predictor (arXiv:1810.04805).

    Returns:
        Logits (batch, time, vocabulary).
    """
    x, table = embed(p, tokens, width)
    x = layer_norm(p, x + p(tokens.shape[1], width))
    for _ in range(depth):
        x = layer_norm(p, x + attention(p, x, x, heads))
        x = layer_norm(p, x + mlp(p, x, 4 * width))
    return layer_norm(p, jax.nn.gelu(dense(p, x, width))) @ table.T


def gpt(p, tokens, *, width, depth, heads=4):
    """GPT-2-like causal decoder; the output layer is tied to the embedding table (arXiv:1608.05859)."""
    x, table = embed(p, tokens, width)
    x = x + p(tokens.shape[1], width)
    for _ in range(depth):
        x = transformer_layer(p, x, heads, causal_mask(tokens.shape[1]))
    return layer_norm(p, x) @ table.T


def llama(p, tokens, *, width, depth, heads=4, groups=2):
    """LLaMA: causal decoder with RMS norm, RoPE, grouped-query attention and SwiGLU (arXiv:2302.13971)."""
    x, _ = embed(p, tokens, width)
    for _ in range(depth):
        x = x + grouped_query_attention(p, rms_norm(p, x), heads, groups)
        x = x + gated_mlp(p, rms_norm(p, x), 2 * width)
    return rms_norm(p, x) @ p(width, 500)


def encoder_decoder(p, source, target, *, width, depth, heads=4):
    """Transformer encoder-decoder (arXiv:1706.03762)."""
    x, table = embed(p, source, width)
    y = table[target]
    for _ in range(depth):
        x = transformer_layer(p, x, heads)
    for _ in range(depth):
        z = layer_norm(p, y)
        y = y + attention(p, z, z, heads, causal_mask(target.shape[1]))
        y = y + attention(p, layer_norm(p, y), x, heads)
        y = y + mlp(p, layer_norm(p, y), 2 * width)
    return y @ table.T


def albert(p, tokens, *, width, depth, heads=4):
    """ALBERT: encoder whose layers share weights, with a factorised embedding (arXiv:1909.11942)."""
    x, _ = embed(p, tokens, width // 2)
    x = dense(p, x, width)
    layer = shared(p, _layer(heads), x)
    for _ in range(depth + 1):
        x = layer(x)
    return dense(p, jnp.tanh(dense(p, x[:, 0], width)), 3)


def scanned_decoder(p, tokens, *, width, depth, heads=4):
    """Causal decoder whose layers are one loop body (``lax.scan``) over stacked weights."""
    x, table = embed(p, tokens, width)
    layer = _layer(heads, causal_mask(tokens.shape[1]))
    stacked = [p(depth + 1, *s.shape) for s in parameter_shapes(layer, x, dtype=x.dtype)]
    x, _ = lax.scan(lambda x, weights: (layer(Parameters(weights, x.dtype), x), None), x, stacked)
    return x @ table.T


def _layer(heads, mask=None):
    """Return a transformer layer as a function of its weights and input."""
    return lambda p, x: transformer_layer(p, x, heads, mask)


def mixture_of_experts(p, tokens, *, width, depth, heads=4, experts=4):
    """Mixture of experts with dense routing: all experts process every token (arXiv:1701.06538)."""
    x, _ = embed(p, tokens, width)
    for _ in range(depth):
        y = layer_norm(p, x)
        x = x + attention(p, y, y, heads)
        y = layer_norm(p, x)
        gates = jax.nn.softmax(y @ p(width, experts), -1)
        hidden = jax.nn.gelu(jnp.einsum("btd,edh->beth", y, p(experts, width, 2 * width)))
        outputs = jnp.einsum("beth,ehd->betd", hidden, p(experts, 2 * width, width))
        x = x + jnp.einsum("bte,betd->btd", gates, outputs)
    return dense(p, layer_norm(p, x).mean(1), 20)


def gmlp(p, tokens, *, width, depth):
    """gMLP: MLPs with a spatial gating unit that mixes positions, without attention (arXiv:2105.08050)."""
    x, _ = embed(p, tokens, width)
    time = tokens.shape[1]
    for _ in range(depth + 1):
        left, right = jnp.split(jax.nn.gelu(dense(p, layer_norm(p, x), 2 * width)), 2, -1)
        mixed = jnp.einsum("ts,bsd->btd", p(time, time), layer_norm(p, right)) + p(time, 1)
        x = x + dense(p, left * mixed, width)
    return dense(p, x.mean(1), 16)


def fnet(p, tokens, *, width, depth):
    """FNet: Fourier transforms, as matrix products, replace attention (arXiv:2105.03824)."""
    x, _ = embed(p, tokens, width)
    cosines, sines = zip(*(_fourier(size, x.dtype) for size in (tokens.shape[1], width)), strict=True)
    for _ in range(depth + 1):
        y = jnp.einsum("ts,bsd,de->bte", cosines[0], x, cosines[1])
        y = y - jnp.einsum("ts,bsd,de->bte", sines[0], x, sines[1])
        x = layer_norm(p, x + y)
        x = layer_norm(p, x + mlp(p, x, 2 * width))
    return dense(p, x, 32)


def _fourier(size, dtype):
    """Return the real and the imaginary part of the DFT matrix."""
    angle = 2 * jnp.pi / size * jnp.outer(jnp.arange(size), jnp.arange(size))
    return jnp.cos(angle).astype(dtype), jnp.sin(angle).astype(dtype)


def conformer(p, tokens, *, width, depth, heads=4):
    """Conformer: attention and a gated convolution over time in every layer (arXiv:2005.08100)."""
    x, _ = embed(p, tokens, width)
    for _ in range(depth):
        x = x + 0.5 * mlp(p, layer_norm(p, x), 2 * width)
        y = layer_norm(p, x)
        x = x + attention(p, y, y, heads)
        value, gate = jnp.split(dense(p, layer_norm(p, x), 2 * width), 2, -1)
        y = conv(p, (value * jax.nn.sigmoid(gate))[:, :, None], width, (5, 1), groups=width)[:, :, 0]
        x = x + dense(p, jax.nn.silu(layer_norm(p, y)), width)
    return dense(p, x, 40)


def encode(p, x, depth, heads=4):
    """Apply ``depth`` transformer layers to embeddings, after learned positions and before a norm."""
    x = x + p(x.shape[1], x.shape[-1])
    for _ in range(depth):
        x = transformer_layer(p, x, heads)
    return layer_norm(p, x)


def electra(p, tokens, *, width, depth):
    """ELECTRA: a narrow generator of tokens and a discriminator of replaced ones (arXiv:2003.10555)."""
    x, table = embed(p, tokens, width)
    guesses = dense(p, encode(p, dense(p, x, width // 2), depth), width) @ table.T
    replaced = softmax(guesses) @ table  # the expected embedding, in place of a sample
    return guesses, dense(p, encode(p, x + replaced, depth), 1)


def multi_task(p, tokens, *, width, depth):
    """Multi-task learning: one encoder, heads for spans, tags, classes and a score (arXiv:1901.11504)."""
    x, _ = embed(p, tokens, width)
    x = encode(p, x, depth)
    summary = jnp.tanh(dense(p, x[:, 0], width))
    heads = [dense(p, jax.nn.gelu(dense(p, x, width)), outputs) for outputs in (2, 9)]
    return *heads, dense(p, summary, 5), dense(p, summary, 1)


def reward_model(p, chosen, rejected, *, width, depth):
    """Reward model: one encoder scores two answers, of which the first is preferred (arXiv:2203.02155)."""
    table = p(1000, width)
    score = shared(p, lambda p, x: dense(p, encode(p, x, depth).mean(1), 1), table[chosen])
    return jax.nn.softplus(score(table[rejected]) - score(table[chosen]))


def two_towers(p, query, passage, *, width, depth):
    """Dense retrieval: encoders of queries and of passages, similarities by products (arXiv:2004.04906)."""
    table = p(1000, width)
    x, y = (encode(p, table[tokens], depth)[:, 0] for tokens in (query, passage))
    return jax.nn.log_softmax((x @ y.T).astype(jnp.float32))


def low_rank_dense(p, x, *features, axes=1, rank=8):
    """Apply a dense layer from the last ``axes`` axes to ``features``; all but a low-rank part is frozen."""
    inputs = x.shape[-axes:]
    frozen = jax.lax.stop_gradient(p(*inputs, *features))
    narrow = jnp.tensordot(x, p(*inputs, rank), axes)
    return jnp.tensordot(x, frozen, axes) + jnp.tensordot(narrow, p(rank, *features), 1)


def low_rank_tuning(p, tokens, *, width, depth, heads=4):
    """Fine-tuning with LoRA: low-rank updates of frozen projections (arXiv:2106.09685)."""
    x, _ = embed(p, tokens, width)
    for _ in range(depth):
        y = layer_norm(p, x)
        q, k, v = (low_rank_dense(p, y, heads, width // heads) for _ in range(3))
        x = x + low_rank_dense(p, attend(q, k, v), width, axes=2)
        hidden = jax.nn.gelu(low_rank_dense(p, layer_norm(p, x), 2 * width))
        x = x + low_rank_dense(p, hidden, width)
    return dense(p, x.mean(1), 4)


def adapters(p, tokens, *, width, depth, heads=4):
    """Adapters: a small bottleneck after attention and after the MLP of every layer (arXiv:1902.00751)."""
    x, _ = embed(p, tokens, width)
    for _ in range(depth):
        y = attention(p, x, x, heads)
        x = layer_norm(p, x + y + mlp(p, y, width // 4))
        y = mlp(p, x, 2 * width)
        x = layer_norm(p, x + y + mlp(p, y, width // 4))
    return dense(p, x[:, 0], 4)


def funnel(p, tokens, *, width, depth, heads=4):
    """Funnel-Transformer: stages of layers, the sequence is halved between them (arXiv:2006.03236)."""
    x, _ = embed(p, tokens, width)
    for stage in range(2):
        if stage:
            pooled = x.reshape(len(x), -1, 2, width).mean(2)
            x = layer_norm(p, pooled + attention(p, pooled, x, heads))
        for _ in range(depth):
            x = layer_norm(p, x + attention(p, x, x, heads))
            x = layer_norm(p, x + mlp(p, x, 2 * width))
    return dense(p, x[:, 0], 8)


def speech_recogniser(p, spectrum, tokens, *, width, depth, heads=4):
    """Whisper-like: convolutions and an encoder of a spectrum, a decoder of text (arXiv:2212.04356)."""
    x = jax.nn.gelu(conv(p, spectrum[:, :, None], width, (3, 1)))
    x = encode(p, jax.nn.gelu(conv(p, x, width, (3, 1), (2, 1)))[:, :, 0], depth)
    y, table = embed(p, tokens, width)
    for _ in range(depth):
        y = transformer_layer(p, y, heads, causal_mask(y.shape[1]))
        y = y + attention(p, layer_norm(p, y), x, heads)
    return layer_norm(p, y) @ table.T


def biased_attention(p, x, memory, bias, heads, mask=None):
    """Apply T5's attention: no biases of projections, a learned bias of the logits (arXiv:1910.10683)."""
    width = x.shape[-1]
    q = to_heads(p, x, heads, width, bias=False)
    k, v = (to_heads(p, memory, heads, width, bias=False) for _ in range(2))
    return from_heads(p, attend(q, k, v, mask, bias), width, bias=False)


def t5(p, source, target, *, width, depth, heads=4):
    """T5: encoder-decoder with RMS norms, biases by position and gated MLPs (arXiv:1910.10683)."""
    x, table = embed(p, source, width)
    y = table[target]
    bias = p(heads, x.shape[1], x.shape[1])
    for _ in range(depth):
        z = rms_norm(p, x)
        x = x + biased_attention(p, z, z, bias, heads)
        x = x + gated_mlp(p, rms_norm(p, x), 2 * width)
    bias, mask = p(heads, y.shape[1], y.shape[1]), causal_mask(y.shape[1])
    for _ in range(depth):
        z = rms_norm(p, y)
        y = y + biased_attention(p, z, z, bias, heads, mask)
        y = y + biased_attention(p, rms_norm(p, y), x, 0, heads)
        y = y + gated_mlp(p, rms_norm(p, y), 2 * width)
    return rms_norm(p, y) @ table.T


def bart(p, source, target, *, width, depth, heads=4):
    """BART: post-norm encoder-decoder with learned positions (arXiv:1910.13461)."""
    x, table = embed(p, source, width)
    x, y = (layer_norm(p, z + p(z.shape[1], width)) for z in (x, table[target]))
    for _ in range(depth):
        x = layer_norm(p, x + attention(p, x, x, heads))
        x = layer_norm(p, x + mlp(p, x, 4 * width))
    for _ in range(depth):
        y = layer_norm(p, y + attention(p, y, y, heads, causal_mask(y.shape[1])))
        y = layer_norm(p, y + attention(p, y, x, heads))
        y = layer_norm(p, y + mlp(p, y, 4 * width))
    return y @ table.T


def parallel_decoder(p, tokens, *, width, depth, heads=4):
    """GPT-J: attention with rotary positions and the MLP in parallel on one norm (arXiv:2204.06745)."""
    x, _ = embed(p, tokens, width)
    for _ in range(depth):
        y = rms_norm(p, x)
        q, k, v = (to_heads(p, y, heads, width, bias=False) for _ in range(3))
        values = attend(rotate(q), rotate(k), v, causal_mask(y.shape[1]))
        hidden = jax.nn.gelu(y @ p(width, 4 * width))
        x = x + from_heads(p, values, width, bias=False) + hidden @ p(4 * width, width)
    return rms_norm(p, x) @ p(width, 800)


def switch(p, tokens, *, width, depth, heads=4, experts=4):
    """Switch Transformer: each token is dispatched to one expert of limited capacity (arXiv:2101.03961)."""
    x, _ = embed(p, tokens, width)
    capacity = 2 * tokens.shape[1] // experts
    for _ in range(depth):
        y = rms_norm(p, x)
        x = x + attention(p, y, y, heads, causal_mask(y.shape[1]))
        y = rms_norm(p, x)
        gates = softmax(y @ p(width, experts))
        chosen = jax.nn.one_hot(gates.argmax(-1), experts, dtype=jnp.float32)
        place = jnp.cumsum(chosen, 1) * chosen - 1
        dispatch = jax.nn.one_hot(place, capacity, dtype=x.dtype)
        hidden = jnp.einsum("btec,btd->ebcd", dispatch, y)
        hidden = relu(jnp.einsum("ebcd,edh->ebch", hidden, p(experts, width, 2 * width)))
        outputs = jnp.einsum("ebch,ehd->ebcd", hidden, p(experts, 2 * width, width))
        x = x + jnp.einsum("btec,ebcd->btd", dispatch * gates[..., None], outputs)
    return dense(p, x, 600)


def rwkv(p, tokens, *, width, depth):
    """RWKV: decaying averages over time and gates in place of attention (arXiv:2305.13048)."""
    x, _ = embed(p, tokens, width)
    time = tokens.shape[1]
    age = jnp.arange(time)[:, None] - jnp.arange(time)
    for _ in range(depth):
        y = rms_norm(p, x)
        y = y + jnp.pad(y, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        receptance, key, value = (y @ p(width, width) for _ in range(3))
        decay = jnp.where(age >= 0, jnp.exp(-jnp.maximum(age, 0) * 0.1), 0).astype(x.dtype)
        weights = jnp.exp(jnp.tanh(key))
        mean = jnp.einsum("ts,bsd->btd", decay, weights * value) / jnp.einsum("ts,bsd->btd", decay, weights)
        x = x + (jax.nn.sigmoid(receptance) * mean) @ p(width, width)
        y = rms_norm(p, x)
        hidden = jnp.square(relu(y @ p(width, 2 * width))) @ p(2 * width, width)
        x = x + jax.nn.sigmoid(y @ p(width, width)) * hidden
    return rms_norm(p, x) @ p(width, 500)


def bytenet(p, source, target, *, width, depth):
    """ByteNet: dilated convolutions encode the source, causal ones decode (arXiv:1610.10099)."""
    x, _ = embed(p, source, width, 256)
    y, _ = embed(p, target, width, 256)
    x, y = x[:, :, None], y[:, :, None]
    for layer in range(depth):
        z = relu(conv(p, relu(x), width // 2, 1))
        z = conv(p, z, width // 2, (3, 1), dilation=1 << layer % 3)
        x = x + conv(p, relu(z), width, 1)
    y = jnp.concatenate([x, y], -1)
    for layer in range(depth):
        z = relu(conv(p, relu(y), width // 2, 1))
        z = causal_conv(p, z, width // 2, 3, 1 << layer % 3)
        y = y + conv(p, relu(z), 2 * width, 1)
    return conv(p, relu(y), 256, 1)[:, :, 0]


def cached_decoder(p, tokens, *, width, depth, heads=4, past=64):
    """A decoding step: few new tokens attend to cached keys and values of every layer."""
    x, table = embed(p, tokens, width)
    batch, time = tokens.shape
    for _ in range(depth):
        y = rms_norm(p, x)
        q, k, v = (to_heads(p, y, heads, width, bias=False) for _ in range(3))
        k, v = (jnp.concatenate([p(batch, past, heads, width // heads), z], 1) for z in (k, v))
        mask = jnp.concatenate([jnp.ones((time, past), bool), causal_mask(time)], 1)
        x = x + from_heads(p, attend(q, k, v, mask), width, bias=False)
        x = x + gated_mlp(p, rms_norm(p, x), 2 * width)
    return rms_norm(p, x) @ table.T


def speculative(p, tokens, *, width, depth, heads=4):
    """Speculative decoding: a narrow model drafts, a wide one verifies (arXiv:2211.17192)."""
    logits = []
    for size, layers in ((width // 2, depth), (width, depth + 1)):
        x, table = embed(p, tokens, size)
        for _ in range(layers):
            x = transformer_layer(p, x, heads, causal_mask(tokens.shape[1]))
        logits.append(x @ table.T)
    draft, target = (softmax(x) for x in logits)
    return jnp.minimum(target / (draft + 1e-3), 1)


def memory_network(p, story, question, *, width, depth):
    """End-to-end memory network: a question attends to sentences repeatedly (arXiv:1503.08895)."""
    x, _ = embed(p, question, width)
    sentences, _ = embed(p, story, width)
    for _ in range(depth):
        keys, values = dense(p, sentences, width), dense(p, sentences, width)
        weights = softmax(jnp.einsum("btd,bsd->bts", dense(p, x, width), keys))
        x = layer_norm(p, x + dense(p, jnp.einsum("bts,bsd->btd", weights, values), width))
    return dense(p, x.reshape(len(x), -1), 100)
