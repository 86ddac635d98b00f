"""Iceberg tables: the rows that the library of the table reads, on a disk and in an object store, or a refusal by name."""

from __future__ import annotations

import datetime as dt
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DoubleType, IntegerType, LongType, NestedField, StringType

import streamsvm as sv
from tests.object_server import serve_folder
from tests.store.iceberg_tables import BUCKET, delete_positions, new_catalog, read_by_library
from tests.store.test_delta import check_rows, check_same_rows, rows, run


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return new_catalog(tmp_path)


TABLE = "lake/n/t"


def appended(catalog: SqlCatalog, *parts: pa.Table) -> Table:
    table = catalog.create_table("n.t", schema=parts[0].schema)
    for part in parts:
        table.append(part)
    return table


def deleted_and_overwritten(catalog: SqlCatalog) -> str:
    table = appended(catalog, rows(0), rows(20))
    table.delete("a = 3.0")
    table.overwrite(rows(100), "n = 4")
    return table.metadata_location


def evolved_schema_and_partitions(catalog: SqlCatalog) -> str:
    """Columns renamed, added, dropped and widened; partitions by a number, then by a bucket of another one."""
    table = appended(catalog, rows(0, z=pa.array(np.arange(20))), rows(20, z=pa.array(np.arange(20))))
    with table.update_schema() as schema:
        schema.rename_column("a", "a new").add_column("b", DoubleType()).update_column("n", LongType()).delete_column(
            "z"
        )
    with table.update_spec() as spec:
        spec.add_identity("n")
    later = rows(40, b=np.ones(20)).rename_columns(["a new", "n", "y", "b"])
    table.append(later.select(["a new", "n", "y", "b"]).cast(table.schema().as_arrow()))
    with table.update_spec() as spec:
        spec.remove_field("n")
        spec.add_identity("y")
    table.append(later.cast(table.schema().as_arrow()))
    with table.update_schema() as schema:
        schema.add_column("z", IntegerType())  # another column than the one that was dropped
    return table.metadata_location


def partitioned(catalog: SqlCatalog) -> str:
    schema = Schema(
        NestedField(1, "a", DoubleType()),
        NestedField(2, "city", StringType()),
        NestedField(3, "day", DateType()),
        NestedField(4, "y", StringType()),
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "city"), PartitionField(3, 1001, IdentityTransform(), "day")
    )
    table = catalog.create_table("n.t", schema=schema, partition_spec=spec)
    cities = ["a b", "c/d", None, "x=y"] * 5
    days = [dt.date(2020, 1, 1), dt.date(2021, 5, 3)] * 10
    table.append(
        rows(0)
        .select(["a", "y"])
        .append_column("city", [cities])
        .append_column("day", [days])
        .select(["a", "city", "day", "y"])
    )
    return table.metadata_location


def files_of_other_programs(catalog: SqlCatalog) -> str:
    """Files without ids, found by a mapping of names, in partitions of which they do not have the column."""
    schema = Schema(
        NestedField(1, "a", DoubleType()), NestedField(2, "n", IntegerType()), NestedField(3, "y", StringType())
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))
    table = catalog.create_table("n.t", schema=schema, partition_spec=spec)
    for number in (1, 2):
        folder = Path(f"{TABLE}/data/n={number}").absolute()
        folder.mkdir(parents=True)
        pq.write_table(rows(20 * number).set_column(1, "n", pa.array([number] * 20, pa.int32())), folder / "p.parquet")
        table.add_files([f"file://{folder}/p.parquet"])
        pq.write_table(rows(20 * number).select(["a", "y"]), folder / "p.parquet")
    return table.metadata_location


def position_deletes(catalog: SqlCatalog, *, vectors: bool = False) -> str:
    table = appended(catalog, rows(0), rows(20), rows(40, 9000))
    files = [task.file for task in table.scan().plan_files()]
    first, _, last = (
        file.file_path for file in sorted(files, key=lambda file: struct.unpack("<d", file.lower_bounds[1]))
    )
    return delete_positions(table, {first: [0, 3, 19], last: [*range(4000, 5000), 8999]}, vectors=vectors)


def deletion_vectors(catalog: SqlCatalog) -> str:
    return position_deletes(catalog, vectors=True)


FEATURES = {
    "deleted, overwritten": deleted_and_overwritten,
    "evolved schema and partitions": evolved_schema_and_partitions,
    "partitions": partitioned,
    "files without ids": files_of_other_programs,
    "position deletes": position_deletes,
    "deletion vectors": deletion_vectors,
}


@pytest.mark.parametrize("write", FEATURES.values(), ids=FEATURES)
def test_iceberg_table_has_the_rows_that_its_library_reads(
    write: Callable[[SqlCatalog], str], catalog: SqlCatalog
) -> None:
    """Of its current snapshot, and of the first one."""
    place = write(catalog)
    check_rows(TABLE, read_by_library(place))
    facts = sv.open_store("s.zarr").facts["table"]
    metadata = StaticTable.from_metadata(place).metadata
    assert (facts["kind"], facts["id"]) == ("Iceberg", str(metadata.table_uuid))
    assert (facts["version"], facts["schema"]) == (str(metadata.current_snapshot_id), str(metadata.current_schema_id))
    for snapshot in metadata.snapshots[:-1][:1]:
        check_rows(TABLE, read_by_library(place, snapshot.snapshot_id), table_version=str(snapshot.snapshot_id))


def with_ids(**columns: tuple[int, list[Any]]) -> pa.Table:
    fields = [
        pa.field(name, pa.string() if name == "y" else pa.int32(), metadata={"PARQUET:field_id": str(number)})
        for name, (number, _) in columns.items()
    ]
    return pa.table([values for _, values in columns.values()], schema=pa.schema(fields))


def test_iceberg_table_with_deletes_by_value(catalog: SqlCatalog) -> None:
    """Which pyiceberg does not read. Later rows with the same values are kept; missing values are equal; a pair of columns."""
    first = rows(0, 60)
    first = first.set_column(1, "n", pc.if_else(pc.less(first["a"], 5), pa.scalar(None, pa.int32()), first["n"]))
    table = appended(catalog, first)
    place = delete_positions(table, {}, content=([2], with_ids(n=(2, [3, None, 77]))))
    table = catalog.register_table("n.u", place)
    table.append(rows(100))
    place = delete_positions(
        table, {}, content=([3, 2], with_ids(y=(3, ["q", "p", "q"]), n=(2, [1, 2, None]))), metadata=200
    )
    expected = []
    for part, values in ((first, [3, None]), (rows(100), [])):
        pairs = list(zip(part["n"].to_pylist(), part["y"].to_pylist(), strict=True))
        keep = [n not in values and (n, y) not in {(1, "q"), (2, "p")} for n, y in pairs]
        expected.append(part.filter(pa.array(keep)))
    check_rows(TABLE, pa.concat_tables(expected))
    check_rows(place.removeprefix("file://"), pa.concat_tables(expected))


def test_iceberg_table_of_a_time_a_tag_or_a_metadata_file(catalog: SqlCatalog) -> None:
    table = appended(catalog, rows(0), rows(20), rows(40))
    first, second, _ = table.metadata.snapshots
    table.manage_snapshots().create_tag(second.snapshot_id, "old").commit()
    time = dt.datetime.fromtimestamp(first.timestamp_ms / 1000, dt.UTC).isoformat()
    shared: dict[str, Any] = {"label": "y", "overwrite": True}
    for version, count in ((time, 20), ("old", 40), ("2100-01-01", 60), (str(first.snapshot_id), 20), (None, 60)):
        assert sv.ingest(TABLE, "s.zarr", table_version=version, **shared).rows == count
    earlier = next(Path(f"{TABLE}/metadata").glob("00002-*.json"))
    assert sv.ingest(earlier, "s.zarr", **shared).rows == 40
    for version, message in {
        "1999-01-01": "its history begins later",
        "17": "has no version",
        "new": "is no version",
    }.items():
        with pytest.raises(sv.UsageError, match=message):
            sv.ingest(TABLE, "n.zarr", label="y", table_version=version)


def test_iceberg_table_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read through a network with faults; its files have the names that they have there."""
    position_deletes(new_catalog(Path.cwd()))
    options: dict[str, Any] = {"label": "y", "positive": "q", "expect_rows": 8036}
    sv.ingest(TABLE, "l.zarr", **options)
    shutil.rmtree("lake")
    Path("catalog.db").unlink()
    position_deletes(new_catalog(Path.cwd(), BUCKET))
    with serve_folder(tmp_path / "lake", "/bucket", monkeypatch) as server:
        server.faults = {"busy": 0.04, "reset": 0.04, "cut": 0.04}
        store = sv.open_store(sv.ingest("s3://bucket/n/t", "r.zarr", **options).store)
        assert store.facts["table"]["location"] == "s3://bucket/n/t"
        assert all(one["name"].startswith("s3://bucket/n/t/data/") for one in store.facts["sources"])
    check_same_rows("r.zarr", "l.zarr")
    with pytest.raises(sv.DataError, match="with a file elsewhere"):
        sv.ingest(TABLE, "n.zarr", label="y")


def test_iceberg_table_that_is_not_understood_is_refused(catalog: SqlCatalog) -> None:
    """Deletes by a column that it does not have, a doubtful current version, damage, and files without the table; nothing is written."""
    table = appended(catalog, rows(0))
    shutil.copytree("lake", "whole")
    delete_positions(table, {}, content=([9], with_ids(n=(2, [3]))))
    metadata = Path(f"{TABLE}/metadata")
    cases: dict[str, tuple[Callable[[], Any], str]] = {
        TABLE: (lambda: None, "with deletes by the values of a column that was dropped"),
        f"{TABLE}/data": (lambda: None, "lies in an Iceberg table"),
        f"{TABLE}/": (lambda: _copy_newest(metadata), "2 metadata files with the highest number"),
        f"./{TABLE}": (lambda: _keep(metadata, b"{}"), "whose metadata cannot be read"),
    }
    for source, (change, message) in cases.items():
        change()
        ended = run("ingest", source, "n.zarr", "--label", "y")
        assert ended.exit_code == 65, (source, ended.output)
        assert message in ended.output.replace("\n", " "), (source, ended.output)
    shutil.rmtree("lake")
    shutil.copytree("whole", "lake")
    for manifest in metadata.glob("*.avro"):
        content = manifest.read_bytes()
        for damaged in (content[:-40], content[: content.rindex(content[-16:])], content[:-1] + b"x"):
            manifest.write_bytes(damaged)
            ended = run("ingest", TABLE, "n.zarr", "--label", "y")
            assert ended.exit_code == 65, ended.output
            assert re.search("E-TRUNCATED.*(is damaged or cut|bytes, .* are recorded)", ended.output), ended.output
        manifest.write_bytes(content)
    assert not Path("n.zarr").exists()


@pytest.mark.parametrize("vectors", [False, True])
def test_iceberg_deletes_that_are_damaged_are_an_error(catalog: SqlCatalog, *, vectors: bool) -> None:
    position_deletes(catalog, vectors=vectors)
    (path,) = Path(f"{TABLE}/data").glob("deletes-*")
    content = path.read_bytes()
    flipped = content[:30] + bytes([content[30] ^ 4]) + content[31:]  # Parquet files without checksums do not tell
    for damaged in (content[:-20], *([flipped] if vectors else [])):
        path.write_bytes(damaged)
        ended = run("ingest", TABLE, "n.zarr", "--label", "y")
        assert ended.exit_code == 65, ended.output
        assert path.name in ended.output


def _copy_newest(metadata: Path) -> None:
    newest = max(metadata.glob("*.json"))
    newest.with_name(newest.name.replace("-", "-0", 1)).write_bytes(newest.read_bytes())


def _keep(metadata: Path, content: bytes) -> None:
    for path in metadata.glob("*.json"):
        path.unlink()
    (metadata / "v1.metadata.json").write_bytes(content)
