from __future__ import annotations

import asyncio
import json
import unittest

from millrace_process import Millrace

import millrace
from millrace._http import HttpPool, json_bytes

ADMIN_KEY = "the-admin-key-of-the-tests"


def gateway_over_simulator() -> Millrace:
    return Millrace("gateway", "--backend", "sim", env={"MILLRACE_ADMIN_KEY": ADMIN_KEY})


def engine() -> Millrace:
    return Millrace("sim", "--weightVersion", "0")


def gateway_over(engine: Millrace) -> Millrace:
    words = ["gateway", "--backend", f"{engine.url}/v1", "--model", "sim"]
    return Millrace(*words, env={"MILLRACE_ADMIN_KEY": ADMIN_KEY})


async def ask(session: millrace.Session, *contents: str, system: str | None = None) -> list[str]:
    """An agent: a conversation of these user messages, with whatever client it has. Returns the ids of the replies."""
    http = HttpPool(
        session.base_url,
        headers={"authorization": f"Bearer {session.key}"},
        limit=1,
        connect_timeout=5,
        ssl_context=None,
    )
    messages: list[object] = [{"role": "system", "content": system}] if system else []
    ids = []
    for content in contents:
        messages.append({"role": "user", "content": content})
        body = json_bytes({"model": "sim", "messages": messages})
        async with http.ask("POST", "/chat/completions", body=body, timeout=30) as reply:
            answer = json.loads(await reply.read())
        ids.append(answer["id"])
        messages.append(answer["choices"][0]["message"])
    await http.aclose()
    return ids


class Gateway(unittest.IsolatedAsyncioTestCase):
    async def test_a_group_of_sessions_is_rewarded_ended_and_exported(self) -> None:
        with gateway_over_simulator() as server:
            async with millrace.Gateway(server.url, key=ADMIN_KEY) as gateway:
                sessions = await gateway.start_group(3, group="g", task="sums", metadata={"step": 1})
                self.assertEqual(len({session.key for session in sessions}), 3)
                for reward, session in enumerate(sessions[:2]):
                    async with session:
                        await ask(session, "What is 6 * 7?", "And 6 * 8?")
                        await session.reward(reward)
                status = await sessions[0].status()
                self.assertEqual((status["state"], status["tokens"], status["used"]["requests"]), ("ended", "all", 2))
                # A reward may still be given, or given again.
                await sessions[0].reward(0.25)
                # One that failed before its first reply.
                await sessions[2].reward(0)
                await sessions[2].end()

                export = gateway.export(group="g", advantage="mean")
                rows = [row async for row in export]
                self.assertEqual([row.kind for row in rows], ["merged", "merged", "empty"])
                self.assertEqual([row.reward for row in rows], [0.25, 1, 0])
                # The session that failed before its first reply counts in its group.
                mean = (0.25 + 1 + 0) / 3
                for row in rows[:2]:
                    assert row.advantage is not None and row.reward is not None
                    self.assertAlmostEqual(row.advantage, row.reward - mean)
                for row in rows[:2]:
                    self.assertEqual((row.group, row.task, row.sealed, row.main), ("g", "sums", True, True))
                    self.assertEqual(len(row.samples), 2)
                    self.assertTrue(row.trains)
                self.assertEqual(millrace.batch(rows[:2])["mask"].sum(), sum(row.mask.sum() for row in rows[:2]))
                assert export.end is not None
                self.assertEqual((export.end["sessions"], export.end["rows"]), (3, 2))

                replies = [row async for row in gateway.export(session=sessions[1].id, rows="interactions")]
                self.assertEqual([row.kind for row in replies], ["interaction", "interaction"])
                ids, mask = rows[1].ids, rows[1].mask
                self.assertEqual(ids[mask == 1].tolist(), [id for row in replies for id in row.ids.tolist()])
                self.assertEqual(len(ids), len(replies[1].prompt_ids) + len(replies[1].ids))
                self.assertEqual(replies[1].messages[0]["content"], "And 6 * 8?")

    async def test_replies_are_rewarded_by_id_and_by_number(self) -> None:
        with gateway_over_simulator() as server:
            async with millrace.Gateway(server.url, key=ADMIN_KEY) as gateway:
                session = await gateway.start_session()
                first, second = await ask(session, "What is 6 * 7?", "And 6 * 8?")
                await session.reward(0.5, interaction=first)
                rows = [row async for row in gateway.export(session=session.id, rows="interactions")]
                self.assertEqual([(row.interaction, row.reward) for row in rows], [(first, 0.5), (second, None)])
                await session.reward(2, node=rows[1].node)
                rows = [row async for row in gateway.export(session=session.id, rows="interactions", discount=0.5)]
                self.assertEqual([(row.reward, row.return_) for row in rows], [(0.5, 1.5), (2, 2)])
                with self.assertRaises(millrace.NotFound):
                    await session.reward(1, interaction="chatcmpl-unknown")
                with self.assertRaises(millrace.InvalidRequest):
                    await session.reward(1e31)

    async def test_a_side_call_does_not_train(self) -> None:
        with gateway_over_simulator() as server:
            async with millrace.Gateway(server.url, key=ADMIN_KEY) as gateway:
                async with await gateway.start_session(group="g") as session:
                    await ask(session, "What is 6 * 7?", "And 6 * 8?", system="Calculate.")
                    await ask(session, "A title for this?", system="Write titles.")
                    await session.reward(1)
                rows = [row async for row in gateway.export(group="g")]
                self.assertEqual(
                    sorted((row.main, row.trains, row.reward) for row in rows if row.main), [(True, True, 1)]
                )
                self.assertEqual([row.trains for row in rows if not row.main], [False])
                self.assertEqual(len([row async for row in gateway.export(group="g", trees="main")]), 1)

    async def test_sessions_are_found_again(self) -> None:
        with gateway_over_simulator() as server:
            async with millrace.Gateway(server.url, key=ADMIN_KEY) as gateway:
                started = [session.id for _ in range(3) for session in await gateway.start_group(2, group="g")]
                await gateway.session(started[0]).end()
                found = [each["id"] async for each in gateway.sessions(group="g")]
                self.assertEqual(found, started)
                self.assertEqual([each["id"] async for each in gateway.sessions(state="ended")], started[:1])
                with self.assertRaisesRegex(millrace.MillraceError, "when it was started"):
                    print(gateway.session(started[0]).key)
                with self.assertRaises(millrace.NotFound):
                    await gateway.session("unknown").status()
                with self.assertRaises(millrace.NotFound):
                    async for _ in gateway.export(group="unknown"):
                        self.fail("a row of nothing")
                with self.assertRaises(millrace.InvalidRequest):
                    await gateway.start_session(ttl=-1)
            async with millrace.Gateway(server.url, key="wrong") as stranger:
                with self.assertRaisesRegex(millrace.Unauthorized, "key="):
                    await stranger.start_session()

    async def test_a_gateway_that_is_killed_and_started_again_keeps_its_sessions(self) -> None:
        with gateway_over_simulator() as server:
            async with millrace.Gateway(server.url, key=ADMIN_KEY) as gateway:
                session = await gateway.start_session(group="g")
                await ask(session, "What is 6 * 7?")
                server.kill()
                # It is asked for while nothing listens, and answered by the next one.
                reward = asyncio.ensure_future(session.reward(1))
                await asyncio.sleep(0)
                await asyncio.get_running_loop().run_in_executor(None, server.start)
                await reward
                await ask(session, "What is 6 * 9?")
                await session.end()
                rows = [row async for row in gateway.export(group="g")]
                self.assertEqual([row.reward for row in rows if row.main], [1])
                self.assertEqual(len(rows), 2)
                with self.assertRaises(millrace.Unauthorized):
                    async with millrace.Gateway(server.url, key=session.key) as agent:
                        await agent.session(session.id).reward(9)

    async def test_weights_are_updated_while_agents_work(self) -> None:
        with engine() as server, gateway_over(server) as front:
            async with millrace.Gateway(front.url, key=ADMIN_KEY) as gateway:
                (answer,) = await gateway.set_version("7")
                self.assertEqual((answer.ok, answer.state, answer.version), (True, "serving", "7"))
                session = await gateway.start_session(group="g")
                await ask(session, "What is 6 * 7?")
                async with gateway.weight_update("8", mode="abort") as pause:
                    (backend,) = await gateway.backends()
                    self.assertEqual((backend.state, backend.epoch), ("paused", pause.epoch))
                    self.assertEqual(pause.backends[0].backend, backend.id)
                    # It waits until the weights are there.
                    asked = asyncio.ensure_future(ask(session, "What is 6 * 9?"))
                    await asyncio.sleep(0.2)
                    self.assertFalse(asked.done())
                await asked
                (backend,) = await gateway.backends()
                self.assertEqual((backend.state, backend.version, backend.epoch), ("serving", "8", None))
                # One that fails leaves the version.
                with self.assertRaises(OSError):
                    async with gateway.weight_update("9"):
                        raise OSError("the disk is full")
                await ask(session, "What is 6 * 8?")
                # The gateway asks the engine for the version once more.
                await session.end()
                rows = [row async for row in gateway.export(group="g", rows="interactions")]
                versions = [[run.version for run in row.versions] for row in rows]
                self.assertEqual(versions, [["7"], ["8"], ["8"]])
                with self.assertRaises(millrace.NotFound):
                    await gateway.pause(backends=["unknown"])
                # Another program pauses later: the first one does not end that.
                pause, later = await gateway.pause(), await gateway.pause()
                with self.assertRaises(millrace.Conflict):
                    await gateway.resume(pause.epoch)
                await gateway.pause(epoch=later.epoch, ttl=60)
                (backend,) = await gateway.backends()
                assert backend.lease is not None
                self.assertLess(backend.lease, 60.1)
                self.assertEqual([each.state for each in await gateway.resume(later.epoch)], ["serving"])

    async def test_a_gateway_that_is_killed_in_an_update_says_that_its_pause_has_ended(self) -> None:
        with engine() as server, gateway_over(server) as front:
            async with millrace.Gateway(front.url, key=ADMIN_KEY) as gateway:
                with self.assertRaises(millrace.Conflict) as raised:
                    async with gateway.weight_update("8"):
                        front.kill()
                        await asyncio.get_running_loop().run_in_executor(None, front.start)
                self.assertEqual(raised.exception.code, "pause_ended")
                # The engine was still paused, and the weights are new.
                await ask(await gateway.start_session(), "What is 6 * 7?")
                self.assertEqual([each.version for each in await gateway.backends()], ["8"])

    async def test_a_backend_that_is_gone_is_named_and_an_update_goes_on_with_the_others(self) -> None:
        with engine() as server, engine() as other:
            words = ["gateway", "--backend", f"{server.url}/v1", "--backend", f"{other.url}/v1", "--model", "sim"]
            with Millrace(*words, env={"MILLRACE_ADMIN_KEY": ADMIN_KEY}) as front:
                async with millrace.Gateway(front.url, key=ADMIN_KEY) as gateway:
                    other.kill()
                    with self.assertRaises(millrace.BackendsFailed) as raised:
                        async with gateway.weight_update("8"):
                            self.fail("the body of a failed pause")
                    self.assertEqual([each.ok for each in raised.exception.backends], [True, False])
                    (alive, _) = await gateway.backends()
                    self.assertEqual((alive.state, alive.version), ("serving", None))
                    async with gateway.weight_update("8", backends=[alive.id]):
                        pass
                    self.assertEqual(next(each.version for each in await gateway.backends()), "8")
                    await ask(await gateway.start_session(), "What is 6 * 7?")


if __name__ == "__main__":
    unittest.main()
