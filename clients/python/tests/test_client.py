from __future__ import annotations

import asyncio
import gc
import unittest
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from fake_server import FakeServer, Request
from frames import END, HEAD, binary, frame, group_end, json_line, merged

import millrace

TASKS = [{"n": 0}, {"n": 1}, {"n": 2}]

Script = Callable[[Request], Awaitable[None]]


def group(index: int) -> bytes:
    rows = [merged(f"{index}-{sample}", seed=index, sample=sample) for sample in range(2)]
    return b"".join(map(frame, rows)) + frame(group_end(index, rows=2, rollouts=2))


def stream(*parts: bytes, is_cut: bool = False) -> Script:
    async def script(request: Request) -> None:
        await request.begin()
        for part in parts:
            await request.chunk(part)
        await (request.cut() if is_cut else request.end())

    return script


def hold(*parts: bytes) -> Script:
    """Sends these, and then nothing more until the client has gone."""

    async def script(request: Request) -> None:
        await request.begin()
        for part in parts:
            await request.chunk(part)
        await request.gone()

    return script


def refusal(status: int, code: str, headers: str = "") -> Script:
    async def script(request: Request) -> None:
        await request.refuse(status, code, headers)

    return script


async def accept(request: Request) -> None:
    await request.reply({"request": "r", "states": {"ended": 6}, "outcomes": {"completed": 6}})


WHOLE = stream(HEAD, group(1), group(0), HEAD, group(2), frame(END))


class Groups(unittest.IsolatedAsyncioTestCase):
    async def test_groups_come_as_arrays_and_in_the_order_of_their_ends(self) -> None:
        async with FakeServer(WHOLE) as server, millrace.Client(server.url, key="secret") as client:
            groups = [
                each
                async for each in client.groups(
                    TASKS, attempts=2, advantage="grpo", sampling={"temperature": np.float64(0.5)}, request_id="r:1"
                )
            ]
            self.assertEqual([each.index for each in groups], [1, 0, 2])
            self.assertEqual((groups[0].task, groups[0].scored, groups[0].outcomes), ("1", 2, {"completed": 2}))
            self.assertEqual([row.session for row in groups[0].rows], ["1-0", "1-1"])
            np.testing.assert_array_equal(groups[0].rows[0].ids, merged(seed=1)["ids"])
            (request,) = server.requests
            self.assertEqual(
                request.json,
                {
                    "requestId": "r:1",
                    "tasks": TASKS,
                    "attempts": 2,
                    "sampling": {"temperature": 0.5},
                    "include": "rows",
                    "advantage": "grpo",
                },
            )
            self.assertEqual(request.headers["authorization"], "Bearer secret")

    async def test_a_group_is_given_out_when_its_last_frame_has_arrived(self) -> None:
        whole = group(0)
        async with FakeServer(hold(HEAD, whole[:-8], whole[-8:]), accept) as server:
            async with millrace.Client(server.url) as client:
                async for each in client.groups(TASKS):
                    self.assertEqual(each.index, 0)
                    break

    async def test_each_group_is_given_out_once_whatever_happens_to_the_stream(self) -> None:
        whole = group(0)
        faults = [
            stream(HEAD, group(1), is_cut=True),
            stream(HEAD, group(1), whole[:50], is_cut=True),
            stream(HEAD, group(1), group(0)[:-20]),
            stream(HEAD, group(1)),
            refusal(503, "closed", "retry-after: 0\r\n"),
            refusal(429, "overloaded", "retry-after: 0\r\n"),
            refusal(502, ""),
            stream(HEAD, group(0), frame({"kind": "error", "error": {"code": "closed", "message": "drains"}})),
        ]
        async with FakeServer(*faults, WHOLE) as server, millrace.Client(server.url) as client:
            found = [each.index async for each in client.groups(TASKS)]
            self.assertEqual(found, [1, 0, 2])
            self.assertEqual(len(server.requests), len(faults) + 1)
            # The same request each time.
            self.assertEqual(len({request.body for request in server.requests}), 1)
            self.assertRegex(server.requests[0].json["requestId"], "^py-[0-9a-f]{32}$")

    async def test_a_server_that_starts_later_is_waited_for(self) -> None:
        async with FakeServer(WHOLE) as server:
            port = server.port
        async with millrace.Client(f"http://127.0.0.1:{port}") as client:
            groups = client.groups(TASKS)
            first = asyncio.ensure_future(groups.__anext__())
            await asyncio.sleep(0)
            async with FakeServer(WHOLE, port=port):
                self.assertEqual((await first).index, 1)
                self.assertEqual([each.index async for each in groups], [0, 2])

    async def test_it_gives_up_in_the_end_and_says_why(self) -> None:
        async with FakeServer(refusal(503, "disk_full")) as server:
            async with millrace.Client(server.url, retry_for=0.3) as client:
                with self.assertRaisesRegex(millrace.Unavailable, "disk_full") as caught:
                    async for _ in client.groups(TASKS):
                        self.fail("a group of nothing")
                self.assertGreater(caught.exception.data["tries"], 1)
                self.assertEqual(len(server.requests), caught.exception.data["tries"])
        async with FakeServer(refusal(429, "overloaded", "retry-after: 3600\r\n")) as server:
            async with millrace.Client(server.url) as client:
                with self.assertRaises(millrace.Overloaded) as overloaded:
                    await client.submit(TASKS)
                self.assertEqual(overloaded.exception.retry_after, 3600)
                self.assertEqual(len(server.requests), 1)

    async def test_a_stream_that_lasted_for_a_while_is_no_failure(self) -> None:
        async def idle(request: Request) -> None:
            await request.begin()
            await asyncio.sleep(0.1)
            await request.cut()

        async with FakeServer(*[idle] * 8, WHOLE) as server, millrace.Client(server.url, retry_for=0.5) as client:
            self.assertEqual([each.index async for each in client.groups(TASKS)], [1, 0, 2])
            self.assertEqual(len(server.requests), 9)

    async def test_a_refusal_is_not_repeated(self) -> None:
        for status, code, kind in (
            (400, "task_invalid", millrace.InvalidRequest),
            (401, "unauthorized", millrace.Unauthorized),
            (404, "not_found", millrace.NotFound),
            (409, "run_mismatch", millrace.Conflict),
            (409, "usage", millrace.InvalidRequest),
            (410, "session_ended", millrace.SessionEnded),
            (413, "too_large", millrace.TooLarge),
            (500, "internal", millrace.ServerFailed),
            (301, "moved", millrace.InvalidRequest),
        ):
            async with FakeServer(refusal(status, code)) as server, millrace.Client(server.url) as client:
                with self.assertRaises(kind) as caught:
                    async for _ in client.groups(TASKS):
                        self.fail("a group of nothing")
                error = caught.exception
                self.assertEqual((error.status, error.code, error.retryable), (status, code, False))
                self.assertIn("because of the script", error.message)
                # Nothing was accepted, so there is nothing to cancel.
                self.assertEqual(server.said, ["POST /v1/rollouts"])

    async def test_a_refusal_by_something_else_is_quoted(self) -> None:
        async def proxy(request: Request) -> None:
            await request.reply(b"<html>Not here</html>", 404)

        async with FakeServer(proxy) as server, millrace.Client(server.url) as client:
            with self.assertRaisesRegex(millrace.NotFound, "<html>Not here</html>; check that the address"):
                await client.status("r")

    async def test_an_error_in_the_stream_is_raised_after_its_groups(self) -> None:
        error = {"kind": "error", "error": {"code": "store_failed", "message": "the disk broke", "data": {"file": "x"}}}
        async with FakeServer(stream(HEAD, group(0), frame(error))) as server, millrace.Client(server.url) as client:
            found = []
            with self.assertRaisesRegex(millrace.ServerFailed, "the disk broke") as caught:
                async for each in client.groups(TASKS):
                    found.append(each.index)
            self.assertEqual((found, caught.exception.data), ([0], {"file": "x"}))

    async def test_a_group_that_lacks_a_row_is_refused(self) -> None:
        data = HEAD + frame(merged("0-0")) + frame(group_end(0, rows=2)) + frame(END)
        async with FakeServer(stream(data)) as server, millrace.Client(server.url) as client:
            with self.assertRaisesRegex(millrace.ProtocolError, "a group of 2 rows came with 1"):
                await client.groups(TASKS).__anext__()

    async def test_the_first_repetition_is_logged(self) -> None:
        cut = stream(HEAD, group(1), is_cut=True)
        async with FakeServer(cut, refusal(503, "closed", "retry-after: 0\r\n"), cut, WHOLE) as server:
            async with millrace.Client(server.url) as client:
                with self.assertLogs("millrace", "WARNING") as logs:
                    self.assertEqual(len([each async for each in client.groups(TASKS)]), 3)
                self.assertEqual(len(server.requests), 4)
                self.assertEqual(len(logs.output), 1)
                self.assertIn(f"asking again for up to 120 s: [connection_lost] POST {server.url}", logs.output[0])

    async def test_an_address_that_ends_in_v1_is_named(self) -> None:
        async def page(request: Request) -> None:
            await request.reply(b"nothing here", 404)

        async with FakeServer(refusal(404, "not_found"), page) as server:
            for url, step in ((f"{server.url}/v1", "without /v1"), (server.url, "check that the address")):
                async with millrace.Client(url) as client:
                    with self.assertRaisesRegex(millrace.NotFound, step):
                        await client.submit(TASKS)
            async with millrace.Client(f"{server.url}/v1/") as client:
                with self.assertRaisesRegex(millrace.NotFound, "without /v1"):
                    await client.is_ready()

    async def test_options_that_cannot_work_are_refused(self) -> None:
        for options in (
            {"max_connections": 0},
            {"max_connections": 1.5},
            {"max_connections": "8"},
            {"timeout": 0},
            {"timeout": "x"},
            {"timeout": float("nan")},
            {"retry_for": -1},
            {"retry_for": None},
            {"read_ahead": -1},
        ):
            (name,) = options
            wrong: Any = options
            makes: tuple[Callable[..., object], ...] = (millrace.Client, millrace.Gateway)
            for make in makes:
                with self.assertRaisesRegex(millrace.InvalidArgument, f"{name}=") as caught:
                    make("http://127.0.0.1:1", key="k", **wrong)
                self.assertEqual((caught.exception.code, caught.exception.retryable), ("usage", False))
        with self.assertRaisesRegex(millrace.MillraceError, "looks like http://"):
            millrace.Client("127.0.0.1:8080")
        millrace.Client(timeout=np.float32(0.5), retry_for=float("inf"), max_connections=np.int64(1))

    async def test_rows_are_merged_or_interactions(self) -> None:
        async with millrace.Client("http://127.0.0.1:1") as client:
            wrong: Any = "x"
            with self.assertRaisesRegex(millrace.InvalidArgument, "'merged', 'interactions'"):
                client.groups(TASKS, rows=wrong)
            with self.assertRaisesRegex(millrace.InvalidArgument, "'merged', 'interactions'"):
                client.groups_of("r", rows=wrong)

    async def test_a_list_of_tasks_is_needed(self) -> None:
        async with millrace.Client("http://127.0.0.1:1") as client:
            with self.assertRaisesRegex(TypeError, r"\[task\]"):
                client.groups({"n": 1})  # type: ignore[arg-type]
            with self.assertRaisesRegex(millrace.InvalidArgument, "not JSON"):
                client.groups([{"n": float("nan")}])
            with self.assertRaisesRegex(TypeError, "object cannot be sent"):
                client.groups([{"n": object()}])

    async def test_trainable_rows_are_those_of_the_task_itself(self) -> None:
        rows = [
            merged("0-0"),
            merged("0-0", main=False),
            merged("0-0", discarded="client_gone"),
            merged("0-0", mask=np.zeros(8, np.uint8)),
            merged("0-0c1", parent="0-0", advantage=None),
            {"kind": "empty", "session": "0-1", "outcome": "model_error"},
            merged("0-2"),
            {"kind": "damaged", "session": "0-2", "error": {"code": "store_failed", "message": "gone"}},
        ]
        data = HEAD + b"".join(map(frame, rows)) + frame(group_end(0, rows=len(rows) - 2)) + frame(END)
        async with FakeServer(stream(data)) as server, millrace.Client(server.url) as client:
            (found,) = [each async for each in client.groups([TASKS[0]])]
            self.assertEqual(len(found.rows), len(rows))
            self.assertEqual(found.trainable, [found.rows[0]])
            self.assertEqual(found.rows[-1].error, {"code": "store_failed", "message": "gone"})

    async def test_trainable_replies_are_those_of_the_task_itself(self) -> None:
        ids = np.arange(3, dtype=np.int32)
        reply = {"kind": "interaction", "session": "0-0", "main": True, "trains": True, "ids": ids}
        rows = [
            reply,
            {**reply, "main": False},
            {**reply, "trains": False},
            {**reply, "parent": "0-0"},
            {**reply, "ids": None},
        ]
        data = HEAD + b"".join(map(frame, rows)) + frame(group_end(0, rows=len(rows))) + frame(END)
        async with FakeServer(stream(data)) as server, millrace.Client(server.url) as client:
            (found,) = [each async for each in client.groups([TASKS[0]], rows="interactions")]
            self.assertEqual(found.trainable, [found.rows[0]])


class Leaving(unittest.IsolatedAsyncioTestCase):
    async def cancelled(self, server: FakeServer) -> None:
        while not server.said[-1].startswith("DELETE"):
            await asyncio.sleep(0)
        name = server.requests[0].json["requestId"]
        self.assertEqual(server.said[-1], f"DELETE /v1/requests/{name}")
        self.assertEqual([line.split()[0] for line in server.said], ["POST", "DELETE"])

    async def test_breaking_out_cancels_the_rest(self) -> None:
        async with FakeServer(hold(HEAD, group(0)), accept) as server, millrace.Client(server.url) as client:
            async for _ in client.groups(TASKS):
                break
            await self.cancelled(server)

    async def test_an_error_in_the_loop_cancels_the_rest(self) -> None:
        async with FakeServer(hold(HEAD, group(0)), accept) as server, millrace.Client(server.url) as client:
            with self.assertRaises(ZeroDivisionError):
                async for each in client.groups(TASKS):
                    print(each.index / 0)
            gc.collect()
            await self.cancelled(server)

    async def test_a_stream_in_async_with_is_cancelled_when_the_block_is_left(self) -> None:
        async with FakeServer(hold(HEAD, group(0)), accept) as server, millrace.Client(server.url) as client:
            async with client.groups(TASKS) as groups:
                await groups.__anext__()
            self.assertEqual(server.said[-1], f"DELETE /v1/requests/{groups.request_id}")
            self.assertEqual([each async for each in groups], [])

    async def test_a_block_that_is_left_at_once_leaves_nothing_behind(self) -> None:
        async with FakeServer(hold(HEAD), accept) as server, millrace.Client(server.url) as client:
            async with client.groups(TASKS):
                pass
            self.assertEqual(client._tasks._running, set())

    async def test_a_client_that_is_closed_at_once_ends_every_wait(self) -> None:
        async with millrace.Client("http://127.0.0.1:1") as client:
            first = asyncio.ensure_future(client.groups(TASKS).__anext__())
            await asyncio.sleep(0)
        with self.assertRaises(millrace.ClientClosed):
            await asyncio.wait_for(first, 5)

    async def test_async_with_begins_before_anything_is_taken(self) -> None:
        async with FakeServer(WHOLE) as server, millrace.Client(server.url) as client:
            async with client.groups(TASKS) as groups:
                while not server.requests:
                    await asyncio.sleep(0)
                self.assertEqual([each.index async for each in groups], [1, 0, 2])

    async def test_closing_the_client_cancels_what_is_under_way(self) -> None:
        async with FakeServer(hold(HEAD, group(0)), accept) as server:
            async with millrace.Client(server.url) as client:
                groups = client.groups(TASKS)
                await groups.__anext__()
            await self.cancelled(server)
            with self.assertRaises(millrace.ClientClosed):
                await groups.__anext__()
            with self.assertRaises(millrace.ClientClosed):
                await client.groups(TASKS).__anext__()
            self.assertEqual(asyncio.all_tasks() - {asyncio.current_task(), *server._tasks}, set())

    async def test_a_cancelled_task_cancels_the_rest(self) -> None:
        async with FakeServer(hold(HEAD, group(0)), accept) as server:
            got_one = asyncio.Event()

            async def train() -> None:
                async with millrace.Client(server.url) as client:
                    async for _ in client.groups(TASKS):
                        got_one.set()

            task = asyncio.create_task(train())
            await got_one.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await self.cancelled(server)

    async def test_a_stream_in_a_variable_is_left_by_aclose_or_a_cancelled_wait(self) -> None:
        async with FakeServer(hold(HEAD, group(0)), accept) as server, millrace.Client(server.url) as client:
            groups = client.groups(TASKS)
            async for _ in groups:
                break
            for _ in range(20):
                await asyncio.sleep(0)
            self.assertEqual(server.said, ["POST /v1/rollouts"])
            await groups.aclose()
            self.assertEqual(server.said[1:], [f"DELETE /v1/requests/{groups.request_id}"])
        async with FakeServer(hold(HEAD, group(0)), accept) as server, millrace.Client(server.url) as client:
            held = client.groups(TASKS)
            await held.__anext__()
            waiting = asyncio.ensure_future(held.__anext__())
            await asyncio.sleep(0)
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
            await self.cancelled(server)
            with self.assertRaisesRegex(millrace.ClientClosed, "a wait for a result was cancelled"):
                await held.__anext__()

    async def test_closing_the_client_does_not_break_off_a_cancellation(self) -> None:
        answers = asyncio.Event()

        async def late(request: Request) -> None:
            await answers.wait()
            await accept(request)
            finished.append(request.method)

        finished: list[str] = []
        async with FakeServer(hold(HEAD, group(0)), late) as server, millrace.Client(server.url) as client:
            groups = client.groups(TASKS)
            await groups.__anext__()
            leaving = asyncio.ensure_future(groups.aclose())
            await self.cancelled(server)
            closing = asyncio.ensure_future(client.aclose())
            await asyncio.sleep(0)
            self.assertFalse(closing.done())
            answers.set()
            await asyncio.gather(leaving, closing)
            self.assertEqual(finished, ["DELETE"])

    async def test_a_wait_that_is_given_up_loses_no_group(self) -> None:
        async with FakeServer(hold(HEAD, group(0)), accept) as server, millrace.Client(server.url) as client:
            async with client.groups(TASKS) as groups:
                await groups.__anext__()
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(groups.__anext__(), 0.01)
                await server.requests[0].chunk(group(2))
                self.assertEqual((await groups.__anext__()).index, 2)

    async def test_a_server_that_does_not_answer_the_cancellation_is_left_to_itself(self) -> None:
        async def hang_up(request: Request) -> None:
            await request.cut()

        async with FakeServer(hold(HEAD, group(0)), hang_up) as server:
            async with millrace.Client(server.url) as client:
                async for _ in client.groups(TASKS):
                    break
            self.assertEqual(server.said[1][:6], "DELETE")

    async def test_a_whole_stream_cancels_nothing(self) -> None:
        async with FakeServer(WHOLE) as server:
            async with millrace.Client(server.url) as client:
                self.assertEqual(len([each async for each in client.groups(TASKS)]), 3)
            self.assertEqual(server.said, ["POST /v1/rollouts"])

    async def test_a_detached_request_goes_on(self) -> None:
        async with FakeServer(accept, hold(HEAD, group(0))) as server:
            async with millrace.Client(server.url) as client:
                async for _ in client.groups(TASKS, advantage="rloo", request_id="mine", detached=True):
                    break
            self.assertTrue(server.requests[0].json["detached"])
            self.assertEqual(server.said[1:], ["GET /v1/requests/mine?include=rows&advantage=rloo"])

    async def test_a_known_request_is_read_without_being_owned(self) -> None:
        async with FakeServer(hold(HEAD, group(0))) as server:
            async with millrace.Client(server.url) as client:
                async for _ in client.groups_of("mine", advantage="mean"):
                    break
            self.assertEqual(server.said, ["GET /v1/requests/mine?include=rows&advantage=mean"])

    async def test_a_slow_trainer_holds_the_reading_back_at_the_limit(self) -> None:
        parts = [group(index) for index in range(40)]
        async with FakeServer(stream(HEAD, *parts, frame(END))) as server:
            async with millrace.Client(server.url, read_ahead=3 * len(parts[0])) as client:
                groups = client.groups(TASKS)
                await groups.__anext__()
                feed = groups._feed
                for _ in range(1000):
                    await asyncio.sleep(0)
                    self.assertLessEqual(feed._bytes, 3 * len(parts[0]))
                self.assertEqual(len([each async for each in groups]), 39)


class Records(unittest.IsolatedAsyncioTestCase):
    async def test_records_come_once(self) -> None:
        lines = [json_line({"id": f"{index}-0", "error": {"code": "model_error"}}) for index in range(3)]
        cut_short = json_line({"error": {"code": "closed", "message": "the server drains"}})
        scripts = [
            stream(lines[0], lines[1][:5], is_cut=True),
            stream(lines[0], lines[1][:5]),
            stream(lines[1], cut_short),
            stream(*lines),
        ]
        async with FakeServer(*scripts) as server, millrace.Client(server.url) as client:
            opening = [{"role": "user", "content": "a pear"}]
            asked = client.rollouts(TASKS, include="tokens", messages=opening, scored=False)
            found = [record["id"] async for record in asked]
            self.assertEqual(found, ["0-0", "1-0", "2-0"])
            self.assertEqual(server.requests[0].headers["accept"], "application/x-ndjson")
            body = server.requests[0].json
            self.assertEqual((body["include"], body["messages"], body["scored"]), ("tokens", opening, False))

    async def test_a_failure_of_the_server_is_raised(self) -> None:
        fault = json_line({"error": {"code": "store_failed", "message": "the disk broke"}})
        async with FakeServer(stream(fault)) as server, millrace.Client(server.url) as client:
            with self.assertRaisesRegex(millrace.ServerFailed, "the disk broke"):
                async for _ in client.rollouts_of("r"):
                    self.fail("a record of nothing")


class Calls(unittest.IsolatedAsyncioTestCase):
    async def test_calls_are_repeated_like_streams(self) -> None:
        async def hang_up(request: Request) -> None:
            await request.cut()

        async with FakeServer(hang_up, refusal(503, "closed"), accept) as server, millrace.Client(server.url) as client:
            name = await client.submit(TASKS, attempts=2, request_id="mine")
            self.assertEqual((name, len(server.requests)), ("mine", 3))
            status = await client.status(name)
            self.assertEqual((status.states, status.has_ended), ({"ended": 6}, True))
            await client.cancel(name)
            self.assertEqual(server.said[3:], ["GET /v1/requests/mine", "DELETE /v1/requests/mine"])

    async def test_readiness_is_asked_once(self) -> None:
        async with FakeServer(refusal(503, "closed"), accept) as server, millrace.Client(server.url) as client:
            self.assertFalse(await client.is_ready())
            self.assertTrue(await client.is_ready())

    async def test_what_is_not_json_is_no_millrace(self) -> None:
        async def page(request: Request) -> None:
            await request.reply(b"<html>")

        async with FakeServer(page) as server, millrace.Client(server.url) as client:
            with self.assertRaisesRegex(millrace.ProtocolError, "check that the address"):
                await client.status("r")


class Sessions(unittest.IsolatedAsyncioTestCase):
    async def test_a_session_that_may_have_been_started_is_not_started_again(self) -> None:
        async def hang_up(request: Request) -> None:
            await request.cut()

        async with FakeServer(hang_up) as server, millrace.Gateway(server.url, key="k") as gateway:
            with self.assertRaises(millrace.ConnectionLost):
                await gateway.start_session()
            self.assertEqual(len(server.requests), 1)

    async def test_a_session_that_was_refused_is_asked_for_again(self) -> None:
        async def started(request: Request) -> None:
            session = {"id": "ses-1", "key": "mrs-1", "url": "http://h/sessions/ses-1"}
            await request.reply({"groupId": "g", "sessions": [session]}, 201)

        async with FakeServer(refusal(503, "overloaded"), started) as server:
            async with millrace.Gateway(server.url, key="k") as gateway:
                session = await gateway.start_session(task="t", ttl=60)
            self.assertEqual(server.requests[1].json, {"groupSize": 1, "taskId": "t", "ttlSeconds": 60})
            self.assertEqual((session.key, session.base_url), ("mrs-1", "http://h/sessions/ses-1/v1"))

    async def test_an_export_is_repeated_only_before_its_first_row(self) -> None:
        whole = binary(merged("a"), merged("b"), END)
        scripts = [stream(whole[:40], is_cut=True), refusal(503, "overloaded"), stream(whole), stream(whole[:-30])]
        async with FakeServer(*scripts) as server, millrace.Gateway(server.url, key="k") as gateway:
            rows = gateway.export(group="g", skip_without_tokens=True)
            self.assertEqual([row.session async for row in rows], ["a", "b"])
            self.assertEqual(rows.end, END)
            self.assertEqual(server.said[0], "GET /v1/export?group=g&rows=merged&format=binary&skipWithoutTokens=true")
            found: list[Any] = []
            with self.assertRaisesRegex(millrace.CutOff, "ask again"):
                async for row in gateway.export(group="g"):
                    found.append(row)
            self.assertEqual((len(found), len(server.requests)), (2, 4))


if __name__ == "__main__":
    unittest.main()
