"""Directories of files that are not simply the rows of a table: lakes with deleted rows, partitions, parts without rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import streamsvm as sv
from streamsvm.cli import main as cli

LAKES = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Hudi": ".hoodie/hoodie.properties",
    "Iceberg": "metadata/00001-5c3a.metadata.json",
}

HOLDS_DELETED_ROWS = "its files also hold rows that were deleted"
UNREADABLE = {
    "Delta": "whose log cannot be read",
    "Hudi": HOLDS_DELETED_ROWS,
    "Iceberg": "whose metadata cannot be read",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: object) -> Result:
    return CliRunner().invoke(cli.cli, ["-q", *map(str, words)])


def parquet(path: str, rows: int = 40, **columns: Any) -> None:
    a = np.arange(rows) % 7
    os.makedirs(os.path.dirname(path), exist_ok=True)
    pq.write_table(pa.table({"a": a * 1.0, "y": np.where(a > 3, "p", "q"), **columns}), path)


@pytest.mark.parametrize("kind", LAKES)
def test_data_lake_table_of_a_lake_is_refused(kind: str) -> None:
    """By its folder, a folder in it, patterns, a link, and a file of it, in every command that reads files."""
    parquet("t/data/part-0.parquet")
    parquet("t/part-1.parquet")
    os.makedirs(os.path.dirname(f"t/{LAKES[kind]}"))
    Path(f"t/{LAKES[kind]}").write_text("{}")
    os.symlink("t/data", "link")
    for source in ("t", "t/data", "t/*.parquet", "**/*.parquet", "t/**", "t/data/part-0.parquet", "link"):
        ended = run("ingest", source, "s.zarr", "--label", "y")
        assert ended.exit_code == 65, (source, ended.output)
        why = UNREADABLE[kind] if source == "t" else HOLDS_DELETED_ROWS
        assert f"{kind} table" in ended.output
        assert why in ended.output.replace("\n", " ")
    parquet("plain/p.parquet")
    sv.fit("plain/p.parquet", "m.ssvm", y="y")
    for words in (("evaluate", "m.ssvm", "t"), ("predict", "m.ssvm", "t/*.parquet", "p.csv")):
        assert f"{kind} table" in run(*words).output
    with pytest.raises(sv.DataError, match=f"{kind} table"):
        sv.ingest("t", "s.zarr", label="y")
    os.makedirs("metadata")  # a folder of that name alone makes no table
    Path("metadata/a.metadata.json").write_text("{}")
    assert run("ingest", "plain/p.parquet", "s.zarr", "--label", "y").exit_code == 0


PARTITIONS = {
    "numbers": ["year=2020/month=01", "year=2020/month=12", "year=-3/month=01"],
    "text": ["city=a%20b", "city=c%2Fd", "city=d"],
    "too large for 32 bits": ["at=3000000000", "at=1"],
    "one value": ["year=2020"],
    "missing": ["city=a", "city=__HIVE_DEFAULT_PARTITION__", "city=b"],
}
"""Folders of a table in partitions."""


@pytest.mark.parametrize("folders", PARTITIONS.values(), ids=PARTITIONS)
def test_hive_partitions_are_the_columns_that_pyarrow_reads(folders: list[str]) -> None:
    """Of a folder, a pattern and a model's new rows; as features, and as a label."""
    for number, folder in enumerate(folders):
        parquet(f"t/{folder}/part.parquet", rows=40 + number)
    table = ds.dataset("t", partitioning="hive").to_table()
    options: dict[str, Any] = {"label": "y", "missing": "indicator", "recognize": True}
    pq.write_table(table, "whole.parquet")
    expected = sv.open_store(sv.ingest("whole.parquet", "e.zarr", **options).store)
    for source in ("t", "t/**/*.parquet"):
        store = sv.open_store(sv.ingest(source, "s.zarr", overwrite=True, **options).store)
        assert (store.digest, store.facts["names"]) == (expected.digest, expected.facts["names"])
    sv.fit("s.zarr", "m.ssvm")
    for source, rows in ((f"t/{folders[0]}/part.parquet", 40), ("t", table.num_rows)):
        assert sv.evaluate("m.ssvm", source).facts()["rows"] == rows
    if len(folders) > 1:
        key = folders[0].partition("=")[0]
        labeled = sv.ingest("t", "l.zarr", label=key, missing_label="skip")
        assert len(labeled.classes) == len({value for value in table[key].to_pylist() if value is not None})


def test_hive_partitions_are_not_lost() -> None:
    """Files of several folders have the column, and a folder of the table is read without it; text files are refused."""
    for year in (2019, 2020):
        parquet(f"t/year={year}/part.parquet")
        os.makedirs(f"c/year={year}")
        Path(f"c/year={year}/part.csv").write_text("a,y\n" + "1,p\n2,q\n" * 20)
    for source in (["t/year=2019/part.parquet", "t/year=2020/part.parquet"], ["t/year=2019", "t/year=2020"]):
        sv.ingest(source, "s.zarr", label="y", overwrite=True)
        assert sv.open_store("s.zarr").facts["names"] == ["a", "year"]
    assert sv.ingest("t/year=2019", "one.zarr", label="y").columns == 1
    for source in (["c"], ["c/**/*.csv"], ["c/year=2019", "c/year=2020"]):
        ended = run("ingest", *source, "n.zarr", "--label", "y")
        assert ended.exit_code == 65, (source, ended.output)
        assert "'year' is in the names of folders" in ended.output, ended.output
    parquet("u/year=1/part.parquet", year=np.arange(40) * 1.0)
    parquet("u/year=2/part.parquet", year=np.arange(40) * 1.0)
    ended = run("ingest", "u/*/*.parquet", "has-it.zarr", "--label", "y")
    assert ended.exit_code == 0, ended.output
    os.makedirs("t/year=2021")
    os.symlink(os.getcwd() + "/t", "t/year=2021/loop")
    assert "year" in run("ingest", "t", "--describe").output


def test_hive_partition_that_is_renamed_makes_a_cache_out_of_date() -> None:
    parquet("t/year=1/part.parquet")
    parquet("t/year=2/part.parquet")
    first = sv.fit("t", "m.ssvm", y="y", cache="c.zarr")
    assert "up to date" not in str(first)
    os.rename("t/year=2", "t/year=3")
    sv.fit("t", "m.ssvm", y="y", cache="c.zarr", overwrite=True)
    assert [one["name"] for one in sv.open_store("c.zarr").facts["sources"]][1] == "t/year=3/part.parquet"


def test_data_lake_pattern_names_each_file_once() -> None:
    parquet("t/part.parquet")
    assert sv.ingest("t/**", "s.zarr", label="y").rows == 40


def write_parts(kind: str, folder: str) -> None:
    """Three parts of a table of 40 rows; the first holds none, nor does the last."""
    os.makedirs(folder)
    if kind == "parquet":
        parquet(f"{folder}/b.parquet")
        for name in ("a", "c"):
            parquet(f"{folder}/{name}.parquet", rows=0)
        return
    line = {"csv": "a,y\n", "jsonl": "", "svm": "", "gone.csv": ""}[kind]
    rows = {"csv": "1,p\n2,q\n", "jsonl": '{"a": 1, "y": "p"}\n{"a": 2, "y": "q"}\n', "svm": "1 1:1\n-1 1:2\n"}
    Path(f"{folder}/b.{kind}").write_text(
        ("a,y\n" if kind.endswith("csv") else "") + rows[Path(kind).suffix[1:] or kind] * 20
    )
    for name in ("a", "c"):
        Path(f"{folder}/{name}.{kind}").write_text(line)


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "svm", "gone.csv"])
def test_data_lake_parts_without_rows_are_passed_over(kind: str) -> None:
    """They are counted in a notice, when rows are stored, described or predicted; a table of nothing else is an error."""
    write_parts(kind, "t")
    label = [] if kind == "svm" else ["--label", "y"]
    done = run("ingest", "t", "s.zarr", *label)
    assert done.exit_code == 0, done.output
    assert "2 files without rows are skipped" in done.output
    assert sv.open_store("s.zarr").layout.rows == 40
    sv.fit("s.zarr", "m.ssvm")
    assert run("evaluate", "m.ssvm", "t").exit_code == 0
    done = run("predict", "m.ssvm", "t", "p.csv")
    assert done.exit_code == 0, done.output
    assert len(Path("p.csv").read_text().splitlines()) == 41
    os.remove(next(Path("t").glob("b.*")))
    assert "E-EMPTY" in run("ingest", "t", "n.zarr", *label).output


def test_data_lake_arrays_without_rows_are_passed_over() -> None:
    os.mkdir("h")
    for name, rows in (("a", 0), ("b", 40)):
        with h5py.File(f"h/{name}.h5", "w") as file:
            file["X"], file["y"] = np.ones((rows, 3)), np.arange(rows) % 2
    assert sv.ingest("h", "h.zarr").rows == 40
    with pytest.raises(sv.DataError, match="holds no rows"):
        sv.ingest("h/a.h5", "n.zarr")
    os.mkdir("t")
    X = np.arange(80.0).reshape(40, 2)
    np.save("t/b.npy", np.c_[X, np.arange(40) % 2])
    np.save("t/a.npy", np.zeros((0, 3)))
    assert sv.ingest("t", "s.zarr", label="last").rows == 40
