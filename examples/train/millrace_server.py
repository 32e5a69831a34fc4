"""`millrace serve` as a child process, which is killed and started again in the runs with faults."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
COMMAND = ["node", str(HERE.parent.parent / "bin" / "millrace.js"), "serve", str(HERE / "sums.ts")]


class MillraceServer:
    """Runs one command. After `kill` the same command continues the same run."""

    def __init__(self, folder: Path, model: str, policy_port: int, port: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{port}"
        self._pid_file = folder / "adder.pid"
        self._log = (folder / "serve.log").open("ab")
        self._command = [
            *COMMAND,
            *("--model", model, "--base-url", f"http://127.0.0.1:{policy_port}/v1", "--exact-tokens", "--tokens"),
            *("--concurrency", "256", "--port", str(port), "--runs", str(folder / "runs"), "--run", "train"),
            *("--log-level", "warn", f"--env.pidFile={self._pid_file}"),
        ]
        self._process = self._start()

    def __enter__(self) -> MillraceServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        for _ in range(600):
            if process.poll() is not None:
                said = Path(self._log.name).read_text(errors="replace").strip()[-1000:]
                raise RuntimeError(f"millrace serve has ended with {process.returncode}: {said}")
            try:
                with urllib.request.urlopen(f"{self.url}/ready", timeout=5):
                    return process
            except OSError:
                time.sleep(0.1)
        process.kill()
        raise RuntimeError("millrace serve is not ready after a minute")

    def kill(self) -> None:
        """kill -9, and the same command again."""
        self._pid_file.unlink(missing_ok=True)
        self._process.kill()
        self._process.wait()
        self._process = self._start()

    def kill_tool_server(self) -> bool:
        """kill -9 of the MCP server. False if none runs right now."""
        try:
            pid = int(self._pid_file.read_text())
            # Not twice: another process may get the number.
            self._pid_file.unlink()
            os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError):
            return False
        return True


class Killer:
    """Kills in the middle of steps: the tool server often, and Millrace itself now and then."""

    def __init__(self, server: MillraceServer, seed: int, tool_server_every: int, millrace_every: int) -> None:
        self._server, self._random = server, random.Random(seed)
        self._every: dict[str, tuple[int, Callable[[], bool | None]]] = {
            "tool server": (tool_server_every, server.kill_tool_server),
            "millrace": (millrace_every, server.kill),
        }
        self.kills: Counter[str] = Counter()

    @contextmanager
    def during(self, step: int, usual_seconds: float) -> Iterator[None]:
        """Kills what is due in this step, after a part of the time that a step usually takes."""
        due = [(name, kill) for name, (every, kill) in self._every.items() if step % every == every - 1]
        delay, ended = self._random.uniform(0.1, 0.9) * usual_seconds, threading.Event()

        def run() -> None:
            if due and not ended.wait(delay):
                for name, kill in due:
                    self.kills[name] += kill() is not False

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
