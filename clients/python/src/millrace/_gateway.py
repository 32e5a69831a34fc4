"""The client of `millrace gateway`: sessions for agents, their rewards, and exports of what was recorded."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Literal
from urllib.parse import quote

from ._api import Api, Patience, rows_of
from ._errors import CutOff, MillraceError
from ._row import Row
from ._stream import Feed, Stream, Tasks


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
