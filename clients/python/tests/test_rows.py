from __future__ import annotations

import gzip
import io
import pickle
import tempfile
import unittest
from pathlib import Path
from typing import Any

import numpy as np
from frames import END, HEAD, binary, frame, json_line, merged

import millrace
from millrace.__main__ import plain

ROWS = [merged(f"{index}-0", tokens=40 + index, seed=index) for index in range(3)]


class Slow(io.RawIOBase):
    """A file that gives at most three bytes at a time, as a pipe may."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self._file.read(min(size, 3) if size >= 0 else 3)


def as_json(rows: list[Any]) -> bytes:
    return b"".join(json_line(row) for row in rows)


class ReadRows(unittest.TestCase):
    def expect_rows(self, found: list[millrace.Row], expected: list[dict[str, Any]]) -> None:
        self.assertEqual(len(found), len(expected))
        for row, sent in zip(found, expected, strict=True):
            for name in ("ids", "mask", "logprobs"):
                array = getattr(row, name)
                self.assertEqual(array.dtype, sent[name].dtype)
                np.testing.assert_array_equal(array, sent[name])
            rest = {name: value for name, value in sent.items() if name not in ("ids", "mask", "logprobs")}
            self.assertEqual(row.fields, rest)

    def test_every_source_and_form_gives_the_same_rows(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name, data in {"rows": binary(*ROWS, END), "jsonl": as_json([*ROWS, END])}.items():
                path = Path(folder, name)
                path.write_bytes(data)
                packed = io.BytesIO(gzip.compress(data))
                sources: list[Any] = [
                    path,
                    str(path),
                    data,
                    bytearray(data),
                    memoryview(data),
                    io.BytesIO(data),
                    Slow(data),
                ]
                if name == "jsonl":
                    sources.pop()
                for source in [*sources, gzip.open(packed)]:
                    rows = millrace.read_rows(source)
                    self.expect_rows(list(rows), ROWS)
                    self.assertEqual(rows.end, END)
                with open(path, "rb", buffering=0) as file:
                    self.expect_rows(list(millrace.read_rows(file)), ROWS)

    def test_arrays_are_views_of_what_was_read(self) -> None:
        data = bytearray(binary(*ROWS, END))
        for row in millrace.read_rows(data):
            for array in row.arrays.values():
                self.assertTrue(np.shares_memory(array, np.frombuffer(data, np.uint8)))

    def test_arrays_of_a_file_can_be_written(self) -> None:
        (row,) = millrace.read_rows(io.BytesIO(binary(ROWS[0], END)))
        self.assertTrue(all(array.flags.writeable and array.flags.aligned for array in row.arrays.values()))

    def test_attributes_are_the_fields(self) -> None:
        (row,) = millrace.read_rows(binary(merged("1-2", sample=2, parent="1-0", splitAt={"token": 3}), END))
        self.assertEqual((row.kind, row.session, row.parent, row.sample), ("merged", "1-2", "1-0", 2))
        self.assertEqual((row.reward, row.advantage, row.outcome, row.truncated), (1.0, 0.5, "completed", False))
        self.assertEqual(row.split_at, {"token": 3})
        self.assertEqual(row.rewards["correct"]["score"], 1)
        self.assertEqual(row.versions, [millrace.VersionRun(None, 6), millrace.VersionRun("7", 2)])
        first, second = row.samples
        self.assertEqual((first.start, first.count, second.return_, second.trains), (2, 2, 1.0, True))
        self.assertEqual(row.mask[second.place].tolist(), [1, 1])
        self.assertEqual(len(row), 8)
        self.assertTrue(row.trains)
        self.assertIn("trained=4", repr(row))

    def test_rows_without_arrays_have_empty_ones(self) -> None:
        empty = {"kind": "empty", "session": "0-1", "reward": None, "outcome": "model_error", "lost": 1}
        (row,) = millrace.read_rows(binary(empty, END))
        self.assertEqual((len(row), row.mask.size, row.logprobs.size, row.routed_experts), (0, 0, 0, None))
        self.assertFalse(row.trains)
        self.assertTrue(row)
        self.assertEqual((row.outcome, row.fields["lost"], row.arrays), ("model_error", 1, {}))

    def test_interactions_have_messages_and_experts(self) -> None:
        experts = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
        arrays = {"promptIds": np.arange(5, dtype=np.int32), "ids": np.arange(2, dtype=np.int32)}
        sent = {
            "kind": "interaction",
            "messages": [{"role": "user"}],
            "logprobs": None,
            **arrays,
            "routedExperts": experts,
        }
        encoded = {"shape": [2, 3, 4], "dtype": "uint8", "data": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"}
        for source in (binary(sent, END), as_json([{**sent, "routedExperts": encoded}, END])):
            (row,) = millrace.read_rows(source)
            self.assertEqual((row.messages, row.prompt_ids.tolist()), ([{"role": "user"}], [0, 1, 2, 3, 4]))
            self.assertIsNotNone(row.routed_experts)
            np.testing.assert_array_equal(np.asarray(row.routed_experts), experts)
            self.assertEqual(set(row.arrays), {"promptIds", "ids", "routedExperts"})

    def test_a_file_that_is_cut_anywhere_raises_cut_off_after_its_good_rows(self) -> None:
        for whole in (binary(ROWS[0], ROWS[1], END), as_json([ROWS[0], ROWS[1], END])):
            ends = [len(binary(*ROWS[:count])) for count in (0, 1, 2)]
            if whole[:1] == b"{":
                ends = [len(as_json(ROWS[:count])) for count in (0, 1, 2)]
            for length in range(len(whole) - 1):
                for source in (whole[:length], io.BytesIO(whole[:length])):
                    found = []
                    with self.assertRaisesRegex(millrace.CutOff, "export it again"):
                        for row in millrace.read_rows(source):
                            found.append(row)
                    # The last line of JSON may lack its end of line.
                    slack = 1 if whole[:1] == b"{" else 0
                    self.assertEqual(len(found), sum(length + slack >= end for end in ends[1:]))
                    allowed = millrace.read_rows(whole[:length], allow_cut_off=True)
                    self.assertEqual(len(list(allowed)), len(found))
                    self.assertIsNone(allowed.end)

    def test_files_can_be_joined_if_each_is_whole(self) -> None:
        part = binary(ROWS[0], END)
        self.assertEqual(len(list(millrace.read_rows(part + part))), 2)
        self.assertEqual(len(list(millrace.read_rows(part + frame(ROWS[1]) + frame(END)))), 2)
        with self.assertRaises(millrace.CutOff):
            list(millrace.read_rows(binary(ROWS[0]) + part))

    def test_other_files_are_named(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "data.bin")
            for data in (b"PK\x03\x04 something else", b"no rows\n", b"[1]\n", b"\xff\n"):
                path.write_bytes(data)
                with self.assertRaisesRegex(millrace.NotRows, "data.bin"):
                    list(millrace.read_rows(path))
        with self.assertRaisesRegex(millrace.NotRows, "version 2"):
            list(millrace.read_rows(HEAD[:8] + b"\x02" + HEAD[9:]))

    def test_a_parquet_file_is_named_with_its_readers(self) -> None:
        data = b"PAR1\x15\x04\x15\x10 and so on"
        for source in (data, io.BytesIO(data)):
            with self.assertRaisesRegex(millrace.NotRows, "Parquet.*pandas.*polars"):
                list(millrace.read_rows(source))

    def test_an_interaction_trains_if_its_field_says_so(self) -> None:
        for trains in (True, False):
            (row,) = millrace.read_rows(binary({"kind": "interaction", "trains": trains, "main": True}, END))
            self.assertIs(row.trains, trains)

    def test_a_header_is_read_whatever_its_order_and_texts(self) -> None:
        ids = np.arange(3, dtype=np.int32)
        tricky = ',"arrays":[{"name":"x"}],"samples":[1]'
        sent: list[dict[str, Any]] = [
            {"kind": "merged", "task": tricky, "samples": [{"interaction": tricky}], "last": tricky, "ids": ids},
            {"kind": "merged", "tree": {"a": 1, "samples": [2], "b": 3}, "task": "t", "ids": ids},
            {"task": "first", "kind": "merged", "ids": ids},
            {"kind": "merged", "samples": [], "z": {"a": 1, "arrays": [1]}},
            {"kind": "merged", "z": {"a": 1, "arrays": []}, "ids": ids},
        ]
        for each in sent:
            row = millrace.read_rows(binary(each, END)).__next__()
            self.assertEqual(row.task, each.get("task"))
            self.assertEqual(row.fields, {name: value for name, value in each.items() if name != "ids"})
            self.assertEqual(row.ids.tolist(), [0, 1, 2] if "ids" in each else [])
        # The list of arrays need not be the last field.
        whole = frame({"kind": "merged", "ids": ids})
        header = b'{"kind":"merged","arrays":[{"name":"ids","type":"int32","shape":[3],"offset":0}],"task":"t"}'
        header += b" " * (-len(header) % 8)
        data = HEAD + len(header).to_bytes(4, "little") + whole[4:8] + header + whole[-16:] + frame(END)
        (row,) = millrace.read_rows(data)
        self.assertEqual((row.task, row.ids.tolist()), ("t", [0, 1, 2]))

    def test_rows_can_be_sent_to_other_processes(self) -> None:
        (row,) = millrace.read_rows(binary(ROWS[0], END))
        copy = pickle.loads(pickle.dumps(row))
        self.expect_rows([copy], [ROWS[0]])
        (empty,) = millrace.read_rows(binary({"kind": "empty", "session": "0-1"}, END))
        self.assertEqual(pickle.loads(pickle.dumps(empty)).arrays, {})

    def test_errors_can_be_sent_to_other_processes(self) -> None:
        error = millrace.Overloaded("full", code="overloaded", status=429, data={"queued": 3}, retry_after=2)
        copy = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(copy), type(copy)), ("[overloaded] full", millrace.Overloaded))
        self.assertEqual((copy.status, copy.data, copy.retry_after), (429, {"queued": 3}, 2))

    def test_leaving_early_closes_the_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "train.rows")
            path.write_bytes(binary(*ROWS, END))
            with millrace.read_rows(path) as rows:
                next(rows)
            self.assertEqual(list(rows), [])
            for _ in millrace.read_rows(path):
                break

    def test_rows_print_as_json(self) -> None:
        sent = merged("0-0", logprobs=np.array([0, np.nan, -1, 0, 0, 0, 0, 0], np.float32))
        (row,) = millrace.read_rows(binary(sent, END))
        printed = plain(row)
        self.assertEqual(printed["logprobs"][:3], [0, None, -1])
        self.assertEqual((printed["ids"], printed["samples"]), (sent["ids"].tolist(), sent["samples"]))


class Batch(unittest.TestCase):
    def rows(self, *lengths: int, **fields: Any) -> list[millrace.Row]:
        return list(millrace.read_rows(binary(*(merged(tokens=each, seed=each, **fields) for each in lengths), END)))

    def test_rows_are_padded_on_the_right(self) -> None:
        short, long = self.rows(8, 12)
        batch = millrace.batch([short, long], pad_id=9)
        types = {
            "ids": "int32",
            "mask": "float32",
            "logprobs": "float32",
            "advantages": "float32",
            "attention": "int32",
        }
        for name, array in dict[str, Any](batch).items():
            self.assertEqual((array.shape, array.dtype.name), ((2, 12), types.pop(name)))
        self.assertEqual(types, {})
        self.assertEqual(batch["ids"][0].tolist(), [*short.ids.tolist(), 9, 9, 9, 9])
        self.assertEqual(batch["attention"].sum(axis=1).tolist(), [8, 12])
        np.testing.assert_array_equal(batch["mask"][1], long.mask)
        np.testing.assert_array_equal(batch["logprobs"][1], long.logprobs)
        np.testing.assert_array_equal(batch["advantages"], batch["mask"] * 0.5)

    def test_the_length_can_be_rounded_or_fixed(self) -> None:
        rows = self.rows(8, 12)
        self.assertEqual(millrace.batch(rows, multiple_of=16)["ids"].shape, (2, 16))
        self.assertEqual(millrace.batch(rows, length=20)["ids"].shape, (2, 20))
        with self.assertRaisesRegex(millrace.InvalidArgument, "12 tokens"):
            millrace.batch(rows, length=10)

    def test_rows_to_train_without_an_advantage_are_refused(self) -> None:
        rows = self.rows(8) + self.rows(8, advantage=None, session="7-1")
        with self.assertRaisesRegex(ValueError, '7-1.*advantage="grpo"'):
            millrace.batch(rows)
        self.assertGreater(millrace.batch(self.rows(8, advantage=0))["mask"].sum(), 0)
        # A row that trains nothing needs none.
        untrained = self.rows(8, advantage=None, mask=np.zeros(8, np.uint8))
        self.assertEqual(millrace.batch([*rows[:1], *untrained])["advantages"][1].tolist(), [0] * 8)

    def test_advantages_of_ones_own_count_instead(self) -> None:
        rows = self.rows(8, 12, advantage=None)
        batch = millrace.batch(rows, advantages=[2, -1])
        np.testing.assert_array_equal(batch["advantages"], batch["mask"] * [[2], [-1]])
        for wrong in ([1.0], [1.0, float("nan")], np.ones((2, 12)), 1.0):
            with self.assertRaisesRegex(millrace.InvalidArgument, "each of the 2 rows"):
                millrace.batch(rows, advantages=wrong)  # type: ignore[arg-type]

    def test_rows_that_cannot_be_trained_are_refused(self) -> None:
        for row in millrace.read_rows(binary({"kind": "empty"}, {"kind": "interaction"}, END)):
            with self.assertRaisesRegex(ValueError, 'rows="merged".*row.trains'):
                millrace.batch([row])
        with self.assertRaisesRegex(millrace.InvalidArgument, "no rows to batch"):
            millrace.batch([])


if __name__ == "__main__":
    unittest.main()
