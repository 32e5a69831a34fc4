"""One step of GRPO: the loss on rows of tokens, each with its mask, the sampler's log-probabilities and an advantage."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

import model
from characters import PAD
from optimizer import Adam

CLIP = 0.2
#: Rows are padded to the next of these lengths, so that few shapes are compiled.
LENGTHS = (40, model.CONTEXT)
ROWS = 96


@dataclass(frozen=True)
class TrainingRow:
    ids: np.ndarray
    #: 1 where the policy sampled the token, and is trained on it.
    mask: np.ndarray
    #: Of the policy that sampled, where the mask is 1.
    logprobs: np.ndarray
    advantage: float


@dataclass(frozen=True)
class StepReport:
    rows: int
    tokens: int
    gradient_norm: float
    clipped: float
    #: The largest difference of a row's log-probability from the policy's own, for the tokens of the first update.
    largest_difference: float


@jax.jit
def _loss_gradient(params: model.Params, ids, mask, old, advantage, total):
    def loss(params: model.Params):
        now = model.logprobs(params, ids)
        ratio = jnp.exp((now - old) * mask)
        bounded = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
        gain = jnp.minimum(ratio * advantage[:, None], bounded * advantage[:, None])
        return -jnp.sum(gain * mask) / total, (jnp.sum((jnp.abs(ratio - 1) > CLIP) * mask), jnp.max(jnp.abs(now - old) * mask))

    return jax.grad(loss, has_aux=True)(params)


class Grpo:
    def __init__(self, learning_rate: float, updates: int = 1) -> None:
        self._optimizer = Adam(learning_rate)
        self._updates = updates

    def __call__(self, params: model.Params, rows: list[TrainingRow]) -> tuple[model.Params, StepReport]:
        tokens = int(sum(row.mask.sum() for row in rows))
        batches = [_padded(rows[start : start + ROWS]) for start in range(0, len(rows), ROWS)]
        norm, clipped, difference = 0.0, 0.0, 0.0
        for update in range(self._updates if tokens else 0):
            gradient, clipped = None, 0.0
            for batch in batches:
                part, (over, away) = _loss_gradient(params, *batch, float(tokens))
                gradient = part if gradient is None else jax.tree.map(jnp.add, gradient, part)
                clipped += float(over) / tokens
                if update == 0:
                    difference = max(difference, float(away))
            params, norm = self._optimizer(params, gradient)
        return params, StepReport(len(rows), tokens, norm, clipped, difference)


def _padded(rows: list[TrainingRow]) -> tuple[np.ndarray, ...]:
    longest = max(len(row.ids) for row in rows)
    length = next(each for each in LENGTHS if each >= longest)
    ids = np.full((ROWS, length), PAD, np.int32)
    mask, logprobs = np.zeros((2, ROWS, length), np.float32)
    advantage = np.zeros(ROWS, np.float32)
    for at, row in enumerate(rows):
        size = len(row.ids)
        ids[at, :size], mask[at, :size], logprobs[at, :size] = row.ids, row.mask, row.logprobs
        advantage[at] = row.advantage
    return ids, mask, logprobs, advantage
