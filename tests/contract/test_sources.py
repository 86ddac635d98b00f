"""What every source does, whatever its format."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.errors import DataError, MissingError, StreamSVMError, UsageError
from streamsvm.rows import in_layout
from streamsvm.store.sources import SOURCES, Source, SourceOptions, open_source, options_from
from streamsvm.store.sources.hdf5_zarr import digest_of_tree, size_of
from streamsvm.types import Batch

X = np.random.default_rng(0).integers(1, 50, (300, 3)).astype(np.float32)
Y = np.random.default_rng(1).choice([-1.0, 1.0], 300)


def _svmlight() -> bytes:
    rows = (f"{y:g} {' '.join(f'{j}:{v:g}' for j, v in enumerate(x, 1))}\n" for x, y in zip(X, Y, strict=True))
    return "".join(rows).encode()


def _csv() -> bytes:
    return ("a,b,c,y\n" + "".join(f"{x[0]:g},{x[1]:g},{x[2]:g},{y:g}\n" for x, y in zip(X, Y, strict=True))).encode()


def _jsonl() -> bytes:
    rows = (dict(zip("abcy", [*map(float, x), float(y)], strict=True)) for x, y in zip(X, Y, strict=True))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y}), buffer)
    return buffer.getvalue()


def _arrow() -> bytes:
    import pyarrow as pa

    table, buffer = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y}), io.BytesIO()
    with pa.ipc.new_file(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def _npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.column_stack([X, Y]))
    return buffer.getvalue()


def _npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, X=X, y=Y)
    return buffer.getvalue()


def _idx() -> bytes:
    values = np.column_stack([X, Y]).astype(">f4")
    return b"\0\0\x0d\x02" + np.array(values.shape, ">i4").tobytes() + values.tobytes()


def _hdf5() -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["X"], file["y"] = X, Y
    return buffer.getvalue()


def _write(name: str, path: Path) -> None:
    """The rows as a file or, of Zarr, a directory."""
    if name != "zarr":
        path.write_bytes(MAKE[name]())
        return
    group = zarr.open_group(path, mode="w")
    group.create_array("X", data=X, chunks=(50, 2))
    group.create_array("y", data=Y, chunks=(80,))


MAKE = {
    "svmlight": _svmlight,
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
    "jsonl": _jsonl,
    "npy": _npy,
    "npz": _npz,
    "idx": _idx,
    "hdf5": _hdf5,
}
LABEL = {"csv": "y", "parquet": "y", "arrow": "y", "jsonl": "y", "npy": "last", "idx": "last"}


@pytest.fixture(params=[*MAKE, "zarr"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path, name: str) -> Path:
    path = tmp_path / "data"  # no suffix: the format is told from the content
    _write(name, path)
    return path


def opened(name: str, *paths: Path) -> Source:
    return open_source(paths, SourceOptions(label=LABEL.get(name)))


def rows_of(source: Source) -> tuple[Any, Any]:
    batches = list(source.batches())
    dense = [in_layout(b.X, sparse=False, columns=source.columns).values for b in batches]
    return np.concatenate(dense), np.concatenate([b.labels for b in batches])


def test_source_reads_rows_and_labels(name: str, path: Path) -> None:
    source = opened(name, path)
    values, labels = rows_of(source)
    assert np.array_equal(values, X)
    assert np.array_equal(labels, Y)
    assert source.columns == 3
    assert source.names in (None, ("a", "b", "c"))


def test_source_batches_have_the_promised_types(name: str, path: Path) -> None:
    source = opened(name, path)
    for batch in source.batches():
        assert isinstance(batch, Batch)
        arrays: dict[str, Any] = dict(zip(batch.X._fields, batch.X, strict=True))
        types = {k: (v.dtype.str, v.flags.c_contiguous) for k, v in arrays.items() if k != "bias"}
        dense, sparse = {"values": "<f4"}, {"data": "<f4", "indices": "<i4", "indptr": "<i8"}
        assert types == {k: (dtype, True) for k, dtype in (sparse if source.sparse else dense).items()}
        assert batch.labels.dtype == np.float64


def test_source_records_its_facts(name: str, path: Path) -> None:
    source = opened(name, path)
    rows_of(source)
    (file,) = source.sources
    size = size_of(path)
    assert (file.name, file.size, file.read, file.rows) == (str(path), size, size, 300)
    assert file.sha256 == digest_of_tree(path)
    if path.is_file():
        assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_source_several_files_follow_each_other(name: str, path: Path) -> None:
    source = opened(name, path, path)
    values, labels = rows_of(source)
    assert np.array_equal(values, np.concatenate([X, X]))
    assert np.array_equal(labels, np.concatenate([Y, Y]))
    assert [f.rows for f in source.sources] == [300, 300]


def test_source_encoding_is_json_and_reads_the_same_columns(name: str, path: Path) -> None:
    first = opened(name, path)
    values, _ = rows_of(first)
    encoding = json.loads(json.dumps(first.encoding()))
    again = open_source([path], options_from(encoding))
    assert (again.columns, again.names) == (first.columns, first.names)
    assert np.array_equal(rows_of(again)[0], values)
    assert json.loads(json.dumps(again.encoding())) == encoding


@given(data=st.data())
def test_source_damage_is_an_error_of_ours_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(list(MAKE)))
    content = bytearray(MAKE[name]())
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=3)):
        content[at] = value
    path = tmp_path_factory.mktemp("damaged") / "data"
    path.write_bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))])
    with contextlib.suppress(StreamSVMError):
        rows_of(opened(name, path))


def test_source_format_can_be_named(name: str, path: Path) -> None:
    source = open_source([path], SourceOptions(format=name, label=LABEL.get(name)))
    assert type(source) is SOURCES[name]


def test_source_names_missing_files(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        open_source([tmp_path / "none.csv"])
    with pytest.raises(UsageError):
        open_source([])
    (tmp_path / "a").touch()
    with pytest.raises(UsageError, match="did you mean 'parquet'"):
        open_source([tmp_path / "a"], SourceOptions(format="parket"))


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "E-EMPTY"),
        (b"\x89HDF\r\n\x1a\n", "E-HDF5"),
        (b"\x80\x04K\x01.", "E-FORMAT"),
        (b'[{"a": 1}]\n', "E-FORMAT"),
    ],
)
def test_source_of_no_known_format_is_refused(tmp_path: Path, content: bytes, code: str) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DataError) as caught:
        open_source([tmp_path / "a"])
    assert caught.value.code == code


def test_source_formats_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(_csv())
    (tmp_path / "b").write_bytes(_svmlight())
    with pytest.raises(DataError, match=r"looks like csv, .* like svmlight"):
        open_source([tmp_path / "a", tmp_path / "b"])


def test_source_heavy_packages_are_loaded_when_they_are_needed() -> None:
    program = "import sys, streamsvm.store.sources, streamsvm.jobs.ingest.run; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyarrow", "numba", "zarr", "h5py", "zstandard", "scipy"} & set(loaded)
