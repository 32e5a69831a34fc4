"""The rollouts of a step, in two ways: a loop that calls the policy's server itself, and through Millrace."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import millrace
import numpy as np

from characters import END, decode
from grpo import TrainingRow
from http_messages import HttpClient
from task import MAX_REPLY, Task, after_call, call_in, reward


@dataclass
class StepRollouts:
    """What a step is trained on, and what became of its rollouts."""

    asked: int
    rows: list[TrainingRow] = field(default_factory=list)
    #: Of the rollouts that have a reward.
    rewards: list[float] = field(default_factory=list)
    #: How many rollouts ended in which way. Their sum is what was received.
    outcomes: Counter[str] = field(default_factory=Counter)
    #: The versions of the weights that sampled the rows.
    versions: set[str] = field(default_factory=set)
    #: Rows beyond one for each rollout: a conversation whose tokens drifted is split.
    split: int = 0


class DirectRollouts:
    """A loop without Millrace. `zero_for_faults`: a rollout whose request failed has the reward 0, and is trained like any other."""

    def __init__(self, port: int, zero_for_faults: bool = False) -> None:
        self._port, self._zero_for_faults = port, zero_for_faults

    def __call__(self, tasks: list[Task], attempts: int) -> StepRollouts:
        return asyncio.run(self._step(tasks, attempts))

    async def _step(self, tasks: list[Task], attempts: int) -> StepRollouts:
        client = HttpClient(self._port)
        members = await asyncio.gather(*(self._rollout(client, task) for task in tasks for _ in range(attempts)))
        client.close()
        step = StepRollouts(asked=len(members))
        step.outcomes.update(outcome for _, _, outcome in members)
        for start in range(0, len(members), attempts):
            group = members[start : start + attempts]
            rewards = np.array([each for _, each, _ in group])
            step.rewards += rewards.tolist()
            advantages = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
            for (tokens, _, _), advantage in zip(group, advantages):
                step.rows.append(TrainingRow(*tokens, float(advantage)))
        return step

    async def _rollout(self, client: HttpClient, task: Task):
        ids = task.prompt()
        mask, logprobs = [0] * len(ids), [0.0] * len(ids)
        call, answer, outcome = None, "", "completed"
        try:
            for turn in range(2):
                sampled, values = await self._turn(client, ids)
                ids, mask, logprobs = ids + sampled, mask + [1] * len(sampled), logprobs + values
                answer = decode(sampled[:-1]) if sampled[-1] == END else ""
                asked = call_in(answer)
                if turn == 1 or asked is None:
                    break
                call, result = asked, after_call(sum(asked))
                ids, mask, logprobs = ids + result, mask + [0] * len(result), logprobs + [0.0] * len(result)
            score = reward(task, call, answer)
        except (OSError, ValueError, KeyError):
            if not self._zero_for_faults:
                raise
            score, outcome = 0.0, "fault"
        return (np.array(ids), np.array(mask), np.array(logprobs)), score, outcome

    async def _turn(self, client: HttpClient, prompt: list[int]) -> tuple[list[int], list[float]]:
        settings = {"temperature": 1.0, "max_tokens": MAX_REPLY, "logprobs": 0}
        answer = await client.post("/inference/v1/generate", {"token_ids": prompt, "sampling_params": settings})
        (choice,) = answer["choices"]
        return choice["token_ids"], [each["logprob"] for each in choice["logprobs"]["content"]]


class MillraceRollouts:
    """Through `millrace serve`: groups of rows come with tokens, masks, log-probabilities and advantages."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, tasks: list[Task], attempts: int) -> StepRollouts:
        return asyncio.run(self._step(tasks, attempts))

    async def _step(self, tasks: list[Task], attempts: int) -> StepRollouts:
        step = StepRollouts(asked=len(tasks) * attempts)
        async with millrace.Client(self._url) as client:
            async for group in client.groups([task.json() for task in tasks], attempts=attempts, advantage="grpo"):
                step.outcomes.update(group.outcomes)
                for row in group.trainable:
                    step.rows.append(TrainingRow(row.ids, row.mask, row.logprobs, row.advantage or 0.0))
                    step.versions.update(run.version for run in row.versions if run.version is not None)
                # A rollout has one row, or several if its tokens drifted.
                rewards = {row.session: row.reward for row in group.rows if row.kind != "damaged"}
                step.rewards += [reward for reward in rewards.values() if reward is not None]
                step.split += len(group.trainable) - len({row.session for row in group.trainable})
        return step
