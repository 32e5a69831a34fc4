from __future__ import annotations

import asyncio
import contextlib
import pickle
import unittest
from collections.abc import Awaitable, Callable
from typing import Any

from fake_server import FakeServer, Request

import millrace

Script = Callable[[Request], Awaitable[None]]


def answer(backend: str = "a", status: str = "paused", **more: object) -> dict[str, Any]:
    return {"backend": backend, "ok": "error" not in more, "status": status, **more}


def reply(body: object, status: int = 200) -> Script:
    async def script(request: Request) -> None:
        await request.reply(body, status)

    return script


def did(status: str, **more: str) -> Script:
    return reply({"ok": True, "backends": [answer(status=status, **more)]})


async def cut(request: Request) -> None:
    await request.cut()


async def over(request: Request) -> None:
    data = {"status": 409, "param": "epoch"}
    await request.reply({"error": {"code": "usage", "message": "comes too late", "data": data}}, 409)


LIST = reply({"epoch": 7, "backends": []})
PAUSED = did("paused", mode="finish")
PARTLY = reply(
    {"ok": False, "backends": [answer(), answer("b", "unreachable", error="refused")]},
    status=502,
)
VERSIONED = did("paused", version="8")
RESUMED = did("serving")
ORDERS = ["GET /v1/backends", "POST /v1/backends/pause", "POST /v1/backends/version", "POST /v1/backends/resume"]


def client(server: FakeServer) -> millrace.Gateway:
    return millrace.Gateway(server.url, key="k", retry_for=5)


class Fleet(unittest.IsolatedAsyncioTestCase):
    async def test_backends_have_types(self) -> None:
        paused = {"epoch": 3, "leaseMs": 1500, "error": "slow"}
        listed = {"id": "a", "url": "http://a/v1", "models": ["m"], "state": "paused", "version": None, "inFlight": 2}
        async with FakeServer(reply({"epoch": 3, "backends": [{**listed, **paused}, listed]})) as server:
            async with client(server) as gateway:
                one, other = await gateway.backends()
        self.assertEqual((one.id, one.models, one.state, one.in_flight), ("a", ("m",), "paused", 2))
        self.assertEqual((one.version, one.epoch, one.lease, one.error), (None, 3, 1.5, "slow"))
        self.assertEqual((other.epoch, other.lease, other.error), (None, None, None))

    async def test_an_update_pauses_sets_the_version_and_resumes_its_own_epoch(self) -> None:
        async with FakeServer(LIST, PAUSED, VERSIONED, RESUMED) as server:
            async with client(server) as gateway:
                async with gateway.weight_update("8", mode="continue", ttl=30, backends=["a"]) as pause:
                    self.assertEqual(server.said, ORDERS[:2])
        self.assertEqual(server.said, ORDERS)
        epoch = pause.epoch
        self.assertGreater(epoch, 7)
        self.assertEqual([each.mode for each in pause.backends], ["finish"])
        self.assertEqual(
            [request.json for request in server.requests[1:]],
            [
                {"epoch": epoch, "mode": "continue", "ttlMs": 30_000, "backends": ["a"]},
                {"version": "8", "backends": ["a"]},
                {"epoch": epoch, "backends": ["a"]},
            ],
        )

    async def test_a_lost_connection_repeats_the_same_order(self) -> None:
        async with FakeServer(LIST, cut, PAUSED, cut, VERSIONED, cut, RESUMED) as server:
            async with client(server) as gateway, gateway.weight_update("8"):
                pass
        self.assertEqual(server.said, [ORDERS[0], *(order for order in ORDERS[1:] for _ in range(2))])
        first, again = server.requests[1:3]
        self.assertEqual(first.body, again.body)

    async def test_a_body_that_raises_resumes_and_sets_no_version(self) -> None:
        async with FakeServer(LIST, PAUSED, RESUMED) as server:
            async with client(server) as gateway:
                with self.assertRaisesRegex(ValueError, "no such file"):
                    async with gateway.weight_update("8"):
                        raise ValueError("no such file")
        self.assertEqual(server.said, [*ORDERS[:2], ORDERS[3]])

    async def test_the_error_of_a_body_is_raised_although_the_resume_fails(self) -> None:
        async with FakeServer(LIST, PAUSED, PARTLY) as server:
            async with client(server) as gateway:
                with self.assertLogs("millrace", "WARNING") as logs, self.assertRaises(ValueError):
                    async with gateway.weight_update("8"):
                        raise ValueError
        self.assertIn("paused until the lease", logs.output[-1])

    async def test_a_backend_that_fails_is_an_error_with_all_answers_and_the_rest_resume(self) -> None:
        async with FakeServer(LIST, PARTLY, RESUMED) as server:
            async with client(server) as gateway:
                with self.assertRaisesRegex(millrace.BackendsFailed, "1 of 2 backends failed: b: refused") as raised:
                    async with gateway.weight_update("8"):
                        self.fail("the body of a failed pause")
        self.assertEqual(server.said, [*ORDERS[:2], ORDERS[3]])
        copy = pickle.loads(pickle.dumps(raised.exception))
        for error in (raised.exception, copy):
            self.assertEqual([(each.backend, each.ok) for each in error.backends], [("a", True), ("b", False)])
            self.assertEqual((error.backends[1].state, error.backends[1].error), ("unreachable", "refused"))
            self.assertEqual((error.code, error.status, error.retryable), ("backends_failed", 502, False))

    async def test_a_version_that_fails_resumes_and_is_an_error(self) -> None:
        async with FakeServer(LIST, PAUSED, PARTLY, RESUMED) as server:
            async with client(server) as gateway:
                with self.assertRaises(millrace.BackendsFailed):
                    async with gateway.weight_update("8"):
                        pass
        self.assertEqual(server.said, ORDERS)

    async def test_a_bad_gateway_without_answers_is_asked_again(self) -> None:
        async with FakeServer(reply(b"<html>Bad Gateway</html>", status=502), RESUMED) as server:
            async with client(server) as gateway:
                (resumed,) = await gateway.resume(3)
        self.assertEqual((resumed.state, len(server.requests)), ("serving", 2))

    async def test_a_pause_that_ended_too_early_is_an_error(self) -> None:
        async with FakeServer(LIST, PAUSED, did("serving", version="8"), RESUMED) as server:
            async with client(server) as gateway:
                with self.assertRaisesRegex(millrace.Conflict, "longer ttl") as raised:
                    async with gateway.weight_update("8", ttl=1):
                        pass
        self.assertEqual(raised.exception.code, "pause_ended")
        self.assertEqual(server.said, ORDERS)

    async def test_an_epoch_that_is_over_is_a_conflict(self) -> None:
        async with FakeServer(over) as server:
            async with client(server) as gateway:
                with self.assertRaises(millrace.Conflict) as raised:
                    await gateway.pause(epoch=3)
        self.assertNotIn("request_id", str(raised.exception))

    async def test_an_update_that_is_cancelled_resumes(self) -> None:
        for scripts in ([LIST, PAUSED, RESUMED], [LIST, hold, RESUMED], [LIST, PAUSED, VERSIONED, hold, RESUMED]):
            async with FakeServer(*scripts) as server:
                async with client(server) as gateway:
                    is_in_body = scripts[1] is PAUSED and len(scripts) == 3
                    task = asyncio.ensure_future(update(gateway, lasts=is_in_body))
                    while len(server.requests) < (2 if len(scripts) == 3 else 4):
                        await asyncio.sleep(0.01)
                    await asyncio.sleep(0.05)
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
                    self.assertTrue(task.cancelled())
            self.assertEqual(server.said[-1], ORDERS[3])
            self.assertEqual(len(server.said), len(scripts))


async def hold(request: Request) -> None:
    await asyncio.sleep(60)


async def update(gateway: millrace.Gateway, lasts: bool) -> None:
    async with gateway.weight_update("8"):
        if lasts:
            await asyncio.sleep(60)


if __name__ == "__main__":
    unittest.main()
