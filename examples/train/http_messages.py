"""As much of HTTP/1.1 as the policy's server and a trainer without Millrace need."""

from __future__ import annotations

import asyncio
import json
from typing import Any


async def read_message(reader: asyncio.StreamReader) -> tuple[str, bytes] | None:
    """The first line and the body of a request or a reply; None if the other side has ended the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise ConnectionError("the connection ended within a message") from error
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
    try:
        return first, await reader.readexactly(int(fields.get("content-length", 0)))
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("the connection ended within a body") from error


def reply(status: int, body: bytes, fields: str = "") -> bytes:
    head = f"HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{fields}\r\n"
    return head.encode() + body


class HttpClient:
    """Asks one server, over connections that are kept. A request that fails is not repeated."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, path: str, document: Any) -> Any:
        """The document that the server answers. Raises if that is not 200, or not JSON."""
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
        body = json.dumps(document).encode()
        try:
            writer.write(f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            message = await read_message(reader)
            if message is None:
                raise ConnectionError("the server has ended the connection")
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        first, answer = message
        if not first.startswith("HTTP/1.1 200"):
            raise ConnectionError(first)
        return json.loads(answer)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()
