"""Starts the real servers: those of the repository that this package is in."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[3]
NODE = ROOT / "node_modules" / ".bin" / "node"
PROGRAM = ROOT / "bin" / "millrace.js"


class Millrace:
    """A command of Millrace that listens, with a folder of its own. It can be killed and started again."""

    def __init__(self, *words: str, env: dict[str, str] | None = None) -> None:
        if not NODE.exists():
            raise RuntimeError(f"these tests start the servers of {ROOT}; run `npm ci` there first")
        self.folder = Path(tempfile.mkdtemp(prefix="millrace-python-"))
        self._words = words
        self._env = {**os.environ, "MILLRACE_RUNS": str(self.folder), **(env or {})}
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Millrace:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder)

    def start(self) -> None:
        """On the same port as before."""
        log = (self.folder / "log").open("a")
        words = [str(NODE), str(PROGRAM), *self._words, "--port", str(self._port)]
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=log, text=True, env=self._env, start_new_session=True, cwd=self.folder
        )
        log.close()
        self._process = process
        assert process.stdout is not None
        for line in process.stdout:
            # Not the address of a backend, which a gateway says first.
            found = re.search(r"\bon (http://127\.0\.0\.1:(\d+))", line)
            if found:
                self.url, self._port = found.group(1), int(found.group(2))
                # What it says from now on must not fill the pipe.
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return
        raise RuntimeError(f"the server did not start:\n{(self.folder / 'log').read_text()}")

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """As the kernel does when memory is short: nothing can be tidied. With SIGTERM it drains."""
        if self._process is None:
            return
        process, self._process = self._process, None
        os.killpg(process.pid, how)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    async def command(self, *words: str) -> str:
        """Runs a command over the same folder of runs, and returns what it prints."""
        process = await asyncio.create_subprocess_exec(
            str(NODE), str(PROGRAM), *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self._env
        )
        output, errors = await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(errors.decode())
        return output.decode()
