"""Per-row state is the same numbers whether it lives in memory or in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.engine.row_state import RowStates
from streamsvm.errors import DataError, StorageError
from streamsvm.types import Layout, RowState


def layout_of(chunks: tuple[int, ...]) -> Layout:
    return Layout(3, chunks, None, ("-1", "1"), (sum(chunks), 0))


def states(
    chunks: tuple[int, ...], problems: int, file: Path | None, dtype: str = "float64", width: int = 1
) -> RowStates:
    return RowStates(RowState("alpha", dtype, width), layout_of(chunks), problems, file, resident=file is None)


@given(
    chunks=st.lists(st.integers(1, 9), min_size=1, max_size=6).map(tuple),
    problems=st.integers(1, 4),
    visits=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2**32 - 1)), max_size=20),
    dtype=st.sampled_from(["float64", "float32"]),
    width=st.integers(1, 3),
)
def test_row_state_memory_and_file_hold_the_same(
    tmp_path_factory: pytest.TempPathFactory, chunks: Any, problems: int, visits: list[Any], dtype: str, width: int
) -> None:
    """Any visits in any order, against a plain dictionary of arrays."""
    path = tmp_path_factory.mktemp("rows") / "alpha"
    in_memory, in_file = (states(chunks, problems, file, dtype, width) for file in (None, path))
    numbers = () if width == 1 else (width,)
    expected = {number: np.zeros((problems, rows, *numbers), dtype) for number, rows in enumerate(chunks)}
    for place, seed in visits:
        number = place % len(chunks)
        new = np.asarray(np.random.default_rng(seed).normal(size=expected[number].shape), dtype)
        for rows in (in_memory, in_file):
            values = rows.load(number)
            np.testing.assert_array_equal(values, expected[number])
            assert values.dtype == dtype
            values[...] = new
            rows.save(number, values)
        expected[number] = new
    for number, values in expected.items():
        np.testing.assert_array_equal(in_memory.load(number), values)
        np.testing.assert_array_equal(in_file.load(number), values)
    in_file.close()


def test_row_state_disk_is_taken_at_the_start_and_not_when_it_is_too_late(tmp_path: Path) -> None:
    rows = states((10, 1000, 10), 2, tmp_path / "alpha")
    assert (tmp_path / "alpha").stat().st_blocks * 512 >= 2 * 1020 * 8
    rows.close()


def test_row_state_full_disk_is_said_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError) as refused:
        states((4, 4), 1, tmp_path / "alpha")
    assert refused.value.code == "E-NOSPACE"
    assert not (tmp_path / "alpha").exists()


@pytest.mark.parametrize("place", [-2, 3, 127])
def test_row_state_checkpoint_that_names_a_place_there_is_not_is_refused(tmp_path: Path, place: int) -> None:
    """In any chunk: the others name what there is."""
    rows = states((4, 4, 4), 1, tmp_path / "alpha")
    rows.protect({"places": np.array([-1, 2, 0])})
    with pytest.raises(DataError, match="does not belong to its checkpoint"):
        rows.protect({"places": np.array([-1, 2, 0])}, {"places": np.array([0, place, -1])})
    rows.close()
