"""Files of rows in object stores: the store that a local ingest of the same files makes, whatever the network does."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamsvm as sv
from tests.object_server import ObjectServer, serve_folder

FAULTS = {"busy": 0.04, "reset": 0.05, "cut": 0.1}
"""Faults that pass: files of rows have no checksum by which a changed bit could be noticed."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of each format, with columns a, b and y."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    for number in range(2):
        a, b = rng.normal(size=(2, 3000)).round(3)
        y = np.where(a + b > 0, "p", "n")
        table = pa.table({"a": a, "b": b, "y": y})
        for form in ("parquet", "csv", "svm"):
            (folder / form).mkdir(exist_ok=True)
        pq.write_table(table, folder / "parquet" / f"{number}.parquet", row_group_size=700)
        lines = [f"{i},{j},{k}\n" for i, j, k in zip(a, b, y, strict=True)]
        (folder / "csv" / f"{number}.csv.gz").write_bytes(gzip.compress(("a,b,y\n" + "".join(lines)).encode()))
        svm = [f"{k == 'p':d} 1:{i} 2:{j}\n" for i, j, k in zip(a, b, y, strict=True)]
        (folder / "svm" / f"{number}.svm").write_text("".join(svm))
    return folder


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    with serve_folder(folder, "/bucket/rows", monkeypatch) as server:
        yield server


@pytest.mark.parametrize("form", ["parquet", "csv", "svm"])
def test_remote_source_makes_the_store_of_the_local_files(
    form: str, folder: Path, server: ObjectServer, tmp_path: Path
) -> None:
    """Named one by one, as a folder and by a pattern, with a fifth of the requests broken."""
    options: dict[str, Any] = {} if form == "svm" else {"label": "y"}
    local = sv.ingest(folder / form, tmp_path / "local.zarr", **options)
    digest = sv.open_store(tmp_path / "local.zarr").digest
    server.faults = FAULTS
    names = sorted(path.name for path in (folder / form).iterdir())
    for number, sources in enumerate(
        (
            [f"s3://bucket/rows/{form}/{name}" for name in names],
            f"s3://bucket/rows/{form}",
            f"s3://bucket/r*/**/[01].{form}*",
        )
    ):
        found = sv.ingest(sources, tmp_path / f"{number}.zarr", **options)
        store = sv.open_store(tmp_path / f"{number}.zarr")
        assert (found.rows, store.digest) == (local.rows, digest)
        assert [one["name"] for one in store.facts["sources"]] == [f"s3://bucket/rows/{form}/{name}" for name in names]
        if form != "parquet":
            recorded = sv.open_store(tmp_path / "local.zarr").facts["sources"]
            assert [one["sha256"] for one in store.facts["sources"]] == [one["sha256"] for one in recorded]
    assert sum(server.requests[fault] for fault in FAULTS)


def test_remote_source_of_a_web_server(folder: Path, server: ObjectServer, tmp_path: Path) -> None:
    sv.ingest(f"{server.url}/bucket/rows/svm/0.svm", tmp_path / "s.zarr")
    assert sv.open_store(tmp_path / "s.zarr").layout.rows == 3000


def test_remote_source_files_without_rows_are_left_out(folder: Path, server: ObjectServer, tmp_path: Path) -> None:
    """As of the local files: empty text, and files with nothing but a header or a footer."""
    empty = pa.table({"a": [0.0], "b": [0.0], "y": ["p"]}).slice(1)
    pq.write_table(empty, tmp_path / "empty.parquet")
    server.objects["/bucket/rows/parquet/empty.parquet"] = (tmp_path / "empty.parquet").read_bytes()
    server.objects["/bucket/rows/csv/empty.csv"] = b""
    server.objects["/bucket/rows/csv/header.csv"] = b"a,b,y\n"
    for form in ("parquet", "csv"):
        sv.ingest(folder / form, tmp_path / "local.zarr", label="y", overwrite=True)
        sv.ingest(f"s3://bucket/rows/{form}", tmp_path / "remote.zarr", label="y", overwrite=True)
        assert sv.open_store(tmp_path / "remote.zarr").digest == sv.open_store(tmp_path / "local.zarr").digest


def test_remote_source_that_is_a_table_is_refused(server: ObjectServer, tmp_path: Path) -> None:
    """Delta and Iceberg tables, stores, and formats that are not read there; nothing is written."""
    rows = server.objects["/bucket/rows/parquet/0.parquet"]
    for key in ("delta/_delta_log/0.json", "delta/a.parquet", "ice/metadata/v1.metadata.json", "ice/data/a.parquet"):
        server.objects[f"/bucket/{key}"] = rows
    server.objects["/bucket/done/manifest.json"] = rows
    heads = {"h5": b"\x89HDF\r\n\x1a\n", "npy": b"\x93NUMPY", "arrow": b"ARROW1", "idx": b"\0\0\x08\x01\0\0\0\1\0"}
    for form, head in heads.items():
        server.objects[f"/bucket/x.{form}"] = head
    cases = {
        "delta": "is a Delta table whose log cannot be read",
        "delta/a.parquet": "in a Delta table",
        "delta/*.parquet": "in a Delta table",
        "ice": "is an Iceberg table whose metadata cannot be read",
        "*/*.parquet": "in a Delta table",
        "ice/data": "in an Iceberg table",
        "done": "is a store already",
        "x.h5": "is an HDF5 file",
        "x.npy": "is a numpy array",
        "x.arrow": "is an Arrow file",
        "x.idx": "is an IDX array",
        "nothing": "nothing is called",
    }
    for key, message in cases.items():
        with pytest.raises(sv.StreamSVMError, match=message):
            sv.ingest(f"s3://bucket/{key}", tmp_path / "s.zarr", label="y")
    with pytest.raises(sv.DataError, match=r"s3://bucket/x\.npy is a numpy array"):
        sv.ingest("s3://bucket/x.npy", tmp_path / "s.zarr", label="last", format="npy")
    with pytest.raises(sv.UsageError, match="workers of a cluster do not read"):
        sv.ingest("s3://bucket/rows/csv", tmp_path / "s.zarr", label="y", cluster="local:2")
    assert not list(tmp_path.iterdir())


def test_remote_source_in_partitions_has_their_columns(folder: Path, server: ObjectServer, tmp_path: Path) -> None:
    for year in (1, 2):
        rows = (folder / "parquet" / f"{year - 1}.parquet").read_bytes()
        server.objects[f"/bucket/hive/year={year}/a.parquet"] = rows
        (tmp_path / f"hive/year={year}").mkdir(parents=True)
        (tmp_path / f"hive/year={year}/a.parquet").write_bytes(rows)
    server.objects["/bucket/hive/_temporary/year=3/a.parquet"] = rows
    local = sv.open_store(sv.ingest(tmp_path / "hive", tmp_path / "l.zarr", label="y").store)
    for source in ("s3://bucket/hive", "s3://bucket/hive/y*/*.parquet"):
        store = sv.open_store(sv.ingest(source, tmp_path / "r.zarr", label="y", overwrite=True).store)
        assert (store.digest, store.facts["names"]) == (local.digest, ["a", "b", "year"])


def test_remote_source_is_recognized_by_its_etag(server: ObjectServer, tmp_path: Path) -> None:
    """By which a damaged store is repaired from the same object, and from no other."""
    url, store = "s3://bucket/rows/parquet/0.parquet", tmp_path / "s.zarr"
    sv.ingest(url, store, label="y")
    (recorded,) = sv.open_store(store).facts["sources"]
    assert recorded["etag"].strip('"') == hashlib.md5(server.objects["/bucket/rows/parquet/0.parquet"]).hexdigest()
    unit = store / "X" / "c.0.0"
    content = unit.read_bytes()
    unit.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    sv.ingest(url, store, label="y", repair=True)
    assert unit.read_bytes() == content
    server.objects["/bucket/rows/parquet/0.parquet"] = server.objects["/bucket/rows/parquet/1.parquet"]
    with pytest.raises(sv.DataError, match="is not what the store was made from: ETag"):
        sv.ingest(url, store, label="y", repair=True)


def test_remote_source_is_fitted_in_one_step(
    folder: Path, server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its store is kept beside the model, or here if that is in the bucket, and made again when the object has changed."""
    monkeypatch.chdir(tmp_path)
    url = "s3://bucket/rows/parquet/0.parquet"
    sv.fit(folder / "parquet/0.parquet", tmp_path / "l.ssvm", label="y", cache=tmp_path / "l.zarr")
    sv.fit(url, tmp_path / "r.ssvm", label="y")
    assert (tmp_path / "r.ssvm").read_bytes() == (tmp_path / "l.ssvm").read_bytes()
    manifest = Path("0.parquet.zarr/manifest.json")
    made = manifest.stat().st_mtime_ns
    sv.fit(url, tmp_path / "r.ssvm", label="y", C=2.0, overwrite=True)
    assert manifest.stat().st_mtime_ns == made
    server.objects["/bucket/rows/parquet/0.parquet"] = server.objects["/bucket/rows/parquet/1.parquet"]
    sv.fit(url, "s3://bucket/r.ssvm", label="y")
    assert "/bucket/r.ssvm" in server.objects
    assert manifest.stat().st_mtime_ns > made
    with pytest.raises(sv.MissingError, match=r"there is no store at s3://bucket/nothing"):
        sv.fit("s3://bucket/nothing", tmp_path / "n.ssvm", label="y")


def test_remote_source_is_predicted(folder: Path, server: ObjectServer, tmp_path: Path) -> None:
    """As the local files are; what is neither a store nor files is refused."""
    model = sv.fit(folder / "csv", tmp_path / "m.ssvm", label="y", cache=tmp_path / "c.zarr").model
    sv.predict(model, str(folder / "csv"), tmp_path / "local.csv")
    local = sv.evaluate(model, folder / "parquet")
    server.faults = FAULTS
    sv.predict(model, "s3://bucket/rows/csv", tmp_path / "remote.csv")
    assert (tmp_path / "remote.csv").read_bytes() == (tmp_path / "local.csv").read_bytes()
    remote = sv.evaluate(model, "s3://bucket/rows/*/*.parquet")
    assert remote.facts() | {"seconds": 0.0} == local.facts() | {"seconds": 0.0}
    with pytest.raises(sv.MissingError, match="nothing is called"):
        sv.evaluate(model, "s3://bucket/nothing")
