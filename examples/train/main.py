"""Trains every condition with every seed, and draws what came of it. A run that has ended is not run again."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from plot import CONDITIONS, summary, svg, terminal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("train-results"), help="the folder of the results [train-results]")
    parser.add_argument("--conditions", nargs="+", choices=CONDITIONS, default=CONDITIONS, help="[all]")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="[0 1 2]")
    parser.add_argument("--steps", type=int, default=120, help="steps of GRPO [120]")
    parser.add_argument("--warm-up", type=int, default=1600, help="steps of the supervised warm-up [1600]")
    parser.add_argument("--parallel", type=int, default=2, help="runs at a time [2]")
    parser.add_argument("--quick", action="store_true", help="a smoke run of a minute or two: one seed, few steps, a poor start")
    parser.add_argument("--json", action="store_true", help="the summary as JSON on standard output")
    asked = parser.parse_args()
    if asked.quick:
        asked.seeds, asked.steps, asked.warm_up = [0], 6, 120
    asked.out.mkdir(parents=True, exist_ok=True)

    say = partial(print, file=sys.stderr if asked.json else sys.stdout, flush=True)

    def start(seed: int) -> Path:
        return asked.out / f"warm-up-{asked.warm_up}-{seed}.npz"

    starts = [_Job("warm-up", seed, asked.warm_up, start(seed), start(seed)) for seed in asked.seeds]
    runs = [
        _Job(condition, seed, asked.steps, start(seed), asked.out / f"{condition}-{asked.steps}-{asked.warm_up}-{seed}.json")
        for seed in asked.seeds
        for condition in asked.conditions
    ]
    for jobs in (starts, runs):
        with ThreadPoolExecutor(asked.parallel) as threads:
            failed = [job for job, code in zip(jobs, threads.map(lambda job: job.run(say), jobs)) if code != 0]
        if failed:
            say(f"failed: {', '.join(f'{job.what} {job.seed}' for job in failed)}")
            return 1

    results = [json.loads(job.result.read_text()) for job in runs]
    (asked.out / "training.svg").write_text(svg(results))
    summed = summary(results)
    (asked.out / "training.json").write_text(json.dumps({"summary": summed, "runs": results}))
    say(terminal(results))
    if asked.json:
        print(json.dumps(summed, indent=2))
    return 0


@dataclass(frozen=True)
class _Job:
    """A part of the work in a process of its own, whose result is a file. It is not done again if there is one."""

    what: str
    seed: int
    steps: int
    start: Path
    result: Path

    def run(self, say: Callable[[str], None]) -> int:
        if self.result.exists():
            return 0
        # One thread for each of the runs that share the machine.
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
        words = [self.what, str(self.seed), str(self.steps), str(self.start), str(self.result)]
        command = [sys.executable, str(Path(__file__).parent / "train.py"), *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "XLA_FLAGS": flags}) as process:
            for line in process.stdout or ():
                say(line.rstrip())
        return process.returncode


if __name__ == "__main__":
    sys.exit(main())
