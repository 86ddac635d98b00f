"""Rows held out for testing: by class, by group, by time; by the data and the seed alone."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.errors import DataError, StreamSVMError, UsageError
from streamsvm.jobs.ingest.hold_out import HoldOut
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.rows import in_layout
from streamsvm.store import open_store, read_chunk
from tests.axes import each_value

ROWS = [
    {
        "x": k,
        "who": f"user {k * 7919 % 40}",
        "day": f"20{10 + k // 100}-0{1 + k % 9}-1{k % 10}",
        "year": 2010 + k // 100,
        "y": "rare" if k % 20 == 0 else "often",
    }
    for k in range(1000)
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text(
            "\n".join(",".join(map(str, row)) for row in [list(rows[0]), *(r.values() for r in rows)]) + "\n"
        )
    return path


def parts(path: Path, **options: Any) -> tuple[list[int], list[int], Any]:
    """The values of x in the store and in the test store."""
    settings: dict[str, Any] = {"label": "y", "drop": ("day",), "overwrite": True} | options
    result = ingest(IngestJob(sources=(path,), store=path.parent / "s.zarr", **settings))
    test = None if result.test_store is None else Path(result.test_store)
    return numbers(Path(result.store)), numbers(test), result


def numbers(root: Path | None) -> list[int]:
    assert root is not None
    store = open_store(root)
    buffers, found = store.buffers(), []
    for chunk in range(len(store.layout.chunks)):
        rows = in_layout(read_chunk(store, chunk, buffers).X, sparse=False, columns=store.layout.columns)
        found += rows.values[:, 0].astype(int).tolist()
    return found


@given(
    codes=st.lists(st.integers(0, 3), max_size=600),
    cuts=st.lists(st.integers(0, 600), max_size=5),
    share=st.sampled_from([0.1, 0.25, 0.333, 0.5]),
)
def test_hold_out_strata_are_the_same_however_the_rows_are_cut(codes: list[int], cuts: list[int], share: float) -> None:
    rows, places = np.array(codes, np.int32), sorted({0, len(codes), *(c for c in cuts if c < len(codes))})
    whole = HoldOut(3, share, stratify=True).choose(0, rows, None)
    pieces = HoldOut(3, share, stratify=True)
    found = [pieces.choose(a, rows[a:b], None) for a, b in pairwise(places)]
    assert np.array_equal(np.concatenate(found) if found else whole[:0], whole)
    for code in np.unique(rows):
        count = np.count_nonzero(rows == code)
        whole_strata = count // 100 * 100
        chosen = whole[rows == code]
        assert np.count_nonzero(chosen[:whole_strata]) == np.floor(whole_strata * share + 0.5)


def test_hold_out_every_class_has_its_share(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ROWS * 4)
    _, held, result = parts(path, test_fraction=0.25, stratify=True)
    rare = sum(x % 20 == 0 for x in held)
    assert (rare, len(held)) == (50, 1000)
    assert open_store(result.store).facts["test"] == {"fraction": 0.25, "seed": 0, "stratify": True}
    assert parts(path, test_fraction=0.25, stratify=True)[1] == held
    assert parts(path, test_fraction=0.25, stratify=True, seed=1)[1] != held


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_hold_out_group_is_never_divided(tmp_path: Path, form: str) -> None:
    path = write(tmp_path / f"a.{form}", ROWS)
    kept, held, result = parts(path, test_fraction=0.3, split_by="who")
    assert sorted(kept + held) == list(range(1000))
    users = [{ROWS[x]["who"] for x in part} for part in (kept, held)]
    assert not users[0] & users[1]
    assert 0.15 < len(users[1]) / 40 < 0.45
    assert held == parts(write(tmp_path / "b.csv", ROWS), test_fraction=0.3, split_by="who")[1]
    names = open_store(result.store).facts["names"]
    assert names == ["x", "year"]  # the group is no feature


@each_value(
    ("form", ["csv", "parquet", "jsonl"]),
    ("after, first", [("year=2015", 600), ("day=2015-12-31", 600), ("x=749", 750), ("day=2014-05-04 00:00:00", None)]),
)
def test_hold_out_what_is_later_is_for_testing(tmp_path: Path, form: str, after: str, first: int | None) -> None:
    path = write(tmp_path / f"a.{form}", ROWS)
    kept, held, _ = parts(path, split_after=after, drop=())
    if first is None:
        expected = [row["x"] for row in ROWS if str(row["day"]) > "2014-05-04"]
    else:
        expected = list(range(first, 1000))
    assert held == expected
    assert sorted(kept + held) == list(range(1000))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"stratify": True}, UsageError, "--stratify needs --test-fraction"),
        ({"split_by": "who"}, UsageError, "--split-by needs --test-fraction"),
        ({"split_by": "who", "stratify": True, "test_fraction": 0.2}, UsageError, "two ways"),
        ({"split_after": "year=2015", "test_fraction": 0.2}, UsageError, "--test-fraction"),
        ({"split_after": "year"}, UsageError, "COLUMN=VALUE"),
        ({"split_after": "day=soon"}, UsageError, "neither a number nor a date"),
        ({"split_by": "whom", "test_fraction": 0.2}, DataError, "named by --split-by"),
        ({"split_after": "when=3"}, DataError, "named by --split-after"),
        ({"split_after": "year=2050"}, DataError, "all 1000 rows to the store for training"),
        ({"split_after": "year=1999"}, DataError, "all 1000 rows to the test store"),
        ({"split_after": "who=3"}, DataError, "row 1, column 'who'"),
        ({"split_after": "who=2015-01-01"}, DataError, "row 1, column 'who'"),
        ({"split_after": "day=3"}, DataError, "column 'day'"),
    ],
)
def test_hold_out_what_cannot_be_held_out(
    tmp_path: Path, options: dict[str, Any], error: type[StreamSVMError], text: str
) -> None:
    path = write(tmp_path / "a.csv", ROWS)
    with pytest.raises(error, match=text) as caught:
        parts(path, **options)
    assert caught.value.hint
    assert not (tmp_path / "s.zarr").exists()


def test_hold_out_row_without_a_group_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [*ROWS[:7], ROWS[7] | {"who": ""}])
    with pytest.raises(DataError, match="row 8, column 'who': the value is missing"):
        parts(path, test_fraction=0.5, split_by="who")


def test_hold_out_arrays_have_no_columns_to_hold_out_by(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((4, 3)))
    with pytest.raises(UsageError, match="columns have no names"):
        parts(tmp_path / "a.npy", label="last", test_fraction=0.5, split_by="who", drop=())
