"""
How fast rows are read: python3 bench/rows.py [<file>.rows <file>.jsonl] [--json]

The same rows in the binary form and as JSON lines, read from files by `millrace.read_rows` in turn, several times; the fastest
of each counts. Without files it writes its own: rows of ten turns and 2,000 tokens. `arrays` reads every array of a row;
`fields` also reads what a trainer asks for: whether a row trains, its reward and its advantage. CPU time of this process.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import millrace

ROWS = 400
ROUNDS = 7


def read(path: Path, with_fields: bool) -> tuple[float, int, int]:
    """CPU seconds, tokens and rows."""
    begin = time.process_time()
    tokens = rows = 0
    for row in millrace.read_rows(path):
        rows += 1
        tokens += row.ids.size
        if row.mask.size != row.ids.size or row.logprobs.size != row.ids.size:
            raise AssertionError(f"the arrays of {row} differ in length")
        if with_fields and row.trains and row.advantage is None and row.reward is None:
            raise AssertionError(f"{row} has no reward")
    return time.process_time() - begin, tokens, rows


def compare(binary: Path, lines: Path) -> dict[str, dict[str, float]]:
    results = {}
    for name, with_fields in (("arrays", False), ("fields", True)):
        best = {binary: float("inf"), lines: float("inf")}
        counts = set()
        for _ in range(ROUNDS):
            # In turn, so that a busy machine disturbs both.
            for path in best:
                seconds, *count = read(path, with_fields)
                best[path] = min(best[path], seconds)
                counts.add(tuple(count))
        if len(counts) != 1:
            raise AssertionError(f"the two files have other rows: {counts}")
        ((tokens, rows),) = counts
        results[name] = {
            "rows": rows,
            "tokens": tokens,
            "binaryMicrosPerRow": 1e6 * best[binary] / rows,
            "jsonMicrosPerRow": 1e6 * best[lines] / rows,
            "binaryTokensPerSecond": tokens / best[binary],
            "ratio": best[lines] / best[binary],
        }
    return results


def write(folder: Path) -> tuple[Path, Path]:
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from frames import END, binary, json_line, merged

    rows = [merged(f"{index}-0", tokens=2000, turns=10, seed=index) for index in range(ROWS)]
    files = folder / "bench.rows", folder / "bench.jsonl"
    files[0].write_bytes(binary(*rows, END))
    files[1].write_bytes(b"".join(map(json_line, [*rows, END])))
    return files


def main(words: list[str]) -> None:
    files = [Path(word) for word in words if not word.startswith("-")]
    with tempfile.TemporaryDirectory() as folder:
        binary, lines = (files[0], files[1]) if files else write(Path(folder))
        results = compare(binary, lines)
    if "--json" in words:
        print(json.dumps(results))
        return
    for name, said in results.items():
        print(
            f"{name}: {said['ratio']:.1f} times as fast as JSON lines "
            f"({said['binaryMicrosPerRow']:.1f} and {said['jsonMicrosPerRow']:.1f} us a row, "
            f"{said['binaryTokensPerSecond'] / 1e6:.0f} million tokens a second)"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
