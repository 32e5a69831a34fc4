"""The task: the sum of three numbers under 20, with a tool that adds two. It is that of `sums.ts`, for code without Millrace."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from characters import END, MODEL, TOOL, USER, encode

LARGEST = 19
#: Tokens of one reply.
MAX_REPLY = 20
_CALL = re.compile(r"\[add\(a=(\d+),b=(\d+)\)\]")


@dataclass(frozen=True)
class Task:
    a: int
    b: int
    c: int

    @property
    def sum(self) -> int:
        return self.a + self.b + self.c

    def prompt(self) -> list[int]:
        return [USER, *encode(f"{self.a}+{self.b}+{self.c}="), END, MODEL]

    def json(self) -> dict[str, int]:
        return {"a": self.a, "b": self.b, "c": self.c}


def call_in(reply: str) -> tuple[int, int] | None:
    """The numbers that a reply asks the tool to add."""
    found = _CALL.fullmatch(reply)
    return (int(found[1]), int(found[2])) if found else None


def after_call(result: int) -> list[int]:
    """What the tool's answer adds to the prompt."""
    return [TOOL, *encode(str(result)), END, MODEL]


def reward(task: Task, call: tuple[int, int] | None, answer: str) -> float:
    """Half for the right call, half for the right answer."""
    return 0.5 * (call == (task.a, task.b)) + 0.5 * (answer == str(task.sum))


def tasks(held_out: bool) -> list[Task]:
    """All tasks to train on, or those that are held out: every eighth."""
    numbers = range(LARGEST + 1)
    every = [Task(a, b, c) for a in numbers for b in numbers for c in numbers]
    return [task for index, task in enumerate(every) if (index % 8 == 3) == held_out]


def sampled(among: list[Task], count: int, random: np.random.Generator) -> list[Task]:
    return [among[index] for index in random.choice(len(among), count, replace=False)]
