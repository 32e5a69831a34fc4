"""Reads the binary form of an export (docs/export.md). Needs the standard library only; arrays are NumPy's if it is there.

    from millrace_rows import read_rows
    for row in read_rows("train.rows"):
        print(row["session"], row["reward"], row["ids"], row["mask"])

Run as a program, it prints the rows as JSON lines: python3 millrace_rows.py train.rows
"""

import array
import json
import math
import struct
import sys

try:
    import numpy
except ImportError:
    numpy = None

MAGIC = b"MILLROWS"
VERSION = 1
TYPE_CODES = {"int32": "i", "float32": "f", "uint8": "B", "int16": "h"}


class CutOff(Exception):
    """The file ends in the middle: what came before is good, the rest is missing."""

    def __init__(self, path):
        super().__init__(f"{path} was cut off; export it again")


class NoRows(ValueError):
    """The file is something else."""


def read_rows(path):
    """Every row as a dictionary, one at a time. The last one of each export has the kind "end"."""
    with open(path, "rb") as file:
        is_begun = False
        while head := file.read(8):
            if not is_begun and head != MAGIC:
                raise NoRows(f"{path} is no file of rows; export with --format binary (JSON lines need no reader)")
            is_begun = True
            if head == MAGIC:
                (version, _) = struct.unpack("<II", exactly(file, 8))
                if version != VERSION:
                    raise ValueError(f"{path} is of version {version}; this reads version {VERSION}")
                continue
            if len(head) < 8:
                raise CutOff(path)
            header_bytes, array_bytes = struct.unpack("<II", head)
            row = json.loads(exactly(file, header_bytes))
            body = exactly(file, array_bytes)
            for entry in row.pop("arrays"):
                row[entry["name"]] = read_array(body, entry)
            yield row


def read_array(body, entry):
    count = math.prod(entry["shape"])
    if numpy is not None:
        little = numpy.dtype(entry["type"]).newbyteorder("<")
        return numpy.frombuffer(body, little, count, entry["offset"]).reshape(entry["shape"])
    values = array.array(TYPE_CODES[entry["type"]])
    values.frombytes(body[entry["offset"] : entry["offset"] + count * values.itemsize])
    if sys.byteorder == "big":
        values.byteswap()
    return values


def exactly(file, count):
    data = file.read(count)
    if len(data) < count:
        raise CutOff(file.name)
    return data


def plain(value):
    """Arrays as lists, and what JSON cannot say as null."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def main(path):
    for row in read_rows(path):
        print(json.dumps(plain(row), allow_nan=False))


def run(program, usage, most_files=1):
    """Runs a program that takes files: says how it is used, and what is wrong with a file, without a traceback."""
    files = sys.argv[1:]
    if not 1 <= len(files) <= most_files or files[0] in ("-h", "--help"):
        print(usage.strip())
        raise SystemExit(0 if files in (["-h"], ["--help"]) else 2)
    try:
        program(*files)
    except (OSError, NoRows, CutOff) as problem:
        raise SystemExit(str(problem))


if __name__ == "__main__":
    run(main, __doc__)
