"""A network that cuts every connection after some bytes of the reply, at another place each time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from types import TracebackType
from urllib.parse import urlsplit


class CuttingProxy:
    """A connection gets from 1 byte to a limit that grows, so that in the end everything gets through."""

    def __init__(self, url: str, seed: int = 1) -> None:
        self.cuts = 0
        self._target = urlsplit(url)
        self._random = random.Random(seed)
        self._limit = 4000.0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    async def _serve(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        server, asked = await asyncio.open_connection(self._target.hostname, self._target.port)
        asking = asyncio.ensure_future(self._pass_on(client, asked, None))
        try:
            self._limit *= 1.3
            if await self._pass_on(server, answer, self._random.randint(1, int(self._limit))):
                self.cuts += 1
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            asking.cancel()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await asking
            for writer in (asked, answer):
                writer.transport.abort()

    @staticmethod
    async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None) -> bool:
        """Whether it was cut off."""
        passed = 0
        while data := await reader.read(65536):
            if limit is not None and passed + len(data) >= limit:
                writer.write(data[: limit - passed])
                await writer.drain()
                return True
            passed += len(data)
            writer.write(data)
            await writer.drain()
        return False
