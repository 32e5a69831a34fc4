"""Rows of different lengths as arrays of one shape, as a model takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from ._errors import InvalidArgument
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


def batch(
    rows: Sequence[Row],
    *,
    pad_id: int = 0,
    multiple_of: int = 1,
    length: int | None = None,
    advantages: Sequence[float] | NDArray[Any] | None = None,
) -> Batch:
    """
    Training rows as arrays that are padded on the right.

    They are as long as the longest row, rounded up to a multiple of `multiple_of`, or exactly `length`, so that a compiled step
    need not be compiled anew. A row that is longer than `length` is refused: cutting it would train half a reply.
    `advantages` has a number for each row, and counts instead of the rows' own.
    """
    if len(rows) == 0:
        raise InvalidArgument("there are no rows to batch; leave the step out when a group or all of them have none")
    of_rows = _advantages_of(rows) if advantages is None else np.asarray(advantages, np.float32)
    if of_rows.shape != (len(rows),) or not np.isfinite(of_rows).all():
        raise InvalidArgument(f"advantages has a number for each of the {len(rows)} rows")
    for row in rows:
        if row.kind != "merged":
            raise InvalidArgument(
                f'a row of kind {row.kind!r} cannot be batched; ask with rows="merged", and choose with `row.trains`'
            )
    longest = max(len(row) for row in rows)
    if length is None:
        length = -(-longest // multiple_of) * multiple_of
    elif longest > length:
        raise InvalidArgument(
            f"a row has {longest} tokens, which is more than length={length}; leave it out, or raise the length"
        )
    shape = (len(rows), length)
    ids = np.full(shape, pad_id, np.int32)
    mask = np.zeros(shape, np.float32)
    logprobs = np.zeros(shape, np.float32)
    of_tokens = np.zeros(shape, np.float32)
    attention = np.zeros(shape, np.int32)
    for index, row in enumerate(rows):
        place = slice(0, len(row))
        ids[index, place] = row.ids
        mask[index, place] = row.mask
        logprobs[index, place] = row.logprobs
        attention[index, place] = 1
        np.multiply(row.mask, of_rows[index], out=of_tokens[index, place], casting="same_kind")
    return {"ids": ids, "mask": mask, "logprobs": logprobs, "advantages": of_tokens, "attention": attention}


def _advantages_of(rows: Sequence[Row]) -> NDArray[np.float32]:
    for row in rows:
        # Zeros would train nothing, and say nothing.
        if row.advantage is None and row.mask.any():
            raise InvalidArgument(
                f"a row of session {row.session!r} has tokens to train and no advantage; ask for the rows with "
                'advantage="grpo" (or "mean", "rloo"), leave out those without one, or give batch(advantages=) numbers'
            )
    return np.array([row.advantage or 0.0 for row in rows], np.float32)
