"""Results that arrive one after another: read in the background, given out with `async for`, cancelled when nobody wants them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar

from ._errors import ClientClosed

T = TypeVar("T")
SelfStream = TypeVar("SelfStream", bound="Stream[Any]")


class Feed(Generic[T]):
    """
    What has arrived and was not taken yet, up to so many bytes: at the limit the reading waits. So a server is read while a
    trainer trains, and a step that takes minutes does not look like a client that has gone.
    """

    def __init__(self, max_bytes: int) -> None:
        self._items: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._max_bytes = max_bytes
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._has_ended = False
        self._error: BaseException | None = None

    async def put(self, item: T, size: int) -> None:
        # One that is larger than the limit waits until it is alone.
        while self._items and self._bytes + size > self._max_bytes:
            self._taken.clear()
            await self._taken.wait()
        self._items.append((item, size))
        self._bytes += size
        self._changed.set()

    def end(self, error: BaseException | None = None) -> None:
        self._has_ended = True
        self._error = error
        self._changed.set()

    async def take(self) -> T:
        while not self._items:
            if self._has_ended:
                error, self._error = self._error, None
                raise error if error is not None else StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        item, size = self._items.popleft()
        self._bytes -= size
        self._taken.set()
        return item


class Tasks:
    """The background tasks of a client. Closing it ends them all, and waits for that."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._left: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def start(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        async def run() -> None:
            # Not made outside: a task that is cancelled before its first step would never await it.
            await work()

        if self._is_closed:
            raise ClientClosed("the client was closed; make another one")
        task = asyncio.get_running_loop().create_task(run())
        self._running.add(task)
        task.add_done_callback(self._forget)
        return task

    def leave(self, task: asyncio.Task[None]) -> None:
        """Cancels it once: a second time would break off what the first one has it tell the server."""
        if task in self._running and task not in self._left:
            self._left.add(task)
            task.cancel()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._left.discard(task)

    async def aclose(self) -> None:
        self._is_closed = True
        running = list(self._running)
        for task in running:
            self.leave(task)
        if running:
            await asyncio.wait(running)


class Stream(Generic[T]):
    """
    Results as they arrive. Take them with `async for`, in one task. Nothing is sent before the first one is asked for, or
    before `async with` is entered: with that, rollouts run while a trainer is still busy with the last ones.

    The rest is given up when the block of `async with` is left, with `aclose`, when nothing holds the stream any more, and with
    the client at the latest. Without `async with`, also when a task is cancelled while it waits for the next result. Python does
    not say that a loop was left by `break` or an error: a stream in a variable then goes on.
    """

    def __init__(self, produce: Callable[[Feed[T]], Awaitable[None]], tasks: Tasks, read_ahead: int) -> None:
        self._produce = produce
        self._tasks = tasks
        self._feed: Feed[T] = Feed(read_ahead)
        self._task: asyncio.Task[None] | None = None
        self._is_left = False
        self._has_block = False

    def __aiter__(self: SelfStream) -> SelfStream:
        return self

    async def __anext__(self) -> T:
        if self._is_left:
            raise StopAsyncIteration
        self._start()
        try:
            return await self._feed.take()
        except asyncio.CancelledError:
            # A block goes on after a wait that was given up (`asyncio.wait_for`), and ends the stream itself.
            if self._task is not None and not self._has_block:
                self._tasks.leave(self._task)
            raise

    def _start(self) -> None:
        if self._task is None:
            # The task knows the feed and not this object, which is then gone as soon as nobody iterates over it.
            self._task = self._tasks.start(partial(_produce_into, self._feed, self._produce))
            self._task.add_done_callback(partial(_end_cancelled, self._feed))

    async def aclose(self) -> None:
        """Gives up what has not been taken yet. Returns once the server knows."""
        self._is_left = True
        if self._task is not None and not self._task.done():
            self._tasks.leave(self._task)
            await asyncio.wait({self._task})

    async def __aenter__(self: SelfStream) -> SelfStream:
        self._has_block = True
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        task = getattr(self, "_task", None)
        if task is not None and not task.done():
            loop = task.get_loop()
            if not loop.is_closed():
                # The collector of garbage runs in whatever thread it likes.
                loop.call_soon_threadsafe(self._tasks.leave, task)


async def _produce_into(feed: Feed[T], produce: Callable[[Feed[T]], Awaitable[None]]) -> None:
    try:
        await produce(feed)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        feed.end(error)
    else:
        feed.end()


def _end_cancelled(feed: Feed[T], task: asyncio.Task[None]) -> None:
    """As its callback: a task that is cancelled before its first step runs nothing of its own."""
    if task.cancelled():
        feed.end(
            ClientClosed("the client was closed, or a wait for a result was cancelled; read it again, in `async with`")
        )
