"""Labels to class codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.errors import DataError, UsageError
from streamsvm.store.format.labels import Census, Positive, Threshold, label_coder, label_text


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
def test_label_text(label: Any, text: str) -> None:
    assert label_text(label) == text


@given(st.lists(st.lists(st.sampled_from([-1.0, 1.0, 2.0, 3.5, 1e6, -7.0]), min_size=1, max_size=20), min_size=1))
def test_codes_stand_for_their_labels(batches: list[list[float]]) -> None:
    census, seen = Census(), []
    for batch in batches:
        codes = census.codes(np.array(batch))
        assert codes.dtype == np.int32
        assert [census.classes[code] for code in codes] == [label_text(label) for label in batch]
        seen += batch
    assert census.classes == list(dict.fromkeys(label_text(label) for label in seen))
    assert census.counts == [sum(label_text(s) == c for s in seen) for c in census.classes]


@given(st.lists(st.lists(st.sampled_from(["a", "bb", "normal.", "Z"]), min_size=1, max_size=20), min_size=1))
def test_text_labels(batches: list[list[str]]) -> None:
    census = Census()
    for batch in batches:
        assert [census.classes[code] for code in census.codes(np.array(batch))] == batch


def test_text_that_means_the_same_number_is_one_class() -> None:
    census = Census()
    assert census.codes(np.array(["+1", "1", "-1", "1.0"])).tolist() == [0, 0, 1, 0]
    assert census.table() == ("1", "-1")


def fails(code: str, message: str) -> Any:
    return pytest.raises(DataError, match=rf"error\[{code}\]: .*{message}")


def test_refusals() -> None:
    with fails("E-LABEL", "all 3 rows have the label '1'"):  # S56
        census = Census()
        census.codes(np.ones(3))
        census.table()
    with fails("E-LABEL", "looks like regression"):  # S30
        Census().codes(np.arange(1001.0))
    with fails("E-LABEL", "NaN"):
        Census().codes(np.array([1, np.nan]))
    with fails("E-LABEL", "too large"):  # S29
        Census().codes(np.array([1, 1e300]))
    with fails("E-LABEL", "empty"):
        Census().codes(np.array(["a", " "]))


def test_a_nan_after_known_labels_is_refused() -> None:
    census = Census()
    census.codes(np.array([1.0, 2.0]))
    with fails("E-LABEL", "NaN"):
        census.codes(np.array([1.0, np.nan]))


def test_numbers_and_text_do_not_mix() -> None:
    census = Census()
    census.codes(np.array([1.0, 2.0]))
    with fails("E-LABEL", "others text"):
        census.codes(np.array(["a"]))


def test_one_class_against_the_rest() -> None:
    coder = Positive("2.0")
    assert coder.codes(np.array([1.0, 2.0])).tolist() == [0, 1]
    assert coder.codes(np.array([3.0, 2.0])).tolist() == [0, 1]
    assert coder.table() == ("rest", "2")
    absent = Positive("9")
    absent.codes(np.array([1.0, 2.0]))
    with fails("E-LABEL", "no row has the label '9'"):
        absent.table()


def test_threshold() -> None:
    coder = Threshold(15)
    assert coder.codes(np.array([14.0, 15.0, -3.0])).tolist() == [0, 1, 0]
    assert coder.table() == ("<15", ">=15")
    one_side = Threshold(100)
    one_side.codes(np.array([1.0]))
    with fails("E-LABEL", "all 1 labels are <100"):
        one_side.table()
    with fails("E-LABEL", "text"):
        Threshold(1).codes(np.array(["a"]))
    with fails("E-LABEL", "NaN"):
        Threshold(1).codes(np.array([np.nan]))


def test_which_coder() -> None:
    assert isinstance(label_coder(None, None), Census)
    assert isinstance(label_coder("1", None), Positive)
    assert isinstance(label_coder(None, 0.0), Threshold)
    with pytest.raises(UsageError):
        label_coder("1", 0.0)
