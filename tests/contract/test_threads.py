"""Bits do not depend on threads, workers, or how far is read ahead: of models of every solver that only sums up in a pass, of
predictions, figures, features and stores.
"""

from __future__ import annotations

import gzip
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsvm.engine import partition
from streamsvm.engine.executor import SerialExecutor
from streamsvm.errors import DataError
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob, PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.common_options import EmbedJob, SynthJob
from streamsvm.jobs.embed.build import embed
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.synth import synth
from streamsvm.rows import Dense
from streamsvm.solvers import SOLVERS
from streamsvm.store import open_store, read_chunk
from streamsvm.store.sources import csv_parsing
from streamsvm.store.sources.byte_stream import BLOCK
from tests.fault.test_determinism import bits_of

RBF: dict[str, Any] = {"kernel": "rbf", "gamma": 0.1}
SUMS = [name for name in SOLVERS if not SOLVERS[name]().shuffled]
"""Asked of the registry: a solver that is added is held to the same."""
KINDS: dict[str, dict[str, Any]] = {
    **{name: {"solver": name} | (RBF if SOLVERS[name]().exact_kernel else {}) for name in SUMS},
    "newton, few rows": {"solver": "newton", "options": {"sample": 200}},
    "newton, scaled": {"solver": "newton", "standardize": True, "C": (0.1, 1.0)},
    "on the fly": {"solver": "newton", **RBF, "landmarks": 20, "embedding": "fly"},
    "on the fly, rows remade": {
        "solver": "newton",
        **RBF,
        "landmarks": 150,
        "embedding": "fly",
        "options": {"sample": 200},
    },
    "on disk": {"solver": "newton", **RBF, "landmarks": 20, "embedding": "disk"},
    "dcd, groups": {"solver": "dcd", "groups": 3, "loss": "hinge"},
    "pegasos, groups": {"solver": "pegasos", "groups": 3, "loss": "hinge"},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("threads") / "s.zarr"
    synth(SynthJob("susy", str(path), rows=700, chunk_bytes=6_000))
    return path


@pytest.mark.parametrize("name", KINDS)
def test_threads_bits_are_those_of_one_thread(
    name: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "PASS_GROUP_BYTES", 1)
    job = FitJob(str(store), str(tmp_path / "m"), max_passes=3, tolerance=0.05, overwrite=True, **KINDS[name])
    fit(replace(job, threads=1))
    reference = bits_of(job)
    for threads, prefetch in ((2, 0), (7, 3)):
        fit(replace(job, threads=threads, prefetch=prefetch))
        assert bits_of(job) == reference, f"{threads} threads, prefetch {prefetch}"
    if name in SUMS:  # as tasks are sent to workers, with what they leave in files
        fit(job, executor=SerialExecutor())
        assert bits_of(job) == reference


@pytest.mark.parametrize(("multi_class", "problems"), [("softmax", 1), ("softmax", None), ("ovr", 3)])
def test_threads_bits_of_many_classes_are_those_of_one_thread(
    multi_class: str, problems: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All values of C in the same passes, or groups of problems that begin at the solutions of those before."""
    monkeypatch.setattr(partition, "PASS_GROUP_BYTES", 1)
    store, options = str(tmp_path / "s.zarr"), {} if problems is None else {"problems": problems}
    synth(SynthJob("embeddings", store, rows=700, columns=12, chunk_bytes=4_000, generator_options={"n_classes": 4}))
    job = FitJob(
        store,
        str(tmp_path / "m"),
        solver="lbfgs",
        loss="logistic",
        multi_class=multi_class,
        C=(0.1, 1.0, 10.0),
        options=options,
        overwrite=True,
    )
    fit(replace(job, threads=1))
    reference = bits_of(job)
    fit(replace(job, threads=2))
    assert bits_of(job) == reference
    fit(job, executor=SerialExecutor())
    assert bits_of(job) == reference


def written(path: Path) -> dict[str, bytes]:
    """All files of an output by name."""
    return {str(p.relative_to(path)): p.read_bytes() for p in [path, *path.rglob("*")] if p.is_file()}


def csv_of(store: Path, path: Path) -> Path:
    """The first rows of a store as a table without labels."""
    opened = open_store(store)
    X = read_chunk(opened, 0, opened.buffers()).X
    assert isinstance(X, Dense)
    np.savetxt(path, X.values, delimiter=",")
    return path


@pytest.mark.parametrize("kind", ["linear", "kernel"])
def test_threads_predictions_and_figures_are_those_of_one_thread(kind: str, store: Path, tmp_path: Path) -> None:
    more = RBF | {"landmarks": 20, "embedding": "fly"} if kind == "kernel" else {}
    model = str(tmp_path / "m")
    fit(FitJob(str(store), model, solver="newton", max_passes=3, tolerance=0.05, **more))
    table = csv_of(store, tmp_path / "rows.csv")
    found = []
    for threads in (1, 7):
        for data, name in ((store, "store"), (table, "table")):
            out = tmp_path / f"{name}-{threads}.csv"
            read: dict[str, Any] = {"header": False} if name == "table" else {}
            predict(PredictJob(model, (str(data),), str(out), output=("label", "decision"), threads=threads, **read))
        figures = evaluate(EvaluateJob(model, (str(store),), threads=threads)).evaluation
        found.append([(tmp_path / f"{name}-{threads}.csv").read_bytes() for name in ("store", "table")] + [figures])
    assert len(found[0][0].splitlines()) == 701
    assert found == [found[0]] * 2


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_threads_features_are_those_of_one_thread(dtype: str, store: Path, tmp_path: Path) -> None:
    found = []
    for threads in (1, 7):
        out = tmp_path / str(threads)
        embed(EmbedJob(str(store), str(out), landmarks=16, chunk_bytes=4096, dtype=dtype, threads=threads, **RBF))
        found.append(written(out))
    assert len(found[0]) > 3
    assert found == [found[0]] * 2


def test_short_of_memory_threads_are_given_up_first(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the plan says so."""
    monkeypatch.setattr(partition, "PASS_GROUP_BYTES", 1)
    opened = open_store(store)
    job = FitJob(str(store), "m", solver="newton", landmarks=200, embedding="fly", **RBF)
    one, eight = (make_plan(replace(job, threads=n), opened).memory for n in (1, 8))
    assert (one.threads, eight.threads) == (1, 8)
    short = make_plan(replace(job, threads=8, memory=(one.total + eight.total) // 2), opened)
    assert 1 < short.memory.threads < 8
    assert f"memory is short: {short.memory.threads} of 8 threads" in short.why


SVMLIGHT: dict[str, dict[str, Any]] = {"bad lines": {"on_bad_line": "skip"}, "words": {"text_labels": True}}


@pytest.mark.parametrize("kind", ["plain", "gaps", *SVMLIGHT])
def test_threads_store_of_svmlight_is_that_of_one_thread(kind: str, tmp_path: Path) -> None:
    """Blocks of a file are parsed side by side; those in which something is wrong are read as ever, in their place."""
    source, rng = tmp_path / "a.svm", np.random.default_rng(0)
    lines = [f"{1 + k % 2} {1 + k % 7}:{x!r} {9 + k % 31}:1" for k, x in enumerate(rng.normal(size=150_000).tolist())]
    if kind == "gaps":
        lines[1::3], lines[2::3] = ["# nothing"] * len(lines[1::3]), ["1"] * len(lines[2::3])
    if kind == "bad lines":
        for at in (5, 70_000, 70_001, 149_999):
            lines[at] = "1 3:1 2:1"
    if kind == "words":
        lines = [("yes" if line.startswith("1") else "no") + line[1:] for line in lines]
    source.write_text("\n".join(lines) + "\n")
    assert source.stat().st_size > 1.5 * BLOCK
    more = SVMLIGHT.get(kind, {})
    found = []
    for threads in (1, 5):
        store = tmp_path / "s.zarr"
        job = IngestJob(sources=(source,), store=store, format="svmlight", overwrite=True, **more)
        result = ingest(replace(job, threads=threads))
        found.append((written(store), result.rows, result.counts, result.notices))
    assert found[0][1] == {"gaps": 100_000, "bad lines": 149_996}.get(kind, 150_000)
    assert found == [found[0]] * 2


TABLES: dict[str, dict[str, Any]] = {
    "plain": {},
    "several": {},
    "gzip": {},
    "bad lines": {"on_bad_line": "skip"},
    "quotes": {"multiline": True},
}


def tables_at(place: Path, kind: str) -> tuple[Path, ...]:
    """Files of one table: numbers, words, a label; each of several blocks."""
    rng = np.random.default_rng(1)
    word = '"a\nb"' if kind == "quotes" else '"a, b"'
    words = np.array(["red", "green", word])[rng.integers(0, 3, 120_000)]
    lines = [
        f"{x!r},{w},{n},{'yes' if x > 0 else 'no'}"
        for x, w, n in zip(rng.normal(size=120_000).tolist(), words, range(120_000), strict=True)
    ]
    if kind == "bad lines":
        for at in (5, 70_000, 119_998):
            lines[at] = "x" + lines[at]
    parts = [lines[:50_000], lines[50_000:90_000], lines[90_000:]] if kind == "several" else [lines]
    found = []
    for number, part in enumerate(parts):
        text = ("x,color,n,label\n" + "\n".join(part) + "\n").encode()
        assert len(text) > BLOCK
        path = place / f"{number}.csv{'.gz' if kind == 'gzip' else ''}"
        path.write_bytes(gzip.compress(text) if kind == "gzip" else text)
        found.append(path)
    return tuple(found)


@pytest.mark.parametrize("kind", TABLES)
def test_threads_store_of_tables_is_that_of_one_thread(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of CSV are parsed side by side."""
    sources, parsing, by = tables_at(tmp_path, kind), csv_parsing.parse_block, set[str]()

    def parse(*given: Any) -> Any:
        by.add(threading.current_thread().name.rpartition("_")[0])
        return parsing(*given)

    monkeypatch.setattr(csv_parsing, "parse_block", parse)
    found = []
    for threads in (1, 5):
        store = tmp_path / "s.zarr"
        job = IngestJob(
            sources=sources, store=store, label="label", categorical=("color",), overwrite=True, **TABLES[kind]
        )
        result = ingest(replace(job, threads=threads))
        found.append((written(store), result.rows, result.counts, result.notices))
    assert found[0][1] == 120_000 - 3 * (kind == "bad lines")
    assert found == [found[0]] * 2
    assert "streamsvm-parse" in by


def rows_at(place: Path, kind: str) -> dict[str, Any]:
    """Rows in two files of a form that no threads cut, or in lines of JSON: what an ingest is to be told of them."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(40_000, 5)).astype(np.float32), rng.integers(0, 2, 40_000)
    parts = [slice(0, 25_000), slice(25_000, None)]
    paths = [place / f"{number}.{kind.partition(',')[0]}" for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        if kind == "parquet":
            columns = {f"x{j}": X[part, j] for j in range(5)} | {"label": y[part]}
            pq.write_table(pa.table(columns), path, row_group_size=7_000)
        elif kind == "npy":
            np.save(path, np.column_stack([X[part], y[part]]))
        else:
            rows = [
                {"x": x, "z": z, "label": k} for (x, z), k in zip(X[part, :2].tolist(), y[part].tolist(), strict=True)
            ]
            lines = [json.dumps(row) for row in rows]
            if kind == "jsonl, bad lines":
                lines[3] = lines[20_000 % len(lines)] = lines[-1] = '{"x": "a"}'
            path.write_text("\n".join(lines) + "\n")
            assert path.stat().st_size > BLOCK // 2
    return {
        "sources": tuple(paths),
        "label": "last" if kind == "npy" else "label",
        "on_bad_line": "skip" if kind == "jsonl, bad lines" else "error",
    }


@pytest.mark.parametrize("kind", ["parquet", "npy", "jsonl", "jsonl, bad lines"])
def test_threads_store_of_other_files_is_that_of_one_thread(kind: str, tmp_path: Path) -> None:
    """Chunks are written, and files hashed, beside reading; lines of JSON are parsed side by side."""
    asked, found = rows_at(tmp_path, kind), []
    for threads in (1, 5):
        store = tmp_path / "s.zarr"
        result = ingest(IngestJob(store=store, overwrite=True, chunk_bytes=1 << 16, threads=threads, **asked))
        left_out = store.with_name("s.zarr.rejects")
        listed = left_out.read_bytes() if kind == "jsonl, bad lines" else b""
        found.append((written(store), result.rows, result.counts, result.notices, listed))
    assert found[0][1] == 40_000 - 6 * (kind == "jsonl, bad lines")
    assert found == [found[0]] * 2


def test_threads_first_object_that_cannot_be_read_is_told_whoever_reads_it(tmp_path: Path) -> None:
    lines = [json.dumps({"x": k / 7, "label": k % 2}) for k in range(200_000)]
    lines[150_000] = lines[180_000] = '{"x": "a", "label": 1}'
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    for threads in (1, 4):
        with pytest.raises(DataError, match="line 150001"):
            ingest(
                IngestJob(sources=(tmp_path / "a.jsonl",), store=tmp_path / "s.zarr", label="label", threads=threads)
            )


def test_threads_first_line_that_cannot_be_read_is_told_whoever_reads_it(tmp_path: Path) -> None:
    (source,) = tables_at(tmp_path, "plain")
    lines = source.read_text().split("\n")
    lines[60_000] = lines[100_000] = "x,red,1,yes"
    source.write_text("\n".join(lines))
    for threads in (1, 4):
        job = IngestJob(sources=(source,), store=tmp_path / "s.zarr", label="label", categorical=("color",))
        with pytest.raises(DataError, match="line 60001"):
            ingest(replace(job, threads=threads))
