"""Stores of float16, bfloat16, uint8 and int8: fewer bytes on disk, the problem of the numbers as stored, the same bits where nothing is rounded."""

from __future__ import annotations

import json
import math
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from click.testing import CliRunner

import streamsvm as sv
from streamsvm.bfloat16 import BFloat16Array
from streamsvm.cli.main import cli
from streamsvm.sklearn import StreamSVC
from streamsvm.store import read_chunk
from streamsvm.store.format.arrays import Encoding

ROWS, COLUMNS = 3000, 12
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, COLUMNS)).astype(np.float32)
HALF = X.astype(np.float16)
Y = (X[:, 0] + X[:, 1] > RANDOM.normal(size=ROWS)).astype(int)


def stored_rows(path: Path) -> np.ndarray[Any, Any]:
    store = sv.open_store(path)
    chunks = [read_chunk(store, k, store.buffers()).X.values for k in range(len(store.layout.chunks))]
    return np.concatenate(chunks)


def test_store_dtype_every_float16_number_is_decoded_exactly() -> None:
    numbers = np.arange(65536, dtype=np.uint16).view(np.float16)
    finite = numbers[np.isfinite(numbers)].reshape(-1, 32)
    decoded = np.empty(finite.shape, np.float32)
    Encoding("float16").decode(finite, decoded)
    assert (decoded.view(np.uint32) == finite.astype(np.float32).view(np.uint32)).all()


def vectors_in(place: Path, dtype: type) -> Path:
    emb = pa.FixedSizeListArray.from_arrays(pa.array(HALF.astype(dtype).ravel()), COLUMNS)
    pq.write_table(pa.table({"emb": emb, "label": Y}), place / f"{dtype.__name__}.parquet")
    return place / f"{dtype.__name__}.parquet"


def test_store_dtype_auto_is_that_of_the_source_and_changes_no_bit(tmp_path: Path) -> None:
    half, single = vectors_in(tmp_path, np.float16), vectors_in(tmp_path, np.float32)
    options: dict[str, Any] = {"label": "label", "chunk": "16KiB"}
    for source, name in ((half, "half"), (single, "single")):
        sv.ingest(source, tmp_path / f"{name}.zarr", **options)
    sv.ingest(HALF, tmp_path / "array.zarr", y=Y, chunk="16KiB")
    stores = [sv.open_store(tmp_path / f"{name}.zarr") for name in ("half", "single", "array")]
    assert [store.layout.kind for store in stores] == ["dense float16", "dense", "dense float16"]
    assert stores[0].digest == stores[2].digest
    sizes = [
        sum(f.stat().st_size for f in (tmp_path / name / "X").glob("c.*")) for name in ("half.zarr", "single.zarr")
    ]
    units = len(stores[0].layout.chunks)
    assert sizes[0] - 4 * units == (sizes[1] - 4 * units) // 2
    read = [store.layout.bytes_per_pass - 4 * ROWS for store in stores]
    assert read == [2 * HALF.size, 4 * HALF.size, 2 * HALF.size]
    models = [sv.fit(tmp_path / f"{name}.zarr", tmp_path / f"{name}.svm").model for name in ("half", "single")]
    assert (models[0].weights == models[1].weights).all()
    # what a table has in two types, or is filled, is not taken for float16
    sv.ingest([half, single], tmp_path / "both.zarr", **options)
    assert sv.open_store(tmp_path / "both.zarr").layout.kind == "dense"


def bfloat16_of(number: Fraction) -> float:
    """Return the nearest number of 8 bits, the even one of two, from the definition."""
    exponent = max(math.frexp(float(abs(number)))[1] - 8, -133)
    return math.copysign(float(round(abs(number) / Fraction(2) ** exponent) * Fraction(2) ** exponent), number)


def test_store_dtype_bfloat16_rounds_to_nearest_even_and_is_decoded_exactly() -> None:
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    upper = np.array([0, 1, 0x7F, 0x80, 0x3F7F, 0x3F80, 0x7F7E, 0x80], np.uint32) << 16
    bits = np.concatenate([(upper[:, None] + lower).ravel(), RANDOM.integers(0, 0x7F7F0000, 2000, np.uint32)])
    numbers = np.concatenate([bits, bits | np.uint32(1 << 31)]).view(np.float32).reshape(-1, 4)
    rounded, does_not_fit = Encoding("bfloat16").round(numbers)
    assert not does_not_fit.any()
    assert rounded.ravel().tolist() == [bfloat16_of(Fraction(float(number))) for number in numbers.ravel()]
    stored = np.concatenate([np.arange(0x7F80), np.arange(0x8000, 0xFF80)]).astype(np.uint16).reshape(-1, 2)
    decoded = np.empty(stored.shape, np.float32)
    Encoding("bfloat16").decode(stored, decoded)
    assert (Encoding("bfloat16").encode(decoded) == stored).all()


@pytest.mark.parametrize("form", ["zarr", "h5"])
def test_store_dtype_bfloat16_poses_the_problem_of_the_stored_numbers(tmp_path: Path, form: str) -> None:
    large = X * np.float32(1e30)
    store = tmp_path / f"s.{form}"
    options: dict[str, Any] = {"store_dtype": "bfloat16", "chunk": "16KiB"}
    sv.ingest(large, store, y=Y, test_fraction=0.1, **options)
    sv.ingest(large, tmp_path / f"all.{form}", y=Y, **options)
    opened = sv.open_store(tmp_path / f"all.{form}")
    assert opened.layout.kind == "dense bfloat16"
    assert opened.layout.bytes_per_pass == 2 * X.size + 4 * ROWS
    told = CliRunner().invoke(cli, ["info", str(store)])
    assert "dense bfloat16" in told.stdout
    stored = stored_rows(tmp_path / f"all.{form}")
    assert (stored == Encoding("bfloat16").round(large)[0]).all()
    # stored numbers are taken as they are, and give the same store
    sv.ingest(BFloat16Array((stored.view(np.uint32) >> 16).astype(np.uint16)), tmp_path / "t.zarr", y=Y, chunk="16KiB")
    assert sv.open_store(tmp_path / "t.zarr").digest == opened.digest
    sv.ingest(stored, tmp_path / "single.zarr", y=Y, chunk="16KiB")
    weights = [
        sv.fit(path, tmp_path / "m.svm", overwrite=True, standardize=True).model.weights
        for path in (tmp_path / f"all.{form}", tmp_path / "single.zarr")
    ]
    assert (weights[0] == weights[1]).all()


@pytest.mark.parametrize("form", ["zarr", "h5"])
def test_store_dtype_float16_poses_the_problem_of_the_stored_numbers(tmp_path: Path, form: str) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    store = tmp_path / f"s.{form}"
    options: dict[str, Any] = {"labels": tmp_path / "y.npy", "store_dtype": "float16", "chunk": "16KiB"}
    assert sv.ingest(tmp_path / "x.npy", store, **options).store_dtype == "float16"
    assert (stored_rows(store) == HALF.astype(np.float32)).all()
    mean = sv.open_store(store).statistics().mean
    assert mean == pytest.approx(HALF.mean(axis=0, dtype=np.float64), rel=1e-9)
    fitted = sv.fit(store, tmp_path / "m.svm", C=0.1, loss="squared_hinge")
    w = fitted.model.weights.ravel()
    margins = (2 * Y - 1) * (np.column_stack([HALF.astype(np.float64), np.ones(ROWS)]) @ w)
    primal = w @ w / 2 + 0.1 * (np.maximum(0, 1 - margins) ** 2).sum()
    assert json.loads((tmp_path / "m.svm.run" / "certificate.json").read_text())["problems"][0][
        "primal"
    ] == pytest.approx(primal, rel=1e-6)


def test_store_dtype_float16_is_made_of_files_and_split_shuffled_and_repaired(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.column_stack([X, Y]))
    call = [str(tmp_path / "x.npy"), str(tmp_path / "s.zarr"), "--label", "last", "--store-dtype", "float16"]
    call += ["--chunk", "16KiB", "--test-fraction", "0.2", "--shuffle"]
    done = CliRunner().invoke(cli, ["ingest", *call])
    assert "dense float16" in done.stdout
    assert sv.open_store(tmp_path / "s.test.zarr").layout.kind == "dense float16"
    assert {*map(bytes, stored_rows(tmp_path / "s.zarr"))} <= {*map(bytes, HALF.astype(np.float32))}
    unit = tmp_path / "s.zarr" / "X" / "c.1.0"
    good = unit.read_bytes()
    unit.write_bytes(bytes([good[0] ^ 1]) + good[1:])
    assert CliRunner().invoke(cli, ["verify", str(tmp_path / "s.zarr")]).exit_code != 0
    assert CliRunner().invoke(cli, ["ingest", *call, "--repair"]).exit_code == 0
    assert unit.read_bytes() == good
    fitted = sv.fit(tmp_path / "x.npy", tmp_path / "m.svm", label="last", store_dtype="float16", report="none")
    assert fitted.certified


def test_store_dtype_uint8_is_a_quarter_of_the_bytes_and_changes_no_bit(tmp_path: Path) -> None:
    pixels = RANDOM.integers(0, 256, (ROWS, COLUMNS)).astype(np.uint8)
    weights = []
    for dtype, compression in (("float32", "none"), ("uint8", "none"), ("uint8", "lz4")):
        store = tmp_path / f"{dtype}-{compression}.zarr"
        options: dict[str, Any] = {"store_dtype": dtype, "chunk": "16KiB", "compression": compression}
        sv.ingest(pixels, store, y=Y, **options)
        assert (stored_rows(store) == pixels).all()
        assert sv.open_store(store).layout.bytes_per_pass == pixels.size * (1 if dtype == "uint8" else 4) + 4 * ROWS
        weights.append(sv.fit(store, tmp_path / "m.svm", overwrite=True, standardize=True).model.weights)
    assert (weights[0] == weights[1]).all()
    assert (weights[0] == weights[2]).all()


def test_store_dtype_int8_scales_columns_and_keeps_small_whole_numbers(tmp_path: Path) -> None:
    rows = np.column_stack([X * np.float32(10.0) ** np.arange(-5, 7), np.rint(X[:, :1] * 20), np.zeros(ROWS)]).astype(
        np.float32
    )
    for factor in (1, 4):
        done = sv.ingest(
            rows * factor, tmp_path / f"{factor}.zarr", y=Y, store_dtype="int8", chunk="16KiB", test_fraction=0.2
        )
    assert done.store_dtype == "int8"
    stores = [sv.open_store(tmp_path / f"{factor}.zarr") for factor in (1, 4)]
    assert stores[0].digest != stores[1].digest  # equal bytes of another scale
    held_out = sv.open_store(tmp_path / "1.test.zarr")
    assert held_out.facts["scale"] == stores[0].facts["scale"]
    assert stores[0].layout.bytes_per_pass == stores[0].layout.rows * (rows.shape[1] + 4)
    sv.ingest(rows, tmp_path / "all.zarr", y=Y, store_dtype="int8")
    stored = stored_rows(tmp_path / "all.zarr")
    assert (np.abs(stored - rows) <= np.abs(rows).max(axis=0) / 253).all()
    assert (stored[:, COLUMNS:] == rows[:, COLUMNS:]).all()
    assert sv.open_store(tmp_path / "all.zarr").statistics().mean == pytest.approx(
        stored.mean(axis=0, dtype=np.float64)
    )
    fitted = sv.fit(tmp_path / "all.zarr", tmp_path / "m.svm", standardize=True)
    assert fitted.certified


def test_store_dtype_int8_of_sparse_rows_has_the_scale_of_dense_ones(tmp_path: Path) -> None:
    """From a matrix and from svmlight, whose rows are stored as dense ones: half of the entries are not 0, or --layout says so."""
    rows = np.where(RANDOM.random(X.shape) < 0.6, X * 100, 0)
    rows[:, 0] = np.rint(rows[:, 0] / 10)
    sv.ingest(rows, tmp_path / "dense.zarr", y=Y, store_dtype="int8")
    sv.ingest(scipy.sparse.csr_matrix(rows), tmp_path / "matrix.zarr", y=Y, store_dtype="int8", layout="dense")
    lines = [
        f"{y} " + " ".join(f"{j + 1}:{row[j]!r}" for j in np.flatnonzero(row))
        for row, y in zip(rows.tolist(), Y, strict=True)
    ]
    (tmp_path / "rows.svm").write_text("\n".join(lines) + "\n")
    sv.ingest(tmp_path / "rows.svm", tmp_path / "lines.zarr", store_dtype="int8", features=COLUMNS)
    dense = sv.open_store(tmp_path / "dense.zarr")
    assert dense.facts["scale"][0] == 1
    for name in ("matrix", "lines"):
        assert sv.open_store(tmp_path / f"{name}.zarr").facts["scale"] == dense.facts["scale"]
        assert (stored_rows(tmp_path / f"{name}.zarr") == stored_rows(tmp_path / "dense.zarr")).all()


class Tensor:
    """What is asked of a tensor: DLPack, a device, a type, rows by number."""

    device, requires_grad, refusal = "cpu", False, ""

    def __init__(self, values: np.ndarray[Any, Any], dtype: str = "torch.float16") -> None:
        self.values, self.shape, self.dtype = values, values.shape, dtype

    def __getitem__(self, key: Any) -> np.ndarray[Any, Any]:
        raise AssertionError("the memory of a tensor is used as it is")

    def __dlpack__(self, **_: Any) -> Any:
        if self.refusal:
            raise BufferError(self.refusal)
        return self.values.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_store_dtype_of_memory_maps_and_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = np.memmap(tmp_path / "rows.bin", np.float16, "w+", shape=HALF.shape)
    mapped[:] = HALF
    expected = sv.fit(HALF, tmp_path / "m.svm", y=Y).model.weights
    for rows in (mapped, Tensor(HALF)):
        sv.ingest(rows, tmp_path / "s.zarr", y=Y, overwrite=True)
        assert sv.open_store(tmp_path / "s.zarr").layout.kind == "dense float16"
        assert (sv.fit(rows, tmp_path / "m.svm", y=Y, overwrite=True).model.weights == expected).all()
        assert StreamSVC().fit(rows, Y).score(mapped, Y) > 0.7
    monkeypatch.setitem(sys.modules, Tensor.__module__.partition(".")[0], SimpleNamespace(int16=np.int16))
    bits = Encoding("bfloat16").encode(X)
    brain = Tensor(bits, "torch.bfloat16")
    brain.view = lambda dtype: Tensor(bits.view(dtype), "torch.int16")  # type: ignore[attr-defined]
    sv.ingest(brain, tmp_path / "s.zarr", y=Y, overwrite=True)
    assert sv.open_store(tmp_path / "s.zarr").layout.kind == "dense bfloat16"
    expected = sv.fit(Encoding("bfloat16").round(X)[0], tmp_path / "m.svm", y=Y, overwrite=True).model.weights
    assert (sv.fit(brain, tmp_path / "m.svm", y=Y, overwrite=True).model.weights == expected).all()
    assert StreamSVC().fit(brain, Y).score(brain, Y) > 0.7
    for dtype, changes, hint in (
        ("torch.bfloat16", {}, "pass it as float32"),
        ("torch.float32", {"refusal": "gradient", "requires_grad": True}, "X.detach"),
        ("torch.float32", {"refusal": "device", "device": "cuda:0"}, "X.to"),
    ):
        tensor = Tensor(HALF, dtype)
        vars(tensor).update(changes)
        with pytest.raises(sv.UsageError) as refused:
            sv.ingest(tensor, tmp_path / "t.zarr", y=Y)
        assert hint in refused.value.hint
        with pytest.raises(ValueError, match=hint):
            StreamSVC().fit(tensor, Y)


@pytest.mark.parametrize(
    ("rows", "options", "error", "text"),
    [
        (np.where(np.arange(36).reshape(9, 4) == 17, 1e6, 1.0), {}, sv.DataError, "row 5, feature 2: 1e.06 does not fit float16"),
        (np.full((9, 2), 3.4e38), {"store_dtype": "bfloat16"}, sv.DataError, "row 1, feature 1: 3.4e.38 does not fit bfloat16, .* 3.39e38"),
        *((np.eye(9) * number, {"store_dtype": "uint8"}, sv.DataError, "does not fit uint8") for number in (1.5, 256, -1)),
        (np.eye(9), {"layout": "csr"}, sv.UsageError, "float16.* is for dense rows"),
    ],
)  # fmt: skip
def test_store_dtype_that_cannot_hold_the_rows_is_refused(
    tmp_path: Path, rows: Any, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        sv.ingest(rows, tmp_path / "s.zarr", y=np.arange(9) % 2, **{"store_dtype": "float16", **options})
    assert not (tmp_path / "s.zarr").exists()
