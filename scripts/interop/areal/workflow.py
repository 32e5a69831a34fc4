"""
AReaL's own workflow client and an agent of three turns, against the server that the argument (JSON) names. Prints one line of JSON.

`compare`: the tensors of one group of sessions, and a stream of its controller. `load`: the CPU that the named processes used for
each rollout. With `native`, the rollouts use Millrace's own routes instead of the client.
"""

import asyncio
import itertools
import json
import logging
import os
import sys
import time
import warnings
from types import SimpleNamespace

warnings.filterwarnings("ignore")
import aiohttp  # noqa: E402
from areal.experimental.inference_service.controller.controller import RolloutControllerV2  # noqa: E402
from areal.experimental.inference_service.controller.workflow import InferenceServiceWorkflow  # noqa: E402
from areal.infra import workflow_context  # noqa: E402
from areal.infra.rpc.rtensor import RTensor  # noqa: E402
from areal.infra.workflow_context import WorkflowContext  # noqa: E402
from openai import AsyncOpenAI  # noqa: E402

TURNS = 3
QUESTION = "grind the corn slowly. " * 9


class Agent:
    """Asks three times, each time with the whole conversation, as AReaL's examples do."""

    def __init__(self, stream: bool):
        self.stream = stream
        self.failures: dict[str, int] = {}

    async def run(self, data, **place):
        try:
            return await self.converse(data, **place)
        except Exception as error:
            name = f"{type(error).__name__}: {error}"[:200]
            self.failures[name] = self.failures.get(name, 0) + 1
            raise

    async def converse(self, data, base_url=None, api_key=None, http_client=None):
        client = AsyncOpenAI(base_url=base_url, api_key=api_key, http_client=http_client, max_retries=0)
        messages = [{"role": "user", "content": f"task {data['id']}: {QUESTION}"}]
        for turn in range(TURNS):
            answer = await self.ask(client, messages)
            if not answer:
                raise RuntimeError("an empty answer")
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": f"{turn}: {QUESTION}"}]
        return 0.5

    async def ask(self, client, messages):
        words = {"model": "bytes", "messages": messages, "max_completion_tokens": 512}
        if not self.stream:
            reply = await client.chat.completions.create(**words)
            return reply.choices[0].message.content
        text = ""
        async for chunk in await client.chat.completions.create(**words, stream=True):
            if chunk.choices and chunk.choices[0].delta.content:
                text += chunk.choices[0].delta.content
        return text


def workflow(asked, agent):
    return InferenceServiceWorkflow(
        controller=None,
        agent=agent,
        gateway_addr=asked["gateway"],
        admin_api_key=asked["key"],
        discount=asked.get("discount", 1.0),
        group_size=asked.get("group", 1),
    )


async def compare(asked):
    agent = Agent(stream=False)
    workflow_context.set(WorkflowContext(task_id=7))
    traj = await workflow(asked, agent).arun_episode(None, {"id": 7})
    if traj is None:
        raise RuntimeError(f"the workflow dropped its group: {agent.failures}")
    local = await asyncio.to_thread(RTensor.localize, traj)
    shards = RTensor.collect_shards(traj)
    for node, ids in shards.items():
        await RTensor.clear_node(node, ids)
    return {
        "tensors": {name: {"dtype": str(each.dtype), "rows": each.tolist()} for name, each in local.items()},
        "references": sum(len(ids) for ids in shards.values()),
        "stream": await controller_stream(asked),
    }


async def controller_stream(asked):
    """The text of a stream as the controller reads it. Only its client is used, so it starts nothing."""
    controller = RolloutControllerV2.__new__(RolloutControllerV2)
    controller._gateway_addr = asked["gateway"]
    controller._ensure_initialized = lambda: None
    controller.config = SimpleNamespace(model="default", admin_api_key=asked["key"], request_timeout=60)
    chunks = await controller.chat_completion([{"role": "user", "content": "Hello"}], stream=True)
    text = ""
    async for chunk in chunks:
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
    return text


class Native:
    """The same rollout on Millrace's own routes."""

    def __init__(self, asked, agent):
        self.gateway, self.agent = asked["gateway"], agent
        self.headers = {"authorization": f"Bearer {asked['key']}"}

    async def arun_episode(self, _engine, data):
        http = await workflow_context.get_aiohttp_session()
        client = await workflow_context.get_httpx_client()
        session = (await self.post(http, "/v1/sessions", {"taskId": str(data["id"])}))["sessions"][0]
        place = {"base_url": f"{self.gateway}/v1", "api_key": session["key"], "http_client": client}
        reward = await self.agent.run(data, **place)
        path = f"/v1/sessions/{session['id']}"
        await self.post(http, f"{path}/rewards", {"reward": reward})
        async with http.get(f"{self.gateway}/v1/export?session={session['id']}", headers=self.headers) as reply:
            reply.raise_for_status()
            rows = await reply.text()
        await self.post(http, f"{path}/end", {})
        return rows

    async def post(self, http: aiohttp.ClientSession, path, body):
        async with http.post(self.gateway + path, json=body, headers=self.headers) as reply:
            reply.raise_for_status()
            return await reply.json()


def cpu_ms(pid: int) -> float:
    used = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            used += int(file.read().split()[0])
    return used / 1e6


async def load(asked):
    agent = Agent(asked["stream"])
    flow = Native(asked, agent) if asked.get("native") else workflow(asked, agent)
    gate = asyncio.Semaphore(asked["atOnce"])
    numbers = itertools.count()
    done = []

    async def rollout():
        async with gate:
            number = next(numbers)
            workflow_context.set(WorkflowContext(task_id=number))
            try:
                done.append(await flow.arun_episode(None, {"id": number}) is not None)
            except Exception as error:
                agent.failures[repr(error)[:200]] = agent.failures.get(repr(error)[:200], 0) + 1
                done.append(False)

    async def rollouts(count):
        await asyncio.gather(*(asyncio.create_task(rollout()) for _ in range(count)))

    await rollouts(asked["warmUp"])
    done.clear()
    agent.failures.clear()
    before = {pid: cpu_ms(pid) for pid in asked["pids"]}
    started = time.monotonic()
    await rollouts(asked["rollouts"])
    seconds = time.monotonic() - started
    used = sum(cpu_ms(pid) - before[pid] for pid in asked["pids"])
    return {"ok": sum(done), "failures": agent.failures, "seconds": seconds, "cpuMs": used / asked["rollouts"]}


logging.disable(logging.CRITICAL)
asked = json.loads(sys.argv[1])
print(json.dumps(asyncio.run({"compare": compare, "load": load}[asked["what"]](asked))), flush=True)
os._exit(0)
