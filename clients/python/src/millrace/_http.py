"""HTTP/1.1 to one server over asyncio streams: a pool of kept connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from urllib.parse import urlencode, urlsplit

from ._errors import ClientClosed, ConnectFailed, ConnectionLost, InvalidArgument, ProtocolError
from ._reply import Connection, Reply, Silence, lost

#: Most bytes of a reply's head, and about how many of a body wait in memory before the peer is held back.
_BUFFER_BYTES = 256 * 1024
_PIECE_BYTES = 256 * 1024
#: A longer body is sent while the reply is awaited: a server may refuse it before it has all of it.
_SENT_AT_ONCE = 64 * 1024


class Origin:
    """Where a server is: the parts of its base URL."""

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArgument(f"{base_url!r} is no address of a server; it looks like http://127.0.0.1:8080")
        if parts.query or parts.fragment:
            raise InvalidArgument(f"{base_url!r} has a query or fragment; leave it out")
        self.is_tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = parts.port or (443 if self.is_tls else 80)
        self.authority = parts.netloc.rpartition("@")[2]
        self.prefix = parts.path.rstrip("/")
        self.url = f"{parts.scheme}://{self.authority}{self.prefix}"


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
                raise InvalidArgument(
                    f"the value of {name} has characters that a header cannot have; is there a line end in the key?"
                )
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
            raise ClientClosed("the client was closed; make another one")
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
            raise ConnectFailed(f"{where}: no connection within {seconds:g} s")
        error = connecting.exception()
        if error is not None:
            if not isinstance(error, OSError):
                raise error
            hint = "is the server running there?"
            if isinstance(error, ssl.SSLCertVerificationError):
                hint = "give the client an ssl_context that trusts the server's certificate"
            raise ConnectFailed(f"{where}: {error}; {hint}") from error
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
            raise ProtocolError(f"{where}: what listens there does not speak HTTP") from None
        raise lost(silence, where) from error
    except OSError as error:
        raise lost(silence, where) from error
    except asyncio.LimitOverrunError:
        raise ProtocolError(f"{where}: what listens there does not speak HTTP") from None


def json_bytes(value: object) -> bytes:
    """As JSON. Numbers and arrays of NumPy are welcome; NaN is not."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"this is not JSON: {error}") from None


def _plain(value: object) -> object:
    to_list = getattr(value, "tolist", None)
    if to_list is None:
        raise TypeError(f"a {type(value).__name__} cannot be sent")
    return to_list()


def _target(path: str, query: Mapping[str, object] | None) -> str:
    words = {name: value for name, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(words)}" if words else path


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
