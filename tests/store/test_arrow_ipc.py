"""The Arrow source: both formats with and without compression, saved Hugging Face data sets, memory, damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import streamsvm as sv
from streamsvm.cli.main import cli
from streamsvm.errors import BudgetError, DataError
from streamsvm.store.sources import SourceOptions, open_source

ROWS, SIZE = 60, 4
RANDOM = np.random.default_rng(0)
VECTORS = RANDOM.normal(size=(ROWS, SIZE)).astype(np.float32)
TABLE = pa.table(
    {
        "age": RANDOM.normal(size=ROWS),
        "emb": pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), SIZE),
        "list": pa.array(VECTORS.astype(np.float64).tolist()),
        "kind": pa.array(RANDOM.choice(["u", "v", "w"], ROWS)).dictionary_encode(),
        "color": pa.array(RANDOM.choice(["red", "green"], ROWS)),
        "label": (VECTORS[:, 0] > 0).astype(int),
    }
)
FORMATS: dict[str, Callable[..., Any]] = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}


def save(path: Path, table: pa.Table = TABLE, form: str = "stream", codec: str | None = None, rows: int = 25) -> Path:
    with FORMATS[form](str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def digest(given: Any, place: Path, **options: Any) -> str:
    sv.ingest(given, place / "s.zarr", label="label", overwrite=True, **options)
    return sv.open_store(place / "s.zarr").digest


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the same table in Parquet."""
    place = tmp_path_factory.mktemp("parquet")
    pq.write_table(TABLE, place / "t.parquet")
    return digest(place / "t.parquet", place)


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("form", FORMATS)
def test_arrow_file_gives_the_store_of_parquet(tmp_path: Path, expected: str, form: str, codec: str | None) -> None:
    """Whatever its suffix; the file is recognized by its first bytes."""
    assert digest(save(tmp_path / "rows", TABLE, form, codec), tmp_path) == expected


def test_arrow_file_of_polars_has_text_in_views(tmp_path: Path) -> None:
    frame = pl.DataFrame({"color": ["red", "green"] * 20, "x": np.arange(40.0), "label": [0, 1, 1, 0] * 10})
    frame.write_ipc(tmp_path / "p.arrow", compression="zstd", compat_level=pl.CompatLevel.newest())
    frame.write_parquet(tmp_path / "p.parquet")
    assert digest(tmp_path / "p.arrow", tmp_path) == digest(tmp_path / "p.parquet", tmp_path)


def test_arrow_model_is_fitted_and_applied_by_the_command_line(tmp_path: Path) -> None:
    save(tmp_path / "rows.feather", form="file", codec="lz4")
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    run, model = CliRunner(), str(tmp_path / "m.ssvm")
    fitted = run.invoke(cli, ["fit", str(tmp_path / "rows.feather"), model, "--label", "label", "--report", "none"])
    assert fitted.exit_code == 0, fitted.output
    for name in ("feather", "parquet"):
        call = ["predict", model, str(tmp_path / f"rows.{name}"), str(tmp_path / f"{name}.csv")]
        assert run.invoke(cli, call).exit_code == 0
    assert (tmp_path / "feather.csv").read_text() == (tmp_path / "parquet.csv").read_text()
    described = run.invoke(cli, ["ingest", str(tmp_path / "rows.feather"), "--label", "label", "--describe"])
    assert "kind" in described.output


class TestSavedDataset:
    """The folders that ``save_to_disk`` of Hugging Face's datasets writes."""

    def save(self, folder: Path, **state: Any) -> Path:
        folder.mkdir()
        names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
        save(folder / names[1], TABLE.slice(0, 35))  # the order is that of state.json
        save(folder / names[0], TABLE.slice(35))
        files = [{"filename": name} for name in reversed(names)]
        (folder / "state.json").write_text(json.dumps({"_data_files": files, "_fingerprint": "0", **state}))
        (folder / "dataset_info.json").write_text("{}")
        return folder

    def test_arrow_folder_has_the_rows_of_the_files_that_it_names(self, tmp_path: Path, expected: str) -> None:
        assert digest(self.save(tmp_path / "set"), tmp_path) == expected

    def test_arrow_folder_of_several_sets_names_them(self, tmp_path: Path) -> None:
        (tmp_path / "all").mkdir()
        (tmp_path / "all" / "dataset_dict.json").write_text('{"splits": ["test", "train"]}')
        for part in ("train", "test"):
            self.save(tmp_path / "all" / part)
        with pytest.raises(sv.UsageError, match="several data sets") as refused:
            digest(tmp_path / "all", tmp_path)
        assert refused.value.hint == f"name one of them: {tmp_path}/all/test, {tmp_path}/all/train"

    def test_arrow_folder_that_is_not_whole_is_refused(self, tmp_path: Path) -> None:
        chosen = self.save(tmp_path / "chosen", _indices_data_files=[{"filename": "indices.arrow"}])
        with pytest.raises(sv.UsageError, match="selection of the rows"):
            digest(chosen, tmp_path)
        folder = self.save(tmp_path / "set")
        (folder / "data-00000-of-00002.arrow").unlink()
        with pytest.raises(sv.MissingError, match=r"data-00000-of-00002\.arrow does not exist"):
            digest(folder, tmp_path)


@pytest.mark.parametrize("form", FORMATS)
def test_arrow_batch_larger_than_the_memory_is_read_in_pieces(tmp_path: Path, form: str) -> None:
    rows = 200_000
    table = pa.table({f"c{k}": np.arange(rows) % (k + 7.0) for k in range(30)} | {"label": np.arange(rows) % 2})
    path = save(tmp_path / "rows.arrow", table, form, rows=rows)
    assert path.stat().st_size > 45 << 20
    del table
    before = pa.total_allocated_bytes()
    count = 0
    for batch in open_source([path], SourceOptions(label="label", memory_limit=40 << 20)).batches():
        count += len(batch.labels)
        assert pa.total_allocated_bytes() - before < 8 << 20
    assert count == rows


def test_arrow_compressed_batch_that_does_not_fit_in_memory_is_refused(tmp_path: Path) -> None:
    """By the size that its buffers tell, before it is decompressed."""
    table = pa.table({"x": np.zeros(2_000_000), "label": np.zeros(2_000_000, int)})
    path = save(tmp_path / "rows.arrow", table, "stream", "lz4", rows=2_000_000)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(BudgetError, match=r"in batches of up to 2000000 rows: about 54MiB") as refused:
        open_source([path], SourceOptions(label="label", memory_limit=40 << 20))
    assert "write it with fewer rows in each" in refused.value.hint


@pytest.mark.parametrize("form", FORMATS)
def test_arrow_file_that_is_cut_is_refused(tmp_path: Path, form: str) -> None:
    """At any place, between two batches too, where a stream could have ended."""
    whole = save(tmp_path / "whole.arrow", TABLE, form).read_bytes()
    with pa.memory_map(str(tmp_path / "whole.arrow")) as mapped:
        mapped.seek(8 if form == "file" else 0)
        messages, ends = pa.ipc.MessageReader.open_stream(mapped), list[int]()
        while len(ends) < 4:  # the schema, a dictionary and two batches
            messages.read_next_message()
            ends.append(mapped.tell())
    path = tmp_path / "cut.arrow"
    for size in (*ends, len(whole) - 1, *range(9, len(whole), 157)):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"cut\.arrow") as refused:
            digest(path, tmp_path)
        assert refused.value.code == "E-TRUNCATED"


@pytest.mark.parametrize(
    ("damaged", "place"),
    [
        (b"red", "record batch 1, rows from 1 on"),
        (TABLE.column("list").chunk(0).offsets.slice(4, 4).to_numpy().tobytes(), "record batch 1, rows from 1 on"),
    ],
    ids=["text", "offsets"],
)
def test_arrow_file_that_is_damaged_is_refused_by_its_place(tmp_path: Path, damaged: bytes, place: str) -> None:
    path = save(tmp_path / "rows.arrow")
    content = path.read_bytes()
    at = content.index(damaged)
    path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
    with pytest.raises(DataError, match=rf"rows\.arrow, {place}, is not complete Arrow IPC") as refused:
        digest(path, tmp_path)
    assert refused.value.code == "E-PARSE"


def test_arrow_files_of_feather_version_1_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old.feather").write_bytes(b"FEA1" + bytes(100))
    with pytest.raises(DataError, match="looks like a Feather file of version 1"):
        digest(tmp_path / "old.feather", tmp_path)
