"""Delta tables: the rows that the library of the table reads, on a disk and in an object store, or a refusal by name."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import streamsvm as sv
from streamsvm.cli import main as cli
from streamsvm.errors import InterruptedRun
from streamsvm.jobs.ingest.run import Stores
from streamsvm.store import read_chunk
from tests.object_server import serve_folder
from tests.store.delta_tables import DeltaWriter


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: object) -> Result:
    return CliRunner().invoke(cli.cli, ["-q", *map(str, words)])


def rows(first: int, count: int = 20, **columns: Any) -> pa.Table:
    number = np.arange(first, first + count)
    table = {"a": number * 1.0, "n": pa.array(number % 5, pa.int32()), "y": np.where(number % 3, "p", "q"), **columns}
    return pa.table(table)


def mapped(first: int, ids: list[int], prefix: str = "col-", *, with_ids: bool = False) -> pa.Table:
    """Rows whose columns have the names of a column mapping, in the order of the ids."""
    columns = {1: "a", 2: "n", 3: "y", 4: "b"}
    table = rows(first, b=pa.array(np.arange(20) * 0.5)).select([columns[k] for k in ids])
    fields = [
        pa.field(f"{prefix}{k}", kind, metadata={"PARQUET:field_id": str(k)} if with_ids else None)
        for k, kind in zip(ids, table.schema.types, strict=True)
    ]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields))


def appended_and_deleted() -> None:
    write_deltalake("t", rows(0))
    write_deltalake("t", rows(20), mode="append")
    DeltaTable("t").delete("n = 3")


def overwritten() -> None:
    write_deltalake("t", rows(0))
    write_deltalake("t", rows(100), mode="overwrite")


def partitioned_by_text_and_day() -> None:
    cities = ["a b", "c/d", "é%20", "x=y", None, "u"] * 4
    days = [dt.date(2020, 1, 1), dt.date(2021, 5, 3)] * 12
    table = rows(
        0,
        24,
        city=cities,
        day=days,
        at=pa.array([dt.datetime(2020, 1, 1, k, tzinfo=dt.UTC) for k in range(24)], pa.timestamp("us", "UTC")),
    )
    write_deltalake("t", table, partition_by=["city", "day"])


def added_column_and_widened_number() -> None:
    write_deltalake("t", rows(0))
    write_deltalake("t", rows(20, b=np.ones(20)), mode="append", schema_mode="merge")


def checkpoint() -> None:
    for k in range(3):
        write_deltalake("t", rows(20 * k), mode="append", partition_by=["n"])
    DeltaTable("t").create_checkpoint()
    write_deltalake("t", rows(60), mode="append")


def deletion_vectors() -> None:
    """In files and in the log; a second vector takes the place of the first."""
    writer = DeltaWriter(Path("t"))
    first = writer.vector([0, 7])
    schema = writer.schema(a=("double", 1), n=("integer", 2), y=("string", 3))
    writer.commit(
        writer.protocol(),
        schema,
        writer.add("p 0.parquet".replace(" ", "-"), rows(0)),
        writer.add("p1.parquet", rows(20)),
    )
    writer.commit(writer.remove("p1.parquet"), writer.action("p1.parquet", 20, vector=first))
    second = writer.vector([0, 7, 19], inline=True)
    writer.commit(writer.remove("p1.parquet", first), writer.action("p1.parquet", 20, vector=second))
    writer.commit(writer.add("p2.parquet", rows(40), vector=writer.vector(list(range(20)))))
    writer.commit(
        writer.add("p3.parquet", rows(60, 9000), vector=writer.vector([*range(3000, 5000), 8999]), row_group_size=1000)
    )


def renamed_added_and_dropped(mode: str, by_id: bool = False, folder: str = "t") -> Callable[[], None]:
    """``by_id``: the columns of the files have other names than the log tells, as the mode "id" allows."""

    def write() -> None:
        writer = DeltaWriter(Path(folder), mode)
        place: dict[str, Any] = {"prefix": "x" if by_id else "col-", "with_ids": mode == "id"}
        columns: dict[str, tuple[str, int]] = {"a": ("double", 1), "n": ("integer", 2), "y": ("string", 3)}
        writer.commit(
            writer.protocol(), writer.schema(**columns), writer.add("p0.parquet", mapped(0, [1, 2, 3], **place))
        )
        columns = {"a new": columns["a"], "y": columns["y"], "b": ("double", 4)}
        vector = writer.vector([1, 2])
        writer.commit(writer.schema(**columns), writer.add("p1.parquet", mapped(20, [4, 3, 1], **place), vector=vector))

    return write


def mapped_partition() -> None:
    writer = DeltaWriter(Path("t"), "name", ("year",))
    schema = writer.schema(a=("double", 1), year=("integer", 9), y=("string", 3))
    files = [
        writer.add(f"p{number}.parquet", mapped(20 * number, [1, 3]), {"col-9": value})
        for number, value in enumerate(("2019", "2020", None))
    ]
    writer.commit(writer.protocol(), schema, *files)


FEATURES = {
    "appended, deleted": appended_and_deleted,
    "overwritten": overwritten,
    "partitions": partitioned_by_text_and_day,
    "added column": added_column_and_widened_number,
    "checkpoint": checkpoint,
    "deletion vectors": deletion_vectors,
    "renamed columns": renamed_added_and_dropped("name"),
    "renamed columns, mode id": renamed_added_and_dropped("id"),
    "mapped partition": mapped_partition,
}


def stored_rows(store: str) -> tuple[Any, Any]:
    """The rows of a store with the code of their label, sorted, and the names of the columns."""
    opened = sv.open_store(store)
    buffers, found = opened.buffers(), []
    for number in range(len(opened.layout.chunks)):
        chunk = read_chunk(opened, number, buffers)
        found.append(np.column_stack([np.copy(chunk.X.values), chunk.codes]))
    values = np.concatenate(found)
    return values[np.lexsort(values.T)], opened.facts["names"]


def check_rows(table: str, expected: pa.Table, **options: Any) -> None:
    """Compare the store of a table with that of the rows its library reads."""
    pq.write_table(expected, "expected.parquet")
    shared: dict[str, Any] = {
        "label": "y",
        "missing": "indicator",
        "recognize": True,
        "layout": "dense",
        "overwrite": True,
    }
    sv.ingest("expected.parquet", "e.zarr", positive="q", **shared)
    sv.ingest(table, "s.zarr", positive="q", **shared, **options)
    check_same_rows("s.zarr", "e.zarr")


def check_same_rows(store: str, expected: str) -> None:
    (values, names), (expected_values, expected_names) = stored_rows(store), stored_rows(expected)
    assert names == expected_names
    assert np.array_equal(values, expected_values)


def read_by_library(version: int | None = None) -> pa.Table:
    reader = QueryBuilder().register("t", DeltaTable("t", version=version)).execute("select * from t")
    return pa.RecordBatchReader.from_stream(reader).read_all()


@pytest.mark.parametrize("write", FEATURES.values(), ids=FEATURES)
def test_delta_table_has_the_rows_that_its_library_reads(write: Callable[[], None]) -> None:
    """Of the first version and the current one."""
    write()
    last = DeltaTable("t").version()
    for version in {0, last}:
        check_rows("t", read_by_library(version), table_version=None if version == last else str(version))
        table = sv.open_store("s.zarr").facts["table"]
        assert table == {
            "kind": "Delta",
            "location": "t",
            "id": str(DeltaTable("t").metadata().id),
            "version": str(version),
        }


def test_delta_table_finds_columns_by_their_ids() -> None:
    """Also where they have other names, by which deltalake would not find them; files without ids are refused."""
    renamed_added_and_dropped("name")()
    renamed_added_and_dropped("id", by_id=True, folder="ids")()
    check_rows("ids", read_by_library())
    pq.write_table(mapped(0, [1, 2, 3]), "ids/p0.parquet")
    with pytest.raises(sv.DataError, match=r"name its folder in its place: .*; table_version='1'"):
        sv.ingest(DeltaTable("ids"), "n.zarr", label="y")
    with pytest.raises(sv.DataError, match="has no ids of its columns"):
        sv.ingest("ids", "n.zarr", label="y")


def test_delta_table_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deletion_vectors()
    sv.ingest("t", "l.zarr", label="y")
    with serve_folder(tmp_path / "t", "/bucket/lake/t", monkeypatch) as server:
        server.faults = {"busy": 0.04, "reset": 0.04}
        sv.ingest("s3://bucket/lake/t", "r.zarr", label="y")
        with pytest.raises(sv.DataError, match="lies in a Delta table"):
            sv.ingest("s3://bucket/lake/t/p1.parquet", "n.zarr", label="y")
        sv.fit("s3://bucket/lake/t", "m.ssvm", label="y")
        assert sv.evaluate("m.ssvm", "s3://bucket/lake/t").facts() | {"seconds": 0} == sv.evaluate(
            "m.ssvm", "t"
        ).facts() | {"seconds": 0}
    local, remote = sv.open_store("l.zarr"), sv.open_store("r.zarr")
    assert local.digest == remote.digest
    assert remote.facts["table"]["location"] == "s3://bucket/lake/t"


def test_delta_table_in_commands_and_job_files() -> None:
    """A description, a fit, whose cache knows the version, new rows of an earlier version, and a job file."""
    appended_and_deleted()
    assert "a number, as it is" in run("ingest", "t", "--describe", "--table-version", 1).output
    result = run("fit", "t", "m.ssvm", "--label", "y", "--report", "none")
    assert result.exit_code == 0, result.output
    assert sv.open_store("t.zarr").facts["table"]["version"] == "2"
    for path in ("t.zarr", "m.ssvm"):
        assert f"Delta table {DeltaTable('t').metadata().id}, version 2" in run("info", path).output
    assert sv.evaluate("m.ssvm", "t").facts()["rows"] == 32
    assert sv.evaluate("m.ssvm", "t", table_version="0").facts()["rows"] == 20
    before = sv.open_store("t.zarr").digest
    again = run("fit", "t", "m2.ssvm", "--label", "y", "--report", "none")
    assert again.exit_code == 0, again.output
    write_deltalake("t", rows(40), mode="append")
    run("fit", "t", "m3.ssvm", "--label", "y", "--report", "none")
    now = sv.open_store("t.zarr")
    assert (now.facts["table"]["version"], now.digest == before) == ("3", False)
    Path("job.toml").write_text('[ingest]\nsources = ["t"]\nstore = "j.zarr"\nlabel = "y"\ntable_version = "1"\n')
    assert run("ingest", "--config", "job.toml").exit_code == 0
    assert sv.open_store("j.zarr").layout.rows == 40


def test_delta_table_of_a_time() -> None:
    """From the times in the log: those of the files change when it is copied."""
    writer = DeltaWriter(Path("t"))
    schema = writer.schema(a=("double", 1), n=("integer", 2), y=("string", 3))
    hour = 3_600_000
    writer.commit(writer.protocol(), schema, writer.add("p0.parquet", rows(0)), when=hour)
    writer.commit(writer.add("p1.parquet", rows(20)), when=3 * hour)
    for time, count in (
        ("1970-01-01T01:00", 20),
        ("1970-01-01T03:59+02:00", 20),
        ("1970-01-01T03:00:00Z", 40),
        ("2030-01-01", 40),
    ):
        assert sv.ingest("t", "s.zarr", label="y", table_version=time, overwrite=True).rows == count
    for version, message in {
        "1970-01-01T00:59": "the first one in its log, 0, is of 1970-01-01T01:00:00",
        "2": "the last one is 1",
        "new": "is no version of a Delta table",
    }.items():
        with pytest.raises(sv.UsageError, match=message):
            sv.ingest("t", "n.zarr", label="y", table_version=version)


def test_delta_table_that_is_not_understood_is_refused() -> None:
    """By its folder, files of it, and what it has that is not read; nothing is written."""
    writer = DeltaWriter(Path("t"), features=("variantType",))
    writer.commit(writer.protocol(), writer.schema(a=("double", 1)), writer.add("p0.parquet", rows(0)))
    write_deltalake("d", rows(0))
    write_deltalake("gone", rows(0))
    next(Path("gone").glob("*.parquet")).unlink()
    shutil.copytree("d", "cut")
    log = Path("cut/_delta_log/00000000000000000000.json")
    log.write_text(log.read_text()[:300])
    part = next(Path("d").glob("*.parquet"))
    cases: dict[tuple[str, ...], str] = {
        ("t",): "variantType",
        ("gone",): "does not exist",
        ("cut",): "is a Delta table whose log cannot be read",
        ("d", "expected.parquet"): "there are other sources",
        (str(part),): "lies in a Delta table",
        ("d/*.parquet",): "lies in a Delta table",
        ("d", "--format", "csv"): "is a Delta table",
        ("expected.parquet", "--format", "delta"): "is no table of a data lake",
    }
    pq.write_table(rows(0), "expected.parquet")
    for words, message in cases.items():
        ended = (
            run("ingest", *words, "n.zarr", "--label", "y")
            if len(words) < 3
            else run("ingest", words[0], "n.zarr", *words[1:], "--label", "y")
        )
        assert ended.exit_code in (2, 65, 66), (words, ended.output)
        assert message in ended.output.replace("\n", " "), (words, ended.output)
    assert not Path("n.zarr").exists()


def test_delta_table_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    write_deltalake("t", rows(0))
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    ended = run("ingest", "t", "n.zarr", "--label", "y")
    assert "deltalake is not installed" in ended.output
    assert "streamsvm[lake]" in ended.output


def test_delta_table_that_moved_on_does_not_continue_an_ingest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command after an interruption is refused, and goes on with the version that it had begun with."""
    for number in range(3):
        write_deltalake("t", rows(4000 * number, 4000), mode="append")
    with monkeypatch.context() as patch:
        patch.setattr(Stores, "append", _stop_after(Stores.append, 2))
        ended = run("ingest", "t", "s.zarr", "--label", "y", "--chunk", "4KiB")
    assert ended.exit_code == 75, ended.output
    write_deltalake("t", rows(12000), mode="append")
    ended = run("ingest", "t", "s.zarr", "--label", "y", "--chunk", "4KiB")
    assert ended.exit_code == 78, ended.output
    ended = run("ingest", "t", "s.zarr", "--label", "y", "--chunk", "4KiB", "--table-version", 2)
    assert ended.exit_code == 0, ended.output
    assert sv.open_store("s.zarr").layout.rows == 12000


def _stop_after(append: Callable[..., None], batches: int) -> Callable[..., None]:
    calls = iter(range(batches))

    def stop(*given: Any) -> None:
        if next(calls, None) is None:
            raise InterruptedRun("SIGTEST: stopped")
        append(*given)

    return stop
