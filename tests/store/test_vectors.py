"""Columns of vectors: from every source the features are the numbers of the vectors; what is no vector is refused by row."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from click.testing import CliRunner

import streamsvm as sv
from streamsvm.cli.main import cli
from streamsvm.sklearn import StreamSVC
from streamsvm.store import read_chunk
from tests.api.test_given import module_of

ROWS, SIZE = 700, 3
RANDOM = np.random.default_rng(0)
X = RANDOM.integers(-9, 9, (ROWS, SIZE))
"""Whole numbers, which every type holds."""
Y = (X[:, 0] + X[:, 1] > RANDOM.normal(size=ROWS)).astype(int)
AGE = RANDOM.integers(0, 99, ROWS).astype(np.float64)


def arrow(kind: pa.DataType, **columns: Any) -> pa.Table:
    """A table of two columns of vectors, a number and a label."""
    vectors = pa.array(X.tolist(), kind)
    return pa.table({"emb": vectors, "age": AGE, "other": vectors, "label": Y, **columns})


def digest(given: Any, path: Path, **options: Any) -> str:
    sv.ingest(given, path / "s.zarr", label="label", overwrite=True, **options)
    return sv.open_store(path / "s.zarr").digest


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the same numbers in an array."""
    path = tmp_path_factory.mktemp("array") / "a.zarr"
    sv.ingest(np.column_stack([X, AGE, X]).astype(np.float32), path, y=Y)
    return sv.open_store(path).digest


TYPES = {
    "list": pa.list_(pa.float32()),
    "large list": pa.large_list(pa.float64()),
    "fixed size": pa.list_(pa.float32(), SIZE),
    "float16": pa.list_(pa.float16(), SIZE),
    "int8": pa.list_(pa.int8()),
    "int64": pa.large_list(pa.int64()),
}


@pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)
def test_vectors_of_every_type_in_parquet(tmp_path: Path, expected: str, kind: pa.DataType) -> None:
    pq.write_table(arrow(kind), tmp_path / "a.parquet")
    assert digest(tmp_path / "a.parquet", tmp_path) == expected


def write_json(place: Path) -> Path:
    lines = [{"emb": x, "age": a, "other": x, "label": y} for x, a, y in zip(X.tolist(), AGE, Y.tolist(), strict=True)]
    (place / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place / "a.jsonl"


def pandas_frame(_: Path) -> pd.DataFrame:
    vectors = list(X.astype(np.float32))
    return pd.DataFrame({"emb": vectors, "age": AGE, "other": vectors, "label": Y})


def polars_frame(_: Path) -> pl.DataFrame:
    columns = {"emb": pl.Series(X.tolist(), dtype=pl.Array(pl.Float32, SIZE)), "age": AGE}
    return pl.DataFrame(columns | {"other": pl.Series(X.tolist(), dtype=pl.List(pl.Float64)), "label": Y})


def duck(place: Path) -> Any:
    pq.write_table(arrow(TYPES["list"]), place / "d.parquet")
    columns = f"emb, age, other::FLOAT[{SIZE}] as other, label"
    return pytest.importorskip("duckdb").connect().sql(f"select {columns} from '{place / 'd.parquet'}'")


def hugging_face(_: Path) -> Any:
    table = arrow(TYPES["list"])
    return module_of(
        "datasets.arrow_dataset",
        column_names=table.column_names,
        features=SimpleNamespace(arrow_schema=table.schema),
        shape=table.shape,
        iter=None,
        with_format=lambda self, form: SimpleNamespace(iter=lambda batch_size: (table.slice(k, 100) for k in range(0, ROWS, 100))),
    )  # fmt: skip


SOURCES: dict[str, Callable[[Path], Any]] = {
    "JSON lines": write_json,
    "pandas": pandas_frame,
    "polars": polars_frame,
    "lazy polars": lambda place: polars_frame(place).lazy(),
    "Arrow": lambda _: arrow(TYPES["fixed size"]),
    "Arrow reader": lambda _: arrow(TYPES["large list"]).to_reader(100),
    "DuckDB": duck,
    "Hugging Face": hugging_face,
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_vectors_of_every_source(tmp_path: Path, expected: str, make: Callable[[Path], Any]) -> None:
    assert digest(make(tmp_path), tmp_path) == expected


NAMES = [*(f"emb[{k}]" for k in range(SIZE)), "age", *(f"other[{k}]" for k in range(SIZE))]


def test_vectors_from_the_file_to_names_predictions_and_measures(tmp_path: Path) -> None:
    path, new = tmp_path / "a.parquet", pandas_frame(tmp_path).drop(columns="label")
    pq.write_table(arrow(TYPES["list"]), path)
    model = sv.fit(path, tmp_path / "m.svm", label="label", report="none").model
    effects = model.coefficients()
    assert sorted(effects.column + effects.value) == sorted(NAMES)
    assert (model.predict(new) == Y).mean() > 0.9
    measures = sv.evaluate(model, path).measures
    assert measures["accuracy"] == pytest.approx((model.predict(new) == Y).mean())
    estimator = StreamSVC().fit(new, Y)
    assert estimator.get_feature_names_out().tolist() == NAMES
    assert (estimator.predict(new.rename(columns={"emb": "x"}).assign(emb=new["emb"])) == estimator.predict(new)).all()


BAD: dict[str, tuple[Any, str, str]] = {
    "short": ([1.0, 2.0], "E-SHAPE", r"a vector of 2 numbers \[1, 2\], but the column has 3"),
    "long": ([1.0] * 9, "E-SHAPE", r"a vector of 9 numbers \[1, 1, 1, 1, ...\], but the column has 3"),
    "missing": (None, "E-MISSING", "the value is missing"),
    "null inside": ([1.0, None, 3.0], "E-NONFINITE", "number 1 of the vector is missing"),
    "nan": ([1.0, 2.0, math.nan], "E-NONFINITE", "number 2 of the vector is missing"),
    "infinite": ([-math.inf, 2.0, 3.0], "E-NONFINITE", "number 0 of the vector is -inf"),
    "large": ([1.0, 1e300, 3.0], "E-RANGE", r"number 1 of the vector, 1e\+300, does not fit float32"),
}


def bad_source(form: str, place: Path, bad: Any) -> Any:
    """Rows of which the fourth has a bad vector."""
    vectors = [[float(k), 2.0, 3.0] for k in range(8)]
    vectors[3] = bad
    columns = {"emb": vectors, "label": [0, 1] * 4}
    path = place / f"bad.{form}"
    if form == "parquet":
        pq.write_table(pa.table(columns), path)
    elif form == "jsonl":
        rows = [{"emb": emb, "label": label} for emb, label in zip(*columns.values(), strict=True)]
        path.write_text("".join(json.dumps(row).replace("Infinity", "1e999") + "\n" for row in rows))
    else:
        return {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}[form](columns)
    return path


@pytest.mark.parametrize("form", ["parquet", "jsonl", "pandas", "polars", "arrow"])
@pytest.mark.parametrize(("bad", "code", "text"), BAD.values(), ids=BAD)
def test_vectors_that_are_bad_are_refused_by_row_and_column_or_left_out(
    tmp_path: Path, form: str, bad: Any, code: str, text: str
) -> None:
    given, store = bad_source(form, tmp_path, bad), tmp_path / "s.zarr"
    with pytest.raises(sv.DataError, match=rf"(row|line) 4, column 'emb': {text}") as refused:
        sv.ingest(given, store, label="label")
    assert refused.value.code == code
    assert sv.ingest(given, store, label="label", on_bad_line="skip", max_bad="50%").rows == 7
    if bad is not None:
        with pytest.raises(sv.DataError, match="row 4, column 'emb'"):
            sv.ingest(given, store, label="label", missing="mean", overwrite=True)
        return
    sv.ingest(given, store, label="label", missing="indicator", overwrite=True)
    assert sv.open_store(store).facts["names"] == [*NAMES[:SIZE], "emb[0] missing"]


def test_vectors_that_a_model_gets_have_the_length_of_its_training(tmp_path: Path) -> None:
    model = sv.fit(arrow(TYPES["list"]), label="label").model
    for vectors, expected in (([[1.0, 2.0]] * ROWS, "a vector of 2 numbers"), (AGE, "expected a vector of 3 numbers")):
        new = pa.table({"emb": vectors, "age": AGE, "other": X.tolist()})
        with pytest.raises(sv.DataError, match=rf"row 1, column 'emb': {expected}"):
            model.predict(new)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"column": "emb=category"}, "a vector, which is encoded as numbers only"),
        ({"column": "age=vector"}, "holds double, not vectors"),
        ({"label": "emb"}, "column 'emb' of .* holds .*list<.*not numbers"),
    ],
)
def test_vectors_are_no_other_kind(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(sv.DataError, match=text):
        sv.ingest(arrow(TYPES["list"]), tmp_path / "s.zarr", **{"label": "label", **options})


def test_vectors_in_a_schema_file_and_its_description(tmp_path: Path) -> None:
    pq.write_table(arrow(TYPES["list"]), tmp_path / "a.parquet")
    call = ["ingest", str(tmp_path / "a.parquet"), "--label", "label", "--write-schema", str(tmp_path / "s.toml")]
    described = CliRunner().invoke(cli, call)
    assert "a vector: 3 numbers, as they are" in described.stdout
    assert '"emb" = "vector"' in (tmp_path / "s.toml").read_text()
    assert sv.ingest(tmp_path / "a.parquet", tmp_path / "s.zarr", schema=tmp_path / "s.toml").columns == 2 * SIZE + 1


def test_vectors_beside_hashed_text_are_stored_sparse(tmp_path: Path) -> None:
    text = pa.array([f"word{k % 50}" for k in range(ROWS)])
    given, options = arrow(TYPES["list"], text=text), dict[str, Any](label="label", hash_bits=4)
    sv.ingest(given, tmp_path / "s.zarr", **options)
    store = sv.open_store(tmp_path / "s.zarr")
    assert (store.layout.columns, store.layout.dense) == (2 * SIZE + 1 + 16, False)
    entries = tuple(read_chunk(store, 0, store.buffers()).X)[:3]
    rows = scipy.sparse.csr_array(entries, shape=(ROWS, store.layout.columns)).toarray()
    assert (rows[:, :SIZE] == X).all()
    assert (rows[:, SIZE + 1 : 2 * SIZE + 1] == X).all()
