from __future__ import annotations

import asyncio
import ssl
import unittest
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

from fake_server import PEM, FakeServer, Request, in_pieces

import millrace
from millrace._http import HttpPool, Origin
from millrace._reply import Reply


def pool(url: str, *, limit: int = 8, context: ssl.SSLContext | None = None) -> HttpPool:
    return HttpPool(url, headers={}, limit=limit, connect_timeout=5, ssl_context=context)


async def body_of(http: HttpPool, path: str = "/", **options: Any) -> bytes:
    async with http.ask("GET", path, timeout=5, **options) as reply:
        return await reply.read()


def raw(data: bytes) -> Callable[[Request], Awaitable[None]]:
    async def script(request: Request) -> None:
        await request.send(data)
        request.writer.close()

    return script


async def ok(request: Request) -> None:
    await request.reply({"path": request.target})


class Bodies(unittest.IsolatedAsyncioTestCase):
    async def test_a_chunked_body_may_come_in_any_pieces(self) -> None:
        text = b"a line\nanother one\n" * 40 + b"the last"
        chunks = b"".join(
            f"{len(each):X};x=1\r\n".encode() + each + b"\r\n" for each in in_pieces(text, [1, 7, 300, 9000])
        )
        message = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nTrailer: x\r\n\r\n"

        def in_steps(size: int) -> Callable[[Request], Awaitable[None]]:
            async def script(request: Request) -> None:
                for begin in range(0, len(message), size):
                    await request.send(message[begin : begin + size])
                    await asyncio.sleep(0)

            return script

        for size in (1, 3, 1000, len(message)):
            async with FakeServer(in_steps(size)) as server:
                http = pool(server.url)
                self.assertEqual(await body_of(http), text)
                async with http.ask("GET", "/", timeout=5) as reply:
                    self.assertEqual([line async for line in reply.lines()], text.splitlines(keepends=True))
                async with http.ask("GET", "/", timeout=5) as reply:
                    self.assertEqual(bytes(await reply.read_exactly(10)), text[:10])
                    self.assertEqual(bytes(await reply.read_exactly(10_000)), text[10:])
                # The whole body was read each time, so that the connection was kept.
                self.assertEqual(server.connections, 1)
                await http.aclose()

    async def test_a_body_may_last_as_long_as_its_connection(self) -> None:
        async with FakeServer(raw(b"HTTP/1.1 200 OK\r\n\r\nall of it")) as server:
            http = pool(server.url)
            self.assertEqual(await body_of(http), b"all of it")
            self.assertEqual(await body_of(http), b"all of it")
            self.assertEqual(server.connections, 2)
            await http.aclose()

    async def test_replies_without_a_body(self) -> None:
        async def none(request: Request) -> None:
            await request.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")

        async with FakeServer(none, raw(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")) as server:
            http = pool(server.url)
            self.assertEqual([await body_of(http), await body_of(http)], [b"", b""])
            self.assertEqual(server.connections, 1)
            await http.aclose()

    async def test_a_body_that_is_cut_off_is_a_lost_connection(self) -> None:
        heads = [b"content-length: 9\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n9\r\n"]
        for data in [b"HTTP/1.1 200 OK\r\n" + head + b"short" for head in heads] + [b"HTTP/1.1 200"]:
            async with FakeServer(raw(data)) as server:
                http = pool(server.url)
                with self.assertRaises(millrace.ConnectionLost):
                    await body_of(http)
                await http.aclose()

    async def test_other_protocols_are_named(self) -> None:
        chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        for data in (
            b"220 mail.example ESMTP\r\n\r\n",
            b"HTTP/1.1 2xx\r\n\r\n",
            b"HTTP/2 200\r\n\r\n",
            b"SSH-2.0",
            chunked + b"what\r\n",
            chunked + b"-1\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nx: " + b"y" * 600_000,
        ):
            async with FakeServer(raw(data)) as server:
                http = pool(server.url)
                with self.assertRaises(millrace.ProtocolError, msg=data[:40]):
                    await body_of(http)
                await http.aclose()


class Connections(unittest.IsolatedAsyncioTestCase):
    async def test_a_connection_is_kept_and_one_that_the_server_has_closed_is_replaced(self) -> None:
        async def last(request: Request) -> None:
            await ok(request)
            request.writer.close()

        async with FakeServer(ok, ok, last, ok) as server:
            http = pool(server.url)
            for _ in range(4):
                await body_of(http)
            self.assertEqual([request.connection for request in server.requests], [1, 1, 1, 2])
            await http.aclose()

    async def test_a_request_that_meets_a_closing_connection_is_sent_again(self) -> None:
        async def hang_up(request: Request) -> None:
            await request.cut()

        async with FakeServer(ok, hang_up, ok) as server:
            http = pool(server.url)
            await body_of(http)
            self.assertEqual(await body_of(http, "/again"), b'{"path": "/again"}')
            self.assertEqual(len(server.requests), 3)
            await http.aclose()

    async def test_what_cannot_be_repeated_gets_a_new_connection(self) -> None:
        async with FakeServer(ok) as server:
            http = pool(server.url)
            await body_of(http)
            await body_of(http, is_repeatable=False)
            self.assertEqual([request.connection for request in server.requests], [1, 2])
            await http.aclose()

    async def test_streams_have_a_limit_and_calls_do_not_wait_for_them(self) -> None:
        async def silent(request: Request) -> None:
            if request.target == "/stream":
                await request.begin()
                await request.gone()
            else:
                await ok(request)

        async with FakeServer(silent) as server:
            http = pool(server.url, limit=2)
            open_streams: asyncio.Queue[Reply] = asyncio.Queue()

            async def stream() -> None:
                async with http.ask("GET", "/stream", timeout=5, is_stream=True) as reply:
                    await open_streams.put(reply)
                    await reply.read()

            tasks = [asyncio.create_task(stream()) for _ in range(3)]
            await open_streams.get()
            await open_streams.get()
            self.assertEqual(await body_of(http), b'{"path": "/"}')
            self.assertEqual(server.said.count("GET /stream"), 2)
            tasks[0].cancel()
            await open_streams.get()
            self.assertEqual(server.said.count("GET /stream"), 3)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await http.aclose()

    async def test_a_large_body_may_be_refused_before_it_has_been_sent(self) -> None:
        async def refuse(request: Request) -> None:
            await request.refuse(413, "too_large")
            await request.gone()

        async with FakeServer(refuse) as server:
            http = pool(server.url)
            async with http.ask("POST", "/", body=bytes(50_000_000), timeout=5) as reply:
                self.assertEqual(reply.status, 413)
                self.assertIn(b"too_large", await reply.read())
                self.assertFalse(reply.keeps_open)
            await http.aclose()

    async def test_a_large_body_arrives(self) -> None:
        async def measure(request: Request) -> None:
            await request.reply({"bytes": len(request.body)})

        async with FakeServer(measure) as server:
            http = pool(server.url)
            for _ in range(2):
                async with http.ask("POST", "/", body=bytes(900_000), timeout=5) as reply:
                    self.assertEqual(await reply.read(), b'{"bytes": 900000}')
            self.assertEqual(server.connections, 1)
            await http.aclose()

    async def test_a_server_that_says_nothing_is_left(self) -> None:
        async def hang(request: Request) -> None:
            await request.gone()

        async with FakeServer(hang) as server:
            http = pool(server.url)
            with self.assertRaisesRegex(millrace.TimedOut, "nothing came for 0.05 s"):
                async with http.ask("GET", "/", timeout=0.05):
                    pass
            await http.aclose()

    async def test_no_server(self) -> None:
        async with FakeServer(ok) as server:
            url = server.url
        http = pool(url)
        with self.assertRaisesRegex(millrace.ConnectFailed, "is the server running there"):
            await body_of(http)
        await http.aclose()

    async def test_a_closed_pool_takes_nothing(self) -> None:
        async with FakeServer(ok) as server:
            http = pool(server.url)
            await body_of(http)
            await http.aclose()
            await http.aclose()
            with self.assertRaises(millrace.ClientClosed):
                await body_of(http)

    async def test_cancelling_at_any_moment_leaves_nothing_behind(self) -> None:
        async with FakeServer(ok, tls=True) as server:
            http = pool(server.url, context=ssl.create_default_context(cafile=str(PEM)))
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for turns in range(60):
                    task = asyncio.create_task(body_of(http, is_repeatable=turns % 2 == 0))
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.wait({task})
            self.assertEqual(await body_of(http), b'{"path": "/"}')
            await http.aclose()


class Tls(unittest.IsolatedAsyncioTestCase):
    async def test_a_trusted_certificate_is_taken_and_another_refused(self) -> None:
        async with FakeServer(ok, tls=True) as server:
            http = pool(server.url, context=ssl.create_default_context(cafile=str(PEM)))
            for _ in range(3):
                self.assertEqual(await body_of(http), b'{"path": "/"}')
            self.assertEqual(server.connections, 1)
            await http.aclose()
            http = pool(server.url)
            with self.assertRaisesRegex(millrace.ConnectFailed, "ssl_context"):
                await body_of(http)
            await http.aclose()


class Addresses(unittest.TestCase):
    def test_a_base_url_may_have_a_path(self) -> None:
        origin = Origin("https://user@host.example:8443/millrace/")
        self.assertEqual(
            (origin.url, origin.host, origin.port, origin.prefix, origin.is_tls),
            ("https://host.example:8443/millrace", "host.example", 8443, "/millrace", True),
        )
        self.assertEqual(Origin("http://[::1]").host, "::1")
        self.assertEqual((Origin("http://h").port, Origin("https://h").port), (80, 443))

    def test_other_addresses_are_refused(self) -> None:
        for url in ("localhost:8080", "ftp://host", "http://", "http://host?x=1"):
            with self.assertRaises(ValueError):
                Origin(url)

    def test_a_key_with_a_line_end_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "line end"):
            millrace.Client("http://host", key="secret\n")


if __name__ == "__main__":
    unittest.main()
