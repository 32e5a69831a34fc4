"""HTTP/1.1 to one server over asyncio streams: a pool of kept connections, bodies of every framing, and silence that ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import urlencode, urlsplit

from ._errors import ClientClosed, ConnectFailed, ConnectionLost, MillraceError, ProtocolError, TimedOut

#: Most bytes of a reply's head, and about how many of a body wait in memory before the peer is held back.
_BUFFER_BYTES = 256 * 1024
_PIECE_BYTES = 256 * 1024
#: A longer body is sent while the reply is awaited: a server may refuse it before it has all of it.
_SENT_AT_ONCE = 64 * 1024
#: Servers close idle connections; these are closed first, so that no request meets one that is just being closed.
_IDLE_SECONDS = 60.0


class Origin:
    """Where a server is: the parts of its base URL."""

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{base_url!r} is no address of a server; it looks like http://127.0.0.1:8080")
        if parts.query or parts.fragment:
            raise ValueError(f"{base_url!r} has a query or fragment; leave it out")
        self.is_tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = parts.port or (443 if self.is_tls else 80)
        self.authority = parts.netloc.rpartition("@")[2]
        self.prefix = parts.path.rstrip("/")
        self.url = f"{parts.scheme}://{self.authority}{self.prefix}"


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
                raise ProtocolError(f"{where} sends transfer-encoding {encoding!r}, which was not asked for", code="protocol")
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
            raise ProtocolError(f"{self.where} sends a line without an end", code="protocol") from None
        self._silence.moved()
        return data

    def _lost(self) -> MillraceError:
        return lost(self._silence, self.where)


class HttpPool:
    """
    Requests to one server. At most `limit` streams and as many short calls are under way at once, so that a call, such as a
    cancellation, never waits for a stream to end. Others wait in line.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str],
        limit: int,
        connect_timeout: float,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        self.origin = Origin(base_url)
        for name, value in headers.items():
            if not value.isascii() or not value.isprintable() or value != value.strip():
                raise ValueError(f"the value of {name} has characters that a header cannot have; is there a line end in the key?")
        self._headers = dict(headers)
        self._connect_timeout = connect_timeout
        self._ssl = (ssl_context or ssl.create_default_context()) if self.origin.is_tls else None
        self._streams = asyncio.Semaphore(limit)
        self._calls = asyncio.Semaphore(limit)
        #: The last one used is used first; so the others grow stale.
        self._idle: list[Connection] = []
        self._is_closed = False

    @contextlib.asynccontextmanager
    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float,
        is_stream: bool = False,
        is_repeatable: bool = True,
    ) -> AsyncGenerator[Reply, None]:
        """
        Sends a request, and gives its reply once the head has arrived. What is not read of it by the end of the block ends its
        connection. `timeout` is the longest silence; in the body of a stream there is none. What is not repeatable is never sent
        on a connection that was idle.
        """
        target = _target(self.origin.prefix + path, query)
        where = f"{method} {self.origin.url}{path}"
        message = self._message(method, target, body, headers or {})
        async with self._streams if is_stream else self._calls:
            connection, silence, reply = await self._begin(method, message, body or b"", where, timeout, is_repeatable)
            if is_stream:
                silence.allow()
            try:
                yield reply
            finally:
                silence.stop()
                if reply.is_complete and reply.keeps_open and not self._is_closed:
                    connection.is_used = True
                    connection.idle_since = time.monotonic()
                    self._idle.append(connection)
                else:
                    await connection.close()

    async def aclose(self) -> None:
        self._is_closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    async def _begin(
        self, method: str, message: bytes, body: bytes, where: str, timeout: float, is_repeatable: bool
    ) -> tuple[Connection, Silence, Reply]:
        while True:
            connection = await self._connection(where, may_be_idle=is_repeatable)
            silence = Silence(connection.writer.transport, timeout)
            try:
                head = await _exchange(connection, silence, message, body, where)
                return connection, silence, Reply(connection, silence, head, method=method, where=where)
            except BaseException as error:
                silence.stop()
                await connection.close()
                # The server had just closed it. The next one may be idle as well, and in the end there is a new one.
                if isinstance(error, ConnectionLost) and connection.is_used:
                    continue
                raise

    async def _connection(self, where: str, *, may_be_idle: bool) -> Connection:
        if self._is_closed:
            raise ClientClosed("the client was closed; make another one", code="closed")
        now = time.monotonic()
        stale = [each for each in self._idle if each.is_stale(now)]
        if stale:
            self._idle = [each for each in self._idle if each not in stale]
            for each in stale:
                await each.close()
        if may_be_idle and self._idle:
            return self._idle.pop()
        return await self._connect(where)

    async def _connect(self, where: str) -> Connection:
        origin = self.origin
        server_name = origin.host if self._ssl else None
        connecting = asyncio.ensure_future(
            asyncio.open_connection(
                origin.host, origin.port, limit=_BUFFER_BYTES, ssl=self._ssl, server_hostname=server_name
            )
        )
        try:
            await asyncio.wait({connecting}, timeout=self._connect_timeout)
            if not connecting.done():
                connecting.cancel()
                await asyncio.wait({connecting})
        except asyncio.CancelledError:
            connecting.cancel()
            connecting.add_done_callback(_drop_connection)
            raise
        if connecting.cancelled():
            seconds = self._connect_timeout
            raise ConnectFailed(f"{where}: no connection within {seconds:g} s", code="connect_failed")
        error = connecting.exception()
        if error is not None:
            if not isinstance(error, OSError):
                raise error
            hint = "is the server running there?"
            if isinstance(error, ssl.SSLCertVerificationError):
                hint = "give the client an ssl_context that trusts the server's certificate"
            raise ConnectFailed(f"{where}: {error}; {hint}", code="connect_failed") from error
        reader, writer = connecting.result()
        _notice_dead_peers(writer)
        return Connection(reader, writer)

    def _message(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        fields = {
            "host": self.origin.authority,
            "user-agent": "millrace-python",
            "accept": "application/json",
            "accept-encoding": "identity",
            **self._headers,
            **headers,
        }
        if body is not None:
            fields["content-type"] = "application/json"
            fields["content-length"] = str(len(body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")


async def _exchange(connection: Connection, silence: Silence, message: bytes, body: bytes, where: str) -> bytes:
    """Sends a request and returns the head of its reply."""
    writer = connection.writer
    if len(body) <= _SENT_AT_ONCE:
        writer.write(message + body)
        return await _read_head(connection, silence, where)
    sending = asyncio.ensure_future(_send(writer, silence, message, body))
    try:
        head = await _read_head(connection, silence, where)
        if not sending.done():
            # It has refused: what it did not take can never be followed by another request.
            head = head.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
        return head
    finally:
        sending.cancel()
        await asyncio.wait({sending})
        if not sending.cancelled():
            # That it could not be sent shows in the reply, or in that there is none.
            sending.exception()


async def _send(writer: asyncio.StreamWriter, silence: Silence, message: bytes, body: bytes) -> None:
    writer.write(message)
    view = memoryview(body)
    for begin in range(0, len(view), _PIECE_BYTES):
        writer.write(view[begin : begin + _PIECE_BYTES])
        await writer.drain()
        silence.moved()


async def _read_head(connection: Connection, silence: Silence, where: str) -> bytes:
    try:
        while True:
            head = await connection.reader.readuntil(b"\r\n\r\n")
            silence.moved()
            # 100 and 103 announce the reply.
            if not head.startswith(b"HTTP/1.1 1"):
                return head
    except asyncio.IncompleteReadError as error:
        if error.partial and not error.partial.startswith(b"HTTP/"[: len(error.partial)]):
            raise ProtocolError(f"{where}: what listens there does not speak HTTP", code="protocol") from None
        raise lost(silence, where) from error
    except OSError as error:
        raise lost(silence, where) from error
    except asyncio.LimitOverrunError:
        raise ProtocolError(f"{where}: what listens there does not speak HTTP", code="protocol") from None


def lost(silence: Silence, where: str) -> MillraceError:
    """Why a connection ended before its reply."""
    if silence.has_ended:
        return TimedOut(f"{where}: nothing came for {silence.seconds:g} s", code="timeout")
    return ConnectionLost(f"{where}: the connection ended before the reply did", code="connection_lost")


def json_bytes(value: object) -> bytes:
    """As JSON. Numbers and arrays of NumPy are welcome; NaN is not."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain).encode()


def _plain(value: object) -> object:
    to_list = getattr(value, "tolist", None)
    if to_list is None:
        raise TypeError(f"a {type(value).__name__} cannot be sent as JSON")
    return to_list()


def _target(path: str, query: Mapping[str, object] | None) -> str:
    words = {name: value for name, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(words)}" if words else path


def _parse_head(head: bytes, where: str) -> tuple[int, dict[str, str], bool]:
    status_line, *lines = head[:-4].decode("latin-1").split("\r\n")
    version, _, rest = status_line.partition(" ")
    status = rest[:3]
    if version not in ("HTTP/1.1", "HTTP/1.0") or not status.isdigit():
        raise ProtocolError(f"{where}: what listens there does not speak HTTP/1.1", code="protocol")
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
        raise ProtocolError(f"{where} sends {text[:40]!r} as a length", code="protocol")
    return number


def _drop_connection(connecting: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
    """Nobody waits for it any more, and it may have come all the same."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result()[1].transport.abort()


def _notice_dead_peers(writer: asyncio.StreamWriter) -> None:
    """A stream may say nothing for hours. A machine that has gone must be noticed all the same, within about a minute."""
    peer = writer.get_extra_info("socket")
    if peer is None:
        return
    options = [
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 30),
        (socket.IPPROTO_TCP, "TCP_KEEPALIVE", 30),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 10),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 60_000),
    ]
    for level, name, value in options:
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                peer.setsockopt(level, option, value)
