"""The client of `millrace serve`: tasks in, groups of rollouts or their records out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote

from ._api import Api, Patience, rows_of
from ._errors import CutOff, InvalidArgument, MillraceError, ProtocolError, error_of_stream
from ._http import json_bytes
from ._reply import Reply
from ._row import Row
from ._stream import Feed, Stream, Tasks

T = TypeVar("T")

Task: TypeAlias = Mapping[str, Any]
#: A rollout as JSON: `docs/runs.md` describes its fields.
Record: TypeAlias = "dict[str, Any]"
Advantage: TypeAlias = Literal["none", "mean", "grpo", "rloo"]

_ROWS_TYPE = "application/vnd.millrace.rows"
_LINES_TYPE = "application/x-ndjson"
_forms = {"merged": "rows", "interactions": "interactions"}
#: How long leaving early may take. Whatever happens to it, the server notices within 15 seconds that the client has gone.
_CANCEL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one task."""

    #: The position of the task in the list that was sent.
    index: int
    #: The id of the task on the server. The task that was sent is `tasks[group.index]`.
    task: str | None
    #: The name that all rows of the group have.
    group: str
    #: How many rollouts it has, and how many of them have a reward.
    rollouts: int
    scored: int
    #: How many rollouts ended in which way: `{"completed": 7, "model_error": 1}`.
    outcomes: Mapping[str, int]
    #: The rows of its rollouts in order, each followed by those of its children.
    rows: list[Row] = field(repr=False)

    @property
    def trainable(self) -> list[Row]:
        """
        The rows to train on: of the task itself, with a token that was sampled for it. Not rows of children, side calls, failed
        rollouts and lost samples, and none of a rollout whose record is damaged. With `rows="interactions"`, the replies.
        """
        damaged = {row.session for row in self.rows if row.kind == "damaged"}
        return [
            row
            for row in self.rows
            if row.trains and row.main and len(row) > 0 and row.parent is None and row.session not in damaged
        ]


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """What has become of a request. `fields` is the whole reply of the server."""

    id: str
    #: How many rollouts are `queued`, `running` and `ended`.
    states: Mapping[str, int]
    #: How many of those that have ended did so in which way.
    outcomes: Mapping[str, int]
    fields: Mapping[str, Any] = field(repr=False)

    @property
    def has_ended(self) -> bool:
        return not any(count for state, count in self.states.items() if state != "ended")


class RequestStream(Stream[T]):
    """The results of one request."""

    def __init__(
        self, request_id: str, produce: Callable[[Feed[T]], Awaitable[None]], tasks: Tasks, read_ahead: int
    ) -> None:
        super().__init__(produce, tasks, read_ahead)
        #: By which the server knows the request: for `cancel`, `status`, and reading it again.
        self.request_id = request_id


#: An item, what tells it from the others of its request, and its size in bytes.
_Item: TypeAlias = "tuple[T, object, int]"


class Client(Api):
    """
    A client of `millrace serve`.

        async with millrace.Client("http://127.0.0.1:8080") as client:
            async for group in client.groups(tasks, attempts=8, advantage="grpo"):
                step(millrace.batch(group.trainable))

    Asking is safe: if a connection breaks, or the server is full or starts again, the client asks again with the same request
    id, gets the same rollouts, and gives each out once. It gives up when nothing has gone well for `retry_for` seconds.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8080",
        *,
        key: str | None = None,
        timeout: float = 60.0,
        retry_for: float = 120.0,
        max_connections: int = 64,
        read_ahead: int = 256 * 1024 * 1024,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """
        `key` is that of the server. `timeout` is the longest silence in a short call; streams have none, because a rollout
        may take hours. At most `max_connections` streams, and as many short calls, are under way at once. A stream holds
        `read_ahead` bytes at most that were not taken yet, and then reads no further.
        """
        super().__init__(
            base_url,
            key=key,
            timeout=timeout,
            retry_for=retry_for,
            max_connections=max_connections,
            read_ahead=read_ahead,
            ssl_context=ssl_context,
        )

    def groups(
        self,
        tasks: Sequence[Task],
        *,
        attempts: int | None = None,
        advantage: Advantage = "none",
        sampling: Mapping[str, Any] | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        rows: Literal["merged", "interactions"] = "merged",
        request_id: str | None = None,
        detached: bool = False,
    ) -> RequestStream[Group]:
        """
        Runs `attempts` rollouts of each task, and gives out each group as soon as all of it has ended, as training rows, or
        with a row for each reply (`interactions`).

        `sampling` is added to the server's own (`temperature`, `topP`, `maxTokens`, …). Conversations begin with `messages`
        instead of the environment's prompt. With `detached` the server goes on
        whatever happens to this client: read it again with `groups_of`.
        """
        written = {"include": _form_of(rows), "advantage": advantage}
        asked = {"attempts": attempts, "sampling": sampling, "messages": messages, **written}
        return self._submitted(tasks, asked, request_id, detached, _ROWS_TYPE, _groups, written)

    def rollouts(
        self,
        tasks: Sequence[Task],
        *,
        attempts: int | None = None,
        sampling: Mapping[str, Any] | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        scored: bool | None = None,
        include: Literal["record", "tokens", "tokens-base64"] = "record",
        request_id: str | None = None,
        detached: bool = False,
    ) -> RequestStream[Record]:
        """
        The same rollouts as records: JSON with messages, reward and outcome, each as soon as it has ended. With `scored=False` no
        reward is computed.
        """
        asked = {"attempts": attempts, "sampling": sampling, "messages": messages, "scored": scored, "include": include}
        return self._submitted(tasks, asked, request_id, detached, _LINES_TYPE, _records, {"include": include})

    def groups_of(
        self, request_id: str, *, advantage: Advantage = "none", rows: Literal["merged", "interactions"] = "merged"
    ) -> RequestStream[Group]:
        """The groups of a request that the server knows: those that have ended, and then the others. Leaving cancels nothing."""
        query = {"include": _form_of(rows), "advantage": advantage}
        return self._known(request_id, query, _ROWS_TYPE, _groups)

    def rollouts_of(
        self, request_id: str, *, include: Literal["record", "tokens", "tokens-base64"] = "record"
    ) -> RequestStream[Record]:
        """The records of a request that the server knows. Leaving cancels nothing."""
        return self._known(request_id, {"include": include}, _LINES_TYPE, _records)

    async def submit(
        self,
        tasks: Sequence[Task],
        *,
        attempts: int | None = None,
        sampling: Mapping[str, Any] | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        scored: bool | None = None,
        request_id: str | None = None,
    ) -> str:
        """Has rollouts run without waiting for them, and returns the id by which to read or cancel them."""
        name = request_id or _new_id()
        asked = {"attempts": attempts, "sampling": sampling, "messages": messages, "scored": scored}
        await self._call("POST", "/v1/rollouts", body=_body(tasks, asked, name, is_detached=True))
        return name

    async def cancel(self, request_id: str) -> None:
        """Cancels the rollouts of a request that have not ended."""
        await self._call("DELETE", _path_of(request_id))

    async def status(self, request_id: str) -> RequestStatus:
        """How far a request is."""
        fields = await self._call("GET", _path_of(request_id))
        return RequestStatus(request_id, fields.get("states", {}), fields.get("outcomes", {}), fields)

    async def is_ready(self) -> bool:
        """Whether a rollout that is sent now would run. No key is asked for: a wrong one shows in the first other call."""
        try:
            await self._call("GET", "/ready", retry_for=0)
        except MillraceError as error:
            if not error.retryable:
                raise
            return False
        return True

    def _submitted(
        self,
        tasks: Sequence[Task],
        asked: Mapping[str, object],
        request_id: str | None,
        is_detached: bool,
        accept: str,
        read: Callable[[Reply], AsyncIterator[_Item[T]]],
        query: Mapping[str, object],
    ) -> RequestStream[T]:
        name = request_id or _new_id()
        # What cannot be sent is refused here, and not in the background.
        body = json_bytes(_body(tasks, asked, name, is_detached=False))

        def ask() -> contextlib.AbstractAsyncContextManager[Reply]:
            return self._stream("POST", "/v1/rollouts", accept=accept, body=body)

        async def produce(feed: Feed[T]) -> None:
            try:
                await self._read_all(feed, ask, read)
            except asyncio.CancelledError:
                with contextlib.suppress(MillraceError):
                    await self._call("DELETE", _path_of(name), retry_for=0, timeout=_CANCEL_SECONDS)
                raise

        if not is_detached:
            return RequestStream(name, produce, self._tasks, self._read_ahead)

        def ask_again() -> contextlib.AbstractAsyncContextManager[Reply]:
            return self._stream("GET", _path_of(name), accept=accept, query=query)

        async def produce_detached(feed: Feed[T]) -> None:
            await self._call("POST", "/v1/rollouts", body=_body(tasks, asked, name, is_detached=True))
            await self._read_all(feed, ask_again, read)

        return RequestStream(name, produce_detached, self._tasks, self._read_ahead)

    def _known(
        self,
        request_id: str,
        query: Mapping[str, object],
        accept: str,
        read: Callable[[Reply], AsyncIterator[_Item[T]]],
    ) -> RequestStream[T]:
        def ask() -> contextlib.AbstractAsyncContextManager[Reply]:
            return self._stream("GET", _path_of(request_id), accept=accept, query=query)

        async def produce(feed: Feed[T]) -> None:
            await self._read_all(feed, ask, read)

        return RequestStream(request_id, produce, self._tasks, self._read_ahead)

    async def _read_all(
        self,
        feed: Feed[T],
        ask: Callable[[], contextlib.AbstractAsyncContextManager[Reply]],
        read: Callable[[Reply], AsyncIterator[_Item[T]]],
    ) -> None:
        """Everything, each item once: a server repeats a request from its beginning."""
        given: set[object] = set()
        patience = Patience(self._retry_for)
        now = asyncio.get_running_loop().time
        while True:
            began: float | None = None
            try:
                async with ask() as reply:
                    began = now()
                    async for item, key, size in read(reply):
                        if key not in given:
                            given.add(key)
                            patience.succeeded()
                            await feed.put(item, size)
                    return
            except MillraceError as error:
                # A proxy may end what has been silent for a while, again and again, and rollouts may take hours.
                if began is not None and now() - began > self._retry_for / 10:
                    patience.succeeded()
                await patience.wait(error)


async def _groups(reply: Reply) -> AsyncIterator[_Item[Group]]:
    first_task = int(reply.headers.get("millrace-first-task", "0"))
    rows: list[Row] = []
    bytes_of_group = 0
    async for row, size in rows_of(reply):
        bytes_of_group += size
        if row.kind == "group":
            group = _group_of(row.fields, rows, first_task, reply)
            yield group, group.index, bytes_of_group
            rows, bytes_of_group = [], 0
        elif row.kind == "error":
            raise error_of_stream(row.fields.get("error") or {})
        elif row.kind != "end":
            rows.append(row)


def _group_of(fields: Mapping[str, Any], rows: list[Row], first_task: int, reply: Reply) -> Group:
    # What stands in for rows is not counted as one.
    count = sum(row.kind not in ("empty", "damaged") for row in rows)
    if fields["rows"] != count:
        raise ProtocolError(f"{reply.where}: a group of {fields['rows']} rows came with {count}")
    return Group(
        index=fields["taskIndex"] - first_task,
        task=fields["task"],
        group=fields["group"],
        rollouts=fields["rollouts"],
        scored=fields["scored"],
        outcomes=fields["outcomes"],
        rows=rows,
    )


async def _records(reply: Reply) -> AsyncIterator[_Item[Record]]:
    async for line in reply.lines():
        try:
            record = json.loads(line)
        except ValueError:
            raise CutOff(f"{reply.where}: the reply has no end; ask again") from None
        # A failed rollout has an error, too, and an id.
        if "id" not in record:
            raise error_of_stream(record.get("error") or {})
        yield record, record["id"], len(line)


def _body(tasks: Sequence[Task], asked: Mapping[str, object], name: str, *, is_detached: bool) -> dict[str, object]:
    if isinstance(tasks, (str, bytes, Mapping)):
        raise InvalidArgument("tasks is a list of tasks; for a single one send [task]")
    said = {key: value for key, value in asked.items() if value is not None}
    return {"requestId": name, "tasks": list(tasks), **said, **({"detached": True} if is_detached else {})}


def _form_of(rows: str) -> str:
    form = _forms.get(rows)
    if form is None:
        raise InvalidArgument(f"rows={rows!r} is not known; it is one of {', '.join(map(repr, _forms))}")
    return form


def _path_of(request_id: str) -> str:
    return f"/v1/requests/{quote(request_id, safe='')}"


def _new_id() -> str:
    return f"py-{uuid.uuid4().hex}"
