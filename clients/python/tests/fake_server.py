"""A server for the faults that a real one does not have on demand: each request is answered by the next script."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

PEM = Path(__file__).parent / "localhost.pem"


class Request:
    """What was asked, and how to answer."""

    def __init__(self, head: str, body: bytes, writer: asyncio.StreamWriter, connection: int) -> None:
        line, *headers = head.split("\r\n")
        self.method, self.target, _ = line.split(" ")
        self.headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in headers)}
        self.body = body
        self.writer = writer
        #: The how manieth connection it came on.
        self.connection = connection

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self, body: object, status: int = 200, headers: str = "") -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.send(f"HTTP/1.1 {status} X\r\ncontent-length: {len(data)}\r\n{headers}\r\n".encode() + data)

    async def refuse(self, status: int, code: str, headers: str = "") -> None:
        await self.reply({"error": {"code": code, "message": "because of the script"}}, status, headers)

    async def begin(self, headers: str = "millrace-first-task: 0\r\n") -> None:
        await self.send(f"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n{headers}\r\n".encode())

    async def chunk(self, data: bytes) -> None:
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def cut(self) -> None:
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Returns when the client has closed the connection."""
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


Script = Callable[[Request], Awaitable[None]]


class FakeServer:
    """`async with`, with the scripts of its requests in order; the last one answers all further requests."""

    def __init__(self, *scripts: Script, port: int = 0, tls: bool = False) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.port = port
        self._scripts = scripts
        self._context: ssl.SSLContext | None = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(PEM)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def said(self) -> list[str]:
        """The requests, as methods and paths."""
        return [f"{request.method} {request.target}" for request in self.requests]

    async def __aenter__(self) -> FakeServer:
        if self._context is not None:
            # A client that leaves during the handshake is no error of the server.
            asyncio.get_running_loop().set_exception_handler(_ignore_handshakes)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._context else 'http'}://127.0.0.1:{self.port}"
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

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        connection = self.connections
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n"))[:-4].decode()
                length = next((line[15:] for line in head.split("\r\n") if line.startswith("content-length:")), "0")
                request = Request(head, b"", writer, connection)
                script = self._scripts[min(len(self.requests), len(self._scripts) - 1)]
                self.requests.append(request)
                if int(length) < 1_000_000:
                    request.body = await reader.readexactly(int(length))
                await script(request)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()


def _ignore_handshakes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if "incoming connection" not in context["message"]:
        loop.default_exception_handler(context)


def in_pieces(data: bytes, sizes: Iterable[int]) -> Iterable[bytes]:
    place = 0
    for size in sizes:
        if place < len(data):
            yield data[place : place + size]
            place += size
