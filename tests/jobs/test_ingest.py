"""From files to a committed store: what lands there, what is held out, what is left behind by a failure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.errors import StreamSVMError, UsageError
from streamsvm.jobs.ingest.job import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.ingest.stores import HoldOut
from streamsvm.rows import CSR, in_layout
from streamsvm.schedule import budget
from streamsvm.store import open_store
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
    with pytest.raises(StreamSVMError, match=r"a\.csv has 100000 columns: about 785MiB are needed") as caught:
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


LETTERS = {
    "letter.xz": [594, 567, 554, 598, 565, 565, 547, 538, 567, 575, 572, 560, 607, 605, 574, 597, 594, 568, 563, 599, 606, 581, 576, 583, 602, 543],
    "letter.t.xz": [195, 199, 182, 207, 203, 210, 226, 196, 188, 172, 167, 201, 185, 178, 179, 206, 189, 190, 185, 197, 207, 183, 176, 204, 184, 191],
}  # fmt: skip
"""Rows of class 1, 2, ... 26."""
CORRECTED = (
    "smurf.164091 normal.60593 neptune.58001 snmpgetattack.7741 mailbomb.5000 guess_passwd.4367 snmpguess.2406 "
    "satan.1633 warezmaster.1602 back.1098 mscan.1053 apache2.794 processtable.759 saint.736 portsweep.354 "
    "ipsweep.306 httptunnel.158 pod.87 nmap.84 buffer_overflow.22 multihop.18 named.17 sendmail.17 ps.16 "
    "rootkit.13 xterm.13 teardrop.12 xlock.9 land.9 xsnoop.4 ftp_write.3 perl.2 phf.2 sqlattack.2 loadmodule.2 "
    "worm.2 udpstorm.2 imap.1 "
)
KDD = (
    "smurf.280790 neptune.107201 normal.97278 back.2203 satan.1589 ipsweep.1247 portsweep.1040 "
    "warezclient.1020 teardrop.979 pod.264 nmap.231 guess_passwd.53 buffer_overflow.30 land.21 warezmaster.20 "
    "imap.12 rootkit.10 loadmodule.9 ftp_write.8 multihop.7 phf.4 perl.3 spy.2 "
)
"""Rows of each class of the two kdd99 files, counted by awk."""


def spelt(counts: str) -> dict[str, int]:
    """'smurf.164091 land.9' as a table."""
    return {f"{name}.": int(count) for name, count in (word.split(".") for word in counts.split())}


def numbered(counts: list[int], first: int) -> dict[str, int]:
    return {str(k): count for k, count in enumerate(counts, first)}


REAL: dict[str, tuple[dict[str, Any], int, int, dict[str, int]]] = {
    "a9a.xz": ({"features": 123}, 32_561, 123, {"-1": 24_720, "1": 7_841}),
    "a9a.t.xz": ({"features": 123}, 16_281, 123, {}),
    "ijcnn1.gz": ({}, 49_990, 22, {"1": 4_853, "-1": 45_137}),
    "ijcnn1.t.gz": ({}, 91_701, 22, {"1": 8_712, "-1": 82_989}),
    "w8a.xz": ({}, 49_749, 300, {"1": 1_479, "-1": 48_270}),
    "letter.xz": ({}, 15_000, 16, numbered(LETTERS["letter.xz"], 1)),
    "letter.t.xz": ({}, 5_000, 16, numbered(LETTERS["letter.t.xz"], 1)),
    "imdb.xz": ({}, 25_000, 35_855, {"1": 12_500, "-1": 12_500}),
    "covtype.csv.gz": ({"label": "Cover_Type", "positive": "2"}, 581_012, 54, {"2": 283_301}),
    "corrected.gz": ({"label": "last", "header": False, "categorical": ("*",)}, 311_029, 117, spelt(CORRECTED)),
    "kddcup.data_10_percent.gz": (
        {"label": "last", "header": False, "categorical": ("*",)},
        494_021,
        118,
        spelt(KDD),
    ),
    "flights-3m.parquet": (
        {"label": "delay", "label_threshold": 15, "categorical": ("*",), "calendar": ("date",)},
        3_000_000,
        0,
        {">=15": 626_590},
    ),
}


@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
def test_ingest_stores_real_files(data_file: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    options, rows, columns, counts = REAL[name]
    result = ingest(IngestJob(sources=(data_file(name),), store=tmp_path / "s.zarr", **options))
    assert result.rows == rows
    assert columns in (0, result.columns)
    assert counts.items() <= dict(zip(result.classes, result.counts, strict=True)).items()
    store = open_store(result.store)
    assert (store.layout.rows, store.layout.columns, store.layout.counts) == (rows, result.columns, result.counts)
    assert isinstance(chunk_of(store, 0).X, CSR) == result.sparse


"""Rows of each digit."""
