"""The Parquet source: types, one-hot encoding, several files, damage."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask
import dask.dataframe
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamsvm as sv
from streamsvm.errors import BudgetError, DataError, StreamSVMError
from streamsvm.rows import CSR, in_layout
from streamsvm.store.sources import SourceOptions, open_source
from streamsvm.store.sources.parquet import find_dictionary_columns


def save(path: Path, **columns: Any) -> Path:
    """Write a table."""
    pq.write_table(pa.table(columns), path, row_group_size=2, write_page_checksum=True)
    return path


def read(*paths: Path, **options: Any) -> tuple[Any, Any, Any]:
    """All rows as one dense matrix, the labels, and the source."""
    source = open_source(paths, SourceOptions(**({"label": "y"} | options)))
    batches = list(source.batches())
    X = [in_layout(b.X, sparse=False, columns=source.columns).values for b in batches]
    return np.concatenate(X), np.concatenate([b.labels for b in batches]), source


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 2, 3], pa.int8()),
        pa.array([1, 2, 3], pa.uint64()),
        pa.array([1.5, 2.5, 3.5], pa.float64()),
        pa.array(np.array([1.5, 2.5, 3.5], np.float16)),
        pa.array([True, False, True]),
        pa.array([Decimal("1.5"), Decimal(2), Decimal(3)]),
    ],
    ids=lambda values: str(values.type),
)
def test_parquet_numbers_of_any_type(tmp_path: Path, values: Any) -> None:
    X, labels, source = read(save(tmp_path / "a.parquet", a=values, y=[1, 2, 1]))
    assert X[:, 0].tolist() == [float(v) for v in values.to_pylist()]
    assert (labels.tolist(), source.names) == ([1, 2, 1], ("a",))


def test_parquet_row_group_larger_than_the_memory_is_read_in_pieces(tmp_path: Path) -> None:
    """B24."""
    X = np.random.default_rng(0).random((100_000, 200), np.float32)
    table = pa.table({**{f"x{j}": X[:, j] for j in range(200)}, "y": np.zeros(len(X), np.int8)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=len(X), compression="none", use_dictionary=False)
    del table
    before, rows, most = pa.total_allocated_bytes(), 0, 0
    for batch in open_source([tmp_path / "a.parquet"], SourceOptions(label="y")).batches():
        rows += len(batch.labels)
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == len(X)
    assert most < 0.6 * X.nbytes


@pytest.mark.parametrize("group", [2, 5, 40])
def test_parquet_wide_file_has_its_rows_whatever_its_row_groups(tmp_path: Path, group: int) -> None:
    """It is read some columns, and some row groups, at a time; ``tests/test_memory.py`` watches what that takes."""
    values = np.random.default_rng(0).normal(size=(1100, 40)).astype(np.float32)
    columns: dict[str, Any] = {f"x{j}": row for j, row in enumerate(values)}
    pq.write_table(pa.table(columns | {"y": np.arange(40) % 2}), tmp_path / "a.parquet", row_group_size=group)
    X, labels, _ = read(tmp_path / "a.parquet")
    np.testing.assert_array_equal(X, values.T)
    assert labels.tolist() == [0, 1] * 20


def test_parquet_refuses_a_table_without_values(tmp_path: Path) -> None:
    path = save(tmp_path / "a.parquet", b=pa.nulls(3, pa.string()), y=[1, 2, 1])
    with pytest.raises(StreamSVMError, match="from which anything can be learned") as caught:
        read(path, categorical=("b",), missing="zero")
    assert caught.value.code == "E-SCHEMA"


@pytest.mark.parametrize(
    "kind", [{"categorical": ("b",)}, {"columns_as": ("b=words",)}, {}], ids=["category", "words", ""]
)
def test_parquet_type_of_an_extension_is_what_it_is_kept_as(tmp_path: Path, kind: dict[str, Any]) -> None:
    """Pandas makes its periods known to pyarrow: what becomes of a file does not depend on whether it was imported."""
    days = pa.array(pd.period_range("2001-01-01", periods=3, freq="D"))
    assert isinstance(days.type, pa.BaseExtensionType)
    of_extension, _, _ = read(save(tmp_path / "a.parquet", b=days, y=[1, 2, 1]), **kind)
    plain, _, _ = read(save(tmp_path / "b.parquet", b=days.storage, y=[1, 2, 1]), **kind)
    np.testing.assert_array_equal(of_extension, plain)


TEXT_ENCODINGS: dict[str, dict[str, Any]] = {
    "dictionary": {},
    "plain": {"use_dictionary": False},
    "differences": {"use_dictionary": False, "column_encoding": {"b": "DELTA_BYTE_ARRAY"}},
    "lengths": {"use_dictionary": False, "column_encoding": {"b": "DELTA_LENGTH_BYTE_ARRAY"}},
}


@pytest.mark.parametrize("kind", [("categorical", ("b",)), ("hash_bits", 4)], ids=["category", "hash"])
def test_parquet_text_may_be_encoded_in_any_way(tmp_path: Path, kind: tuple[str, Any]) -> None:
    """Pyarrow makes no dictionary of differences; files of several encodings are one table."""
    table = pa.table({"a": np.arange(40.0), "b": [f"w{k % 7}" for k in range(40)], "y": [1, 2] * 20})
    paths = [tmp_path / f"{name}.parquet" for name in TEXT_ENCODINGS]
    for path, written in zip(paths, TEXT_ENCODINGS.values(), strict=True):
        pq.write_table(table, path, row_group_size=15, **written)
    expected, labels, _ = read(paths[0], **dict([kind]))
    assert [find_dictionary_columns(pq.read_metadata(path)) for path in paths] == [["b"], [], [], []]
    X, y, _ = read(*paths, **dict([kind]))
    np.testing.assert_array_equal(X, np.tile(expected, (4, 1)))
    np.testing.assert_array_equal(y, np.tile(labels, 4))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_parquet_categories(tmp_path: Path, kind: Any) -> None:
    path = save(tmp_path / "a.parquet", c=pa.array(["r", "b", "r"]).cast(kind), a=[1.0, 2, 3], y=["p", "q", "p"])
    X, labels, source = read(path, categorical=("c",))
    assert source.names == ("c=b", "c=r", "a")
    assert X.tolist() == [[0, 1, 1], [1, 0, 2], [0, 1, 3]]
    assert labels.tolist() == ["p", "q", "p"]


def test_parquet_calendar_columns(tmp_path: Path) -> None:
    when = [dt.datetime(2001, 12, 31, 23, 5), dt.datetime(2001, 1, 7, 0, 0)]  # noqa: DTZ001  a column
    X, _, source = read(save(tmp_path / "a.parquet", t=when, y=[1, 2]), calendar=("t",))
    named = [{name for name, v in zip(source.names, row, strict=True) if v} for row in X]
    assert named == [{"t.month=12", "t.weekday=mon", "t.hour=23"}, {"t.month=1", "t.weekday=sun", "t.hour=0"}]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "B23 null": ({"a": [1.0, None, 2.0]}, "E-MISSING"),
    "B23 text": ({"a": ["x", "y", "z"]}, "E-DTYPE"),
    "B23 list": ({"a": [["1"], ["2"], ["3"]]}, "E-DTYPE"),
    "timestamp": ({"a": pa.array([1, 2, 3], pa.timestamp("us"))}, "E-DTYPE"),
    "nan": ({"a": [1.0, 2.0, float("nan")]}, "E-MISSING"),
    "range": ({"a": [1.0, 2.0, 1e39]}, "E-RANGE"),
    "label missing": ({"a": [1.0, 2.0, 3.0], "y": [1, None, 1]}, "E-LABEL"),
    "no feature": ({}, "E-SCHEMA"),
}


@pytest.mark.parametrize(("columns", "code"), REFUSED.values(), ids=REFUSED)
def test_parquet_refuses_types_without_numbers(tmp_path: Path, columns: dict[str, Any], code: str) -> None:
    with pytest.raises(StreamSVMError) as caught:
        read(save(tmp_path / "a.parquet", **({"y": [1, 2, 1]} | columns)))
    assert caught.value.code == code
    assert "a.parquet" in caught.value.message


RECORDS = pa.array([{"left": k} for k in range(3)])


@pytest.mark.parametrize("role", ["categorical", "drop", "label", "weight", "id_column", "split_by", "words"])
def test_parquet_refuses_columns_of_records(tmp_path: Path, role: str) -> None:
    path = save(tmp_path / "a.parquet", a=[1.0, 2.0, 3.0], b=RECORDS, y=[1, 2, 1])
    asked: dict[str, Any] = {role: ("b",) if role in ("categorical", "drop") else "b"}
    options = {"columns_as": ("b=words",)} if role == "words" else asked
    if role == "drop":
        assert read(path, **options)[0].shape == (3, 1)
        return
    with pytest.raises(StreamSVMError, match=r"column 'b' of .*a\.parquet holds struct") as caught:
        read(path, **options)
    assert caught.value.code == "E-DTYPE"


def test_parquet_records_where_a_model_was_trained_on_text_are_refused(tmp_path: Path) -> None:
    trained = read(save(tmp_path / "a.parquet", b=["x", "y", "x"], y=[1, 2, 1]), categorical=("b",))[2]
    with pytest.raises(StreamSVMError, match=r"row 1, column 'b': holds struct") as caught:
        read(save(tmp_path / "b.parquet", b=RECORDS, y=[1, 2, 1]), encoding=trained.encoding())
    assert caught.value.code == "E-DTYPE"


def test_parquet_row_and_column_of_a_missing_value(tmp_path: Path) -> None:
    path = save(tmp_path / "a.parquet", a=[1.0] * 999 + [None] * 3, y=[1] * 1002)
    with pytest.raises(StreamSVMError, match=r"row 1000, column 'a': .*\(3 missing"):
        read(path)


def test_parquet_integer_id_that_is_missing_is_refused_in_whatever_batch_it_is(tmp_path: Path) -> None:
    rows, last = 70_000, 69_999
    columns = {"id": [*range(last), None], "a": [1.0, 2.0] * (rows // 2), "y": [0, 1] * (rows // 2)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    given: dict[str, Any] = {"label": "y", "id_column": "id"}
    with pytest.raises(DataError, match=rf"row {rows}, column 'id': the id is missing") as caught:
        sv.ingest(tmp_path / "a.parquet", tmp_path / "s.zarr", **given)
    assert caught.value.code == "E-MISSING"
    assert sv.ingest(tmp_path / "a.parquet", tmp_path / "s.zarr", on_bad_line="skip", **given).rows == last


def test_parquet_ids_have_the_type_of_the_first_file(tmp_path: Path) -> None:
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    save(first, id=["u", None], a=[1.0, 2.0], y=[0, 1])
    save(second, id=[3, 4], a=[1.0, 2.0], y=[0, 1])
    given: dict[str, Any] = {"label": "y", "id_column": "id"}
    sv.ingest([first, second], tmp_path / "s.zarr", **given)
    assert pq.read_table(tmp_path / "s.zarr" / "ids.parquet").column("id").to_pylist() == ["u", "", "3", "4"]
    with pytest.raises(DataError, match=r"a\.parquet row 1, column 'id': the id 'u' is no 64-bit integer") as caught:
        sv.ingest([second, first], tmp_path / "t.zarr", **given)
    assert caught.value.code == "E-DTYPE"


class TestSeveralFiles:
    def test_parquet_files_are_matched_by_column_name(self, tmp_path: Path) -> None:
        """B25."""
        first = save(tmp_path / "a.parquet", a=[1.0], c=["u"], y=[1])
        second = save(tmp_path / "b.parquet", y=[2], c=["v"], a=[2.0])
        X, labels, source = read(first, second, categorical=("c",))
        assert (source.names, X.tolist(), labels.tolist()) == (("a", "c=u", "c=v"), [[1, 1, 0], [2, 0, 1]], [1, 2])

    def test_parquet_files_with_other_columns_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(StreamSVMError) as caught:
            read(save(tmp_path / "a.parquet", a=[1.0], y=[1]), save(tmp_path / "b.parquet", b=[1.0], y=[1]))
        assert caught.value.code == "E-SCHEMA"


def test_parquet_refuses_a_cut_file(tmp_path: Path) -> None:
    """B21."""
    path = save(tmp_path / "a.parquet", a=[1.0, 2.0], y=[1, 2])
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(StreamSVMError) as caught:
        read(path)
    assert caught.value.code == "E-TRUNCATED"


def test_parquet_refuses_a_damaged_page(tmp_path: Path) -> None:
    """B22."""
    path = save(tmp_path / "a.parquet", a=np.arange(1000.0), y=np.arange(1000) % 2)
    content = bytearray(path.read_bytes())
    content[content.index(np.float64(1.0).tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(StreamSVMError) as caught:
        read(path)
    assert caught.value.code == "E-CRC"


@pytest.mark.data
def test_parquet_flights_against_pyarrow(data_file: Callable[[str], Path]) -> None:
    path = data_file("flights-3m.parquet")
    options = SourceOptions(label="delay", categorical=("origin", "destination"), calendar=("date",))
    source = open_source([path], options)
    assert source.sparse
    first = next(batches := source.batches())
    assert isinstance(first.X, CSR)
    assert source.names is not None
    table = next(pq.ParquetFile(path).iter_batches(1000)).to_pylist()
    for i, row in enumerate(table):
        at = slice(first.X.indptr[i], first.X.indptr[i + 1])
        found = {source.names[j]: v for j, v in zip(first.X.indices[at], first.X.data[at], strict=True)}
        when = row["date"]
        weekday = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[when.weekday()]
        assert found == {
            f"date.month={when.month}": 1,
            f"date.weekday={weekday}": 1,
            f"date.hour={when.hour}": 1,
            "distance": row["distance"],
            f"origin={row['origin']}": 1,
            f"destination={row['destination']}": 1,
        }
        assert first.labels[i] == row["delay"]
    assert len(first.labels) + sum(len(batch.labels) for batch in batches) == 3_000_000


def test_parquet_footer_there_is_no_memory_for_is_refused(tmp_path: Path) -> None:
    """Of a file with very many row groups: it is read as a whole, whatever part of the file is wanted."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": np.arange(2000.0), "y": np.arange(2000) % 2}), path, row_group_size=2)
    assert len(read(path, memory_limit=40 << 20)[0]) == 2000
    with pytest.raises(BudgetError, match=r"the footer of .* has [0-9]+ bytes: about 2MiB") as caught:
        read(path, memory_limit=1 << 20)
    assert "larger row groups" in caught.value.hint


def test_parquet_hashed_text_has_the_place_and_the_sign_that_its_hash_says(tmp_path: Path) -> None:
    """The lowest bits are the column, the highest is the sign: what collides cancels instead of adding up."""
    texts = [f"word {k}" for k in range(64)]
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"t": texts, "y": [k % 2 for k in range(64)]}), path)
    options = SourceOptions(label="y", columns_as=("t=hash",), hash_bits=10)
    source = open_source([path], options)
    (batch,) = source.batches()
    assert isinstance(batch.X, CSR)
    hashes = [int.from_bytes(hashlib.blake2b(f"t={text}".encode(), digest_size=8).digest(), "little") for text in texts]
    assert batch.X.indices.tolist() == [code % 1024 for code in hashes]
    signs = [-1.0 if code >> 63 else 1.0 for code in hashes]
    assert batch.X.data.tolist() == signs
    assert 16 < signs.count(-1.0) < 48


@pytest.mark.parametrize(("form", "typed"), [("parquet", False), ("parquet", True), ("jsonl", False), ("csv", False)])
@pytest.mark.parametrize("without", ["a", "b"])
def test_parquet_column_may_have_no_values_in_one_part(form: str, typed: bool, without: str, tmp_path: Path) -> None:
    """It is that of the other parts, numbers and words alike, and missing where it has none; whichever part comes first."""
    u = np.arange(60.0)
    y = np.where(u % 2, "p", "q")
    full: dict[str, Any] = {"u": u, "v": u, "w": np.where(u % 3, "red", "blue"), "y": y}
    for name in ("a", "b"):
        nothing = {"v": pa.nulls(60), "w": pa.nulls(60, pa.string() if typed else pa.null())}
        table = pa.table(full | nothing if name == without else full)
        if form == "parquet":
            pq.write_table(table, tmp_path / f"{name}.parquet")
        elif form == "csv":
            table.to_pandas().to_csv(tmp_path / f"{name}.csv", index=False)
        else:
            (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    parts = str(tmp_path / f"*.{form}")
    ingested = sv.ingest(parts, tmp_path / "s.zarr", label="y", missing="zero")
    assert sv.open_store(tmp_path / "s.zarr").facts["names"] == ["u", "v", "w=blue", "w=red"]
    assert ingested.rows == 120
    sv.fit(tmp_path / "s.zarr", tmp_path / "m.ssvm")
    for data in (parts, str(tmp_path / f"{without}.{form}")):
        assert sv.evaluate(tmp_path / "m.ssvm", data).evaluation.rows in (60, 120)


@pytest.mark.parametrize("form", ["parquet", "parts", "csv", "jsonl", "frame", "dask"])
def test_tables_column_without_any_value_is_one_of_missing_numbers(form: str, tmp_path: Path) -> None:
    """In every source: it is refused as missing where missing values are, and may be filled with zeros."""
    frame = pd.DataFrame({"u": np.arange(8.0), "v": pd.Series([None] * 8, dtype=object), "y": [0, 1] * 4})
    given: Any = tmp_path / f"t.{form}"
    if form == "csv":
        frame.to_csv(given, index=False)
    elif form == "jsonl":
        frame.to_json(given, orient="records", lines=True)
    elif form == "parquet":
        frame.to_parquet(given)
    elif form == "parts":
        given = str(tmp_path / "*.parquet")
        for k in range(2):
            frame[k * 4 : k * 4 + 4].to_parquet(tmp_path / f"{k}.parquet")
    else:
        with dask.config.set({"dataframe.convert-string": False}):
            given = dask.dataframe.from_pandas(frame, npartitions=2) if form == "dask" else frame
    for missing in ("error", "mean"):
        with pytest.raises(DataError, match=r"value is missing|has no value in any row") as refused:
            sv.ingest(given, tmp_path / "s.zarr", label="y", missing=missing)
        assert refused.value.code == "E-MISSING"
        assert "drop" in refused.value.hint
    sv.ingest(given, tmp_path / "s.zarr", label="y", missing="zero")
    assert sv.open_store(tmp_path / "s.zarr").facts["names"] == ["u", "v"]


def test_parquet_types_do_not_depend_on_row_groups(tmp_path: Path) -> None:
    """A fifth of the values are numbers, and none of the first ten is one: a row group of ten rows would be of categories."""
    words = ["red", "blue"] * 5 + ["1", "red", "blue", "2", "red"] * 10
    frame = pd.DataFrame({"color": words, "b": np.arange(60.0), "y": np.arange(60) % 2})
    said = []
    for rows in (60, 10, 1):
        frame.to_parquet(tmp_path / "t.parquet", row_group_size=rows)
        with pytest.raises(DataError) as caught:
            sv.ingest(tmp_path / "t.parquet", store=tmp_path / "s.zarr", label="y")
        said.append(str(caught.value))
    assert caught.value.code == "E-DTYPE"
    assert said == said[:1] * 3


def test_parquet_categories_of_no_row_are_not_read(tmp_path: Path) -> None:
    """Dictionaries of pandas keep the categories of rows that were left out."""
    frame = pd.DataFrame({"price": ["$1", "$2"] * 30 + ["unknown"], "y": np.arange(61) % 2})
    frame["price"] = frame["price"].astype("category")
    frame[:60].to_parquet(tmp_path / "t.parquet")
    sv.ingest(tmp_path / "t.parquet", store=tmp_path / "s.zarr", label="y", column=("price=amount",))
    X, _, _ = read(tmp_path / "t.parquet", columns_as=("price=amount",))
    assert X[:2, 0].tolist() == [1.0, 2.0]


def test_parquet_text_that_a_later_batch_has_is_not_that_of_the_first_row(tmp_path: Path) -> None:
    """A row group has one dictionary, and is read some rows at a time."""
    rows = 70_000
    frame = pd.DataFrame({"price": ["$1"] * (rows - 1) + ["unknown"], "y": np.arange(rows) % 2})
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"row 70000, column 'price': expected an amount, found 'unknown'"):
        sv.ingest(tmp_path / "t.parquet", store=tmp_path / "s.zarr", label="y", column=("price=amount",))


@pytest.mark.parametrize("rows", [60, 7, 1])
def test_parquet_of_several_bad_rows_the_first_is_named(tmp_path: Path, rows: int) -> None:
    """Columns are encoded one after the other: the last column has the first bad row."""
    frame = pd.DataFrame({"a": np.arange(60.0), "b": np.arange(60.0), "y": np.arange(60) % 2, "w": np.ones(60)})
    frame.loc[[50, 51, 40], "a"] = [np.nan, np.nan, np.inf]
    frame.loc[30, "b"] = np.nan
    frame.loc[20, "w"] = -1.0
    frame["y"] = frame["y"].astype("Int64")
    frame.loc[10, "y"] = pd.NA
    places = (
        "11, column 'y': the label is missing",
        "21, column 'w': the weight -1.0 is negative",
        "31, column 'b': the",
    )
    for place, (name, row, good) in zip(places, [("y", 10, 0), ("w", 20, 1.0), ("b", 30, 0.0)], strict=True):
        frame.to_parquet(tmp_path / "t.parquet", row_group_size=rows)
        with pytest.raises(DataError, match=f"row {place}"):
            sv.ingest(tmp_path / "t.parquet", store=tmp_path / "s.zarr", label="y", weight="w")
        frame.loc[row, name] = good
