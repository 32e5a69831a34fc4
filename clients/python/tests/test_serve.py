from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

import numpy as np
from cutting_proxy import CuttingProxy
from frames import binary
from millrace_process import ROOT, Millrace

import millrace

TASKS = [{"expression": f"{n} * 7", "answer": 7 * n} for n in range(2, 26)]


def serve(*words: str) -> Millrace:
    return Millrace("serve", "arithmetic", "-m", "sim", "--tokens", "--sim.skill=0.5", *words)


async def ended(client: millrace.Client, request_id: str) -> millrace.RequestStatus:
    while not (status := await client.status(request_id)).has_ended:
        await asyncio.sleep(0.02)
    return status


class Serve(unittest.IsolatedAsyncioTestCase):
    async def test_groups_are_the_recorded_rollouts(self) -> None:
        with serve() as server:
            async with millrace.Client(server.url) as client:
                stream = client.groups(TASKS, attempts=4, advantage="grpo")
                groups = {group.index: group async for group in stream}
                self.assertEqual(sorted(groups), list(range(len(TASKS))))
                records = [each async for each in client.rollouts_of(stream.request_id, include="tokens")]
                self.assertEqual(len(records), 4 * len(TASKS))
                for record in records:
                    group = groups[record["task"]["index"]]
                    (row,) = [row for row in group.rows if row.session == record["id"]]
                    self.assertEqual(
                        (row.reward, row.outcome, row.sample), (record["reward"], "completed", record["sample"])
                    )
                    # Every sampled token is trained, with its log-probability.
                    tokens = [node["tokens"] for node in record["nodes"] if node["sampled"]]
                    trained = row.mask == 1
                    self.assertEqual(row.ids[trained].tolist(), [id for each in tokens for id in each["ids"]])
                    logprobs = np.array([each for turn in tokens for each in turn["logprobs"]], np.float32)
                    np.testing.assert_array_equal(row.logprobs[trained], logprobs)
                    self.assertEqual(row.ids[: row.samples[0].start].tolist(), tokens[0]["promptIds"])
                rewards = Counter(record["reward"] for record in records)
                self.assertEqual(set(rewards), {0, 1}, "the simulator is right half of the time")
                for group in groups.values():
                    self.assertEqual((group.rollouts, group.scored, group.outcomes), (4, 4, {"completed": 4}))
                    scores = np.array([row.reward for row in group.rows], float)
                    expected = (scores - scores.mean()) / (scores.std(ddof=1) + 1e-4)
                    np.testing.assert_allclose(
                        np.array([row.advantage for row in group.rows], float), expected, atol=1e-9
                    )
                    batch = millrace.batch(group.trainable)
                    self.assertEqual(batch["mask"].sum(), sum(int(row.mask.sum()) for row in group.rows))

    async def test_the_same_request_again_is_the_same_rollouts(self) -> None:
        with serve() as server:
            async with millrace.Client(server.url) as client:
                first = [group async for group in client.groups(TASKS[:3], attempts=2, request_id="once")]
                again = [group async for group in client.groups(TASKS[:3], attempts=2, request_id="once")]
                known = [group async for group in client.groups_of("once", advantage="rloo")]
                for groups in (again, known):
                    found = {row.session: row.ids.tolist() for group in groups for row in group.rows}
                    self.assertEqual(found, {row.session: row.ids.tolist() for group in first for row in group.rows})
                self.assertEqual({row.advantage for group in first for row in group.rows}, {None})
                self.assertNotIn(None, {row.advantage for group in known for row in group.rows})
                with self.assertRaisesRegex(millrace.Conflict, "another request_id"):
                    await client.submit(TASKS[:2], request_id="once")

    async def test_a_server_that_is_killed_and_started_again_loses_and_repeats_nothing(self) -> None:
        with serve("--sim.ttftMs=400", "-c", "16") as server:
            async with millrace.Client(server.url) as client:
                stream = client.groups(TASKS, attempts=4, advantage="grpo")
                groups = []
                async for group in stream:
                    groups.append(group)
                    if len(groups) in (1, 9):
                        server.kill()
                        server.start()
                self.assertEqual(sorted(group.index for group in groups), list(range(len(TASKS))))
                sessions = [row.session for group in groups for row in group.rows]
                self.assertEqual(len(set(sessions)), 4 * len(TASKS))
                self.assertEqual(len(sessions), len(set(sessions)))
                status = await client.status(stream.request_id)
                self.assertEqual(status.outcomes, {"completed": 4 * len(TASKS)})
                # What was given out before the server was killed is what it has kept.
                kept = {
                    row.session: row.ids.tolist()
                    async for group in client.groups_of(stream.request_id)
                    for row in group.rows
                }
                self.assertEqual(kept, {row.session: row.ids.tolist() for group in groups for row in group.rows})

    async def test_a_server_that_drains_and_is_started_again_goes_on(self) -> None:
        with serve("--sim.ttftMs=200", "-c", "8") as server:
            async with millrace.Client(server.url) as client:
                found = []
                async for group in client.groups(TASKS, attempts=4):
                    found.append(group)
                    if len(found) == 2:
                        # It answers what runs, and says that the rest is left to the next launch.
                        await asyncio.to_thread(server.kill, signal.SIGTERM)
                        await asyncio.to_thread(server.start)
                self.assertEqual(sorted(group.index for group in found), list(range(len(TASKS))))
                self.assertEqual({tuple(group.outcomes.items()) for group in found}, {(("completed", 4),)})

    async def test_a_network_that_cuts_every_connection_loses_and_repeats_nothing(self) -> None:
        with serve("--sim.ttftMs=100", "-c", "16") as server:
            async with CuttingProxy(server.url) as proxy, millrace.Client(proxy.url, retry_for=10) as client:
                stream = client.groups(TASKS, attempts=4)
                groups = [group async for group in stream]
                self.assertEqual(sorted(group.index for group in groups), list(range(len(TASKS))))
                self.assertGreater(proxy.cuts, 5)
            async with millrace.Client(server.url) as client:
                self.assertEqual((await client.status(stream.request_id)).outcomes, {"completed": 4 * len(TASKS)})
                kept = {
                    row.session: row.ids.tolist()
                    async for group in client.groups_of(stream.request_id)
                    for row in group.rows
                }
                self.assertEqual(kept, {row.session: row.ids.tolist() for group in groups for row in group.rows})

    async def test_replies_come_one_by_one(self) -> None:
        with serve() as server:
            async with millrace.Client(server.url) as client:
                stream = client.groups(TASKS[:4], attempts=2, rows="interactions", advantage="mean")
                replies = [row async for group in stream for row in group.rows]
                self.assertEqual({row.kind for row in replies}, {"interaction"})
                self.assertEqual({row.trains for row in replies}, {True})
                (known,) = [each async for each in client.groups_of(stream.request_id, rows="interactions")][:1]
                self.assertEqual(known.trainable, known.rows)
                with self.assertRaisesRegex(millrace.InvalidArgument, 'rows="merged"'):
                    millrace.batch(known.trainable)
                rows = [row async for group in client.groups_of(stream.request_id) for row in group.rows]
                sampled = {row.session: row.ids[row.mask == 1].tolist() for row in rows}
                found: dict[str, list[int]] = {name: [] for name in sampled}
                for reply in replies:
                    found[reply.session] += reply.ids.tolist()
                self.assertEqual(found, sampled)

    async def test_records_survive_a_killed_server_too(self) -> None:
        with serve("--sim.ttftMs=300", "-c", "16") as server:
            async with millrace.Client(server.url) as client:
                found: list[str] = []
                async for record in client.rollouts(TASKS, attempts=2):
                    found.append(record["id"])
                    if len(found) == 5:
                        server.kill()
                        server.start()
                self.assertEqual((len(found), len(set(found))), (2 * len(TASKS), 2 * len(TASKS)))

    async def test_leaving_early_cancels_and_detached_requests_go_on(self) -> None:
        with serve("--sim.ttftMs=400", "-c", "8") as server:
            async with millrace.Client(server.url) as client:
                async with client.groups(TASKS, attempts=2) as left:
                    await left.__anext__()
                status = await ended(client, left.request_id)
                self.assertGreater(status.outcomes["cancelled"], 0)
                self.assertGreater(status.outcomes["completed"], 1)

                held = client.groups(TASKS, attempts=2)
                await held.__anext__()

                async def train() -> None:
                    async for _ in held:
                        pass

                training = asyncio.create_task(train())
                await asyncio.sleep(0)
                training.cancel()
                await asyncio.wait({training})
                self.assertGreater((await ended(client, held.request_id)).outcomes["cancelled"], 0)

                detached = client.groups(TASKS[:6], attempts=2, detached=True)
                async for _ in detached:
                    break
                await detached.aclose()
                self.assertEqual((await ended(client, detached.request_id)).outcomes, {"completed": 12})
                self.assertEqual(len([each async for each in client.groups_of(detached.request_id)]), 6)

                name = await client.submit(TASKS, attempts=2)
                await client.cancel(name)
                self.assertIn("cancelled", (await ended(client, name)).outcomes)
                outcomes = [dict(group.outcomes) async for group in client.groups_of(name)]
                self.assertEqual(sum(sum(each.values()) for each in outcomes), 2 * len(TASKS))

    async def test_the_loop_of_the_guide_trains(self) -> None:
        with serve() as server:
            example = ROOT / "examples" / "python" / "train_loop.py"
            process = await asyncio.create_subprocess_exec(
                sys.executable, str(example), server.url, stdout=subprocess.PIPE
            )
            output, _ = await process.communicate()
            lines = output.decode().splitlines()
            self.assertEqual((process.returncode, len(lines)), (0, 3))
            for number, line in enumerate(lines):
                self.assertRegex(line, rf"^step {number}: 64 rows, [1-9]\d+ trained tokens, 0 rollouts lost$")

    async def test_many_requests_at_once(self) -> None:
        with serve() as server:
            async with millrace.Client(server.url, max_connections=8) as client:

                async def ask(task: dict[str, object]) -> float:
                    (group,) = [each async for each in client.groups([task], attempts=2)]
                    return float(sum(row.reward or 0 for row in group.rows))

                rewards = await asyncio.gather(*(ask(TASKS[n % len(TASKS)]) for n in range(100)))
                self.assertEqual(len(rewards), 100)

    async def test_refusals_name_the_place_and_the_next_step(self) -> None:
        with serve("--max-queued", "10") as server:
            async with millrace.Client(server.url, retry_for=0) as client:
                with self.assertRaisesRegex(millrace.InvalidRequest, r"tasks\[1\]: expression") as invalid:
                    await client.submit([TASKS[0], {"answer": 1}])
                self.assertEqual((invalid.exception.status, invalid.exception.code), (400, "task_invalid"))
                with self.assertRaisesRegex(millrace.NotFound, "no request unknown; check the id"):
                    await client.cancel("unknown")
                with self.assertRaises(millrace.InvalidRequest):
                    await client.submit(TASKS, attempts=100)
                self.assertTrue(await client.is_ready())

    async def test_a_server_with_a_key(self) -> None:
        with Millrace("serve", "arithmetic", "-m", "sim", env={"MILLRACE_API_KEY": "0123456789abcdef"}) as server:
            async with millrace.Client(server.url, key="0123456789abcdef") as client:
                self.assertEqual(len([each async for each in client.rollouts(TASKS[:1], attempts=1)]), 1)
                with self.assertRaisesRegex(millrace.InvalidRequest, "--tokens"):
                    async for _ in client.groups(TASKS[:1]):
                        self.fail("rows without tokens")
            async with millrace.Client(server.url) as client:
                with self.assertRaisesRegex(millrace.Unauthorized, "key="):
                    await client.submit(TASKS)


class Exports(unittest.IsolatedAsyncioTestCase):
    async def test_a_file_of_the_command_has_the_rows_of_the_stream(self) -> None:
        with serve() as server, tempfile.TemporaryDirectory() as folder:
            async with millrace.Client(server.url) as client:
                sent = {
                    row.session: row
                    async for group in client.groups(TASKS, attempts=2, advantage="rloo")
                    for row in group.rows
                }
            for form in ("binary", "jsonl"):
                path = Path(folder, form)
                await server.command(
                    "export", "latest", "--rows", "merged", "--advantage", "rloo", "--format", form, "-o", str(path)
                )
                rows = millrace.read_rows(path)
                read = {row.session: row for row in rows}
                self.assertEqual(set(read), set(sent))
                for name, row in read.items():
                    self.assertEqual(row.fields, sent[name].fields)
                    for array, values in row.arrays.items():
                        np.testing.assert_array_equal(values, sent[name].arrays[array])
                assert rows.end is not None
                self.assertEqual(rows.end["rows"], len(read))
                data = path.read_bytes()
                with self.assertRaises(millrace.CutOff):
                    list(millrace.read_rows(data[:-9]))
            # The encoder of these tests writes what the server writes.
            whole = Path(folder, "binary").read_bytes()
            fields = [{**row.fields, **row.arrays} for row in millrace.read_rows(whole)]
            assert rows.end is not None
            self.assertEqual(len(binary(*fields, rows.end)), len(whole))


if __name__ == "__main__":
    unittest.main()
