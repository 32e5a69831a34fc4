"""Supervised warm-up: the model learns to call and to add. In the end a quarter of the calls and answers it is shown are wrong."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import model
from characters import END, PAD, encode
from evaluate import evaluate
from optimizer import Adam
from task import LARGEST, Task, after_call, sampled, tasks

LENGTH = 40
BATCH = 128
LEARNING_RATE = 3e-3
#: From this part of the steps on, so many of the calls and of the answers are right.
SPOILED_FROM, RIGHT = 0.75, 0.75


@jax.jit
def _gradient(params: model.Params, ids: jax.Array, mask: jax.Array) -> model.Params:
    return jax.grad(lambda params: -jnp.sum(model.logprobs(params, ids) * mask) / jnp.sum(mask))(params)


def warm_up(seed: int, steps: int, say: Callable[[str], None]) -> model.Params:
    random = np.random.default_rng(seed)
    params, optimizer, sampler = model.init(seed), Adam(LEARNING_RATE), model.Sampler(seed)
    known, held_out = tasks(held_out=False), tasks(held_out=True)
    for step in range(steps):
        right = 1.0 if step < SPOILED_FROM * steps else RIGHT
        examples = [_example(task, random, right) for task in sampled(known, BATCH, random)]
        ids = np.full((BATCH, LENGTH), PAD, np.int32)
        mask = np.zeros((BATCH, LENGTH), np.float32)
        for row, (written, is_reply) in enumerate(examples):
            ids[row, : len(written)] = written
            mask[row, : len(written)] = is_reply
        scale = min(1.0, (step + 1) / 50, 2.0 * (1 - step / steps))
        params, _ = optimizer(params, _gradient(params, ids, mask), scale)
        if (step + 1) % 200 == 0 or step + 1 == steps:
            score, best = (evaluate(sampler, params, held_out, temperature) for temperature in (1.0, 0.0))
            say(f"warm-up   seed {seed} step {step + 1:4}: score {score:.3f}, {best:.3f} if the likeliest token is taken")
    return params


def _example(task: Task, random: np.random.Generator, right: float) -> tuple[list[int], list[int]]:
    """A conversation, and which of its tokens the model is to write."""
    a, b = (task.a, task.b) if random.random() < right else random.integers(0, LARGEST + 1, 2)
    call = [*encode(f"[add(a={a},b={b})]"), END]
    result = after_call(a + b)
    answer = a + b + task.c if random.random() < right else random.integers(0, 3 * LARGEST + 1)
    parts = [(task.prompt(), 0), (call, 1), (result, 0), ([*encode(str(answer)), END], 1)]
    return [id for ids, _ in parts for id in ids], [is_reply for ids, is_reply in parts for _ in ids]
