"""Tables of odd cells: what is stored is finite, read again the same, and the same from a file and from a data frame."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

from streamsvm.cluster import ingest_dask
from streamsvm.errors import StreamSVMError
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.rows import Dense
from streamsvm.store import open_store, read_chunk
from streamsvm.store.sources import open_source, options_from

CELLS = (
    "1", "0", "-1", "1.5", "1e5", "-0.0", "1e39", "nan", "NA", "", " ", "inf", "red", "blue", "x y", "$1,200.50", "(3)", "5 %",
    "yes", "no", "TRUE", "f", "2001-02-03", "31-Feb-01", "Feb 3, 2001", "1.2.2003", "00123", "1_000", "0x1F", "é", "'", '"', "a,b",
    "a\nb", "\x1b[31m", "9007199254740993", "-", "+", ".", "1.", ".5", "١", "∞", "None", "<NA>", "null", "1e", "1 2", "\u202e",
)  # fmt: skip
POLICIES: tuple[dict[str, Any], ...] = (
    {}, {"missing": "mean"}, {"missing": "zero"}, {"missing": "indicator"}, {"recognize": False}, {"layout": "csr"},
    {"layout": "dense"}, {"min_count": 3}, {"hash_bits": 5}, {"test_fraction": 0.3}, {"shuffle": True}, {"compression": "auto"},
)  # fmt: skip

Trial = Callable[[random.Random], str]
NO_FILE = "no file"
"""The answer for a frame that Parquet cannot hold."""


def _column(draw: random.Random, rows: int) -> list[str]:
    """Cells of a kind, with a stranger among them now and then."""
    kinds = draw.sample(CELLS, draw.randint(1, 4))
    cells = [draw.choice(kinds) if draw.random() < 0.97 else draw.choice(CELLS) for _ in range(rows)]
    return [str(draw.gauss(0, 10)) for _ in cells] if draw.random() < 0.4 else cells


def _stored(path: Path) -> list[tuple[float, ...]]:
    """The rows of a store, with the codes of their labels."""
    store: Any = open_store(path)
    found = []
    for chunk in range(len(store.layout.chunks)):
        part = read_chunk(store, chunk, store.buffers())
        assert np.isfinite(part.X.values if isinstance(part.X, Dense) else part.X.data).all()
        values = _full(part.X, store.layout.columns)
        found += [(*map(float, row), int(code)) for row, code in zip(values, part.codes, strict=True)]
    return found


def _full(X: Any, columns: int) -> Any:
    if isinstance(X, Dense):
        return np.array(X.values)
    values = np.zeros((len(X.indptr) - 1, columns), np.float32)
    rows = np.repeat(np.arange(len(values)), np.diff(X.indptr))
    values[rows, X.indices] = X.data
    return values


def columns(scratch: Path) -> Trial:
    """A CSV file is ingested, then read by what was recorded of it: the same rows come."""
    source, target = scratch / "t.csv", scratch / "t.zarr"

    def trial(draw: random.Random) -> str:
        rows = draw.choice((2, 7, 40, 150))
        table = [_column(draw, rows) for _ in range(draw.randint(1, 4))]
        quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in zip(*table, strict=True)]
        header = ",".join(f"c{k}" for k in range(len(table)))
        body = [f"{line},{k % 2}" for k, line in enumerate(quoted)]
        source.write_text("\n".join([f"{header},y", *body, ""]), encoding="utf-8")
        policy = draw.choice(POLICIES)
        ingest(IngestJob(sources=(source,), store=target, label="y", overwrite=True, multiline=True, **policy))
        stored, encoding = _stored(target), open_store(target).facts["encoding"]
        if "test_fraction" in policy or "shuffle" in policy:
            return "stored"
        width = open_store(target).layout.columns
        again = [
            row for batch in open_source([source], options_from(encoding)).batches() for row in _full(batch.X, width)
        ]
        np.testing.assert_array_equal(np.array([row[:-1] for row in stored], np.float32), np.array(again, np.float32))
        return "stored, and read the same again"

    return trial


NAMES = (
    "1",
    "-1",
    "0",
    "+1",
    "1.0",
    "01",
    "1e0",
    "2",
    "9007199254740993",
    "9007199254740992",
    "a",
    "A",
    " a",
    "é",
    "0x1",
    "-0",
    "yes",
)
"""Labels that are the same to some and others to some."""
WEIGHTS = ("1", "0", "0.5", "2", "1e-30", "1e30", "-1", "nan", "", "x", "inf", "1e-46", "3e38")


def labels(scratch: Path) -> Trial:
    """Labels and weights of odd texts: every row has the class of its label, and rows of one text are of one class."""
    source, target = scratch / "l.csv", scratch / "l.zarr"

    def trial(draw: random.Random) -> str:
        rows, kinds = draw.choice((2, 9, 60)), draw.sample(NAMES, draw.randint(1, 3))
        heavy = draw.sample(WEIGHTS, draw.randint(1, 2)) if draw.random() < 0.4 else ["1"]
        told = [(draw.choice(kinds), draw.choice(heavy)) for _ in range(rows)]
        source.write_text("x,y,w\n" + "".join(f"{k},{y},{w}\n" for k, (y, w) in enumerate(told)), encoding="utf-8")
        more = draw.choice(({}, {"weight": "w"}, {"label_threshold": 0.5}, {"positive": kinds[0]}))
        ingest(
            IngestJob(
                sources=(source,),
                store=target,
                label="y",
                drop=("w",) if "weight" not in more else (),
                overwrite=True,
                **more,
            )
        )
        store = open_store(target)
        stored = sorted(_stored(target))
        codes = [int(row[-1]) for row in stored]
        assert len(codes) == rows == sum(store.layout.counts)
        for (a, _), code in zip(told, codes, strict=True):
            assert all(code == other for (b, _), other in zip(told, codes, strict=True) if a == b), told
        return "stored"

    return trial


def _typed(draw: random.Random, rows: int) -> Any:
    """A column of some type pandas has."""
    rng = np.random.default_rng(draw.randrange(1 << 30))
    numbers = rng.normal(size=rows)
    ways = (
        lambda: numbers,
        lambda: np.where(rng.random(rows) < 0.05, np.nan, numbers),
        lambda: rng.integers(0, 5, rows),
        lambda: pd.array(rng.integers(0, 5, rows), "Int64"),
        lambda: pd.array([None if rng.random() < 0.05 else int(k) for k in rng.integers(0, 3, rows)], "Int64"),
        lambda: rng.random(rows) < 0.5,
        lambda: pd.Series(draw.choices(CELLS[:20], k=rows), dtype=object),
        lambda: pd.Series(draw.choices(["red", "blue", None], k=rows), dtype=object),
        lambda: pd.Series(draw.choices(["red", "blue"], k=rows), dtype="category"),
        lambda: pd.Timestamp("2001-01-01") + pd.to_timedelta(rng.integers(0, 900, rows), "D"),
        lambda: pd.Series(draw.choices([1, 2.5, "x", None, b"y"], k=rows), dtype=object),
        lambda: numbers * 10.0 ** draw.randint(0, 45),
        lambda: pd.to_timedelta(rng.integers(0, 900, rows), "s"),
        lambda: pd.arrays.SparseArray(numbers),
        lambda: numbers + 1j,
        lambda: pd.Series(draw.choices([[1], [], [1, 2]], k=rows), dtype=object),
        lambda: [{"left": k} for k in range(rows)],
        lambda: pd.interval_range(0, rows, periods=rows),
        lambda: pd.period_range("2001", periods=rows, freq="D"),
        lambda: [b"x"] * rows,
        lambda: [dt.time(k % 24) for k in range(rows)],
        lambda: [decimal.Decimal(k) / 8 for k in range(rows)],
    )
    return draw.choice(ways)()


ROLES: tuple[dict[str, Any], ...] = (
    {}, {"categorical": ("c0",)}, {"calendar": ("c0",)}, {"columns_as": ("c0=words",)}, {"columns_as": ("c0=hash",)},
    {"columns_as": ("c0=epoch",)}, {"columns_as": ("c0=amount",)}, {"weight": "c0"}, {"id_column": "c0"}, {"split_by": "c0"}, {"drop": ("c0",)},
)  # fmt: skip
"""What a column of any type may be asked to be."""
WRITTEN: tuple[dict[str, Any], ...] = (
    {}, {"row_group_size": 7}, {"use_dictionary": False}, {"data_page_version": "2.0"}, {"compression": "zstd"},
)  # fmt: skip
"""Ways to write a Parquet file."""


def frames(scratch: Path) -> Trial:
    """A data frame as a Parquet file and as a dask collection: the same store, or the same code."""

    def trial(draw: random.Random) -> str:
        rows = draw.choice((2, 9, 60))
        frame = pd.DataFrame({f"c{k}": _typed(draw, rows) for k in range(draw.randint(1, 3))})
        frame["y"] = draw.choice(
            (np.arange(rows) % 2, [None if k == 1 else str(k % 2) for k in range(rows)], _typed(draw, rows))
        )
        options = {"label": "y", "overwrite": True, **draw.choice(POLICIES), **draw.choice(ROLES)}
        with dask.config.set({"dataframe.convert-string": False}):
            given = dd.from_pandas(frame, npartitions=draw.choice((1, 2, 5)))
        answers = [_answer(scratch, frame, options, draw.choice(WRITTEN)), _answer(scratch, given, options)]
        if answers[0] == NO_FILE and isinstance(answers[1], str):
            return "in no file, and refused"
        assert answers[0] == answers[1], f"file: {str(answers[0])[:150]}, data frame: {str(answers[1])[:150]}"
        return "the same store" if isinstance(answers[0], list) else f"the same code, {answers[0]}"

    return trial


def _answer(scratch: Path, frame: Any, options: dict[str, Any], written: dict[str, Any] | None = None) -> Any:
    """The rows that were stored, or the code of the refusal."""
    source, target = scratch / "t.parquet", scratch / "t.zarr"
    try:
        if isinstance(frame, pd.DataFrame):
            try:
                frame.to_parquet(source, **written or {})
            except Exception:  # noqa: BLE001  a column that no file can hold
                return NO_FILE
            ingest(IngestJob(sources=(source,), store=target, **options))
        else:
            ingest_dask(frame, store=target, **options)
    except StreamSVMError as error:
        return error.code
    return _stored(target)
