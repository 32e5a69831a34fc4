"""Serves the policy as vLLM does: prompts of token ids in, sampled ids with their log-probabilities out."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import model
from characters import END, VOCABULARY, decode, encode
from http_messages import read_message, reply

NAME = "adder"
FAULTS = ("server_error", "rate_limited", "cut", "garbage")
#: How long requests are collected for a batch. While a batch runs, the next ones collect anyway.
WINDOW_SECONDS = 0.002


@dataclass
class _Waiting:
    prompt: list[int]
    limit: int
    temperature: float
    sampled: asyncio.Future


class PolicyServer:
    """Runs in a thread of the trainer, so that new weights are there at once. `faults` is the share of requests that fail."""

    def __init__(self, params: model.Params, sampler: model.Sampler, tokenizer: Path, faults: float = 0.0, seed: int = 0):
        self._weights = params, 0
        self._sampler, self._tokenizer = sampler, tokenizer
        self._faults, self._random = faults, random.Random(seed)
        self._waiting: list[_Waiting] = []
        self._arrived = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.injected: Counter[str] = Counter()
        self.port = 0

    def __enter__(self) -> PolicyServer:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def version(self) -> int:
        return self._weights[1]

    def update(self, params: model.Params) -> None:
        """The next request is sampled with these weights, which are the next version."""
        self._weights = params, self.version + 1

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024))
        self.port = server.sockets[0].getsockname()[1]
        batches = self._loop.create_task(self._sample_batches())
        self._ready.set()
        self._loop.run_forever()
        server.close()
        batches.cancel()
        self._loop.run_until_complete(asyncio.gather(batches, return_exceptions=True))

    async def _sample_batches(self) -> None:
        with ThreadPoolExecutor(1) as thread:
            while True:
                await self._arrived.wait()
                await asyncio.sleep(WINDOW_SECONDS)
                # Prompts of a batch are padded to the same length, so short ones are not kept waiting by long ones.
                self._waiting.sort(key=lambda each: len(each.prompt) > model.PROMPTS[0])
                short = sum(len(each.prompt) <= model.PROMPTS[0] for each in self._waiting)
                count = min(short or len(self._waiting), model.BATCHES[-1])
                batch, self._waiting = self._waiting[:count], self._waiting[count:]
                if not self._waiting:
                    self._arrived.clear()
                params, version = self._weights
                asked = zip(*((each.prompt, each.limit, each.temperature) for each in batch))
                replies = await self._loop.run_in_executor(thread, self._sampler, params, *map(list, asked))
                for each, (ids, logprobs) in zip(batch, replies):
                    if not each.sampled.done():
                        each.sampled.set_result((ids.tolist(), logprobs.tolist(), version))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while message := await read_message(reader):
                method, path, _ = message[0].split(" ", 2)
                try:
                    status, answer = await self._answer(method, path, message[1])
                except (KeyError, TypeError, ValueError) as error:
                    status, answer = 400, _error(400, "BadRequestError", f"the request cannot be read: {error!r}")
                body = json.dumps(answer).encode()
                fault = self._next_fault() if path.endswith(("/generate", "/completions")) and status == 200 else None
                if fault == "cut":
                    writer.write(reply(status, body)[: -len(body) // 2])
                    break
                writer.write(_faulty(fault) if fault else reply(status, body))
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _next_fault(self) -> str | None:
        if self._random.random() >= self._faults:
            return None
        fault = self._random.choice(FAULTS)
        self.injected[fault] += 1
        return fault

    async def _answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        if (method, path) == ("GET", "/v1/models"):
            entry = {"id": NAME, "object": "model", "root": str(self._tokenizer), "max_model_len": model.CONTEXT}
            return 200, {"object": "list", "data": [entry]}
        if (method, path) == ("GET", "/weight_info"):
            return 200, {"weight_version": str(self.version)}
        if (method, path) == ("POST", "/tokenize"):
            return 200, {"tokens": encode(json.loads(body)["prompt"])}
        if (method, path) == ("POST", "/inference/v1/generate"):
            return await self._generate(json.loads(body))
        if (method, path) == ("POST", "/v1/completions"):
            return await self._complete(json.loads(body))
        return 404, _error(404, "NotFoundError", f"there is no {method} {path}")

    async def _generate(self, request: dict[str, Any]) -> tuple[int, Any]:
        """vLLM's own API for ids. It names the version of the weights."""
        sampled = await self._sampled(request["token_ids"], request["sampling_params"])
        if sampled is None:
            return _too_long(request["token_ids"])
        ids, logprobs, version = sampled
        content = [{"token": VOCABULARY[id], "logprob": logprob} for id, logprob in zip(ids, logprobs)]
        choice = {"index": 0, "token_ids": ids, "logprobs": {"content": content}, "finish_reason": _finish(ids)}
        versions = [{"version": str(version), "start": 0}]
        return 200, {"choices": [{**choice, "weight_versions": versions}], "usage": _usage(request["token_ids"], ids)}

    async def _complete(self, request: dict[str, Any]) -> tuple[int, Any]:
        """OpenAI's older API, with the fields for token ids that vLLM adds."""
        prompt = request["prompt"]
        prompt = encode(prompt) if isinstance(prompt, str) else prompt
        sampled = await self._sampled(prompt, request)
        if sampled is None:
            return _too_long(prompt)
        ids, logprobs, _ = sampled
        names = [f"token_id:{id}" if request.get("return_tokens_as_token_ids") else VOCABULARY[id] for id in ids]
        choice = {"index": 0, "text": decode(ids), "finish_reason": _finish(ids)}
        if request.get("logprobs") is not None:
            choice["logprobs"] = {"tokens": names, "token_logprobs": logprobs}
        if request.get("return_token_ids"):
            choice |= {"token_ids": ids, "prompt_token_ids": prompt}
        return 200, {"object": "text_completion", "model": NAME, "choices": [choice], "usage": _usage(prompt, ids)}

    async def _sampled(self, prompt: list[int], settings: dict[str, Any]) -> tuple[list[int], list[float], int] | None:
        """None if the prompt does not fit."""
        if len(prompt) > model.PROMPTS[-1]:
            return None
        limit, temperature = settings.get("max_tokens") or 16, settings.get("temperature")
        waiting = _Waiting(
            prompt, min(limit, model.MAX_REPLY), 1.0 if temperature is None else temperature, self._loop.create_future()
        )
        self._waiting.append(waiting)
        self._arrived.set()
        return await waiting.sampled


def _finish(ids: list[int]) -> str:
    return "stop" if ids[-1] == END else "length"


def _usage(prompt: list[int], ids: list[int]) -> dict[str, int]:
    return {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}


def _too_long(prompt: list[int]) -> tuple[int, Any]:
    message = f"This model's maximum context length is {model.PROMPTS[-1]} tokens, and the prompt has {len(prompt)}."
    return 400, _error(400, "BadRequestError", message)


def _error(code: int, kind: str, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code}}


def _faulty(fault: str) -> bytes:
    if fault == "server_error":
        return reply(500, json.dumps(_error(500, "InternalServerError", "out of memory")).encode())
    if fault == "rate_limited":
        body = json.dumps(_error(429, "RateLimitError", "too many requests")).encode()
        return reply(429, body, "retry-after: 1\r\n")
    return reply(200, b'{"choices": [{"index": 0, "token_ids": "\xff\xfe\x00')
