"""Every way something can go wrong. Catch the class that you can act on, or branch on `code`; never on the text."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from ._fleet import BackendAnswer


class MillraceError(Exception):
    """
    What the server refused, or what happened on the way to it.

    `code` is the server's own (`docs/errors.md` and `docs/serve.md` list them), or one of this package: `connect_failed`,
    `connection_lost`, `timeout`, `protocol`, `cut_off`, `not_rows`, `closed`. `status` is the HTTP status, if there was a reply.
    """

    #: Whether the same thing, tried again later, could succeed without anybody changing anything.
    retryable = False
    _code = "internal"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        data: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.code = code or self._code
        super().__init__(f"[{self.code}] {message}")
        self.message = message
        self.status = status
        self.data: dict[str, Any] = dict(data or {})
        #: Seconds after which the server wants to be asked again, if it said so.
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is made, so that it can be sent to other processes.
        said: dict[str, Any] = {
            "code": self.code,
            "status": self.status,
            "data": self.data,
            "retry_after": self.retry_after,
        }
        return functools.partial(type(self), **said), (self.message,)


class InvalidRequest(MillraceError):
    """The request does not fit: the message says where. 400, 405, 415 and others of that kind."""


class InvalidArgument(MillraceError, ValueError, TypeError):
    """An argument of a call is wrong. Nothing was sent."""

    _code = "usage"


class Unauthorized(MillraceError):
    """No key, a wrong one, or one that may not do this."""


class NotFound(MillraceError):
    """There is no such request, rollout, session or route."""


class Conflict(MillraceError):
    """The request id stands for other tasks, attempts or sampling; or another program has paused or resumed a backend since."""


class SessionEnded(MillraceError):
    """The session takes nothing more, because it has ended or because its record is damaged."""


class TooLarge(MillraceError):
    """The body is longer than the server takes."""


class Overloaded(MillraceError):
    """Too much waits already: ask again after `retry_after`."""

    retryable = True


class Unavailable(MillraceError):
    """The server, or a proxy before it, cannot answer now: it starts, drains, or has no room on its disk."""

    retryable = True


class BackendsFailed(MillraceError):
    """Some backends of a gateway did not do what they were told. The others did."""

    _code = "backends_failed"

    @property
    def backends(self) -> tuple[BackendAnswer, ...]:
        """The answers of all of them, of those that did it, too."""
        return tuple(map(BackendAnswer.of, self.data["backends"]))


class ServerFailed(MillraceError):
    """A fault of the server's. Its log has the reason."""


class ConnectFailed(MillraceError):
    """No connection: nothing was sent."""

    _code = "connect_failed"
    retryable = True


class ConnectionLost(MillraceError):
    """The connection ended before the reply did."""

    _code = "connection_lost"
    retryable = True


class TimedOut(MillraceError):
    """Nothing came for as long as the client was told to wait."""

    _code = "timeout"
    retryable = True


class ProtocolError(MillraceError):
    """What answers there is no HTTP/1.1 server, or no Millrace."""

    _code = "protocol"


class CutOff(MillraceError):
    """Rows end in the middle: what came before is good, the rest is missing."""

    _code = "cut_off"
    retryable = True


class NotRows(MillraceError, ValueError):
    """The file is something else, or of a later version."""

    _code = "not_rows"


class ClientClosed(MillraceError):
    """The client was closed. Make another one."""

    _code = "closed"


_by_status: dict[int, type[MillraceError]] = {
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    408: TimedOut,
    409: Conflict,
    410: SessionEnded,
    413: TooLarge,
    429: Overloaded,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
    529: Overloaded,
}

_by_code: dict[str, type[MillraceError]] = {
    "closed": Unavailable,
    "disk_full": Unavailable,
    "overloaded": Overloaded,
    "task_invalid": InvalidRequest,
    "usage": InvalidRequest,
}

#: What to do next, where the server's own message does not say so.
_next_steps: dict[type[MillraceError], str] = {
    Conflict: "send another request_id, or none",
    NotFound: "check the id, and that this is the server which has it",
    Unauthorized: "give the client the key of this server: key=...",
    ServerFailed: "the server's log has the reason",
}

_without_version = "give the client the server's address without /v1"


def error_of_reply(status: int, body: bytes, *, where: str, retry_after: float | None = None) -> MillraceError:
    """The error that a reply stands for. A body that is not Millrace's is quoted: it may be a proxy's."""
    kind = _by_status.get(status, ServerFailed if status >= 500 else InvalidRequest)
    wire = _wire_error(body)
    if wire is None and status == 502:
        failed = _backends_failed(body, where)
        if failed is not None:
            return failed
    # Other clients want the address with /v1.
    has_version_twice = status == 404 and ("/v1/v1/" in where or where.endswith("/v1/ready"))
    if wire is None:
        quoted = body[:200].decode("utf-8", "replace").strip()
        message = f"{where} answered {status}" + (f": {quoted}" if quoted else "")
        if not kind.retryable:
            step = _without_version if has_version_twice else "check that the address is that of a Millrace server"
            message = f"{message}; {step}"
        return kind(message, code=f"http_{status}", status=status, retry_after=retry_after)
    code, message, data = wire
    is_over = data.get("param") == "epoch"
    if kind is Conflict and code != "run_mismatch" and not is_over:
        kind = InvalidRequest
    next_step = _without_version if has_version_twice else None if is_over else _next_steps.get(kind)
    if next_step is not None and next_step not in message:
        message = f"{message}; {next_step}"
    return kind(message, code=code, status=status, data=data, retry_after=retry_after)


def error_of_stream(wire: Mapping[str, Any]) -> MillraceError:
    """The error with which a reply that had begun breaks off."""
    code, message = str(wire.get("code", "internal")), str(wire.get("message", "the reply was broken off"))
    data = wire.get("data")
    kind = _by_code.get(code, ServerFailed)
    return kind(message, code=code, data=data if isinstance(data, dict) else None)


def _backends_failed(body: bytes, where: str) -> BackendsFailed | None:
    """The answers of backends to an order, if the body has them. A proxy's 502 has not."""
    try:
        parsed = json.loads(body)
        answers = [BackendAnswer.of(each) for each in parsed["backends"]]
    except (ValueError, KeyError, TypeError):
        return None
    failed = [f"{each.backend}: {each.error}" for each in answers if not each.ok]
    message = f"{where}: {len(failed)} of {len(answers)} backends failed: {'; '.join(failed)}"
    return BackendsFailed(message, status=502, data=parsed)


def _wire_error(body: bytes) -> tuple[str, str, dict[str, Any]] | None:
    try:
        parsed = json.loads(body)
    except ValueError:
        return None
    error = parsed.get("error") if isinstance(parsed, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    # Routes in a vendor's shape have a type, and not always a code.
    code = error.get("code") or error.get("type") or "internal"
    data = error.get("data")
    return str(code), error["message"], data if isinstance(data, dict) else {}
