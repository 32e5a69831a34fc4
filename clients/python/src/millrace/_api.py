"""What the clients of both servers have in common: one pool, calls that answer with JSON, and when to ask again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import numbers
import random
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

from ._errors import ConnectFailed, CutOff, InvalidArgument, MillraceError, ProtocolError, error_of_reply
from ._http import HttpPool, json_bytes
from ._reply import Reply
from ._row import Row
from ._rows import FrameDecoder
from ._stream import Tasks

SelfApi = TypeVar("SelfApi", bound="Api")

_log = logging.getLogger("millrace")

_FIRST_DELAY = 0.1
#: Short, because a server cancels what was asked 15 seconds after its client has gone.
_LONGEST_DELAY = 2.0
#: Most bytes of a refusal that are read: one may have the answers of a thousand backends.
_REFUSAL_BYTES = 1024 * 1024


class Patience:
    """When to ask again: after growing delays, or when the server says, until so many seconds have passed since all was well."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._tries = 0
        self._since: float | None = None
        self._has_warned = False

    def succeeded(self) -> None:
        self._tries = 0
        self._since = None

    async def wait(self, error: MillraceError) -> None:
        """Raises the error instead, if asking again does not help or has been done for long enough."""
        if not error.retryable:
            raise error
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        self._tries += 1
        delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** min(self._tries - 1, 10)) * random.uniform(0.5, 1)
        if error.retry_after is not None:
            delay = max(delay, error.retry_after)
        if now + delay > self._since + self._seconds:
            error.data["tries"] = self._tries
            raise error
        if not self._has_warned:
            self._has_warned = True
            _log.warning("asking again for up to %g s: %s", self._seconds, error)
        await asyncio.sleep(delay)


class Api:
    """A client. Use it with `async with`, or call `aclose` at the end."""

    def __init__(
        self,
        base_url: str,
        *,
        key: str | None,
        timeout: float,
        retry_for: float,
        max_connections: int,
        read_ahead: int,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        _refuse_below(0.001, timeout=timeout)
        _refuse_below(0, retry_for=retry_for, read_ahead=read_ahead)
        _refuse_below(1, numbers.Integral, max_connections=max_connections)
        self._http = HttpPool(
            base_url,
            headers={} if key is None else {"authorization": f"Bearer {key}"},
            limit=max_connections,
            connect_timeout=min(timeout, 10.0),
            ssl_context=ssl_context,
        )
        self._timeout = timeout
        self._retry_for = retry_for
        self._read_ahead = read_ahead
        self._tasks = Tasks()

    @property
    def base_url(self) -> str:
        return self._http.origin.url

    async def aclose(self) -> None:
        """Ends what is under way, cancels on the server what is not detached, and closes every connection."""
        await self._tasks.aclose()
        await self._http.aclose()

    async def __aenter__(self: SelfApi) -> SelfApi:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        retry_for: float | None = None,
        timeout: float | None = None,
        is_repeatable: bool = True,
    ) -> dict[str, Any]:
        """A short call that answers with JSON. What is not repeatable is asked again only if the server surely did nothing."""
        data = None if body is None else json_bytes(body)
        patience = Patience(self._retry_for if retry_for is None else retry_for)
        while True:
            try:
                async with self._http.ask(
                    method,
                    path,
                    query=query,
                    body=data,
                    timeout=timeout or self._timeout,
                    is_repeatable=is_repeatable,
                ) as reply:
                    await raise_refusal(reply)
                    return _json_object(await reply.read(), reply)
            except MillraceError as error:
                if not is_repeatable and not (isinstance(error, ConnectFailed) or error.status in (429, 503)):
                    raise
                await patience.wait(error)

    @contextlib.asynccontextmanager
    async def _stream(
        self,
        method: str,
        path: str,
        *,
        accept: str,
        query: Mapping[str, object] | None = None,
        body: bytes | None = None,
    ) -> AsyncGenerator[Reply, None]:
        """A reply that may be silent for as long as a rollout takes."""
        headers = {"accept": accept}
        async with self._http.ask(
            method, path, query=query, body=body, headers=headers, timeout=self._timeout, is_stream=True
        ) as reply:
            await raise_refusal(reply)
            yield reply


def _refuse_below(least: float, kind: type[Any] = numbers.Real, **options: object) -> None:
    for name, value in options.items():
        # Not `value < least`: NaN is neither.
        if not isinstance(value, kind) or not value >= least:
            what = "a whole number" if kind is numbers.Integral else "a number"
            raise InvalidArgument(f"{name}={value!r} is not {what} from {least:g} on")


async def raise_refusal(reply: Reply) -> None:
    if 200 <= reply.status < 300:
        return
    body = bytes(await reply.read_exactly(_REFUSAL_BYTES))
    # So that the connection can be kept.
    await reply.read_some(1)
    raise error_of_reply(reply.status, body, where=reply.where, retry_after=reply.retry_after)


async def rows_of(reply: Reply) -> AsyncIterator[tuple[Row, int]]:
    """The rows of a reply in the binary form, the one of kind `end` included, and their sizes. One without that is cut off."""
    decoder = FrameDecoder()
    while data := await reply.read_exactly(decoder.needs):
        if len(data) < decoder.needs:
            break
        row = decoder.take(data)
        if row is not None:
            yield row, len(data)
    if data or not decoder.is_whole:
        raise CutOff(f"{reply.where}: the reply has no end; ask again")


def _json_object(body: bytes, reply: Reply) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        message = f"{reply.where} did not answer with JSON; check that the address is that of a Millrace server"
        raise ProtocolError(message, status=reply.status)
    return parsed
