"""Generated data: the same rows however they are asked for, and as hard to learn as promised."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.errors import ExistsError, UsageError
from streamsvm.jobs.common_options import SynthJob
from streamsvm.jobs.synth import synth
from streamsvm.rows import CSR, Dense, Rows, row_count
from streamsvm.store import open_store, read_chunk
from streamsvm.store.generators import GENERATORS
from streamsvm.types import Batch
from tests.axes import each_value

NAMES = list(GENERATORS)


def arrays(X: Rows) -> tuple[Any, ...]:
    return (X.values,) if isinstance(X, Dense) else (X.data, X.indices, np.diff(X.indptr))


def joined(batches: list[Batch]) -> list[Any]:
    """All numbers of some batches, one array each: comparable whatever the cuts."""
    parts = [(*arrays(b.X), b.labels) for b in batches]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def same(left: list[Any], right: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def two_draws(name: str) -> int:
    """A number of rows that ends within the second draw."""
    return int(GENERATORS[name].draw_rows) + 777


@each_value(("name", NAMES), ("batch_rows", [1_000, 3_333, 10**9]))
def test_generator_bits_do_not_depend_on_the_batch_size(name: str, batch_rows: int) -> None:
    source = GENERATORS[name](rows=two_draws(name), seed=5)
    cut = list(source.batches(batch_rows))
    assert sum(row_count(b.X) for b in cut) == source.rows
    assert same(joined(cut), joined(list(source.batches())))


@pytest.mark.parametrize("name", NAMES)
def test_generator_fewer_rows_are_the_first_of_more(name: str) -> None:
    more = two_draws(name)
    few = joined(list(GENERATORS[name](rows=more - 500, seed=2).batches(500)))
    many = list(GENERATORS[name](rows=more, seed=2).batches(500))
    kept, left = [], more - 500
    for b in many:
        n = min(left, row_count(b.X))
        part = b.X.values[:n] if isinstance(b.X, Dense) else None
        end = b.X.indptr[n] if isinstance(b.X, CSR) else 0
        X = Dense(part) if part is not None else CSR(b.X.data[:end], b.X.indices[:end], b.X.indptr[: n + 1])
        kept.append(Batch(X, b.labels[:n]))
        left -= n
    assert same(few, joined([b for b in kept if len(b.labels)]))


@pytest.mark.parametrize("name", NAMES)
def test_generator_form_is_what_passes_expect(name: str) -> None:
    source = GENERATORS[name](rows=300, seed=0)
    (batch,) = source.batches()
    assert set(np.unique(batch.labels)) <= {float(name) for name in source.classes}
    assert len(np.unique(batch.labels)) > 1
    assert isinstance(batch.X, CSR) == source.sparse
    assert source.names is None or len(source.names) == source.columns
    if isinstance(batch.X, Dense):
        assert batch.X.values.dtype == np.float32
        assert batch.X.values.flags.c_contiguous
        assert batch.X.values.shape == (300, source.columns)
    else:
        assert [a.dtype for a in batch.X[:3]] == [np.float32, np.int32, np.int64]
        assert batch.X.indices.max() < source.columns


@pytest.mark.parametrize("name", NAMES)
def test_generator_seeds_and_draws_differ(name: str) -> None:
    a, b = (GENERATORS[name](rows=1, seed=seed) for seed in (0, 1))
    batches = [a.draw(0), a.draw(1), b.draw(0)]
    for left, right in itertools.combinations(batches, 2):
        assert not np.array_equal(arrays(left.X)[0][:50], arrays(right.X)[0][:50])


def test_generator_store_holds_the_generated_rows(tmp_path: Path) -> None:
    job = SynthJob("susy", str(tmp_path / "s.zarr"), rows=10_000, seed=4, chunk_bytes=1 << 16, test_fraction=0.2)
    events: list[dict[str, Any]] = []
    result = synth(job, events.append)
    assert result.test == job.test_path() == tmp_path / "s.test.zarr"
    found = []
    for path in (result.store, result.test):
        store = open_store(path)
        for k in range(len(store.layout.chunks)):
            chunk = read_chunk(store, k, store.buffers())
            found.append(Batch(chunk.X, np.where(chunk.codes == 1, 1.0, -1.0)))
    assert same(joined(found), joined(list(GENERATORS["susy"](rows=10_000, seed=4).batches())))
    assert open_store(result.store).layout.rows == 8_000
    assert open_store(result.store).layout.classes == ("-1", "1")
    assert events[-1]["rows"] == 10_000
    assert events[-1]["done"]


@pytest.mark.parametrize("settings", [{"rows": 0}, {"test_fraction": 1.0}, {"test_fraction": -0.1}])
def test_generator_impossible_requests_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        SynthJob("susy", "s", **settings)


def test_generator_unknown_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'susy'"):
        synth(SynthJob("suzy", str(tmp_path / "s")))


# -- the wide table ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [3, 4, 40, 400, 70_000])
def test_generator_table_has_the_columns_asked_for_and_every_row_a_level_of_each_variable(columns: int) -> None:
    table = GENERATORS["table"](rows=2_000, seed=1, columns=columns)
    assert table.numeric_columns + sum(table.levels) == columns
    (batch,) = table.batches()
    indices = batch.X.indices.reshape(2_000, -1)
    assert (np.diff(indices) > 0).all()
    first = np.cumsum([table.numeric_columns, *table.levels])
    one_hot = indices[:, table.numeric_columns :]
    assert ((one_hot >= first[:-1]) & (one_hot < first[1:])).all()


@pytest.mark.parametrize(
    "settings", [{"columns": 2}, {"columns": 50, "numeric": 0}, {"columns": 50, "positive": 1.0}, {"columns": -4}]
)
def test_generator_table_that_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"columns|positive"):
        GENERATORS["table"](rows=10, **settings)


@pytest.mark.parametrize("name", ["table", "names"])
def test_generator_file_begins_with_the_rows_of_a_shorter_one(tmp_path: Path, name: str) -> None:
    long, short, parts = (tmp_path / f"{which}.csv" for which in ("long", "short", "parts"))
    synth(SynthJob(name, str(long), rows=70_000))
    synth(SynthJob(name, str(short), rows=3_000))
    synth(SynthJob(name, str(parts), rows=3_000, test_fraction=0.25))
    assert long.read_text().startswith(short.read_text())
    assert long.read_text().count("\n") == 70_001
    held_out = (tmp_path / "parts.test.csv").read_text()
    assert parts.read_text() + held_out.partition("\n")[2] == short.read_text()
    with pytest.raises(ExistsError):
        synth(SynthJob(name, str(short), rows=3_000))
    synth(SynthJob(name, str(short), rows=3_000, seed=1, overwrite=True))
    assert not long.read_text().startswith(short.read_text())
    short.write_text("what somebody wrote\n")
    with pytest.raises(ExistsError):
        synth(SynthJob(name, str(short), rows=3_000, overwrite=True))


def test_generator_embeddings_are_float16_vectors_of_one_length_in_many_classes(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rows": 2000, "columns": 16, "generator_options": {"n_classes": 7, "length": 10.0}}
    for dtype in ("auto", "float32"):
        synth(SynthJob(name="embeddings", store=str(tmp_path / f"{dtype}.zarr"), store_dtype=dtype, **options))
    stores = [open_store(tmp_path / f"{dtype}.zarr") for dtype in ("auto", "float32")]
    assert [store.layout.kind for store in stores] == ["dense float16", "dense"]
    half, single = (read_chunk(store, 0, store.buffers()) for store in stores)
    assert (half.X.values == single.X.values).all()
    assert np.linalg.norm(half.X.values, axis=1) == pytest.approx(10, rel=1e-3)
    assert stores[0].layout.classes == tuple(map(str, range(7)))
    assert min(stores[0].layout.counts) > 200
    with pytest.raises(UsageError, match="are no float16 numbers"):
        synth(SynthJob(name="separable", store=str(tmp_path / "x.zarr"), store_dtype="float16", rows=100))
