"""Which solver auto chooses, on both sides of every bound, and the bytes that decide it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import streamsvm as sv
from streamsvm.jobs.fit import solver as solver_choice
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.fit.solver import SAMPLE_SHARE, SAMPLED_COLUMNS, WHOLE_SHARE, choose_for_columns
from streamsvm.schedule.budget import MIB
from streamsvm.types import Layout

LIMIT = 1024 * MIB
LAYOUT = Layout(6, (10, 30), (25, 72), ("a", "b", "c"), (3, 14, 23))


def layout_of(weights: int, *, dense: bool) -> Layout:
    return replace(LAYOUT, columns=weights - 1, nonzeros=None if dense else (25, 72))


@pytest.mark.parametrize(
    ("weights", "dense", "whole", "sample", "expected"),
    [
        (7, True, WHOLE_SHARE, 9.0, "all rows fit"),
        (7, True, 0.81, SAMPLE_SHARE, "in few passes"),
        (7, True, 0.81, 0.51, "would take 522MiB of 1024MiB"),
        (SAMPLED_COLUMNS, True, 0.81, 0.5, "in few passes"),
        (SAMPLED_COLUMNS + 1, True, 0.81, 0.0, "all rows in memory would take 829MiB of 1024MiB"),
        (SAMPLED_COLUMNS, False, 0.81, 0.51, "would take"),
        (SAMPLED_COLUMNS + 1, False, 0.81, WHOLE_SHARE, "as large as the memory has room for"),
        (SAMPLED_COLUMNS + 1, False, 0.81, 0.81, "would take"),
        (10**6, True, WHOLE_SHARE, 9.0, "all rows fit"),
    ],
)
def test_solver_choice_second_order_is_chosen_where_it_fits(
    weights: int, dense: bool, whole: float, sample: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``whole``, ``sample``: shares of the memory that second order takes with all rows, and with the smallest sample."""
    taken = {False: whole * LIMIT, True: sample * LIMIT}
    monkeypatch.setattr(solver_choice, "_second_order_bytes", lambda _job, _layout, *, sample: taken[sample])
    monkeypatch.setattr(solver_choice.budget, "memory_limit", lambda _: LIMIT)
    name, why = choose_for_columns(FitJob("s", "m"), layout_of(weights, dense=dense))
    assert expected in why
    assert name == ("dcd" if "would take" in why else "newton")
    assert ("40 rows" in why) == ("second order would" not in why)


@pytest.mark.parametrize(
    ("dense", "columns", "settings", "short"),
    [
        (True, SAMPLED_COLUMNS, {"sample": 5}, True),
        (True, SAMPLED_COLUMNS - 1, {"sample": 5}, False),
        (True, SAMPLED_COLUMNS, {"sample": None}, False),
        (True, SAMPLED_COLUMNS, {}, False),
        (False, SAMPLED_COLUMNS, {"sample": 5}, False),
    ],
)
def test_solver_choice_dense_rows_of_many_columns_are_all_needed(
    dense: bool, columns: int, settings: dict[str, int | None], short: bool
) -> None:
    assert solver_choice.is_short_of_rows(layout_of(columns + 1, dense=dense), settings) == short


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
def test_solver_choice_few_rows_of_many_columns_take_no_cubic_time(loss: str, tmp_path: Path) -> None:
    """A matrix of all columns took seconds at 2,000 of them, and minutes at 5,000; both fits take some hundredths of a second."""
    draw = np.random.default_rng(0)
    spent = []
    for columns in (300, 3000, 3000):  # the first compiles
        sv.ingest(
            draw.normal(size=(60, columns)).astype(np.float32),
            str(tmp_path / "s.zarr"),
            y=np.arange(60) % 2,
            overwrite=True,
        )
        began = time.process_time()
        model = sv.fit(str(tmp_path / "s.zarr"), str(tmp_path / "m.ssvm"), loss=loss, overwrite=True).model
        spent.append(time.process_time() - began)
        assert model.provenance["status"] == "converged"
    assert min(spent[1:]) < 1.5
