"""From the command line, on real data: what is damaged or was never finished is not trained on."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamsvm.cli import cli
from streamsvm.store import open_store
from streamsvm.store.format import manifest as manifests
from streamsvm.store.read.extents import Place, segments

pytestmark = pytest.mark.data


@pytest.fixture(params=["s.zarr", "s.h5"])
def store(request: pytest.FixtureRequest, data_file: Callable[[str], Path], tmp_path: Path) -> Path:
    """The census data in chunks that are small enough to be many."""
    path: Path = tmp_path / request.param
    done = run("ingest", data_file("a9a.xz"), path, "--features", 123, "--chunk", "64KiB")
    assert done.exit_code == 0, done.output
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["-q", *map(str, arguments)])


def byte_of(store: Any, chunk: int, name: str, draw: random.Random) -> tuple[Place, int]:
    """Where some byte of a chunk's part of an array is: in which unit, and its offset in the file."""
    found = store._ranges(chunk)[name]
    segment = draw.choice(segments(found.array.spec, found.start, found.stop))
    place = found.array.place(segment.unit)
    return place, place.offset + segment.offset + draw.randrange(segment.nbytes)


def test_one_bit_of_any_chunk_stops_a_fit(store: Path, tmp_path: Path) -> None:
    """With exit code 65, the name of the chunk and no model."""
    opened, draw, model = open_store(store), random.Random(6), tmp_path / "m.ssvm"
    chunks = range(len(opened.layout.chunks))
    assert len(chunks) > 50
    for chunk in chunks:
        place, at = byte_of(opened, chunk, draw.choice(["X/data", "X/indices", "X/indptr", "y"]), draw)
        raw = bytearray(Path(place.path).read_bytes())
        good = bytes(raw)
        raw[at] ^= 1 << draw.randrange(8)
        Path(place.path).write_bytes(raw)
        ended = run("fit", store, model, "--loss", "hinge", "--solver", "dcd", "--max-passes", 1)
        Path(place.path).write_bytes(good)
        assert ended.exit_code == 65, ended.output
        first = sum(opened.layout.chunks[:chunk])
        assert f"chunk {chunk} of store '{store}' (rows {first}-" in ended.output
        assert not model.exists()
    assert run("fit", store, model, "--loss", "hinge", "--solver", "dcd", "--max-passes", 1).exit_code == 0


@pytest.mark.parametrize("command", ["fit", "predict", "embed", "evaluate", "plan", "verify"])
def test_a_store_without_its_manifest_is_none(store: Path, tmp_path: Path, command: str) -> None:
    model, out = tmp_path / "m.ssvm", tmp_path / "out.csv"
    assert run("fit", store, model, "--loss", "hinge", "--max-passes", 1).exit_code == 0
    (store / manifests.FILE).unlink()
    arguments = {
        "fit": (store, out),
        "predict": (model, store, out),
        "embed": (store, out),
        "evaluate": (model, store),
        "plan": (store,),
        "verify": (store,),
    }
    ended = run(command, *arguments[command])
    assert (ended.exit_code, "E-INCOMPLETE" in ended.output) == (65, True), ended.output
    assert not out.exists()
