"""
The client of `millrace gateway`: sessions for agents, their rewards, exports of what was recorded, and updates of the weights
of its backends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal
from urllib.parse import quote

from ._api import Api, Patience, rows_of
from ._errors import Conflict, CutOff, MillraceError
from ._fleet import Backend, BackendAnswer, Pause, PauseMode
from ._row import Row
from ._stream import Feed, Stream, Tasks

_log = logging.getLogger("millrace")

#: Seconds that a cancelled update spends on telling the backends to resume. After that, the lease of the pause ends it.
_CANCEL_SECONDS = 5.0
#: Epochs grow by steps of chance, so that two programs that pause at once do not have the same one.
_LARGEST_STEP = 1024


class RowStream(Stream[Row]):
    """The rows of an export. After the last one, `end` has its sums."""

    def __init__(
        self, ends: list[dict[str, Any]], produce: Callable[[Feed[Row]], Awaitable[None]], tasks: Tasks, read_ahead: int
    ) -> None:
        super().__init__(produce, tasks, read_ahead)
        self._ends = ends

    @property
    def end(self) -> dict[str, Any] | None:
        """How many sessions and rows the export has, and how many were left out. None before the last row has arrived."""
        return self._ends[-1] if self._ends else None


class Session:
    """
    A session of the gateway. An agent uses it with its own client: `base_url` for clients of OpenAI, `url` for those of
    Anthropic, and `key` for both. With `async with` it is ended when the block is left.
    """

    def __init__(
        self, gateway: Gateway, id: str, *, key: str | None = None, url: str | None = None, group: str | None = None
    ) -> None:
        self.id = id
        self._key = key
        self.url = url or f"{gateway.base_url}/sessions/{quote(id, safe='')}"
        self.group = group
        self._gateway = gateway

    @property
    def key(self) -> str:
        """For the agent. Only the program that started the session has it: the gateway shows it once."""
        if self._key is None:
            message = f"the key of session {self.id} was shown when it was started; keep it from there"
            raise MillraceError(message, code="usage")
        return self._key

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    async def reward(self, value: float, *, interaction: str | None = None, node: int | None = None) -> None:
        """
        Rewards the session, or one reply: by the id that its client got, or by its number. The last reward counts, also after
        the end of the session.
        """
        said = {"reward": value, "interactionId": interaction, "node": node}
        body = {name: each for name, each in said.items() if each is not None}
        await self._gateway._call("POST", f"{self._path}/rewards", body=body)

    async def end(self) -> dict[str, Any]:
        """Ends it: nothing is added to it afterwards. Returns what `status` would."""
        return await self._gateway._call("POST", f"{self._path}/end", body={})

    async def status(self) -> dict[str, Any]:
        """Its state, its usage, the rest of its limits, its alarms."""
        return await self._gateway._call("GET", self._path)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()

    @property
    def _path(self) -> str:
        return f"/v1/sessions/{quote(self.id, safe='')}"

    def __repr__(self) -> str:
        return f"<Session {self.id} group={self.group!r}>"


class Gateway(Api):
    """
    A client of `millrace gateway`, with an admin's key.

        async with millrace.Gateway("http://127.0.0.1:8787", key=admin_key) as gateway:
            async with await gateway.start_session(group="g", task="t") as session:
                answer = await agent(base_url=session.base_url, key=session.key)
                await session.reward(score(answer))
            rows = [row async for row in gateway.export(group="g")]
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8787",
        *,
        key: str,
        timeout: float = 60.0,
        retry_for: float = 120.0,
        max_connections: int = 64,
        read_ahead: int = 256 * 1024 * 1024,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """As for `Client`. An export that has begun is not asked for again: it raises `CutOff`, and can be repeated."""
        super().__init__(
            base_url,
            key=key,
            timeout=timeout,
            retry_for=retry_for,
            max_connections=max_connections,
            read_ahead=read_ahead,
            ssl_context=ssl_context,
        )

    async def start_session(
        self,
        *,
        group: str | None = None,
        task: str | None = None,
        ttl: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        limits: Mapping[str, float] | None = None,
        self_managed: bool = False,
    ) -> Session:
        """
        Starts a session, in a group of its own or in `group`. It ends by itself after `ttl` seconds without a request.

        If the connection is lost before the answer, `ConnectionLost` is raised, and a session may have been started: it is
        empty, and ends by itself.
        """
        (session,) = await self.start_group(
            1, group=group, task=task, ttl=ttl, metadata=metadata, limits=limits, self_managed=self_managed
        )
        return session

    async def start_group(
        self,
        size: int,
        *,
        group: str | None = None,
        task: str | None = None,
        ttl: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        limits: Mapping[str, float] | None = None,
        self_managed: bool = False,
    ) -> list[Session]:
        """Starts the sessions of a group: attempts at one task, whose rewards are compared."""
        said = {
            "groupSize": size,
            "groupId": group,
            "taskId": task,
            "ttlSeconds": ttl,
            "metadata": metadata,
            "limits": limits,
            "selfManaged": self_managed or None,
        }
        body = {name: each for name, each in said.items() if each is not None}
        started = await self._call("POST", "/v1/sessions", body=body, is_repeatable=False)
        return [
            Session(self, each["id"], key=each["key"], url=each["url"], group=started["groupId"])
            for each in started["sessions"]
        ]

    def session(self, id: str) -> Session:
        """A session that was started elsewhere. Nothing is asked yet."""
        return Session(self, id)

    async def sessions(
        self, *, group: str | None = None, state: Literal["open", "ended"] | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """The sessions of the tenant, oldest first: what `Session.status` shows of each, in short."""
        after: str | None = None
        while True:
            query = {"group": group, "state": state, "after": after, "limit": 1000}
            page = await self._call("GET", "/v1/sessions", query=query)
            for session in page["sessions"]:
                yield session
            after = page.get("after")
            if after is None:
                return

    def export(
        self,
        *,
        session: str | None = None,
        group: str | None = None,
        rows: Literal["merged", "interactions"] = "merged",
        main_tree: Literal["longest", "first", "all"] | None = None,
        trees: Literal["all", "main"] | None = None,
        discount: float | None = None,
        advantage: Literal["none", "mean", "grpo", "rloo"] | None = None,
        include_discarded: bool = False,
        skip_without_tokens: bool = False,
    ) -> RowStream:
        """
        The rows of a session, of a group, or of everything (docs/export.md). Rows of sessions that are still open are
        included, and their `sealed` is false.
        """
        query = {
            "session": session,
            "group": group,
            "rows": rows,
            "format": "binary",
            "mainTree": main_tree,
            "trees": trees,
            "discount": discount,
            "advantage": advantage,
            "include": "discarded" if include_discarded else None,
            "skipWithoutTokens": "true" if skip_without_tokens else None,
        }
        ends: list[dict[str, Any]] = []

        async def produce(feed: Feed[Row]) -> None:
            patience = Patience(self._retry_for)
            has_begun = False
            while True:
                try:
                    async with self._stream(
                        "GET", "/v1/export", accept="application/octet-stream", query=query
                    ) as reply:
                        async for row, size in rows_of(reply):
                            if row.kind == "end":
                                ends.append(row.fields)
                            else:
                                has_begun = True
                                await feed.put(row, size)
                        return
                except MillraceError as error:
                    if has_begun:
                        raise CutOff(f"{error.message}; the export was cut off, ask again") from error
                    await patience.wait(error)

        return RowStream(ends, produce, self._tasks, self._read_ahead)

    async def backends(self) -> list[Backend]:
        """The backends: their models, whether they are paused, the version of their weights."""
        listed = await self._call("GET", "/v1/backends")
        return [Backend.of(each) for each in listed["backends"]]

    async def pause(
        self,
        *,
        mode: PauseMode = "finish",
        ttl: float = 600.0,
        backends: Sequence[str] | None = None,
        epoch: int | None = None,
    ) -> Pause:
        """
        Pauses all backends, or those with these ids or URLs. Returns when they are paused. With `finish`, that is when their
        replies have ended. If nobody resumes them, they resume by themselves `ttl` seconds later.

        `epoch` of a pause that has begun renews it. Raises `BackendsFailed` if some backends could not be paused: the others
        are, so resume them. Raises `Conflict` if another program has paused a backend meanwhile.
        """
        return await self._pause(await self._next_epoch() if epoch is None else epoch, mode, ttl, backends)

    async def resume(
        self, epoch: int | None = None, *, backends: Sequence[str] | None = None
    ) -> tuple[BackendAnswer, ...]:
        """Ends the pause of this epoch, or whatever pause there is. Raises `Conflict` if there is a later one."""
        return await self._resume(epoch, backends)

    async def set_version(self, version: str, *, backends: Sequence[str] | None = None) -> tuple[BackendAnswer, ...]:
        """Sets the version of the weights: recorded tokens have it from now on, if the engine does not say its own."""
        return _answers(await self._order("version", backends, version=version))

    @contextlib.asynccontextmanager
    async def weight_update(
        self, version: str, *, mode: PauseMode = "finish", ttl: float = 600.0, backends: Sequence[str] | None = None
    ) -> AsyncGenerator[Pause, None]:
        """
        Pauses the backends, has the block load the weights into the engines, sets the version, and resumes.

            async with gateway.weight_update("8", mode="continue"):
                await load_weights(path)

        They are resumed in every case. If some cannot be paused, the block does not run; if it raises, the version stays. A
        block that takes longer than `ttl` seconds raises `Conflict` at its end: backends have served in the meantime.
        """
        epoch = await self._next_epoch()
        try:
            yield await self._pause(epoch, mode, ttl, backends)
            answers = await self.set_version(version, backends=backends)
        except BaseException as error:
            await self._resume_after(error, epoch, backends)
            raise
        try:
            await self._resume(epoch, backends)
        except asyncio.CancelledError as error:
            # The gateway may not have heard of it. Twice is the same as once.
            await self._resume_after(error, epoch, backends)
            raise
        early = [each.backend for each in answers if each.state == "serving"]
        if early:
            message = f"the pause had ended before the update did, at {', '.join(early)}; give it a longer ttl={ttl:g}"
            raise Conflict(message, code="pause_ended", data={"epoch": epoch})

    async def _next_epoch(self) -> int:
        # Chosen here, so that an order can be sent again after a lost connection and is still the same order.
        listed = await self._call("GET", "/v1/backends")
        return int(listed["epoch"]) + random.randint(1, _LARGEST_STEP)

    async def _pause(self, epoch: int, mode: PauseMode, ttl: float, backends: Sequence[str] | None) -> Pause:
        # The gateway answers when the replies of engines have ended, and when the lease ends at the latest.
        timeout = ttl + self._timeout
        said = await self._order("pause", backends, timeout=timeout, epoch=epoch, mode=mode, ttlMs=round(ttl * 1000))
        return Pause(epoch, _answers(said))

    async def _resume(
        self, epoch: int | None, backends: Sequence[str] | None, *, retry_for: float | None = None
    ) -> tuple[BackendAnswer, ...]:
        return _answers(await self._order("resume", backends, retry_for=retry_for, epoch=epoch))

    async def _resume_after(self, error: BaseException, epoch: int, backends: Sequence[str] | None) -> None:
        """Resumes because of an error, which is the one to raise, whatever happens here."""
        retry_for = _CANCEL_SECONDS if isinstance(error, asyncio.CancelledError) else None
        try:
            await self._resume(epoch, backends, retry_for=retry_for)
        except MillraceError as failure:
            _log.warning("backends may be paused until the lease of epoch %d ends: %s", epoch, failure)

    async def _order(
        self,
        what: str,
        backends: Sequence[str] | None,
        *,
        timeout: float | None = None,
        retry_for: float | None = None,
        **fields: object,
    ) -> dict[str, Any]:
        said = {**fields, "backends": None if backends is None else list(backends)}
        body = {name: each for name, each in said.items() if each is not None}
        return await self._call("POST", f"/v1/backends/{what}", body=body, timeout=timeout, retry_for=retry_for)


def _answers(said: Mapping[str, Any]) -> tuple[BackendAnswer, ...]:
    return tuple(map(BackendAnswer.of, said["backends"]))
