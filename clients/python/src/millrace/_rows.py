"""Rows as bytes (docs/export.md): the binary form, decoded without copies; JSON lines, into the same arrays; files of both."""

from __future__ import annotations

import base64
import json
import math
import os
import struct
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ._errors import CutOff, NotRows
from ._row import Row

#: A path, the bytes themselves, or a binary file that is open for reading.
Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO"

MAGIC = b"MILLROWS"
VERSION = 1
_HEAD_BYTES = 8
_lengths = struct.Struct("<II")
_decode_json = json.JSONDecoder().decode

# Little-endian, whatever this machine is.
_dtypes = {name: np.dtype(name).newbyteorder("<") for name in ("int32", "float32", "uint8", "int16")}
# The arrays of JSON lines, which do not name their types.
_json_dtypes = {"ids": "int32", "mask": "uint8", "logprobs": "float32", "promptIds": "int32"}


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
                raise NotRows(f"rows of version {version}, and this reads version {VERSION}; update millrace")
            self._expects = "frame"
            return None
        if data == MAGIC:
            # Files can be joined, and a server begins each group anew; but what went before must have ended.
            if self._last not in (None, "end", "group"):
                raise CutOff("the rows before a further head have no `end`: that part was cut off")
            self._expects = "version"
            return None
        if self._expects == "magic":
            raise NotRows("no rows: neither the binary form nor JSON lines begins like this")
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
                raise CutOff(f"{self._name}: {error.message}; export it again") from None
        except NotRows as error:
            raise NotRows(f"{self._name}: {error.message}") from None

    @staticmethod
    def _rows_of(source: Source) -> Iterator[Row]:
        if isinstance(source, (bytes, bytearray, memoryview)):
            view = memoryview(source).cast("B")
            _refuse_others(view[:_HEAD_BYTES])
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
        _refuse_others(head)
        first = bytes(head) + (b"" if b"\n" in head else file.readline())
        yield from _json_lines(_chain_lines(first, file))
        return
    decoder = FrameDecoder()
    decoder.take(head)
    while data := _read_exactly(file, decoder.needs):
        if len(data) < decoder.needs:
            raise CutOff("it ends in the middle of a row")
        row = decoder.take(data)
        if row is not None:
            yield row
    if not decoder.is_whole:
        raise CutOff("it has no `end` row")


def _refuse_others(head: bytes | bytearray | memoryview) -> None:
    """What begins like neither form that this reads: the first bytes of a head, and Parquet."""
    if head[:4] == b"PAR1":
        raise NotRows("a Parquet file: read it with pandas.read_parquet or polars.read_parquet")
    if len(head) < _HEAD_BYTES and MAGIC.startswith(head):
        raise CutOff("it ends before its first row")


def _binary_view(view: memoryview) -> Iterator[Row]:
    decoder = FrameDecoder()
    place = 0
    while place < len(view):
        data = view[place : place + decoder.needs]
        if len(data) < decoder.needs:
            raise CutOff("it ends in the middle of a row")
        place += len(data)
        row = decoder.take(data)
        if row is not None:
            yield row
    if not decoder.is_whole:
        raise CutOff("it has no `end` row")


def _json_lines(lines: Iterator[bytes] | list[bytes]) -> Iterator[Row]:
    last: str | None = None
    for number, line in enumerate(lines, 1):
        try:
            row = row_of_json(line)
        except (ValueError, TypeError, AttributeError, KeyError):
            if line.startswith(b"{") and not line.endswith(b"\n"):
                raise CutOff("it ends in the middle of a row") from None
            raise NotRows(f"line {number} is not a row as JSON") from None
        last = row.kind
        yield row
    if last != "end":
        raise CutOff("it has no `end` row")


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
