"""Reads Parquet files of rows with every reader that docs/export.md names. Each value must be that of the binary form."""

import json
import math
import pathlib
import sys
import traceback

import datasets
import numpy
import pandas
import polars
import pyarrow.parquet

FOLDER = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "clients" / "python" / "src"))
from millrace import read_rows  # noqa: E402

ARRAYS = {"ids": "int32", "promptIds": "int32", "mask": "uint8", "logprobs": "float32"}
JSON_TEXT = ("rewards", "sampling", "usage", "more")


def with_pyarrow(path):
    table = pyarrow.parquet.read_table(path)
    rows = table.drop_columns([name for name in table.column_names if name in ARRAYS]).to_pylist()
    for name in ARRAYS:
        if name not in table.column_names:
            continue
        for row, value in zip(rows, table[name]):
            row[name] = value.values.to_numpy() if value.is_valid else None
    return rows


def with_pandas(path):
    return pandas.read_parquet(path).to_dict("records")


def with_polars(path):
    frame = polars.read_parquet(path)
    rows = frame.drop([name for name in frame.columns if name in ARRAYS]).to_dicts()
    for name in ARRAYS:
        if name not in frame.columns:
            continue
        for row, value in zip(rows, frame[name]):
            row[name] = None if value is None else value.to_numpy()
    return rows


def with_datasets(path):
    cache = str(FOLDER / "cache")
    rows = datasets.load_dataset("parquet", data_files=str(path), split="train", cache_dir=cache)
    kinds = {name: rows.features[name].feature.dtype for name in ARRAYS if name in rows.features}
    assert kinds == {name: ARRAYS[name] for name in kinds}, kinds
    # Its rows are plain Python; the type of a column is in its features.
    return [
        {
            name: numpy.array(value, kinds[name]) if name in kinds and value is not None else value
            for name, value in row.items()
        }
        for row in rows
    ]


def plain(value, name=""):
    """A value as in the binary form. A missing one is None: pandas says NaN, None or NaT."""
    if name in ARRAYS:
        return None if value is None or isinstance(value, float) else (str(value.dtype), value.tobytes())
    if isinstance(value, numpy.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [plain(each) for each in value]
    if name == "routedExperts" and value is not None and not isinstance(value, float):
        return (value["dtype"], value["data"])
    if isinstance(value, dict):
        fields = {field: plain(part, field) for field, part in value.items()}
        return {field: part for field, part in fields.items() if part is not None}
    if value is None or value is pandas.NaT or (isinstance(value, float) and math.isnan(value)):
        return None
    if name in JSON_TEXT and isinstance(value, str):
        return plain(json.loads(value))
    if name == "at" and not isinstance(value, int):
        return round(value.timestamp() * 1000)
    return value


def expected_row(row):
    fields = {**row.fields, **row.arrays}
    experts = fields.get("routedExperts")
    if experts is not None:
        fields["routedExperts"] = {"dtype": str(experts.dtype), "data": experts.tobytes()}
    return plain(fields)


def check(reader, path, expected):
    rows = [plain(row) for row in reader(path)]
    assert len(rows) == len(expected), f"{len(rows)} rows of {len(expected)}"
    for index, (row, other) in enumerate(zip(rows, expected)):
        for name in row.keys() | other.keys():
            assert row.get(name) == other.get(name), f"row {index}, {name}: {row.get(name)} is not {other.get(name)}"
    arrays = sum(name in ARRAYS for row in rows for name in row)
    return f"{len(rows)} rows, {arrays} arrays"


failed = passed = 0
for path in sorted(FOLDER.glob("*.parquet")):
    in_binary = read_rows(path.with_suffix(".binary"))
    expected = [expected_row(row) for row in in_binary]
    in_metadata = pyarrow.parquet.read_metadata(path).metadata[b"millrace.end"]
    assert json.loads(in_metadata) == in_binary.end, in_metadata
    for reader in (with_pyarrow, with_pandas, with_polars, with_datasets):
        name = f"{path.stem}, {reader.__name__.replace('_', ' ')}"
        try:
            print(f"  ok      {name}: {check(reader, path, expected)}", flush=True)
            passed += 1
        except Exception:
            print(f"  FAILED  {name}\n{traceback.format_exc()}", flush=True)
            failed += 1
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
