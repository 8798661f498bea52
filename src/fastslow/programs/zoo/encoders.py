"""Language encoders: pretraining with two heads, fine-tuning, pooling, speech and comparison of texts."""

import jax
import jax.numpy as jnp

from fastslow.programs.zoo.layers import (
    attend,
    attention,
    causal_mask,
    conv,
    dense,
    embed,
    layer_norm,
    mlp,
    shared,
    softmax,
    transformer_layer,
)


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


def hierarchical(p, tokens, *, width, depth, sentence=16):
    """Hierarchical transformer: layers within sentences, then between them (arXiv:1905.06566)."""
    x, _ = embed(p, tokens, width)
    within = encode(p, x.reshape(-1, sentence, width), depth)
    return dense(p, encode(p, within.mean(1).reshape(len(x), -1, width), depth), 3)


def speech_recogniser(p, spectrum, tokens, *, width, depth, heads=4):
    """Whisper-like: convolutions and an encoder of a spectrum, a decoder of text (arXiv:2212.04356)."""
    x = jax.nn.gelu(conv(p, spectrum[:, :, None], width, (3, 1)))
    x = encode(p, jax.nn.gelu(conv(p, x, width, (3, 1), (2, 1)))[:, :, 0], depth)
    y, table = embed(p, tokens, width)
    for _ in range(depth):
        y = transformer_layer(p, y, heads, causal_mask(y.shape[1]))
        y = y + attention(p, layer_norm(p, y), x, heads)
    return layer_norm(p, y) @ table.T


def question_answering(p, question, passage, *, width, depth):
    """QANet: convolutions and self-attention, with attention between two texts (arXiv:1804.09541)."""

    def encoder(p, x):
        for _ in range(depth):
            y = conv(p, layer_norm(p, x)[:, :, None], width, (5, 1), groups=width)
            x = x + jax.nn.relu(conv(p, y, width, 1))[:, :, 0]
            x = transformer_layer(p, x, 4)
        return x

    table = p(1000, width)
    encoder = shared(p, encoder, table[question])
    x, y = encoder(table[question]), encoder(table[passage])
    scores = jnp.einsum("btd,bsd->bts", y @ p(width, width), x)
    to_question = softmax(scores) @ x
    return dense(p, jnp.concatenate([y, to_question, y * to_question], -1), 2)
