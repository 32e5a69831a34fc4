"""Prints the rows of a file as JSON lines: python3 -m millrace train.rows"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from ._errors import MillraceError
from ._row import Row
from ._rows import read_rows


def plain(row: Row) -> dict[str, Any]:
    """A row as JSON: arrays as lists, and null for what JSON cannot say."""
    return {**row.fields, **{name: _finite(array.tolist()) for name, array in row.arrays.items()}}


def _finite(values: Any) -> Any:
    if isinstance(values, list):
        return [_finite(each) for each in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if words in (["-h"], ["--help"]) else 2
    try:
        rows = read_rows(words[0])
        for row in rows:
            print(json.dumps(plain(row), allow_nan=False))
        print(json.dumps(rows.end))
    except (OSError, MillraceError) as error:
        print(error.message if isinstance(error, MillraceError) else error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
