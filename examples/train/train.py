"""One run: a policy that is warmed up is trained with GRPO on rollouts that come directly, through Millrace, or with faults."""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import jax
import numpy as np

import model
from characters import write_tokenizer
from evaluate import evaluate
from grpo import Grpo
from millrace_server import Killer, MillraceServer
from policy_server import NAME, PolicyServer
from rollouts import DirectRollouts, MillraceRollouts, StepRollouts
from task import Task, sampled, tasks
from warm_up import warm_up

#: The share of the requests to the model that fail.
FAULTS = 0.1


@dataclass(frozen=True)
class Settings:
    steps: int = 120
    tasks: int = 24
    attempts: int = 8
    learning_rate: float = 2e-4
    evaluate_every: int = 5


class Rollouts(Protocol):
    def __call__(self, tasks: list[Task], attempts: int) -> StepRollouts: ...


@dataclass
class Result:
    """What a run has shown, for the plot and as JSON."""

    condition: str
    seed: int
    #: The score on tasks that are held out: [step, score].
    scores: list[tuple[int, float]] = field(default_factory=list)
    #: The mean reward of the rollouts of each step, as the trainer sees it.
    rewards: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    received: int = 0
    scored: int = 0
    rows: int = 0
    split_rows: int = 0
    #: Of the log-probabilities of rows from those that the trainer computes of the same tokens with the same weights.
    largest_difference: float = 0.0
    step_seconds: list[float] = field(default_factory=list)
    seconds: float = 0.0


def train(condition: str, seed: int, start: model.Params, settings: Settings, say: Callable[[str], None]) -> Result:
    began = time.monotonic()
    result = Result(condition, seed)
    params, sampler, evaluator = start, model.Sampler(seed), model.Sampler(seed + 1000)
    optimizer = Grpo(settings.learning_rate)
    known, random = tasks(held_out=False), np.random.default_rng(seed)
    held_out = tasks(held_out=True)
    with _rollouts(condition, params, sampler, seed, settings.steps) as (rollouts, server, killer):
        for step in range(settings.steps):
            if step % settings.evaluate_every == 0:
                result.scores.append((step, evaluate(evaluator, params, held_out)))
            step_began = time.monotonic()
            usual = float(np.median(result.step_seconds)) if result.step_seconds else 1.0
            with killer.during(step, usual) if killer else nullcontext():
                rollout = rollouts(sampled(known, settings.tasks, random), settings.attempts)
            _check_versions(rollout, server.version)
            params, report = optimizer(params, rollout.rows)
            server.update(params)
            _count(result, rollout, report.largest_difference, time.monotonic() - step_began)
            if step % (4 * settings.evaluate_every) == 0:
                say(
                    f"{condition:9} seed {seed} step {step:3}: score {result.scores[-1][1]:.3f}, "
                    f"reward {result.rewards[-1]:.3f}, {result.step_seconds[-1]:.2f} s, "
                    f"{rollout.asked - len(rollout.rewards)} of {rollout.asked} rollouts without a reward"
                )
        result.scores.append((settings.steps, evaluate(evaluator, params, held_out)))
        result.injected = server.injected
        if killer:
            result.kills = killer.kills
    result.seconds = time.monotonic() - began
    say(f"{condition:9} seed {seed}: score {result.scores[0][1]:.3f} to {result.scores[-1][1]:.3f} in {result.seconds:.0f} s")
    return result


@contextmanager
def _rollouts(
    condition: str, params: model.Params, sampler: model.Sampler, seed: int, steps: int
) -> Iterator[tuple[Rollouts, PolicyServer, Killer | None]]:
    has_faults = condition in ("faults", "naive")
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="millrace-train-")))
        write_tokenizer(folder / "tokenizer")
        server = ends.enter_context(
            PolicyServer(params, sampler, folder / "tokenizer", faults=FAULTS if has_faults else 0.0, seed=seed)
        )
        if condition in ("direct", "naive"):
            yield DirectRollouts(server.port, zero_for_faults=has_faults), server, None
            return
        millrace = ends.enter_context(MillraceServer(folder / "millrace", NAME, server.port, _free_port()))
        killer = Killer(millrace, seed, tool_server_every=3, millrace_every=max(2, steps // 12)) if has_faults else None
        yield MillraceRollouts(millrace.url), server, killer


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _check_versions(rollout: StepRollouts, version: int) -> None:
    """Every token of a step is sampled by the weights of that step, whatever was killed meanwhile."""
    if rollout.versions - {str(version)}:
        raise RuntimeError(f"rows of versions {sorted(rollout.versions)} in the step of version {version}")


def _count(result: Result, rollout: StepRollouts, difference: float, seconds: float) -> None:
    result.rewards.append(float(np.mean(rollout.rewards)) if rollout.rewards else float("nan"))
    result.outcomes.update(rollout.outcomes)
    result.asked += rollout.asked
    result.received += sum(rollout.outcomes.values())
    result.scored += len(rollout.rewards)
    result.rows += len(rollout.rows)
    result.split_rows += rollout.split
    result.largest_difference = max(result.largest_difference, difference)
    result.step_seconds.append(seconds)


def main() -> None:
    what, seed, steps, start, result = sys.argv[1:]
    # Each process compiles the same functions: the second one reads them.
    jax.config.update("jax_compilation_cache_dir", str(Path(start).parent / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    say = partial(print, flush=True)
    if what == "warm-up":
        write(Path(result), lambda path: model.save(warm_up(int(seed), int(steps), say), path))
        return
    done = train(what, int(seed), model.load(Path(start)), Settings(steps=int(steps)), say)
    write(Path(result), lambda path: path.write_text(json.dumps(vars(done))))


def write(path: Path, fill: Callable[[Path], object]) -> None:
    """The file is there only if it is whole."""
    new = path.with_name(f"new-{path.name}")
    fill(new)
    new.replace(path)


if __name__ == "__main__":
    main()
