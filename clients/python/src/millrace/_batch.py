"""Rows of different lengths as arrays of one shape, as a model takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from ._row import Row


class Batch(TypedDict):
    """Arrays of shape (rows, length). Whatever is padding is 0 in all of them but `ids`."""

    #: int32; `pad_id` after the row's end.
    ids: NDArray[np.int32]
    #: float32; 1 where the token is trained. Multiply the loss by it, and divide by its sum.
    mask: NDArray[np.float32]
    #: float32; what the sampler said, 0 where it did not sample.
    logprobs: NDArray[np.float32]
    #: float32; the row's advantage where the mask is 1.
    advantages: NDArray[np.float32]
    #: int32; 1 for every token of the row.
    attention: NDArray[np.int32]


def batch(rows: Sequence[Row], *, pad_id: int = 0, multiple_of: int = 1, length: int | None = None) -> Batch:
    """
    Training rows as arrays that are padded on the right.

    They are as long as the longest row, rounded up to a multiple of `multiple_of`, or exactly `length`, so that a compiled step
    need not be compiled anew. A row that is longer than `length` raises ValueError: cutting it would train half a reply.
    A row without an advantage has advantages of 0.
    """
    for row in rows:
        if row.kind != "merged":
            raise ValueError(f'a row of kind {row.kind!r} cannot be trained; choose with `row.trains` (rows="merged")')
    longest = max((len(row) for row in rows), default=0)
    if length is None:
        length = -(-longest // multiple_of) * multiple_of
    elif longest > length:
        raise ValueError(
            f"a row has {longest} tokens, which is more than length={length}; leave it out, or raise the length"
        )
    shape = (len(rows), length)
    ids = np.full(shape, pad_id, np.int32)
    mask = np.zeros(shape, np.float32)
    logprobs = np.zeros(shape, np.float32)
    advantages = np.zeros(shape, np.float32)
    attention = np.zeros(shape, np.int32)
    for index, row in enumerate(rows):
        place = slice(0, len(row))
        ids[index, place] = row.ids
        mask[index, place] = row.mask
        logprobs[index, place] = row.logprobs
        attention[index, place] = 1
        if row.advantage is not None:
            np.multiply(row.mask, row.advantage, out=advantages[index, place], casting="same_kind")
    return {"ids": ids, "mask": mask, "logprobs": logprobs, "advantages": advantages, "attention": attention}
