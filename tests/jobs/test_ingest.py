"""From files to a committed store: what lands there, what is held out, what is left behind by a failure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.engine.executor import SerialExecutor
from streamsvm.errors import StreamSVMError, UsageError
from streamsvm.jobs.ingest.hold_out import HoldOut
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.rows import in_layout
from streamsvm.schedule import budget
from streamsvm.store import open_store
from streamsvm.store.sources.schema import width_bytes
from streamsvm.types import Chunk, Store

CSV = b"a,b,w,y\n" + b"".join(
    b"%d,%d,%.1f,%s\n" % (i, i * i, 0.5 + i % 2, b"pq"[i % 2 : i % 2 + 1]) for i in range(100)
)
SVM = b"".join(b"%d 1:%d 7:0.5\n" % (1 if i % 3 else -1, i + 1) for i in range(100))


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., Path]:
    def make(content: bytes, name: str) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return make


def chunk_of(store: Store, chunk: int) -> Chunk:
    buffers = store.buffers()
    store.fetch(chunk, buffers)
    return store.check(chunk, buffers)


def rows_of(path: Path) -> tuple[Any, list[str], Any]:
    """All rows of a store as one dense matrix, the labels as text, the weights."""
    store = open_store(path)
    X, labels, weights = [], [], []
    for chunk in range(len(store.layout.chunks)):
        found = chunk_of(store, chunk)
        X.append(in_layout(found.X, sparse=False, columns=store.layout.columns).values.copy())
        labels += [store.layout.classes[code] for code in found.codes]
        weights.append(None if found.weight is None else found.weight.copy())
    return np.concatenate(X), labels, weights


def run(path: Path, **options: Any) -> Any:
    return ingest(IngestJob(sources=(path,), store=path.parent / "s.zarr", **options))


def test_ingest_stores_a_csv_file(source: Callable[..., Path]) -> None:
    path = source(CSV, "a.csv")
    result = run(path, label="y", weight="w", chunk_bytes=4096)
    X, labels, weights = rows_of(result.store)
    assert X.tolist() == [[i, i * i] for i in range(100)]
    assert labels == ["pq"[i % 2] for i in range(100)]
    assert np.concatenate(weights).tolist() == [0.5 + i % 2 for i in range(100)]
    assert (result.rows, result.columns, result.classes, result.counts) == (100, 2, ("p", "q"), (50, 50))
    facts = open_store(result.store).facts
    assert facts["names"] == ["a", "b"]
    (file,) = facts["sources"]
    assert (file["rows"], file["size"], file["sha256"]) == (100, len(CSV), hashlib.sha256(CSV).hexdigest())


@pytest.mark.parametrize("layout", ["auto", "csr", "dense"])
def test_ingest_stores_an_svmlight_file(source: Callable[..., Path], layout: str) -> None:
    result = run(source(SVM, "a.svm"), layout=layout, features=8)
    X, labels, _ = rows_of(result.store)
    assert X[:, 0].tolist() == [i + 1 for i in range(100)]
    assert (X.shape[1], result.columns, result.sparse) == (8, 8, layout != "dense")
    assert labels == ["1" if i % 3 else "-1" for i in range(100)]
    assert open_store(result.store).facts["index_base"] == 1


def test_ingest_full_svmlight_becomes_dense_when_its_width_is_known(source: Callable[..., Path]) -> None:
    path = source(b"1 1:1 2:2\n-1 1:3\n", "a.svm")
    assert not run(path, features=2).sparse
    assert run(path, overwrite=True).sparse


def test_ingest_dense_svmlight_needs_its_width(source: Callable[..., Path]) -> None:
    with pytest.raises(UsageError) as caught:
        run(source(SVM, "a.svm"), layout="dense")
    assert "--features" in caught.value.hint


def held_out(seed: int, start: int, rows: int, fraction: float) -> np.ndarray[Any, Any]:
    return HoldOut(seed, fraction).choose(start, np.zeros(rows, np.int32), None)


@pytest.mark.parametrize(("content", "name"), [(CSV, "a.csv"), (SVM, "a.svm")])
def test_ingest_holds_rows_out(source: Callable[..., Path], content: bytes, name: str) -> None:
    path = source(content, name)
    everything = rows_of(run(path, label="y", drop=("w",) if name == "a.csv" else ()).store)[0]
    options = {"label": "y", "drop": ("w",) if name == "a.csv" else (), "test_fraction": 0.3, "seed": 3}
    result = run(path, **options, overwrite=True)
    assert result.test_store == path.parent / "s.test.zarr"
    chosen = held_out(3, 0, 100, 0.3)
    assert 15 < chosen.sum() < 45
    assert rows_of(result.store)[0].tolist() == everything[~chosen].tolist()
    assert rows_of(result.test_store)[0].tolist() == everything[chosen].tolist()
    assert (result.rows, result.test_rows) == (int((~chosen).sum()), int(chosen.sum()))
    assert open_store(result.test_store).layout.classes == open_store(result.store).layout.classes


def test_ingest_held_out_is_a_function_of_seed_and_row() -> None:
    whole = held_out(7, 0, 100_000, 0.25)
    pieces = np.concatenate([held_out(7, start, 1000, 0.25) for start in range(0, 100_000, 1000)])
    assert np.array_equal(whole, pieces)
    assert abs(whole.mean() - 0.25) < 0.01
    assert abs((whole & held_out(8, 0, 100_000, 0.25)).mean() - 0.0625) < 0.01
    assert not held_out(0, 0, 1000, 0.0).any()


def test_ingest_makes_two_classes_by_name_or_threshold(source: Callable[..., Path]) -> None:
    path = source(CSV, "a.csv")
    assert run(path, label="y", positive="q").classes == ("rest", "q")
    result = run(path, label="a", label_threshold=40, categorical=("y",), overwrite=True)
    assert (result.classes, result.counts) == (("<40", ">=40"), (40, 60))


@pytest.mark.parametrize(
    ("content", "options", "code"),
    [
        (CSV + b"1,2,x,p\n", {"label": "y"}, "E-PARSE"),
        (CSV[:-3], {"label": "y"}, "E-TRUNCATED"),
        (b"a,y\n1,p\n2,p\n", {"label": "y"}, "E-LABEL"),
        (CSV, {"label": "none", "drop": ("y",)}, "E-LABEL"),
        (CSV, {"label": "y", "layout": "wide"}, "E-USAGE"),
        (CSV, {"label": "y", "test_fraction": 1.0}, "E-USAGE"),
    ],
)
def test_ingest_failure_leaves_nothing(
    source: Callable[..., Path], content: bytes, options: dict[str, Any], code: str
) -> None:
    path = source(content, "a.csv")
    with pytest.raises(StreamSVMError) as caught:
        run(path, **({"test_fraction": 0.2} | options))
    assert caught.value.code == code
    assert [p.name for p in path.parent.iterdir()] == ["a.csv"]


def test_ingest_failure_keeps_the_store_that_was_to_be_replaced(source: Callable[..., Path]) -> None:
    store = run(source(CSV, "a.csv"), label="y", drop=("w",)).store
    before = rows_of(store)[0]
    with pytest.raises(StreamSVMError):
        run(source(CSV + b"x", "a.csv"), label="y", overwrite=True)
    assert np.array_equal(rows_of(store)[0], before)


def test_ingest_files_that_number_two_classes_differently(source: Callable[..., Path]) -> None:
    """S57."""
    files = [
        source(b"".join(b"%s 1:1\n" % y for y in ys), f"{i}.svm") for i, ys in enumerate(([b"-1", b"+1"], [b"1", b"2"]))
    ]
    with pytest.raises(StreamSVMError, match=r"1\.svm has the labels {1, 2}, .*0\.svm has {-1, 1}") as caught:
        ingest(IngestJob(sources=tuple(files), store=files[0].parent / "s.zarr"))
    assert caught.value.code == "E-LABEL"


def test_ingest_budget_that_is_too_small_is_refused_before_reading(source: Callable[..., Path]) -> None:
    path = source(CSV, "a.csv")
    with pytest.raises(StreamSVMError, match="64MiB source") as caught:
        run(path, label="y", memory=32 << 20)
    assert caught.value.exit_code == 78
    assert [p.name for p in path.parent.iterdir()] == ["a.csv"]


def test_ingest_more_columns_than_there_is_memory_for(tmp_path: Path) -> None:
    """C29: each costs some KiB before the first value is stored."""
    path, names = tmp_path / "a.csv", ",".join(f"x{j}" for j in range(99_999))
    path.write_text(f"{names},y\n" + "0," * 99_999 + "1\n")
    needed = width_bytes([*names.split(","), "y"]) >> 20
    assert needed > 200
    with pytest.raises(StreamSVMError, match=rf"a\.csv has 100000 columns: about {needed}MiB are needed") as caught:
        run(path, label="y", memory=budget.NOMINAL + (200 << 20))
    assert (caught.value.code, caught.value.exit_code) == ("E-BUDGET", 78)
    assert not (tmp_path / "s.zarr").exists()


def test_ingest_reports_events(source: Callable[..., Path]) -> None:
    events: list[dict[str, Any]] = []
    path = source(SVM, "a.svm")
    ingest(IngestJob(sources=(path,), store=path.parent / "s.zarr"), events.append)
    assert events[-1]["done"]
    assert (events[-1]["event"], events[-1]["rows"], events[-1]["bytes"]) == ("ingest", 100, len(SVM))
    assert events[-1]["total_bytes"] == len(SVM)


@pytest.mark.parametrize("policy", ["mean", "zero", "indicator"])
def test_ingest_on_workers_fills_missing_values_of_arrays_as_one_process_does(tmp_path: Path, policy: str) -> None:
    """Each file alone has other means, and other columns with missing values."""
    rng = np.random.default_rng(0)
    for k in range(2):
        X = rng.normal(size=(40, 3)) + 10.0 * k
        X[3 + k :: 9, k] = np.nan
        np.savez(tmp_path / f"{k}.npz", X=X, y=np.arange(40) % 2)
    sources = tuple(tmp_path / f"{k}.npz" for k in range(2))
    digests = []
    for name, executor in (("here", None), ("tasks", SerialExecutor())):
        ingest(IngestJob(sources=sources, store=tmp_path / f"{name}.zarr", missing=policy), executor=executor)
        digests.append(open_store(tmp_path / f"{name}.zarr").digest)
    assert digests[0] == digests[1]
