"""Labels to class codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.errors import DataError, UsageError
from streamsvm.store.format.labels import ClassCoder, OneAgainstRestCoder, ThresholdCoder, label_coder, label_text
from streamsvm.store.sources import SourceOptions, open_source
from tests.axes import each_value


@pytest.mark.parametrize(
    ("label", "text"),
    [
        (2.0, "2"),
        (-1.0, "-1"),
        ("+1", "1"),
        ("2.0", "2"),
        (1.5, "1.5"),
        (-0.0, "0"),
        ("normal.", "normal."),
        ("nan", "nan"),
    ],
)
def test_labels_are_written_as_people_write_them(label: Any, text: str) -> None:
    assert label_text(label) == text


@given(st.lists(st.lists(st.sampled_from([-1.0, 1.0, 2.0, 3.5, 1e6, -7.0]), min_size=1, max_size=20), min_size=1))
def test_labels_codes_stand_for_their_labels(batches: list[list[float]]) -> None:
    census, seen = ClassCoder(), []
    for batch in batches:
        codes = census.codes(np.array(batch))
        assert codes.dtype == np.int32
        assert [census.classes[code] for code in codes] == [label_text(label) for label in batch]
        seen += batch
    assert census.classes == list(dict.fromkeys(label_text(label) for label in seen))
    assert census.counts == [sum(label_text(s) == c for s in seen) for c in census.classes]


@given(st.lists(st.lists(st.sampled_from(["a", "bb", "normal.", "Z"]), min_size=1, max_size=20), min_size=1))
def test_labels_of_text_have_codes_that_stand_for_them(batches: list[list[str]]) -> None:
    census = ClassCoder()
    for batch in batches:
        assert [census.classes[code] for code in census.codes(np.array(batch))] == batch


def test_labels_text_that_means_the_same_number_is_one_class() -> None:
    census = ClassCoder()
    assert census.codes(np.array(["+1", "1", "-1", "1.0"])).tolist() == [0, 0, 1, 0]
    assert census.table() == ("1", "-1")


def fails(code: str, message: str) -> Any:
    return pytest.raises(DataError, match=rf"error\[{code}\]: .*{message}")


def test_labels_that_cannot_be_classes_are_refused() -> None:
    with fails("E-LABEL", "all 3 rows have the label '1'"):  # S56
        census = ClassCoder()
        census.codes(np.ones(3))
        census.table()
    with fails("E-LABEL", "looks like regression"):  # S30
        ClassCoder().codes(np.arange(1001.0))
    with fails("E-LABEL", "NaN"):
        ClassCoder().codes(np.array([1, np.nan]))
    with fails("E-LABEL", "stands for several whole numbers"):  # S29
        ClassCoder().codes(np.array([1, 1e300]))
    with fails("E-LABEL", "empty"):
        ClassCoder().codes(np.array(["a", " "]))
    with fails("E-LABEL", "infinite"):
        ClassCoder().codes(np.array([1, np.inf]))


def test_labels_that_are_missing_are_told_with_their_row() -> None:
    census = ClassCoder()
    census.codes(np.array(["a", "b", "a"]))
    with fails("E-LABEL", "row 5 of all rows read: the label is empty"):
        census.codes(np.array(["b", " ", "a", ""]))


def test_labels_nan_after_known_labels_is_refused() -> None:
    census = ClassCoder()
    census.codes(np.array([1.0, 2.0]))
    with fails("E-LABEL", "NaN"):
        census.codes(np.array([1.0, np.nan]))


def test_labels_numbers_and_text_do_not_mix() -> None:
    census = ClassCoder()
    census.codes(np.array([1.0, 2.0]))
    with fails("E-LABEL", "others text"):
        census.codes(np.array(["a"]))


def test_labels_one_class_against_the_rest() -> None:
    coder = OneAgainstRestCoder("2.0")
    assert coder.codes(np.array([1.0, 2.0])).tolist() == [0, 1]
    assert coder.codes(np.array([3.0, 2.0])).tolist() == [0, 1]
    assert coder.table() == ("rest", "2")
    absent = OneAgainstRestCoder("9")
    absent.codes(np.array([1.0, 2.0]))
    with fails("E-LABEL", "no row has the label '9'"):
        absent.table()


def test_labels_are_split_at_a_threshold() -> None:
    coder = ThresholdCoder(15)
    assert coder.codes(np.array([14.0, 15.0, -3.0])).tolist() == [0, 1, 0]
    assert coder.table() == ("<15", ">=15")
    one_side = ThresholdCoder(100)
    one_side.codes(np.array([1.0]))
    with fails("E-LABEL", "all 1 labels are <100"):
        one_side.table()
    with fails("E-LABEL", "text"):
        ThresholdCoder(1).codes(np.array(["a"]))
    with fails("E-LABEL", "NaN"):
        ThresholdCoder(1).codes(np.array([np.nan]))


def test_labels_choose_their_coder() -> None:
    assert isinstance(label_coder(None, None), ClassCoder)
    assert isinstance(label_coder("1", None), OneAgainstRestCoder)
    assert isinstance(label_coder(None, 0.0), ThresholdCoder)
    with pytest.raises(UsageError):
        label_coder("1", 0.0)


BIG = 2**53


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.str_])
def test_labels_whole_numbers_are_exact(dtype: Any) -> None:
    """2^53 and 2^53 + 1 are two classes; as float64 they would be one."""
    census = ClassCoder()
    labels = np.array([BIG, BIG + 1, BIG, BIG + 2], np.uint64).astype(dtype)
    assert census.codes(labels).tolist() == [0, 1, 0, 2]
    assert census.table() == (str(BIG), str(BIG + 1), str(BIG + 2))
    assert census.codes(labels[::-1].copy()).tolist() == [2, 0, 1, 0]


def test_labels_floats_that_stand_for_several_whole_numbers_are_refused() -> None:
    with fails("E-LABEL", "several whole numbers"):
        ClassCoder().codes(np.array([1.0, float(BIG)]))
    assert ClassCoder().codes(np.array([1.0, BIG - 1.0])).tolist() == [0, 1]


def test_labels_are_equal_whatever_kind_of_number_they_are() -> None:
    census = ClassCoder()
    assert census.codes(np.array([1.0, 2.0])).tolist() == [0, 1]
    assert census.codes(np.array([2, 3], np.int64)).tolist() == [1, 2]
    assert census.codes(np.array([3, 1], np.uint64)).tolist() == [2, 0]
    assert census.table() == ("1", "2", "3")


@each_value(("big", [BIG, 2**64 - 2]), ("form", ["csv", "jsonl", "parquet", "npy", "h5"]))
def test_labels_files_with_large_whole_numbers_as_labels(tmp_path: Path, form: str, big: int) -> None:
    path, X = tmp_path / f"a.{form}", np.arange(6.0).reshape(3, 2)
    y = np.array([big, big + 1, big], np.uint64 if big > BIG else np.int64)
    options = SourceOptions(label="y")
    if form == "csv":
        path.write_text("a,y\n" + "".join(f"{x},{label}\n" for x, label in zip(X[:, 0], y, strict=True)))
    elif form == "jsonl":
        path.write_text("".join(f'{{"a": {x}, "y": {label}}}\n' for x, label in zip(X[:, 0], y, strict=True)))
    elif form == "parquet":
        pq.write_table(pa.table({"a": X[:, 0], "y": y}), path)
    elif form == "npy":
        np.save(path, X)
        np.save(tmp_path / "y.npy", y)
        options = SourceOptions(labels=tmp_path / "y.npy")
    else:
        with h5py.File(path, "w") as file:
            file["X"], file["y"] = X, y
        options = SourceOptions()
    census = ClassCoder()
    codes = [census.codes(batch.labels).tolist() for batch in open_source([path], options).batches()]
    assert codes == [[0, 1, 0]]
    assert census.table() == (str(big), str(big + 1))


@pytest.mark.parametrize("rows", [[1, 2**64 - 1], [1, -(2**70)], [2**64 - 1, 2**64], [2**64 - 1, -1]], ids=str)
def test_labels_of_JSON_lines_beyond_64_bits_are_refused_or_exact(tmp_path: Path, rows: list[int]) -> None:
    """An OverflowError once, and exit code 1."""
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"a": 1.5, "y": {label}}}\n' for label in rows))
    if rows == [1, 2**64 - 1]:
        (batch,) = open_source([path], SourceOptions(label="y")).batches()
        assert batch.labels.tolist() == rows
    else:
        with fails("E-RANGE", "does not fit u?int64"):
            list(open_source([path], SourceOptions(label="y")).batches())
