"""Language decoders beyond the plain transformer, and sequence-to-sequence models."""

import jax
import jax.numpy as jnp

from fastslow.programs.zoo.attention import rotate
from fastslow.programs.zoo.layers import (
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
    rms_norm,
    softmax,
    to_heads,
    transformer_layer,
)
from fastslow.programs.zoo.sequences import causal_conv


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
        hidden = jax.nn.relu(jnp.einsum("ebcd,edh->ebch", hidden, p(experts, width, 2 * width)))
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
        hidden = jnp.square(jax.nn.relu(y @ p(width, 2 * width))) @ p(2 * width, width)
        x = x + jax.nn.sigmoid(y @ p(width, width)) * hidden
    return rms_norm(p, x) @ p(width, 500)


def bytenet(p, source, target, *, width, depth):
    """ByteNet: dilated convolutions encode the source, causal ones decode (arXiv:1610.10099)."""
    x, _ = embed(p, source, width, 256)
    y, _ = embed(p, target, width, 256)
    x, y = x[:, :, None], y[:, :, None]
    for layer in range(depth):
        z = jax.nn.relu(conv(p, jax.nn.relu(x), width // 2, 1))
        z = conv(p, z, width // 2, (3, 1), dilation=1 << layer % 3)
        x = x + conv(p, jax.nn.relu(z), width, 1)
    y = jnp.concatenate([x, y], -1)
    for layer in range(depth):
        z = jax.nn.relu(conv(p, jax.nn.relu(y), width // 2, 1))
        z = causal_conv(p, z, width // 2, 3, 1 << layer % 3)
        y = y + conv(p, jax.nn.relu(z), 2 * width, 1)
    return conv(p, jax.nn.relu(y), 256, 1)[:, :, 0]


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
