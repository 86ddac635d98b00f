"""Tables of text as people and other programs write them, read through the command line and the functions of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

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
