"""Writes rows as the server does: the binary form of docs/export.md, and JSON lines."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

HEAD = b"MILLROWS" + struct.pack("<II", 1, 0)
END = {"kind": "end", "sessions": 1, "rows": 1, "sideRows": 0, "emptySessions": 0, "damagedSessions": 0}


def frame(row: Mapping[str, Any]) -> bytes:
    entries, arrays, offset = [], [], 0
    fields = {}
    for name, value in row.items():
        if not isinstance(value, np.ndarray):
            fields[name] = value
            continue
        data = value.astype(value.dtype.newbyteorder("<")).tobytes()
        padded = data + bytes(-len(data) % 8)
        entries.append({"name": name, "type": value.dtype.name, "shape": list(value.shape), "offset": offset})
        arrays.append(padded)
        offset += len(padded)
    header = json.dumps({**fields, "arrays": entries}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<II", len(header), offset) + header + b"".join(arrays)


def binary(*rows: Mapping[str, Any]) -> bytes:
    return HEAD + b"".join(map(frame, rows))


def json_line(row: Mapping[str, Any]) -> bytes:
    def plain(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if value.dtype == np.float32:
            # Nine digits, as the server writes them.
            return [float(f"{each:.9g}") if np.isfinite(each) else None for each in value.tolist()]
        return value.tolist()

    return json.dumps({name: plain(value) for name, value in row.items()}, separators=(",", ":")).encode() + b"\n"


def merged(session: str = "0-0", tokens: int = 8, turns: int = 2, seed: int = 0, **fields: Any) -> dict[str, Any]:
    """A training row of several turns, each of which is a prompt and a reply of about the same length."""
    random = np.random.default_rng(seed)
    mask = np.zeros(tokens, np.uint8)
    samples = []
    each = tokens // (2 * turns)
    for turn in range(turns):
        start = (2 * turn + 1) * each
        mask[start : start + each] = 1
        sampling = {"temperature": 1, "topP": 1, "logprobs": "raw"}
        samples.append(
            {
                "interaction": f"chatcmpl-{session}-{turn}",
                "node": 2 * turn + 1,
                "start": start,
                "count": each,
                "trains": True,
                "sampling": sampling,
                "reward": None,
                "return": 1.0,
            }
        )
    logprobs = np.where(mask == 1, -random.random(tokens), 0).astype(np.float32)
    row: dict[str, Any] = {
        "kind": "merged",
        "session": session,
        "parent": None,
        "group": "t0",
        "tenant": None,
        "task": "0",
        "sample": 0,
        "sealed": True,
        "outcome": "completed",
        "truncated": False,
        "rewards": {"correct": {"score": 1, "weight": 1}},
        "advantage": 0.5,
        "main": True,
        "tree": {"root": 0, "system": None, "model": "policy", "tools": [], "requests": turns},
        "reward": 1.0,
        "splitAt": None,
        "discarded": None,
        "samples": samples,
        "versions": [{"version": None, "count": tokens - each}, {"version": "7", "count": each}],
        "ids": random.integers(0, 150_000, tokens, np.int32),
        "mask": mask,
        "logprobs": logprobs,
    }
    return {**row, **fields}


def group_end(index: int, rows: int, rollouts: int = 1, **fields: Any) -> dict[str, Any]:
    """The frame that ends a group."""
    outcomes = {"completed": rollouts}
    said = {"kind": "group", "group": f"t{index}", "task": str(index), "taskIndex": index}
    return {**said, "rollouts": rollouts, "scored": rollouts, "outcomes": outcomes, "rows": rows, **fields}
