"""One training row. Its arrays are views, and its other fields are parsed when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

_decode_json = json.JSONDecoder().decode

_no_ids: NDArray[np.int32] = np.zeros(0, np.int32)
_no_mask: NDArray[np.uint8] = np.zeros(0, np.uint8)
_no_logprobs: NDArray[np.float32] = np.zeros(0, np.float32)
_absent: dict[str, NDArray[Any]] = {"ids": _no_ids, "mask": _no_mask, "logprobs": _no_logprobs, "promptIds": _no_ids}
for _shared in _absent.values():
    _shared.flags.writeable = False


@dataclass(frozen=True, slots=True)
class Sample:
    """Where one reply lies in a row."""

    interaction: str
    node: int
    start: int
    count: int
    trains: bool
    sampling: Mapping[str, Any] | None
    reward: float | None
    return_: float | None

    @property
    def place(self) -> slice:
        """Its tokens: `row.ids[sample.place]`."""
        return slice(self.start, self.start + self.count)


@dataclass(frozen=True, slots=True)
class VersionRun:
    """So many tokens in a row were sampled by weights of this version; None if it is unknown, or they were not sampled."""

    version: str | None
    count: int


class _Field(Generic[T]):
    """A field of the row as it came, under Python's name for it."""

    __slots__ = ("_default", "_name")

    def __init__(self, name: str, default: T) -> None:
        self._name = name
        self._default = default

    @overload
    def __get__(self, row: None, owner: type[Row]) -> _Field[T]: ...
    @overload
    def __get__(self, row: Row, owner: type[Row]) -> T: ...
    def __get__(self, row: Row | None, owner: type[Row]) -> T | _Field[T]:
        if row is None:
            return self
        value: T = row._get(self._name, self._default)
        return value


class Row:
    """
    One training row (`merged`), one reply (`interaction`), or what stands in for rows that are not there (`empty`, `damaged`).

    `fields` is the row as it came; the attributes are the same under Python's names. Arrays are views of the bytes that were
    read: nothing was copied or converted. Arrays that the row does not have are empty.
    """

    __slots__ = ("_fields", "_header", "_rest", "ids", "kind", "logprobs", "mask", "prompt_ids", "routed_experts")

    #: `merged`, `interaction`, `empty` or `damaged`.
    kind: str
    #: Every token of a training row; the sampled ones of an interaction.
    ids: NDArray[np.int32]
    #: 1 where the token was sampled and this row trains it.
    mask: NDArray[np.uint8]
    #: As the sampler reported them: 0 where it did not sample, NaN where it did not say (interactions).
    logprobs: NDArray[np.float32]
    prompt_ids: NDArray[np.int32]
    routed_experts: NDArray[np.int16] | NDArray[np.int32] | NDArray[np.uint8] | None

    #: The session of the gateway, or the rollout.
    session = _Field[str]("session", "")
    #: The rollout that started this child.
    parent = _Field[str | None]("parent", None)
    group = _Field[str | None]("group", None)
    tenant = _Field[str | None]("tenant", None)
    task = _Field[str | None]("task", None)
    #: The rollout's index in its group.
    sample = _Field[int | None]("sample", None)
    sealed = _Field[bool]("sealed", False)
    outcome = _Field[str | None]("outcome", None)
    truncated = _Field[bool]("truncated", False)
    #: False for side calls, which have nothing to do with the task's reward.
    main = _Field[bool]("main", False)
    tree = _Field[Mapping[str, Any] | None]("tree", None)
    reward = _Field[float | None]("reward", None)
    return_ = _Field[float | None]("return", None)
    #: The components of the reward: `{name: {"score", "weight"}}`.
    rewards = _Field[Mapping[str, Mapping[str, float]]]("rewards", {})
    advantage = _Field[float | None]("advantage", None)
    split_at = _Field[Mapping[str, Any] | None]("splitAt", None)
    #: Why its samples were lost; None if they were not.
    discarded = _Field[str | None]("discarded", None)
    interaction = _Field[str | None]("interaction", None)
    node = _Field[int | None]("node", None)
    messages = _Field[list[dict[str, Any]]]("messages", [])
    #: How an interaction was sampled.
    sampling = _Field[Mapping[str, Any] | None]("sampling", None)
    #: The code and message of a damaged row.
    error = _Field[Mapping[str, str] | None]("error", None)

    def __init__(self, fields: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        self._set(str(fields.get("kind")), fields, "", "", arrays)

    @classmethod
    def of_header(cls, kind: str, header: str, arrays: Mapping[str, NDArray[Any]]) -> Row:
        """A row whose fields are parsed when they are asked for: that takes longer than all its tokens."""
        row = cls.__new__(cls)
        # Most of a header is the lists of samples and versions, which are parsed apart from what comes before them.
        begin = header.find(',"samples":[')
        if begin < 0:
            row._set(kind, None, header, "", arrays)
        else:
            row._set(kind, None, header[:begin] + "}", "{" + header[begin + 1 :], arrays)
        return row

    def _set(
        self, kind: str, fields: dict[str, Any] | None, header: str, rest: str, arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        self.kind = kind
        self._fields = fields
        self._header = header
        self._rest = rest
        get = arrays.get
        self.ids = get("ids", _no_ids)
        self.mask = get("mask", _no_mask)
        self.logprobs = get("logprobs", _no_logprobs)
        self.prompt_ids = get("promptIds", _no_ids)
        self.routed_experts = get("routedExperts")

    @property
    def fields(self) -> dict[str, Any]:
        """The row as it came, without its arrays, under the names of `docs/export.md`."""
        fields = self._first_fields()
        if self._rest:
            fields.update(_decode_json(self._rest))
            self._rest = ""
        return fields

    def _first_fields(self) -> dict[str, Any]:
        if self._fields is None:
            try:
                self._fields = _decode_json(self._header)
            except ValueError:
                # The list belongs to another object, so that this is no place to cut.
                self._fields = _decode_json(self._header[:-1] + "," + self._rest[1:])
                self._rest = ""
            self._header = ""
        return self._fields

    def _get(self, name: str, default: Any) -> Any:
        fields = self._first_fields()
        return fields[name] if name in fields else self.fields.get(name, default)

    @property
    def samples(self) -> list[Sample]:
        """Where each reply of a training row lies."""
        return [
            Sample(
                each["interaction"],
                each["node"],
                each["start"],
                each["count"],
                each["trains"],
                each.get("sampling"),
                each.get("reward"),
                each.get("return"),
            )
            for each in self.fields.get("samples", ())
        ]

    @property
    def versions(self) -> list[VersionRun]:
        """The weight versions of `ids`, run-length coded."""
        return [VersionRun(each["version"], each["count"]) for each in self.fields.get("versions") or ()]

    @property
    def trains(self) -> bool:
        """
        Of a training row, whether there is a token to train: not of a side call, of a lost sample, or of a reply that another
        row trains. Of an interaction, its field `trains`, which does not ask whether it is a side call.
        """
        if self.kind == "interaction":
            return bool(self._get("trains", False))
        return self.kind == "merged" and self.main and self.discarded is None and bool(self.mask.any())

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that the row has, under the names of `docs/export.md`."""
        have: dict[str, NDArray[Any] | None] = {
            "ids": self.ids,
            "mask": self.mask,
            "logprobs": self.logprobs,
            "promptIds": self.prompt_ids,
            "routedExperts": self.routed_experts,
        }
        return {name: each for name, each in have.items() if each is not None and each is not _absent.get(name)}

    def __reduce__(self) -> tuple[Any, ...]:
        return Row, (self.fields, self.arrays)

    def __len__(self) -> int:
        return self.ids.size

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        said = f"{self.kind} session={self.session!r} tokens={len(self)} trained={int(self.mask.sum())}"
        return f"<Row {said} reward={self.reward} advantage={self.advantage}>"
