"""The policy: a transformer of two layers over single characters, small enough to learn on a CPU."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from characters import END, PAD, VOCABULARY

WIDTH, HEADS, LAYERS = 64, 4, 2
CONTEXT = 64
#: Replies have at most this many tokens. A prompt fits if a whole reply fits behind it.
MAX_REPLY = 24
#: Shapes that are compiled: a batch is padded to the next of them.
BATCHES = (16, 64, 192)
PROMPTS = (16, CONTEXT - MAX_REPLY)

Params = dict[str, jax.Array]


def init(seed: int) -> Params:
    keys = iter(jax.random.split(jax.random.key(seed), 2 + 4 * LAYERS))

    def normal(*shape: int, scale: float) -> jax.Array:
        return scale * jax.random.normal(next(keys), shape, jnp.float32)

    params = {
        "embed": normal(len(VOCABULARY), WIDTH, scale=0.05),
        "position": normal(CONTEXT, WIDTH, scale=0.05),
        "norm": jnp.ones(WIDTH),
    }
    for layer in range(LAYERS):
        params |= {
            f"{layer}.qkv": normal(WIDTH, 3 * WIDTH, scale=WIDTH**-0.5),
            f"{layer}.out": normal(WIDTH, WIDTH, scale=(2 * LAYERS * WIDTH) ** -0.5),
            f"{layer}.up": normal(WIDTH, 4 * WIDTH, scale=WIDTH**-0.5),
            f"{layer}.down": normal(4 * WIDTH, WIDTH, scale=(8 * LAYERS * WIDTH) ** -0.5),
            f"{layer}.norm1": jnp.ones(WIDTH),
            f"{layer}.norm2": jnp.ones(WIDTH),
        }
    return params


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return scale * x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def _layers(params: Params, x: jax.Array, attend) -> jax.Array:
    """The layers on `x` [batch, length, width]. `attend(layer, q, k, v)` decides what is seen, and keeps the cache."""
    batch, length, _ = x.shape
    for layer in range(LAYERS):
        qkv = _norm(x, params[f"{layer}.norm1"]) @ params[f"{layer}.qkv"]
        q, k, v = jnp.moveaxis(qkv.reshape(batch, length, 3, HEADS, WIDTH // HEADS), 2, 0)
        seen = attend(layer, q, k, v).reshape(batch, length, WIDTH)
        x = x + seen @ params[f"{layer}.out"]
        hidden = jax.nn.gelu(_norm(x, params[f"{layer}.norm2"]) @ params[f"{layer}.up"])
        x = x + hidden @ params[f"{layer}.down"]
    return _norm(x, params["norm"]) @ params["embed"].T


def _attention(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array) -> jax.Array:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    weights = jax.nn.softmax(jnp.where(mask[:, None], scores, -1e30), -1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def logprobs(params: Params, ids: jax.Array) -> jax.Array:
    """The log-probability of each token given those before it, [batch, length]; 0 for the first."""
    length = ids.shape[1]
    mask = jnp.tril(jnp.ones((1, length, length), bool))
    x = params["embed"][ids] + params["position"][:length]
    logits = _layers(params, x, lambda _, q, k, v: _attention(q, k, v, mask))
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits[:, :-1]), ids[:, 1:, None], -1)[..., 0]
    return jnp.pad(picked, ((0, 0), (1, 0)))


@partial(jax.jit, static_argnames=("prompt_length",))
def _generate(params: Params, prompts, lengths, limits, temperatures, key, prompt_length: int):
    """Samples a reply to each prompt, which stand at the right of their rows. Keys and values are kept in a cache."""
    batch, total = prompts.shape[0], prompt_length + MAX_REPLY
    shift = prompt_length - lengths
    cache = jnp.zeros((LAYERS, 2, batch, total, HEADS, WIDTH // HEADS))

    def run(cache, ids, start, length):
        at = start + jnp.arange(length)
        position = jnp.clip(at[None] - shift[:, None], 0, CONTEXT - 1)
        keys = jnp.arange(total)
        mask = (keys[None, None] <= at[None, :, None]) & (keys[None, None] >= shift[:, None, None])

        def attend(layer, q, k, v):
            nonlocal cache
            cache = jax.lax.dynamic_update_slice(cache, jnp.stack([k, v])[None], (layer, 0, 0, start, 0, 0))
            return _attention(q, cache[layer, 0], cache[layer, 1], mask)

        logits = _layers(params, params["embed"][ids] + params["position"][position], attend)
        return cache, logits[:, -1]

    def sample(logits, step):
        # A temperature of 0 is greedy. What is reported is the model's own log-probability, as vLLM does.
        noise = jax.random.gumbel(jax.random.fold_in(key, step), logits.shape)
        picked = jnp.argmax(logits + temperatures[:, None] * noise, -1)
        return picked, jnp.take_along_axis(jax.nn.log_softmax(logits), picked[:, None], -1)[:, 0]

    def goes_on(state):
        step, _, _, _, _, done = state
        return (step < MAX_REPLY) & ~jnp.all(done)

    def one(state):
        step, cache, logits, ids, logprobs, done = state
        picked, logprob = sample(logits, step)
        ids = ids.at[:, step].set(jnp.where(done, PAD, picked))
        logprobs = logprobs.at[:, step].set(jnp.where(done, 0.0, logprob))
        done = done | (picked == END) | (step + 1 >= limits)
        cache, logits = run(cache, picked[:, None], prompt_length + step, 1)
        return step + 1, cache, logits, ids, logprobs, done

    cache, logits = run(cache, prompts, 0, prompt_length)
    empty = jnp.full((batch, MAX_REPLY), PAD), jnp.zeros((batch, MAX_REPLY)), lengths == 0
    _, _, _, ids, logprobs, _ = jax.lax.while_loop(goes_on, one, (0, cache, logits, *empty))
    return ids, logprobs


class Sampler:
    """Samples replies to prompts of any length, in batches of the shapes that are compiled."""

    def __init__(self, seed: int) -> None:
        self._key = jax.random.key(seed)
        self._calls = 0

    def __call__(
        self, params: Params, prompts: list[list[int]], limits: list[int], temperatures: list[float]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each prompt the sampled ids and their log-probabilities. It may not be called from two threads at once."""
        count, longest = len(prompts), max(map(len, prompts))
        batch = next(size for size in BATCHES if size >= count)
        length = next(size for size in PROMPTS if size >= longest)
        padded = np.full((batch, length), PAD, np.int32)
        for row, prompt in zip(padded, prompts):
            row[length - len(prompt) :] = prompt
        fill = [0] * (batch - count)
        self._calls += 1
        ids, logprobs = _generate(
            params,
            padded,
            np.array([*map(len, prompts), *fill], np.int32),
            np.array([*limits, *fill], np.int32),
            np.array([*temperatures, *fill], np.float32),
            jax.random.fold_in(self._key, self._calls),
            prompt_length=length,
        )
        ids, logprobs = np.asarray(ids), np.asarray(logprobs)
        ends = np.where((ids == END).any(1), (ids == END).argmax(1) + 1, MAX_REPLY)
        return [
            (row[: min(end, limit)], values[: min(end, limit)])
            for row, values, end, limit in zip(ids[:count], logprobs[:count], ends, limits)
        ]


def save(params: Params, path: Path) -> None:
    np.savez(path, **{name: np.asarray(value) for name, value in params.items()})


def load(path: Path) -> Params:
    with np.load(path) as arrays:
        return {name: jnp.asarray(arrays[name]) for name in arrays.files}
