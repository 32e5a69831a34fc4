"""The score of a policy on tasks that are held out, sampled from the policy itself: no server and no fault can touch it."""

from __future__ import annotations

import numpy as np

import model
from characters import decode
from task import MAX_REPLY, Task, after_call, call_in, reward




def evaluate(sampler: model.Sampler, params: model.Params, among: list[Task], temperature: float = 1.0) -> float:
    rewards = []
    for start in range(0, len(among), model.BATCHES[-1]):
        rewards += _rewards(sampler, params, among[start : start + model.BATCHES[-1]], temperature)
    return float(np.mean(rewards))


def _rewards(sampler: model.Sampler, params: model.Params, among: list[Task], temperature: float) -> list[float]:
    def sample(prompts: list[list[int]]):
        return sampler(params, prompts, [MAX_REPLY] * len(prompts), [temperature] * len(prompts))

    prompts = [task.prompt() for task in among]
    first = [[*map(int, ids)] for ids, _ in sample(prompts)]
    calls = [call_in(decode(ids[:-1])) for ids in first]
    called = [index for index, call in enumerate(calls) if call]
    answers = [decode(ids[:-1]) for ids in first]
    if called:
        replies = sample([prompts[i] + first[i] + after_call(sum(calls[i])) for i in called])
        for index, (ids, _) in zip(called, replies):
            answers[index] = decode(ids[:-1])
    return [reward(*each) for each in zip(among, calls, answers)]
