"""What every store must do, whatever it lies in: dense and CSR, with and without weights."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamsvm.errors import DataError, MissingError, SecurityError, StreamSVMError
from streamsvm.rows import CSR, Dense, Rows
from streamsvm.store import BACKENDS, STORES, create, open_store, read_chunk
from streamsvm.store.format import manifest as manifests
from streamsvm.store.views import MemoryStore
from streamsvm.types import Store

ROWS, COLUMNS = 1000, 7
ON_DISK = list(BACKENDS)
PART_BYTES = (1 << 20) + 30_000
"""Of HDF5 stores here: several parts."""


def _data() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32) * (rng.random((ROWS, COLUMNS)) < 0.4)
    X[5] = 0  # a row without entries
    return X.astype(np.float32), rng.integers(0, 3, ROWS).astype(np.int32), rng.random(ROWS).astype(np.float32)


X, CODES, WEIGHT = _data()


def rows_of(sparse: bool, start: int, stop: int) -> Rows:
    if not sparse:
        return Dense(np.ascontiguousarray(X[start:stop]))
    m = sp.csr_matrix(X[start:stop])
    return CSR(m.data, m.indices.astype(np.int32), m.indptr.astype(np.int64))


def build(name: str, path: Path, case: tuple[bool, bool], step: int = 130, chunk_bytes: int = 1 << 12) -> Store:
    """A committed store of all rows, appended ``step`` at a time."""
    sparse, weighted = case
    if name == "memory":
        writer: Any = MemoryStore(chunk_bytes)
    else:
        writer = create(path, sparse=sparse, chunk_bytes=chunk_bytes, store_format=name)
        if name == "hdf5":
            writer.backend.part_bytes = PART_BYTES
    for a in range(0, ROWS, step):
        b = min(a + step, ROWS)
        writer.append(rows_of(sparse, a, b), CODES[a:b], WEIGHT[a:b] if weighted else None)
    if name == "memory":
        return writer.commit(("a", "b", "c"), COLUMNS)
    writer.commit(("a", "b", "c"), COLUMNS, {"names": None})
    return open_store(path)


def contents(store: Store) -> tuple[Any, Any, Any]:
    """All rows dense, codes and weights."""
    buffers, parts = store.buffers(), []
    for chunk in range(len(store.layout.chunks)):
        found = read_chunk(store, chunk, buffers)
        parts.append((dense(found.X), found.codes.copy(), None if found.weight is None else found.weight.copy()))
    weights = None if parts[0][2] is None else np.concatenate([p[2] for p in parts])
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]), weights


def dense(rows: Rows) -> Any:
    if isinstance(rows, Dense):
        return rows.values.copy()
    return sp.csr_matrix((rows.data, rows.indices, rows.indptr), (len(rows.indptr) - 1, COLUMNS)).toarray()


@pytest.fixture(params=list(STORES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[(False, True), (True, False)], ids=["dense, weighted", "sparse"])
def case(request: pytest.FixtureRequest) -> Any:
    return request.param


class TestStore:
    """A store of any kind."""

    def test_store_what_is_appended_is_read(self, name: str, case: Any, tmp_path: Path) -> None:
        values, codes, weights = contents(build(name, tmp_path / "s", case))
        assert np.array_equal(values, X)
        assert np.array_equal(codes, CODES)
        assert weights is None or np.array_equal(weights, WEIGHT)
        assert (weights is not None) == case[1]

    def test_store_it_can_be_opened_again_and_elsewhere(self, name: str, case: Any, tmp_path: Path) -> None:
        store = pickle.loads(pickle.dumps(build(name, tmp_path / "s", case)))
        assert np.array_equal(contents(store)[0], X)
        if name != "memory":
            shutil.move(tmp_path / "s", tmp_path / "t")
            assert open_store(tmp_path / "t").digest == store.digest

    def test_store_layout_counts(self, name: str, case: Any, tmp_path: Path) -> None:
        store = build(name, tmp_path / "s", case)
        layout, buffers = store.layout, store.buffers()
        assert (layout.rows, layout.columns, layout.dense, layout.weighted) == (ROWS, COLUMNS, not case[0], case[1])
        assert layout.counts == tuple(np.bincount(CODES).tolist())
        chunks = tuple(len(dense(read_chunk(store, k, buffers).X)) for k in range(len(layout.chunks)))
        assert len(chunks) > 4
        assert layout.chunks == chunks
        if case[0]:
            assert sum(layout.nonzeros or ()) == np.count_nonzero(X)

    def test_store_statistics_are_those_of_the_rows(self, name: str, case: Any, tmp_path: Path) -> None:
        found = build(name, tmp_path / "s", case).statistics()
        exact = X.astype(np.float64)
        np.testing.assert_allclose(found.mean, exact.mean(0), rtol=1e-12)
        np.testing.assert_allclose(found.M2, ((exact - exact.mean(0)) ** 2).sum(0), rtol=1e-9)
        assert np.array_equal(found.minimum, exact.min(0))
        assert np.array_equal(found.maximum, exact.max(0))

    def test_store_digest_is_that_of_the_data(self, name: str, case: Any, tmp_path: Path) -> None:
        digest = build(name, tmp_path / "a", case).digest
        assert digest == build(name, tmp_path / "b", case, step=57).digest
        assert digest == build("memory", tmp_path, case).digest
        assert digest != build(name, tmp_path / "c", case, chunk_bytes=1 << 13).digest

    def test_store_one_form_is_handed_out(self, name: str, case: Any, tmp_path: Path) -> None:
        store = build(name, tmp_path / "s", case)
        buffers = store.buffers()
        for chunk in range(len(store.layout.chunks)):
            found = read_chunk(store, chunk, buffers)
            arrays = [*(a for a in found.X if isinstance(a, np.ndarray)), found.codes]
            assert all(a.flags.c_contiguous and a.flags.writeable for a in arrays)
            types = ["float32", "int32", "int64", "int32"] if case[0] else ["float32", "int32"]
            assert [a.dtype.name for a in arrays] == types
            if isinstance(found.X, CSR):
                assert found.X.indptr[0] == 0

    def test_store_chunks_in_any_order(self, name: str, case: Any, tmp_path: Path) -> None:
        store = build(name, tmp_path / "s", case)
        buffers, starts = store.buffers(), np.cumsum([0, *store.layout.chunks])
        for chunk in np.random.default_rng(1).permutation(len(store.layout.chunks)).tolist():
            store.expect(chunk)
            assert np.array_equal(dense(read_chunk(store, chunk, buffers).X), X[starts[chunk] : starts[chunk + 1]])
            store.forget(chunk)

    @settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(step=st.integers(1, 400), chunk_bytes=st.integers(40, 1 << 14))
    def test_store_batches_and_chunks_of_any_size(
        self, name: str, case: Any, tmp_path: Path, step: int, chunk_bytes: int
    ) -> None:
        path = tmp_path / "s"
        shutil.rmtree(path, ignore_errors=True)
        if chunk_bytes < 400 and name != "memory":
            chunk_bytes += 400  # thousands of files show nothing more
        assert np.array_equal(contents(build(name, path, case, max(step, 20), chunk_bytes))[0], X)


@pytest.fixture(params=ON_DISK)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestOnDisk:
    """A store in files."""

    def test_store_notices_any_changed_byte(self, kind: str, case: Any, tmp_path: Path) -> None:
        path = tmp_path / "s"
        build(kind, path, case)
        described = {"zarr.json"}  # what other programs need to open the arrays; we do not read it
        files = [p for p in sorted(path.rglob("*")) if p.is_file() and p.name not in described]
        rng, undetected = np.random.default_rng(0), []
        for _ in range(100):
            file = files[rng.integers(len(files))]
            raw = file.read_bytes()
            at = int(rng.integers(len(raw)))
            file.write_bytes(raw[:at] + bytes([raw[at] ^ (1 << int(rng.integers(8)))]) + raw[at + 1 :])
            if not self._is_noticed(path):
                undetected.append((file.name, at))
            file.write_bytes(raw)
        assert not undetected

    def _is_noticed(self, path: Path) -> bool:
        with suppress(DataError):
            store = open_store(path)
            contents(store)
            store.statistics()
            return False
        return True

    def test_store_damage_names_the_chunk(self, kind: str, case: Any, tmp_path: Path) -> None:
        path = tmp_path / "s"
        store: Any = build(kind, path, case)
        place = store.ranges(3)["y"].array.place(store.ranges(3)["y"].start // store.ranges(3)["y"].array.spec.unit)
        offset = place.offset + (store.ranges(3)["y"].start % store.ranges(3)["y"].array.spec.unit) * 4
        with open(place.path, "r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 4]))
        with pytest.raises(DataError, match=r"chunk 3 of store .* is corrupt in 'y'"):
            contents(open_store(path))

    @pytest.mark.parametrize("harm", ["cut", "longer", "gone", "swapped"])
    def test_store_files_that_are_not_what_they_were(self, kind: str, case: Any, tmp_path: Path, harm: str) -> None:
        path = tmp_path / "s"
        build(kind, path, case)
        files = sorted(p for p in path.rglob("*") if p.name.startswith(("c.", "part-")))
        raw = [p.read_bytes() for p in files[:2]]
        if harm == "gone":
            files[0].unlink()
        elif harm == "swapped" and len(files) > 1:
            files[0].write_bytes(raw[1])
            files[1].write_bytes(raw[0])
        else:
            files[0].write_bytes(raw[0][:-1] if harm == "cut" else raw[0] + b"\0")
        assert self._is_noticed(path)

    def test_store_without_a_manifest_there_is_no_store(self, kind: str, case: Any, tmp_path: Path) -> None:
        build(kind, tmp_path / "s", case)
        (tmp_path / "s" / manifests.FILE).unlink()
        with pytest.raises(DataError) as caught:
            open_store(tmp_path / "s")
        assert caught.value.code == "E-INCOMPLETE"
        with pytest.raises(MissingError):
            open_store(tmp_path / "none")

    def test_store_aborted_writer_leaves_nothing(self, kind: str, case: Any, tmp_path: Path) -> None:
        writer = create(tmp_path / "s", sparse=case[0], chunk_bytes=1 << 12, store_format=kind)
        writer.append(rows_of(case[0], 0, 500), CODES[:500], None)
        writer.abort()
        assert not list(tmp_path.iterdir())

    def test_a_store_is_replaced_at_once(self, kind: str, case: Any, tmp_path: Path) -> None:
        build(kind, tmp_path / "s", case)
        writer = create(tmp_path / "s", sparse=False, overwrite=True, store_format=kind)
        writer.append(Dense(X[:10]), CODES[:10], None)
        assert open_store(tmp_path / "s").layout.rows == ROWS
        writer.commit(("a", "b", "c"), COLUMNS, {})
        assert open_store(tmp_path / "s").layout.rows == 10
        assert [p.name for p in tmp_path.iterdir()] == ["s"]

    def test_store_other_programs_read_the_same(self, kind: str, case: Any, tmp_path: Path) -> None:
        build(kind, tmp_path / "s", case)
        parts = [_by_zarr(tmp_path / "s")] if kind == "zarr" else _by_h5py(tmp_path / "s")
        assert np.array_equal(np.concatenate([p[0] for p in parts]), X)
        assert np.array_equal(np.concatenate([p[1] for p in parts]), CODES)
        if case[1]:
            assert np.array_equal(np.concatenate([p[2] for p in parts]), WEIGHT)


def _by_zarr(path: Path) -> tuple[Any, Any, Any]:
    group: Any = zarr.open_group(path, mode="r")
    return _matrix(group["X"]), group["y"][:], group["weight"][:] if "weight" in group else None


def _by_h5py(path: Path) -> list[tuple[Any, Any, Any]]:
    found = []
    for part in sorted(path.glob("part-*.h5")):
        with h5py.File(part) as file:
            found.append((_matrix(file["X"]), file["y"][:], file["weight"][:] if "weight" in file else None))
    assert len(found) > 1
    return found


def _matrix(X: Any) -> Any:
    if "encoding-type" not in X.attrs:
        return X[:]
    assert X.attrs["encoding-type"] == "csr_matrix"
    rows, columns = X.attrs["shape"]
    assert columns <= COLUMNS
    return sp.csr_matrix((X["data"][:], X["indices"][:], X["indptr"][:]), (rows, COLUMNS)).toarray()


# -- HDF5 files that ask for what data must not ask for ----------------------------------------------------------------


def _seal(path: Path) -> None:
    """Describe part 0 anew, as somebody who wants to be believed would."""
    from streamsvm.store.hdf5 import index_crc
    from streamsvm.store.hdf5_checks import chunks_of, find_gaps
    from streamsvm.store.hdf5_checks import open_h5 as opened

    part = path / "part-00000.h5"
    units: list[Any] = []
    with opened(part) as file:
        for name in ("X", "y"):
            if file.get(name, getlink=True).__class__ is h5py.HardLink and file[name].chunks:
                units += chunks_of(file[name], part, allow_fill=True)
    found = manifests.read(path)
    index = find_gaps(units, part.stat().st_size)
    entry = manifests.PartFile(part.name, found.files[0].chunks, part.stat().st_size, index, index_crc(part, index))
    fields = {name: getattr(found, name) for name in found.__struct_fields__} | {"files": [entry, *found.files[1:]]}
    manifests.write(path, manifests.Manifest(**fields))


def _external_link(file: Any, secret: Path) -> None:
    del file["X"]
    file["X"] = h5py.ExternalLink(str(secret), "X")


def _soft_link(file: Any, secret: Path) -> None:
    file.move("X", "Z")
    file["X"] = h5py.SoftLink("/Z")


def _external_storage(file: Any, secret: Path) -> None:
    shape = file["X"].shape
    del file["X"]
    file.create_dataset("X", shape, "f4", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])


def _virtual(file: Any, secret: Path) -> None:
    shape = file["X"].shape
    del file["X"]
    layout = h5py.VirtualLayout(shape, "f4")
    layout[:] = h5py.VirtualSource(str(secret), "X", shape)
    file.create_virtual_dataset("X", layout)


@pytest.mark.parametrize("ask", [_external_link, _soft_link, _external_storage, _virtual])
def test_store_part_that_points_elsewhere_is_refused(tmp_path: Path, ask: Any) -> None:
    path, secret = tmp_path / "s", tmp_path / "secret.h5"
    build("hdf5", path, (False, False))
    with h5py.File(secret, "w") as file:
        file["X"] = np.zeros((ROWS, COLUMNS), np.float32)
    with h5py.File(path / "part-00000.h5", "r+") as file:
        ask(file, secret)
    _seal(path)
    with pytest.raises(SecurityError) as caught:
        open_store(path)
    assert caught.value.exit_code == 77


def test_store_part_with_a_foreign_filter_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    build("hdf5", path, (False, False))
    with h5py.File(path / "part-00000.h5", "r+") as file:
        values = file["X"][:]
        del file["X"]
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_chunk((10, COLUMNS))
        made.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))
        space = h5py.h5s.create_simple(values.shape)
        h5py.h5d.create(file.id, b"X", h5py.h5t.IEEE_F32LE, space, made)
    _seal(path)
    with pytest.raises(SecurityError) as caught:
        open_store(path)
    assert caught.value.code == "E-FILTER"


@pytest.mark.parametrize(("version", "said"), [(manifests.FORMAT + 1, "a newer"), (0, "another"), ("x", "another")])
def test_a_store_of_another_format_is_refused(version: Any, said: str, tmp_path: Path) -> None:
    """B32."""
    build("zarr", tmp_path / "s", (False, False))
    sealed = json.loads((tmp_path / "s" / manifests.FILE).read_bytes())
    body = json.dumps(sealed["manifest"] | {"format": version}).encode()
    seal = hashlib.sha256(body).hexdigest().encode()
    (tmp_path / "s" / manifests.FILE).write_bytes(b'{"sha256":"' + seal + b'","manifest":' + body + b"}\n")
    with pytest.raises(StreamSVMError) as caught:
        open_store(tmp_path / "s")
    assert (caught.value.code, caught.value.exit_code) == ("E-VERSION", 65)
    assert f"made by {said} streamsvm (format" in caught.value.message
