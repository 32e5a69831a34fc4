"""One connection and the reply on it: its head, its body in any framing, and how long it may be silent."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable
from email.utils import parsedate_to_datetime

from ._errors import ConnectionLost, MillraceError, ProtocolError, TimedOut

_PIECE_BYTES = 256 * 1024
#: Servers close idle connections; these are closed first, so that no request meets one that is just being closed.
_IDLE_SECONDS = 60.0


class Silence:
    """
    Ends a connection on which nothing moves for too long. Not `asyncio.wait_for`, which costs a task for each read, and which
    before Python 3.12 loses a cancellation that comes at the same moment.
    """

    def __init__(self, transport: asyncio.WriteTransport, seconds: float) -> None:
        self.seconds: float | None = seconds
        self.has_ended = False
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + seconds
        self._timer: asyncio.TimerHandle | None = self._loop.call_at(self._deadline, self._check)

    def moved(self) -> None:
        if self.seconds is not None:
            self._deadline = self._loop.time() + self.seconds

    def allow(self) -> None:
        """From now on it may be silent for as long as it likes."""
        self.stop()
        self.seconds = None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._check)
            return
        self._timer = None
        self.has_ended = True
        self._transport.abort()


class Connection:
    """One connection, on which one request is under way at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.idle_since = 0.0
        self.is_used = False

    def is_stale(self, now: float) -> bool:
        # A server that closes it is seen here, unless that is still on its way.
        return now - self.idle_since > _IDLE_SECONDS or self.reader.at_eof() or self.writer.is_closing()

    async def close(self) -> None:
        """At once: nothing is owed to the server, and a farewell of TLS could be waited for in vain."""
        self.writer.transport.abort()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class Reply:
    """A reply whose head has arrived. Its body is read in pieces, none of which is kept here."""

    def __init__(self, connection: Connection, silence: Silence, head: bytes, *, method: str, where: str) -> None:
        self.where = where
        self._reader = connection.reader
        self._silence = silence
        self.status, self.headers, is_http_1_1 = _parse_head(head, where)
        tokens = self.headers.get("connection", "").lower()
        self.keeps_open = "close" not in tokens and (is_http_1_1 or "keep-alive" in tokens)
        self.is_complete = False
        #: Bytes until the end of the body or chunk; None if the body lasts until the connection ends.
        self._left: int | None = None
        self._is_chunked = False
        encoding = self.headers.get("transfer-encoding", "").lower()
        if method == "HEAD" or self.status in (204, 304):
            self._left, self.is_complete = 0, True
        elif encoding:
            if encoding != "chunked":
                raise ProtocolError(f"{where} sends transfer-encoding {encoding!r}, which was not asked for")
            self._left, self._is_chunked = 0, True
        elif "content-length" in self.headers:
            self._left = _whole_number(self.headers["content-length"], 10, where)
            self.is_complete = self._left == 0
        else:
            self.keeps_open = False

    @property
    def retry_after(self) -> float | None:
        said = self.headers.get("retry-after")
        if said is None:
            return None
        with contextlib.suppress(ValueError):
            return max(0.0, float(said))
        with contextlib.suppress(ValueError, TypeError):
            return max(0.0, parsedate_to_datetime(said).timestamp() - time.time())
        return None

    async def read_some(self, most: int = _PIECE_BYTES) -> bytes:
        """The next bytes of the body, at least one; none at its end."""
        if self.is_complete:
            return b""
        if self._is_chunked and self._left == 0:
            self._left = await self._chunk_size()
            if self._left == 0:
                await self._skip_trailers()
                self.is_complete = True
                return b""
        piece = await self._moving(self._reader.read(most if self._left is None else min(most, self._left)))
        if not piece:
            if self._left is None:
                self.is_complete = True
                return b""
            raise self._lost()
        if self._left is not None:
            self._left -= len(piece)
            if self._left == 0:
                if self._is_chunked:
                    await self._line()
                else:
                    self.is_complete = True
        return piece

    async def read_exactly(self, count: int) -> bytearray:
        """So many bytes, or what is left of the body."""
        data = bytearray()
        while len(data) < count:
            piece = await self.read_some(count - len(data))
            if not piece:
                break
            data += piece
        return data

    async def read(self) -> bytes:
        pieces = []
        while piece := await self.read_some():
            pieces.append(piece)
        return b"".join(pieces)

    async def lines(self) -> AsyncIterator[bytes]:
        """Its lines, with their ends; the last one may have none."""
        data = bytearray()
        while piece := await self.read_some():
            searched = len(data)
            data += piece
            begin = 0
            while (end := data.find(b"\n", max(begin, searched)) + 1) > 0:
                yield bytes(data[begin:end])
                begin = end
            del data[:begin]
        if data:
            yield bytes(data)

    async def _chunk_size(self) -> int:
        size, _, _extension = (await self._line()).partition(b";")
        return _whole_number(size.decode("latin-1"), 16, self.where)

    async def _skip_trailers(self) -> None:
        while await self._line():
            pass

    async def _line(self) -> bytes:
        line = await self._moving(self._reader.readuntil(b"\n"))
        return line.rstrip(b"\r\n")

    async def _moving(self, reading: Awaitable[bytes]) -> bytes:
        try:
            data = await reading
        except (OSError, asyncio.IncompleteReadError) as error:
            raise self._lost() from error
        except asyncio.LimitOverrunError:
            raise ProtocolError(f"{self.where} sends a line without an end") from None
        self._silence.moved()
        return data

    def _lost(self) -> MillraceError:
        return lost(self._silence, self.where)


def lost(silence: Silence, where: str) -> MillraceError:
    """Why a connection ended before its reply."""
    if silence.has_ended:
        return TimedOut(f"{where}: nothing came for {silence.seconds:g} s")
    return ConnectionLost(f"{where}: the connection ended before the reply did")


def _parse_head(head: bytes, where: str) -> tuple[int, dict[str, str], bool]:
    status_line, *lines = head[:-4].decode("latin-1").split("\r\n")
    version, _, rest = status_line.partition(" ")
    status = rest[:3]
    if version not in ("HTTP/1.1", "HTTP/1.0") or not status.isdigit():
        raise ProtocolError(f"{where}: what listens there does not speak HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return int(status), headers, version == "HTTP/1.1"


def _whole_number(text: str, base: int, where: str) -> int:
    try:
        number = int(text.strip(), base)
    except ValueError:
        number = -1
    if number < 0:
        raise ProtocolError(f"{where} sends {text[:40]!r} as a length")
    return number
