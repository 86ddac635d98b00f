"""Tables of text as people and other programs write them, read through the command line and the functions of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import scipy.sparse
import zarr

import streamsvm as sv
from streamsvm.errors import DataError

DAYS = pd.date_range("2019-01-01", periods=60).strftime("%Y-%m-%d")


def write(path: Path, **columns: Any) -> Path:
    """A table as CSV, Parquet or JSON lines."""
    frame = pd.DataFrame(columns)
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False)
    return path


def ingest(path: Path, **options: Any) -> Any:
    return sv.ingest(path, path.with_suffix(".zarr"), **({"label": "y", "overwrite": True} | options))


def fit(path: Path, **options: Any) -> Any:
    """The model of a table."""
    ingest(path, **options)
    return sv.fit(path.with_suffix(".zarr"), path.with_suffix(".ssvm"), overwrite=True).model


def values_of(store: Path) -> Any:
    """The rows of a store as a matrix."""
    X = zarr.open(str(store), mode="r")["X"]
    if isinstance(X, zarr.Array):
        return X[:]
    return scipy.sparse.csr_array((X["data"][:], X["indices"][:], X["indptr"][:]), X.attrs["shape"]).toarray()


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("wrong", ["2019-02-30", "2019-04-31 10:00", "2019-02-29T10:00:00Z", "0000-01-01"])
def test_a_day_that_no_month_has_is_no_date(tmp_path: Path, form: str, wrong: str) -> None:
    path = write(tmp_path / f"a.{form}", day=[*DAYS[:9], wrong, *DAYS[10:]], y=[0, 1] * 30)
    with pytest.raises(DataError, match=rf"row 10, column 'day': expected a date such as 1997-02-28, found '{wrong}'"):
        ingest(path)


def test_a_day_that_no_month_has_is_none_in_new_rows_either(tmp_path: Path) -> None:
    model = fit(write(tmp_path / "a.csv", day=DAYS, y=[0, 1] * 30))
    assert len(model.decision_function(pd.DataFrame({"day": ["2020-02-29"]}))) == 1
    for wrong in ("2020-02-30", "1900-02-29", "2020-04-31"):
        with pytest.raises(DataError, match="expected a date"):
            model.decision_function(pd.DataFrame({"day": [wrong]}))


def test_years_of_two_digits_are_1930_to_2029_and_are_announced(tmp_path: Path) -> None:
    born = [f"28-Feb-{year:02}" for year in (62, 30, 99, 0, 29, 85)] * 10
    result = ingest(write(tmp_path / "a.csv", born=born, y=[0, 1] * 30))
    assert result.notices == ("60 two-digit years of 'born' are read as 1930 to 2029",)
    years = values_of(tmp_path / "a.zarr")[:6, 0]
    assert (2000 + years).round().tolist() == [1962, 1930, 1999, 2000, 2029, 1985]


CLOCK = pd.date_range("2019-01-01 00:30", periods=60, freq="7h")


@pytest.mark.parametrize("options", [{}, {"calendar": ("t",)}], ids=["date", "calendar"])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_times_with_a_zone_are_the_same_points_in_time_in_every_zone(
    tmp_path: Path, form: str, options: dict[str, Any]
) -> None:
    times = CLOCK.tz_localize("America/New_York")
    model = fit(write(tmp_path / f"a.{form}", t=times, y=(CLOCK.hour < 12).astype(int)), **options)
    expected = model.decision_function(pd.DataFrame({"t": times}))
    for other in (
        times.tz_convert("UTC"),
        times.tz_convert("Asia/Kolkata"),
        times.tz_convert("Asia/Kolkata").astype(str),
    ):
        assert model.decision_function(pd.DataFrame({"t": other})).tolist() == expected.tolist()
    for other in (CLOCK, CLOCK.astype(str)):
        with pytest.raises(DataError, match="'t': the time has no time zone"):
            model.decision_function(pd.DataFrame({"t": other}))


def test_times_with_a_zone_are_refused_where_the_training_had_none(tmp_path: Path) -> None:
    model = fit(write(tmp_path / "a.csv", t=CLOCK, y=(CLOCK.hour < 12).astype(int)))
    times = CLOCK.tz_localize("America/New_York")
    for other in (times, times.astype(str)):
        with pytest.raises(DataError, match="'t': the time has a time zone"):
            model.decision_function(pd.DataFrame({"t": other}))
