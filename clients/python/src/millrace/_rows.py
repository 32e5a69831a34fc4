"""Training rows: what one is, how the binary form is decoded without copies, and files of them (docs/export.md)."""

from __future__ import annotations

import base64
import json
import math
import os
import struct
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Generic, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ._errors import CutOff, NotRows

#: A path, the bytes themselves, or a binary file that is open for reading.
Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO"

T = TypeVar("T")

MAGIC = b"MILLROWS"
VERSION = 1
_HEAD_BYTES = 8
_lengths = struct.Struct("<II")
_decode_json = json.JSONDecoder().decode

# Little-endian, whatever this machine is.
_dtypes = {name: np.dtype(name).newbyteorder("<") for name in ("int32", "float32", "uint8", "int16")}
_no_ids: NDArray[np.int32] = np.zeros(0, np.int32)
_no_mask: NDArray[np.uint8] = np.zeros(0, np.uint8)
_no_logprobs: NDArray[np.float32] = np.zeros(0, np.float32)
_absent: dict[str, NDArray[Any]] = {"ids": _no_ids, "mask": _no_mask, "logprobs": _no_logprobs, "promptIds": _no_ids}
for _shared in _absent.values():
    _shared.flags.writeable = False

# The arrays of JSON lines, which do not name their types.
_json_dtypes = {"ids": "int32", "mask": "uint8", "logprobs": "float32", "promptIds": "int32"}


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
        """Whether there is a token to train: not of a side call, of a lost sample, or of a reply that another row trains."""
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

    def __len__(self) -> int:
        return self.ids.size

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        said = f"{self.kind} session={self.session!r} tokens={len(self)} trained={int(self.mask.sum())}"
        return f"<Row {said} reward={self.reward} advantage={self.advantage}>"


class FrameDecoder:
    """
    The binary form, without I/O: `needs` says how many bytes come next, and `take` takes exactly these. It returns a row once
    it has one. Frames of kind `end`, `group` and `error` are rows, too, without arrays.
    """

    __slots__ = ("_array_bytes", "_expects", "_header_bytes", "_last", "needs")

    def __init__(self) -> None:
        self.needs = _HEAD_BYTES
        self._expects = "magic"
        self._header_bytes = 0
        self._array_bytes = 0
        self._last: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether what was read so far may end here."""
        return self._expects == "frame" and self._last == "end"

    def take(self, data: bytes | bytearray | memoryview) -> Row | None:
        if self._expects == "body":
            self._expects, self.needs = "frame", _HEAD_BYTES
            row = row_of_frame(data, self._header_bytes)
            self._last = row.kind
            return row
        if self._expects == "version":
            (version, _) = _lengths.unpack(data)
            if version != VERSION:
                raise NotRows(f"rows of version {version}, and this reads version {VERSION}; update millrace", code="not_rows")
            self._expects = "frame"
            return None
        if data == MAGIC:
            # Files can be joined, and a server begins each group anew; but what went before must have ended.
            if self._last not in (None, "end", "group"):
                raise CutOff("the rows before a further head have no `end`: that part was cut off", code="cut_off")
            self._expects = "version"
            return None
        if self._expects == "magic":
            raise NotRows("no rows: neither the binary form nor JSON lines begins like this", code="not_rows")
        self._header_bytes, self._array_bytes = _lengths.unpack(data)
        self._expects, self.needs = "body", self._header_bytes + self._array_bytes
        return None


def row_of_frame(body: bytes | bytearray | memoryview, header_bytes: int) -> Row:
    """The row of a frame without its two lengths. Its arrays are views of `body`."""
    header = str(memoryview(body)[:header_bytes], "utf-8")
    # The list of arrays usually comes last. No text looks like its name, because quotes in a text are escaped; and if it belongs
    # to another object, what follows is not JSON.
    begin = header.rfind(',"arrays":[')
    if begin > 0 and header.startswith('{"kind":"'):
        last = _object_or_nothing("{" + header[begin + 1 :])
        if len(last) == 1:
            kind = header[9 : header.index('"', 9)]
            return Row.of_header(kind, header[:begin] + "}", _arrays(body, header_bytes, last["arrays"]))
    fields: dict[str, Any] = _decode_json(header)
    return Row(fields, _arrays(body, header_bytes, fields.pop("arrays", ())))


def _object_or_nothing(text: str) -> dict[str, Any]:
    try:
        parsed: dict[str, Any] = _decode_json(text)
    except ValueError:
        return {}
    return parsed


def _arrays(
    body: bytes | bytearray | memoryview, begin: int, entries: Iterable[Mapping[str, Any]]
) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for entry in entries:
        shape = entry["shape"]
        is_flat = len(shape) == 1
        count = shape[0] if is_flat else math.prod(shape)
        flat = np.frombuffer(body, _dtypes[entry["type"]], count, begin + entry["offset"])
        arrays[entry["name"]] = flat if is_flat else flat.reshape(shape)
    return arrays


def row_of_json(line: bytes) -> Row:
    """The row of a line of JSON, with the same arrays as in the binary form."""
    fields: dict[str, Any] = json.loads(line)
    arrays: dict[str, NDArray[Any]] = {}
    for name, dtype in _json_dtypes.items():
        # None is NaN among numbers with a fraction.
        if isinstance(fields.get(name), list):
            arrays[name] = np.array(fields.pop(name), dtype)
    experts = fields.get("routedExperts")
    if isinstance(experts, dict):
        flat = np.frombuffer(base64.b64decode(experts["data"]), _dtypes[experts["dtype"]])
        arrays["routedExperts"] = flat.reshape(experts["shape"])
        del fields["routedExperts"]
    return Row(fields, arrays)


class RowReader(Iterator[Row]):
    """The rows of a file, one at a time. After the last one, `end` has the sums of the export."""

    def __init__(self, source: Source, *, allow_cut_off: bool = False) -> None:
        #: The last row of the last export in the file: how many sessions and rows it has, and how many were left out.
        self.end: dict[str, Any] | None = None
        self._allow_cut_off = allow_cut_off
        self._name = os.fspath(source) if isinstance(source, (str, os.PathLike)) else _name_of(source)
        self._rows = self._read(source)

    def __next__(self) -> Row:
        return next(self._rows)

    def close(self) -> None:
        """Closes the file, if it was opened here. Reading to the end does so, too."""
        self._rows.close()

    def __enter__(self) -> RowReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, source: Source) -> Generator[Row, None, None]:
        try:
            for row in self._rows_of(source):
                if row.kind == "end":
                    self.end = row.fields
                else:
                    self.end = None
                    yield row
        except CutOff as error:
            self.end = None
            if not self._allow_cut_off:
                raise CutOff(f"{self._name}: {error.message}; export it again", code="cut_off") from None
        except NotRows as error:
            raise NotRows(f"{self._name}: {error.message}", code="not_rows") from None

    @staticmethod
    def _rows_of(source: Source) -> Iterator[Row]:
        if isinstance(source, (bytes, bytearray, memoryview)):
            view = memoryview(source).cast("B")
            _refuse_short(view[:_HEAD_BYTES])
            yield from _binary_view(view) if view[:_HEAD_BYTES] == MAGIC else _json_lines(bytes(view).splitlines(True))
        elif isinstance(source, (str, os.PathLike)):
            with open(source, "rb") as file:
                yield from _file_rows(file)
        else:
            yield from _file_rows(source)


def read_rows(source: Source, *, allow_cut_off: bool = False) -> RowReader:
    """
    Every row of a file of rows: the binary form or JSON lines, by path, as bytes, or as an open binary file.

    A file that was cut off raises `CutOff` once its good rows are read; with `allow_cut_off` the rows just end, and the reader's
    `end` is None. Arrays are writable, except those over `bytes` of yours, which are not copied.
    """
    return RowReader(source, allow_cut_off=allow_cut_off)


def _file_rows(file: BinaryIO) -> Iterator[Row]:
    head = _read_exactly(file, _HEAD_BYTES)
    if head != MAGIC:
        _refuse_short(head)
        first = bytes(head) + (b"" if b"\n" in head else file.readline())
        yield from _json_lines(_chain_lines(first, file))
        return
    decoder = FrameDecoder()
    decoder.take(head)
    while data := _read_exactly(file, decoder.needs):
        if len(data) < decoder.needs:
            raise CutOff("it ends in the middle of a row", code="cut_off")
        row = decoder.take(data)
        if row is not None:
            yield row
    if not decoder.is_whole:
        raise CutOff("it has no `end` row", code="cut_off")


def _refuse_short(head: bytes | bytearray | memoryview) -> None:
    """The first bytes of a head are neither form."""
    if len(head) < _HEAD_BYTES and MAGIC.startswith(head):
        raise CutOff("it ends before its first row", code="cut_off")


def _binary_view(view: memoryview) -> Iterator[Row]:
    decoder = FrameDecoder()
    place = 0
    while place < len(view):
        data = view[place : place + decoder.needs]
        if len(data) < decoder.needs:
            raise CutOff("it ends in the middle of a row", code="cut_off")
        place += len(data)
        row = decoder.take(data)
        if row is not None:
            yield row
    if not decoder.is_whole:
        raise CutOff("it has no `end` row", code="cut_off")


def _json_lines(lines: Iterator[bytes] | list[bytes]) -> Iterator[Row]:
    last: str | None = None
    for number, line in enumerate(lines, 1):
        try:
            row = row_of_json(line)
        except (ValueError, TypeError, AttributeError, KeyError):
            if line.startswith(b"{") and not line.endswith(b"\n"):
                raise CutOff("it ends in the middle of a row", code="cut_off") from None
            raise NotRows(f"line {number} is not a row as JSON", code="not_rows") from None
        last = row.kind
        yield row
    if last != "end":
        raise CutOff("it has no `end` row", code="cut_off")


def _chain_lines(first: bytes, file: BinaryIO) -> Iterator[bytes]:
    yield from first.splitlines(True)
    yield from file


def _read_exactly(file: BinaryIO, count: int) -> bytearray:
    """So many bytes, or what is left. Not bytes: arrays over them can be written, which torch.from_numpy asks for."""
    data = bytearray(file.read(count))
    # A raw file or a pipe may return less at a time.
    while len(data) < count and (more := file.read(count - len(data))):
        data += more
    return data


def _name_of(source: object) -> str:
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else "the rows"
