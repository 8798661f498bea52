"""Language models: encoders, decoders and encoder-decoders."""

import jax
import jax.numpy as jnp
from jax import lax

from fastslow.programs.zoo.attention import grouped_query_attention
from fastslow.programs.zoo.layers import (
    Parameters,
    attention,
    causal_mask,
    conv,
    dense,
    embed,
    gated_mlp,
    layer_norm,
    max_pool,
    mlp,
    parameter_shapes,
    rms_norm,
    shared,
    transformer_layer,
)


def bert(p, tokens, *, width, depth, heads=4):
    """BERT: post-norm transformer encoder with a token predictor (arXiv:1810.04805)."""
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


def text_cnn(p, tokens, *, width, depth):
    """TextCNN: convolutions of several lengths over a sentence with max pooling (arXiv:1408.5882)."""
    x, _ = embed(p, tokens, width)
    image = x[:, :, None]
    for _ in range(depth):
        branches = [conv(p, image, width // 2, (length, 1)) for length in (3, 4, 5)]
        image = max_pool(jax.nn.relu(jnp.concatenate(branches, -1)), 2, 2)
    return dense(p, image.max((1, 2)), 8)


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
