"""Columns as people write them - money, percent, dates, yes and no, words - become numbers and categories."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsvm.errors import DataError, UsageError
from streamsvm.rows import to_matrix
from streamsvm.store.sources import SourceOptions, open_source, options_from
from streamsvm.store.sources.schema_inference import recognize_text
from tests.axes import each_value


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["$1,234.50", "€ 20", "-$3", "(12.25)", "1,000 USD"], ("amount", "")),
        (["5 %", "12.5%", "-0.1%"], ("amount", "")),
        (["1,234", "999"], ("amount", "")),
        (["Yes", "no", None], ("boolean", "")),
        (["28-Feb-97", "01-Mar-12"], ("date", "%d-%b-%y")),
        (["1997-02-28", "2012-03-01 17:30:00", "2012-03-01T17:30:00Z"], ("date", "iso")),
        (["13/04/2020", "01/04/2020"], ("date", "%d/%m/%Y")),
        (["04/13/2020", "04/01/2020"], ("date", "%m/%d/%Y")),
        (["03/04/2020", "01/04/2020"], ("category", "")),
        (["red", "green", "7up"], ("category", "")),
        (["1.5", "2.5", "typo"], ("", "")),
        (["1.234,56", "7", "€ 1.000"], ("amount", "decimal-comma")),
        (["1,5", "2,75", "-0,1 %"], ("amount", "decimal-comma")),
        (["1,5", "2.75"], ("", "")),
        (["101.202.303", "1.234"], ("", "")),
        ([None, None], ("", "")),
    ],
)
def test_column_types_are_recognized(texts: list[str | None], kind: tuple[str, str]) -> None:
    assert recognize_text(pa.array(texts, pa.string())) == kind


ROWS: list[tuple[Any, ...]] = [
    ("$1,234.50", "5 %", "yes", "28-Feb-97", "red", 1),
    ("(12)", "-10%", "no", "01-Jan-00", "blue", 2),
    ("€ 7", "0.5%", "Yes", "15-Jul-21", "red", 1),
]
NAMES = ("price", "share", "member", "since", "color", "y")


def write(path: Path, rows: list[tuple[Any, ...]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.table(dict(zip(NAMES, zip(*rows, strict=True), strict=True))), path)
    else:
        path.write_text("\n".join(",".join(f'"{value}"' for value in row) for row in [NAMES, *rows]) + "\n")
    return path


def read(path: Path, **options: Any) -> tuple[dict[str, list[float]], Any]:
    settings: dict[str, Any] = {"label": "y", "recognize": True} | options
    source = open_source([path], options_from(**settings) if "encoding" in settings else SourceOptions(**settings))
    batches = [batch.X for batch in source.batches()]
    assert source.columns is not None
    X = np.concatenate([to_matrix(X, source.columns) for X in batches])
    assert source.names is not None
    return {name: X[:, j].tolist() for j, name in enumerate(source.names)}, source


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_column_types_table_as_people_have_it(tmp_path: Path, form: str) -> None:
    found, source = read(write(tmp_path / f"a.{form}", ROWS))
    assert found["price"] == [1234.5, -12, 7]
    assert found["share"] == pytest.approx([0.05, -0.1, 0.005])
    assert found["member"] == [1, 0, 1]
    days = [(dt.date(*day) - dt.date(2000, 1, 1)).days for day in ((1997, 2, 28), (2000, 1, 1), (2021, 7, 15))]
    assert found["since.years"] == pytest.approx([day / 365.2425 for day in days], abs=1e-5)
    assert found["since.month=2"] == [1, 0, 0]
    assert found["since.weekday=sat"] == [0, 1, 0]
    assert found["color=red"] == [1, 0, 1]
    assert source.proposals == [
        "column 'price': amounts such as '$1,234.50': a number; --column price=KIND says otherwise",
        "column 'share': amounts such as '5 %': a number; --column share=KIND says otherwise",
        "column 'member': yes and no such as 'yes': 1 and 0; --column member=KIND says otherwise",
        "column 'since': dates such as '28-Feb-97': years since 2000, month and day of the week; --column since=KIND says otherwise",
        "column 'color': text, 2 values in 3 rows: one-hot; --column color=hash hashes it",
    ]
    other = write(tmp_path / f"b.{'parquet' if form == 'csv' else 'csv'}", ROWS[:1])
    again, _ = read(other, encoding=source.encoding(), label=None, recognize=False)
    assert again == {name: values[:1] for name, values in found.items()}


@each_value(
    ("form", ["csv", "parquet"]),
    (
        "column, value, expected",
        [("price", "12 apples", "an amount"), ("member", "perhaps", "yes or no"), ("since", "31-Feb-97", "a date")],
    ),
)
def test_column_types_refuse_a_value_of_another_kind(
    tmp_path: Path, form: str, column: str, value: str, expected: str
) -> None:
    encoding = read(write(tmp_path / f"a.{form}", ROWS))[1].encoding()
    row = tuple(value if name == column else cell for name, cell in zip(NAMES, ROWS[0], strict=True))
    with pytest.raises(DataError, match=rf"(row 2|line 3), column '{column}': expected {expected}.*, found '{value}'"):
        read(write(tmp_path / f"b.{form}", [ROWS[1], row]), encoding=encoding, label=None)


def test_column_types_missing_value_is_missing_in_each_kind(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [*ROWS, ("", "", "", "", "red", 1)])
    with pytest.raises(DataError, match="line 5, column 'price': the value is missing"):
        read(path)
    found, _ = read(path, missing="mean")
    assert found["price"][3] == pytest.approx((1234.5 - 12 + 7) / 3)
    assert found["since.month=2"][3] == 0


@each_value(
    ("seconds", ["1e44", "-1e300", "1700000000000", "inf"]),
    ("said", [{"columns_as": ("at=epoch",)}, {"columns_as": ("at=epoch",), "calendar": ("at",)}]),
)
def test_column_types_seconds_that_no_calendar_has_are_refused_with_their_row(
    tmp_path: Path, seconds: str, said: dict[str, Any]
) -> None:
    """Such as milliseconds. Arrow ended with an error of its own where 64 bits do not hold them."""
    pq.write_table(pa.table({"at": [0.0, float(seconds), float("nan")], "y": ["a", "b", "a"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="row 2, column 'at'") as refused:
        read(tmp_path / "a.parquet", missing="zero", **said)
    assert refused.value.code in ("E-RANGE", "E-NONFINITE")


def test_column_types_seconds_that_are_none_are_missing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": [0.0, 946684800.0, float("nan")], "y": ["a", "b", "a"]}), tmp_path / "a.parquet")
    found, _ = read(tmp_path / "a.parquet", missing="zero", columns_as=("at=epoch",))
    assert found["at.years"] == pytest.approx([-30, 0, 0], abs=3e-3)


def test_column_types_what_people_say_of_a_column_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("code,at,size,y\n1,0,1,a\n2,946684800,2,b\n1,978307200,3,a\n")
    found, source = read(path, columns_as=("code=category", "at=epoch", "size=drop"))
    assert found["code=1"] == [1, 0, 1]
    assert found["at.years"] == pytest.approx([-30, 0, 1], abs=3e-3)
    assert not any(name.startswith("size") for name in found)
    path.write_text("code,at,y\n1,86400,a\n")
    assert read(path, encoding=source.encoding(), label=None)[0]["at.weekday=fri"] == [1]
    for wrong in ("code", "code=color", "code=date:%Q"):
        with pytest.raises(UsageError, match="is not NAME=KIND"):
            read(path, columns_as=(wrong,))
    with pytest.raises(DataError, match="named by --column"):
        read(path, columns_as=("nothing=drop",))


def test_column_types_text_of_many_values_is_hashed_and_of_a_value_a_row_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = "".join(f"{k / 7:.3f},city{k % 300},ref-{k}x,{k % 2}\n" for k in range(1000))
    path.write_text("a,city,reference,y\n" + rows)
    source = open_source([path], SourceOptions(label="y", recognize=True))
    assert source.columns == 1 + 2**14
    assert [line.partition(": text, ")[2].split(";")[0] for line in source.proposals] == [
        "300 values in 1000 rows: hashed",
        "1000 values in 1000 rows: left out, because nearly every value is unique",
    ]


def test_column_types_rare_values_share_a_column_with_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,c,y\n" + "1,red,0\n2,blue,1\n" * 5 + "3,mauve,0\n4,teal,1\n")
    found, source = read(path, min_count=3)
    assert list(found) == ["a", "c=blue", "c=red", "c=(other)"]
    assert sum(found["c=(other)"]) == 2
    path.write_text("a,c,y\n1,puce,0\n1,red,1\n")
    assert read(path, encoding=source.encoding(), label=None)[0]["c=(other)"] == [1, 0]
