"""Arrays other programs wrote, ingested and read in place. Corpus section 5.3: B12-B20, B26-B31."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
import zstandard

import streamsvm as sv
from streamsvm.errors import BudgetError, DataError, SecurityError, StreamSVMError, UsageError
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.rows import CSR
from streamsvm.store import open_store, read_chunk
from streamsvm.store.foreign.matrices import Keys
from streamsvm.store.foreign.store import ForeignStore
from streamsvm.store.sources import SourceOptions, open_source
from tests.axes import each_value

ROWS, COLUMNS = 1000, 6
X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
Y = np.where(X[:, 0] > 0, 1.0, -1.0)
SPARSE = sp.random(ROWS, COLUMNS, 0.3, "csr", random_state=0, dtype=np.float32)


def h5(path: Path, **options: Any) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=X, **options)
        file["y"] = Y
    return path


def zarr_at(path: Path, *, version: Literal[2, 3] = 3, **options: Any) -> Path:
    group = zarr.open_group(path, mode="w", zarr_format=version)
    group.create_array("X", data=X, **({"chunks": (100, COLUMNS)} | options))
    group.create_array("y", data=Y, chunks=(300,))
    return path


def csr(group: Any, create: Callable[..., Any]) -> None:
    part = group.create_group("X")
    part.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [ROWS, COLUMNS]})
    for name in ("data", "indices", "indptr"):
        create(part, name, getattr(SPARSE, name))


MAKE: dict[str, Callable[[Path], Path]] = {
    "contiguous.h5": h5,
    "chunked.h5": lambda p: h5(p, chunks=(64, COLUMNS)),
    "gzip.h5": lambda p: h5(p, chunks=(100, 4), compression="gzip", shuffle=True, fletcher32=True),
    "default.zarr": zarr_at,
    "plain.zarr": lambda p: zarr_at(p, compressors=None),
    "v2.zarr": lambda p: zarr_at(p, version=2),
    "columns.zarr": lambda p: zarr_at(p, chunks=(100, 4)),
    "sharded.zarr": lambda p: zarr_at(p, chunks=(50, COLUMNS), shards=(500, COLUMNS)),
}


@pytest.fixture(params=list(MAKE))
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return MAKE[request.param](tmp_path / request.param)


def rows_of(store: Any) -> Any:
    buffers = store.buffers()
    return np.concatenate([read_chunk(store, k, buffers).X.values.copy() for k in range(len(store.layout.chunks))])


def code_of(action: Callable[[], Any]) -> tuple[str, int]:
    with pytest.raises(StreamSVMError) as caught:
        action()
    assert caught.value.hint
    return caught.value.code, caught.value.exit_code


def read(path: Path, **options: Any) -> list[Any]:
    return list(open_source([path], SourceOptions(**options)).batches())


def test_foreign_arrays_are_ingested_with_a_warning_about_checksums(path: Path, tmp_path: Path) -> None:
    result = ingest(IngestJob(sources=(path,), store=tmp_path / "s.zarr", chunk_bytes=4096))
    assert np.array_equal(rows_of(open_store(result.store)), X)
    assert dict(zip(result.classes, result.counts, strict=True)) == {"1": (Y > 0).sum(), "-1": (Y < 0).sum()}
    assert any("have no checksums" in notice for notice in result.notices)  # B19


def test_foreign_arrays_are_read_in_place(path: Path) -> None:
    store = open_store(path)
    assert np.array_equal(rows_of(store), X)
    assert (store.layout.rows, store.layout.columns) == (ROWS, COLUMNS)
    again = pickle.loads(pickle.dumps(store))
    assert again.digest == store.digest
    np.testing.assert_allclose(store.statistics().mean, X.mean(0, dtype=np.float64), rtol=1e-6)


def test_foreign_arrays_digest_is_of_the_numbers(path: Path, tmp_path: Path) -> None:
    """A file that was only touched or copied is the same; one number that differs is another store."""
    first = open_store(path).digest
    os.utime(path)
    assert open_store(path).digest == first
    assert open_store(path.rename(tmp_path / f"moved{path.suffix}")).digest == first


def test_foreign_arrays_numbers_that_change_between_two_passes_are_noticed(tmp_path: Path) -> None:
    """Although the times of the file stay as they were."""
    path = MAKE["plain.zarr"](tmp_path / "f.zarr")
    store, unit = open_store(path), path / "X" / "c" / "9" / "0"
    first, raw, stamp = store.digest, bytearray(unit.read_bytes()), unit.stat()
    raw[0] ^= 1
    unit.write_bytes(raw)
    os.utime(unit, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert open_store(path).digest != first
    with pytest.raises(DataError, match=f"rows [0-9]+-{ROWS - 1} of .* are not what was read before") as caught:
        rows_of(store)
    assert caught.value.code == "E-CHANGED"


@pytest.mark.parametrize("kind", ["hdf5", "zarr"])
def test_foreign_arrays_anndata_matrices(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    if kind == "hdf5":
        with h5py.File(path, "w") as file:
            csr(file, lambda group, name, data: group.create_dataset(name, data=data, chunks=(50,)))
            file["obs"] = np.array(["p" if y > 0 else "q" for y in Y], dtype=h5py.string_dtype())
    else:
        group = zarr.open_group(path, mode="w")
        csr(group, lambda part, name, data: part.create_array(name, data=data, chunks=(50,)))
        group.create_array("obs", data=Y)
    store = open_store(path, labels_key="obs")
    found = read_chunk(store, 0, store.buffers()).X
    assert isinstance(found, CSR)
    assert (sp.csr_matrix(tuple(found[:3]), (ROWS, COLUMNS)) != SPARSE).nnz == 0
    result = ingest(IngestJob(sources=(path,), store=tmp_path / "s.zarr", labels_key="obs"))
    assert (result.sparse, result.rows, result.columns) == (True, ROWS, COLUMNS)
    assert code_of(lambda: read(path)) == ("E-USAGE", 2)


@pytest.mark.parametrize("harm", ["falls", "falls between pieces", "ends early", "begins late", "short"])
def test_foreign_arrays_matrices_whose_parts_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """The indptr is looked at in pieces, and never held as a whole."""
    monkeypatch.setattr("streamsvm.store.foreign.matrices.INDPTR_ROWS", 64)
    monkeypatch.setattr("streamsvm.store.foreign.matrices.SLICE_BYTES", 512)
    path, harmed = tmp_path / "a.h5", SPARSE.indptr.copy()
    match harm:
        case "falls":
            harmed[500] = harmed[501] + 1
        case "falls between pieces":
            piece = 64 - 64 % int(64 * ROWS / SPARSE.nnz)
            harmed[piece] = harmed[piece - 1] - 1
        case "ends early":
            harmed[-1] -= 1
        case "begins late":
            harmed[0] = 1
        case _:
            harmed = harmed[:-1]
    store = open_store_of_csr(path)
    chunks = [read_chunk(store, k, store.buffers()).X.data for k in range(len(store.layout.chunks))]
    assert np.array_equal(np.concatenate(chunks), SPARSE.data)
    assert store.layout.nonzeros == tuple(map(len, chunks))
    assert len(chunks) > 5
    store.foreign.close()
    with h5py.File(path, "r+") as file:
        del file["X/indptr"]
        file["X/indptr"] = harmed
    with pytest.raises(DataError) as caught:
        open_store(path)
    assert caught.value.code == "E-SHAPE"


def open_store_of_csr(path: Path) -> Any:
    if not path.exists():
        with h5py.File(path, "w") as file:
            csr(file, lambda group, name, data: group.create_dataset(name, data=data))
            file["y"] = Y
    return open_store(path)


def test_foreign_arrays_hdf5_file_of_a_killed_writer_is_refused(tmp_path: Path) -> None:
    """B12."""
    path = tmp_path / "a.h5"
    text = (
        "import h5py, numpy as np, os, sys\n"
        "f = h5py.File(sys.argv[1], 'w')\n"
        "d = f.create_dataset('X', (100000, 8), chunks=(1000, 8))\n"
        "for i in range(50): d[i*1000:(i+1)*1000] = 1\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", text, str(path)], check=False)
    assert code_of(lambda: read(path, format="hdf5")) == ("E-HDF5", 65)


def test_foreign_arrays_hdf5_file_left_open_for_writing_is_refused(tmp_path: Path) -> None:
    """B13."""
    path = tmp_path / "a.h5"
    text = (
        "import h5py, numpy as np, os, sys\n"
        "f = h5py.File(sys.argv[1], 'w', libver='latest')\n"
        "f.create_dataset('X', (100, 8), chunks=(10, 8))\nf.swmr_mode = True\nos.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", text, str(path)], check=False)
    with pytest.raises(DataError, match="open for writing") as caught:
        read(path)
    assert (caught.value.code, "h5clear" in caught.value.hint) == ("E-HDF5", True)


def test_foreign_arrays_hdf5_chunks_never_written_are_refused(tmp_path: Path) -> None:
    """B14."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("X", (ROWS, COLUMNS), "f4", chunks=(100, COLUMNS))[:100] = 1
        file.create_dataset("Z", (ROWS, COLUMNS), "f4")
        file["y"] = Y
    with pytest.raises(DataError, match="1 of 10 chunks") as caught:
        read(path)
    assert caught.value.code == "E-CHUNKS"
    assert code_of(lambda: read(path, features_key="Z"))[0] == "E-CHUNKS"
    assert len(read(path, allow_fill=True))


@pytest.mark.parametrize("kind", ["external storage", "external link", "virtual"])
def test_foreign_arrays_hdf5_links_to_other_files_are_refused(tmp_path: Path, kind: str) -> None:
    """B15."""
    path, secret = tmp_path / "a.h5", h5(tmp_path / "secret.h5")
    with h5py.File(path, "w") as file:
        file["y"] = Y
        if kind == "external storage":
            file.create_dataset("X", X.shape, "f4", external=[("/etc/hostname", 0, h5py.h5f.UNLIMITED)])
        elif kind == "external link":
            file["X"] = h5py.ExternalLink(str(secret), "X")
        else:
            layout = h5py.VirtualLayout(X.shape, "f4")
            layout[:] = h5py.VirtualSource(str(secret), "X", X.shape)
            file.create_virtual_dataset("X", layout)
    assert code_of(lambda: read(path)) == ("E-SECURITY", 77)
    assert code_of(lambda: open_store(path)) == ("E-SECURITY", 77)


def test_foreign_arrays_hdf5_unknown_filter_is_named(tmp_path: Path) -> None:
    """B16."""
    path = h5(tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_chunk((10, COLUMNS))
        made.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))
        h5py.h5d.create(file.id, b"Z", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple(X.shape), made)
    with pytest.raises(SecurityError, match="filter 32015") as caught:
        read(path, features_key="Z")
    assert caught.value.code == "E-FILTER"


def test_foreign_arrays_hdf5_single_chunk_is_read(tmp_path: Path) -> None:
    """B18; without a filter (B17) part of a chunk can be read."""
    packed = h5(tmp_path / "a.h5", chunks=X.shape, compression="gzip")
    with pytest.raises(BudgetError, match=r"needs \d+ MiB .*\d+ MiB are allowed"):
        open_source([packed], SourceOptions(memory=X.nbytes))
    with pytest.raises(BudgetError):
        ForeignStore(packed, Keys("X", "y"), memory=X.nbytes)
    plain = h5(tmp_path / "b.h5", chunks=X.shape)
    assert len(read(plain, memory=1 << 20))


@pytest.mark.parametrize("name", ["default.zarr", "v2.zarr", "sharded.zarr"])
def test_foreign_arrays_zarr_missing_chunks_are_refused(tmp_path: Path, name: str) -> None:
    """B26."""
    path = MAKE[name](tmp_path / name)
    victim = max((p for p in (path / "X").rglob("*") if p.is_file() and "z" not in p.name), key=str)
    victim.unlink()
    assert code_of(lambda: read(path)) == ("E-CHUNKS", 65)
    assert code_of(lambda: open_store(path)) == ("E-CHUNKS", 65)
    assert len(read(path, allow_fill=True))


def test_foreign_arrays_zarr_missing_inner_chunk_is_refused(tmp_path: Path) -> None:
    """B26."""
    path = tmp_path / "a"
    group = zarr.open_group(path, mode="w")
    array = group.create_array("X", shape=X.shape, dtype="f4", chunks=(50, COLUMNS), shards=(500, COLUMNS))
    array[:450] = X[:450]
    array[500:] = X[500:]
    group.create_array("y", data=Y)
    assert code_of(lambda: read(path)) == ("E-CHUNKS", 65)


def changed(node: str, **values: Any) -> Callable[[Path], object]:
    """Change metadata of a Zarr group."""

    def change(path: Path) -> None:
        (path / node).write_text(json.dumps(json.loads((path / node).read_text()) | values))

    return change


def replaced(file: str, content: bytes) -> Callable[[Path], object]:
    return lambda path: (path / file).write_bytes(content)


def linked(path: Path) -> None:
    (path / UNIT).unlink()
    os.symlink("/etc/hostname", path / UNIT)


ROWS_NODE, LABELS_NODE, UNIT = "X/zarr.json", "y/zarr.json", "X/c/3/0"
ABSURD = {"name": "regular", "configuration": {"chunk_shape": [10**12, COLUMNS]}}
SEPARATOR = {"name": "default", "configuration": {"separator": "/../../"}}
ZARR_REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "B27 an empty chunk": (replaced(UNIT, b""), "E-CRC"),
    "B30 a chunk that unpacks to more": (replaced(UNIT, zstandard.compress(bytes(64 << 20))), "E-LIMIT"),
    "a link in place of a chunk": (linked, "E-SECURITY"),
    "B28 no metadata": (replaced(ROWS_NODE, b""), "E-META"),
    "B28 metadata of nothing": (replaced(ROWS_NODE, b"{}"), "E-SCHEMA"),
    "B28 metadata that is cut": (replaced(ROWS_NODE, b'{"zarr_format": 3'), "E-META"),
    "B28 deep metadata": (replaced(ROWS_NODE, b"[" * 100_000), "E-META"),
    "B28 metadata that is no text": (replaced(ROWS_NODE, b"\xff\xfe"), "E-META"),
    "B28 a codec that runs code": (changed(ROWS_NODE, codecs=[{"name": "numcodecs.pickle"}]), "E-SECURITY"),
    "B29 a chunk of absurd size": (changed(ROWS_NODE, chunk_grid=ABSURD), "E-BUDGET"),
    "2^60 rows without a column": (changed(ROWS_NODE, shape=[2**60, 0]), "E-SHAPE"),
    "transformers": (changed(LABELS_NODE, storage_transformers=5), "E-META"),
    "a codec without configuration": (changed(LABELS_NODE, codecs=[{"name": "zstd"}]), "E-META"),
    "a separator that leads outside": (changed(LABELS_NODE, chunk_key_encoding=SEPARATOR), "E-META"),
    "attributes that are a number": (changed(LABELS_NODE, attributes=3), "E-META"),
    "attributes that are none": (changed(LABELS_NODE, attributes=None), "E-META"),
}


@pytest.mark.parametrize("case", ZARR_REFUSED)
def test_foreign_arrays_zarr_that_is_damaged_or_hostile_is_refused(tmp_path: Path, case: str) -> None:
    """To be ingested, and to be read in place."""
    path, (harm, code) = zarr_at(tmp_path / "a.zarr"), ZARR_REFUSED[case]
    harm(path)
    assert code_of(lambda: read(path, format="zarr"))[0] == code
    assert code_of(lambda: rows_of(open_store(path)))[0] == code


def test_foreign_arrays_zarr_of_version_2_with_a_filter_that_runs_code_is_refused(tmp_path: Path) -> None:
    """B28."""
    path = zarr_at(tmp_path / "a", version=2)
    changed("X/.zarray", filters=[{"id": "pickle", "protocol": 5}])(path)
    assert code_of(lambda: read(path)) == ("E-SECURITY", 77)


def test_foreign_arrays_that_are_no_matrix_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["y"], file["flat"], file["cube"] = Y, Y, np.zeros((ROWS, 2, 2))
        file["text"] = np.full((ROWS, 2), b"a")
        file["complex"] = np.zeros((ROWS, 2), complex)
    for key, code in {"flat": "E-SHAPE", "cube": "E-SHAPE", "text": "E-DTYPE", "complex": "E-DTYPE"}.items():
        assert code_of(partial(read, path, features_key=key))[0] == code


@each_value(("suffix", [".h5", ".zarr"]), ("key", ["X", "y"]))
def test_foreign_arrays_single_number_is_no_array_of_rows(tmp_path: Path, suffix: str, key: str) -> None:
    path = tmp_path / f"a{suffix}"
    group = h5py.File(path, "w") if suffix == ".h5" else zarr.open_group(path, mode="w")
    for name, array in {"X": X, "y": Y, key: np.float64(1.0)}.items():
        group.create_dataset(name, data=array) if suffix == ".h5" else group.create_array(name, data=np.asarray(array))
    if suffix == ".h5":
        group.close()
    assert code_of(lambda: open_store(path)) == ("E-SHAPE", 65)


def test_foreign_arrays_store_of_ours_is_no_source(tmp_path: Path) -> None:
    ingest(IngestJob(sources=(h5(tmp_path / "a.h5"),), store=tmp_path / "s.zarr"))
    with pytest.raises(UsageError, match="is a store already"):
        open_source([tmp_path / "s.zarr"])


OBS = np.where(np.arange(ROWS) % 3 == 0, "B", "T")


def annotated(path: Path, matrix: Any = SPARSE, names: bool = True) -> Path:
    """The layout that anndata 0.8 - 0.12 writes, in HDF5 or Zarr."""
    zipped = path.suffix == ".zarr"
    root: Any = zarr.open_group(path, mode="w", zarr_format=2) if zipped else h5py.File(path, "w")

    def put(key: str, values: Any) -> None:
        values = np.asarray(values)
        text = values.dtype.kind == "U"
        if zipped:
            kind = np.dtypes.StringDType() if text else values.dtype
            root.create_array(key, data=values.astype(kind))
        else:
            root.create_dataset(
                key, data=values.astype(object) if text else values, dtype=h5py.string_dtype() if text else None
            )

    def group(key: str, **attributes: Any) -> None:
        root.create_group(key).attrs.update(attributes)

    if sp.issparse(matrix):
        group("X", **{"encoding-type": f"{matrix.format}_matrix", "shape": list(matrix.shape)})
        for part in ("data", "indices", "indptr"):
            put(f"X/{part}", getattr(matrix, part))
    else:
        put("X", matrix)
    group("obs", **{"encoding-type": "dataframe"})
    group("obs/kind", **{"encoding-type": "categorical", "ordered": False})
    put("obs/kind/codes", (OBS == "T").astype("i1"))
    put("obs/kind/categories", np.array(["B", "T"]))
    group("obs/whole", **{"encoding-type": "nullable-integer"})
    put("obs/whole/values", np.where(OBS == "T", 7, 4))
    put("obs/whole/mask", np.zeros(ROWS, np.bool_))
    group("obs/yes", **{"encoding-type": "nullable-boolean"})
    put("obs/yes/values", OBS == "T")
    put("obs/yes/mask", np.arange(ROWS) == 17)
    put("obs/text", OBS)
    if names:
        group("var", **{"encoding-type": "dataframe", "_index": "gene"})
        put("var/gene", np.array([f"g{k}" for k in range(COLUMNS)]))
    if not zipped:
        root.close()
    return path


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_foreign_arrays_labels_of_anndata_are_its_categories(suffix: str, tmp_path: Path) -> None:
    """Of categories, of values with a mask and of text, ingested and in place; other groups and missing labels are refused."""
    path = annotated(tmp_path / f"a.{suffix}")
    for key, classes in (("obs/kind", {"B", "T"}), ("obs/whole", {"7", "4"}), ("obs/text", {"B", "T"})):
        stored = sv.ingest(path, tmp_path / "s.zarr", labels_key=key, overwrite=True)
        counts = dict(zip(stored.classes, stored.counts, strict=True))
        assert set(counts) == classes
        assert min(counts.values()) == (OBS == "B").sum()
        opened = sv.open_store(path, labels_key=key).layout
        assert (opened.classes, opened.counts) == (stored.classes, stored.counts)
    model = sv.fit(path, tmp_path / "m.ssvm", labels_key="obs/kind").model
    assert set(model.classes) == {"B", "T"}
    assert sv.evaluate(tmp_path / "m.ssvm", path).evaluation.rows == ROWS
    for key, code in (("obs/yes", "row 18 has no label"), ("obs", "is a group of type 'dataframe'")):
        for use in (
            lambda key=key: sv.ingest(path, tmp_path / "n.zarr", labels_key=key),
            lambda key=key: sv.open_store(path, labels_key=key),
        ):
            with pytest.raises(DataError, match=code):
                use()


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_foreign_arrays_matrix_by_columns_is_read_by_rows(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store and the model are those of the same matrix by rows, also where its rows are gathered in several spans."""
    by_rows = annotated(tmp_path / f"rows.{suffix}")
    by_columns = annotated(tmp_path / f"columns.{suffix}", SPARSE.tocsc())
    expected = sv.ingest(by_rows, tmp_path / "rows-store.zarr", labels_key="obs/kind")
    for spans in (1, 4):
        monkeypatch.setattr("streamsvm.store.foreign.matrices.SPAN_ENTRIES", -(-SPARSE.nnz // spans))
        monkeypatch.setattr("streamsvm.store.foreign.matrices.SLICE_BYTES", (4 << 20) // (100 if spans > 1 else 1))
        found = sv.ingest(by_columns, tmp_path / "columns-store.zarr", labels_key="obs/kind", overwrite=True)
        assert found.counts == expected.counts
        one, other = (sv.open_store(tmp_path / f"{name}-store.zarr") for name in ("rows", "columns"))
        assert one.digest == other.digest
    with pytest.raises(DataError, match="by columns"):
        sv.fit(by_columns, tmp_path / "m.ssvm", labels_key="obs/kind")
    monkeypatch.undo()
    fits = [sv.fit(p, tmp_path / "m.ssvm", labels_key="obs/kind", overwrite=True) for p in (by_rows, by_columns)]
    assert np.array_equal(fits[0].model.weights, fits[1].model.weights)


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_foreign_arrays_columns_of_anndata_have_the_names_of_var(suffix: str, tmp_path: Path) -> None:
    """In stores and models; a file with other columns, or in another order, is refused."""
    path = annotated(tmp_path / f"a.{suffix}")
    names = [f"g{k}" for k in range(COLUMNS)]
    sv.ingest(path, tmp_path / "s.zarr", labels_key="obs/kind")
    assert sv.open_store(tmp_path / "s.zarr").facts["names"] == names
    for source in (tmp_path / "s.zarr", path):
        assert (
            sv.fit(source, tmp_path / "m.ssvm", labels_key="obs/kind", overwrite=True).model.provenance["names"]
            == names
        )
        other = annotated(tmp_path / f"b.{suffix}", SPARSE[:, ::-1].tocsr())
        sv.predict(tmp_path / "m.ssvm", str(other), tmp_path / "p.csv", overwrite=True)
        if suffix == "zarr":
            group: Any = zarr.open_group(other)
            group["var/gene"][:] = np.array(names[::-1], np.dtypes.StringDType())
        else:
            with h5py.File(other, "a") as file:
                file["var/gene"][:] = names[::-1]
        with pytest.raises(DataError, match=r"column 1 of .* is 'g5', expected 'g0'"):
            sv.predict(tmp_path / "m.ssvm", str(other), tmp_path / "p.csv", overwrite=True)


def test_foreign_arrays_matlab_files_have_a_user_block_and_columns_first(tmp_path: Path) -> None:
    """Version 7.3 is HDF5 after 512 bytes; its matrices are written by columns, sparse ones as well."""
    path = tmp_path / "a.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in (("X", X.T), ("y", Y[None])):
            file.create_dataset(name, data=values, chunks=True, compression="gzip").attrs["MATLAB_class"] = b"double"
        matrix = SPARSE.tocsc()
        group = file.create_group("S")
        group.attrs.update({"MATLAB_class": b"double", "MATLAB_sparse": ROWS})
        group["data"], group["ir"], group["jc"] = matrix.data, matrix.indices.astype("u8"), matrix.indptr.astype("u8")
    with open(path, "r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    h5(tmp_path / "plain.h5")
    for source, store in ((path, "a.zarr"), (tmp_path / "plain.h5", "b.zarr")):
        sv.ingest(source, tmp_path / store)
    one, other = (sv.open_store(tmp_path / store) for store in ("a.zarr", "b.zarr"))
    assert one.digest == other.digest
    assert sv.open_store(path).digest == sv.open_store(tmp_path / "plain.h5").digest
    assert sv.ingest(path, tmp_path / "c.zarr", features_key="S").columns == COLUMNS


def test_foreign_arrays_soft_links_within_a_file_are_followed(tmp_path: Path) -> None:
    """As NeXus has them, relative and absolute, of groups and arrays; links to other files, and in circles, are not."""
    path = h5(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        file["entry/data"] = h5py.SoftLink("/deep")
        file["deep/rows"], file["deep/labels"] = h5py.SoftLink("/X"), h5py.SoftLink("names")
        file["deep/names"] = h5py.SoftLink("/y")
        file["round"], file["gone"] = h5py.SoftLink("/round"), h5py.SoftLink("/nothing")
        file["away"] = h5py.ExternalLink("b.h5", "/X")
    keys: Any = {"features_key": "entry/data/rows", "labels_key": "entry/data/labels"}
    assert sv.open_store(path, **keys).digest == sv.open_store(path).digest
    assert sv.ingest(path, tmp_path / "s.zarr", **keys).rows == ROWS
    for key, error in (("round", SecurityError), ("away", SecurityError), ("gone", DataError)):
        with pytest.raises(error):
            sv.open_store(path, features_key=key)


@pytest.mark.parametrize(("chunks", "shards"), [((10, 6), (60, 6)), ((10, 4), (20, 8)), ((300, 2), (900, 4))])
def test_foreign_arrays_last_shard_may_end_beyond_the_array(chunks: Any, shards: Any, tmp_path: Path) -> None:
    """Its inner chunks outside the array are never written; one within it that is missing is still an error."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    array = group.create_array("X", shape=X.shape, dtype="f4", chunks=chunks, shards=shards)
    array[:] = X
    group.create_array("y", data=Y)
    assert sv.ingest(tmp_path / "a.zarr", tmp_path / "s.zarr").rows == ROWS
    assert sv.open_store(tmp_path / "a.zarr").layout.rows == ROWS
    array[-1:] = 0
    array[: chunks[0]] = 0
    with pytest.raises(DataError, match="missing"):
        sv.ingest(tmp_path / "a.zarr", tmp_path / "t.zarr")


def test_foreign_arrays_categories_that_are_themselves_codes_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file["X"] = np.ones((4, 2))
        kind = file.create_group("obs/kind")
        kind["codes"] = np.arange(4) % 2
        kind["categories"] = kind  # a hard link to the group itself
    with pytest.raises(DataError, match="holds codes, not values"):
        sv.ingest(tmp_path / "a.h5ad", tmp_path / "s.zarr", labels_key="obs/kind")


@pytest.mark.parametrize("shape", [(0, 1), (1, 0)])
def test_foreign_arrays_no_labels_for_some_rows_are_refused(shape: tuple[int, int], tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"], file["y"] = np.ones((1, 2)), np.empty(shape)
    with pytest.raises(DataError):
        sv.fit(tmp_path / "a.h5", tmp_path / "m.ssvm")
