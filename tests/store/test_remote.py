"""Stores in an object store: the bits of a local fit whatever the network does, no byte used that was not verified, no secret told."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from scipy import sparse

import streamsvm as sv
from streamsvm import object_store
from streamsvm.cli.main import cli
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.schedule.budget import MIB
from streamsvm.store import open_store, read_chunk
from streamsvm.store.chunk_cache import remove_stores
from tests.object_server import ACCESS_KEY, SECRET, ObjectServer, serve_folder

FAULTS = {"busy": 0.03, "reset": 0.05, "cut": 0.06, "flip": 0.06}
URL = "s3://bucket/rows.zarr"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Local stores: 'rows.zarr' of 3000 rows in 16 chunks, 'sparse.zarr', 'packed.zarr' (compressed)."""
    folder = tmp_path_factory.mktemp("stores")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 20)).astype(np.float32)
    y = (X[:, 0] + rng.normal(size=3000) > 0).astype(int)
    sv.ingest(X, folder / "rows.zarr", y=y, chunk="16KiB")
    thin = sparse.csr_matrix(np.where(rng.random(X.shape) < 0.3, np.round(X), 0).astype(np.float32))
    sv.ingest(thin, folder / "sparse.zarr", y=y, chunk="8KiB")
    sv.ingest(thin, folder / "packed.zarr", y=y, chunk="8KiB", compression="lz4")
    return folder


@pytest.fixture
def server(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """A server with the stores, which the environment names, and an empty cache."""
    monkeypatch.setenv("STREAMSVM_CACHE", str(tmp_path / "cache"))
    with serve_folder(folder, "/bucket", monkeypatch) as server:
        yield server


def rows_of(store: Any) -> list[Any]:
    """All arrays of a store, chunk by chunk."""
    buffers, found = store.buffers(), []
    for number in range(len(store.layout.chunks)):
        chunk = read_chunk(store, number, buffers)
        found.append([*(np.copy(part) for part in chunk.X), np.copy(chunk.codes)])
    return found


def same(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


FITS: dict[str, dict[str, Any]] = {
    "newton": {},
    "dcd": {"solver": "dcd", "loss": "hinge"},
    "held out": {"validation": 0.2},
    "landmarks": {"kernel": "rbf", "landmarks": 20, "embedding": "fly"},
}


@pytest.mark.parametrize("name", FITS)
def test_remote_fit_has_the_bits_of_a_local_one(name: str, folder: Path, server: ObjectServer, tmp_path: Path) -> None:
    """With a fifth of all requests broken, of three seeds."""
    sv.fit(str(folder / "rows.zarr"), tmp_path / "local.ssvm", seed=1, **FITS[name])
    local = (tmp_path / "local.ssvm").read_bytes()
    server.faults = FAULTS
    for seed in range(3):
        server.random.seed(seed)
        sv.fit(URL, tmp_path / f"{seed}.ssvm", seed=1, **FITS[name])
        assert (tmp_path / f"{seed}.ssvm").read_bytes() == local
    assert sum(server.requests[fault] for fault in FAULTS) > 3


@pytest.mark.parametrize("name", ["rows", "sparse", "packed"])
def test_remote_rows_are_those_of_the_local_store(name: str, folder: Path, server: ObjectServer) -> None:
    """With changed bits in a seventh of all answers, from s3 and from a web server; a pickled store tells no secret."""
    local = rows_of(sv.open_store(folder / f"{name}.zarr"))
    server.faults = {"flip": 0.15}
    for url in (f"s3://bucket/{name}.zarr", Path(f"s3://bucket/{name}.zarr"), f"{server.url}/bucket/{name}.zarr/"):
        store = sv.open_store(url)
        assert same(rows_of(store), local)
        assert np.array_equal(store.statistics().M2, sv.open_store(folder / f"{name}.zarr").statistics().M2)
        assert store.digest == sv.open_store(folder / f"{name}.zarr").digest
        pickled = pickle.dumps(store)
        assert SECRET.encode() not in pickled
        assert ACCESS_KEY.encode() not in pickled
        assert same(rows_of(pickle.loads(pickled)), local)
    assert server.requests["flip"]


def test_remote_answer_that_does_not_come_is_given_up(folder: Path, server: ObjectServer) -> None:
    server.faults = {"hang": 0.1}
    server.random.seed(3)
    assert same(rows_of(sv.open_store(URL)), rows_of(sv.open_store(folder / "rows.zarr")))
    assert server.requests["hang"]


def test_remote_answer_longer_than_its_object_takes_no_memory(server: ObjectServer) -> None:
    server.objects["/bucket/long"] = bytes(2 << 20)
    server.faults = {"long": 1.0}
    tracemalloc.start()
    try:
        with pytest.raises(sv.StorageError, match="there was no whole answer"):
            object_store.read_object("s3://bucket/long", 4 << 20)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_remote_labels_are_asked_for_once(server: ObjectServer, tmp_path: Path) -> None:
    """They are read from this machine the next time, unless they are damaged here."""
    first = rows_of(sv.open_store(URL))
    labels = [key for key in server.keys if "/y/" in key]
    assert len(labels) == len(first)
    kept = sorted((tmp_path / "cache").rglob("y.*"))
    assert len(kept) == len(first)
    damaged = bytearray(kept[0].read_bytes())
    damaged[5] ^= 1
    kept[0].write_bytes(damaged)
    kept[1].write_bytes(b"")
    server.keys.clear()
    assert same(rows_of(sv.open_store(URL)), first)
    assert len([key for key in server.keys if "/y/" in key]) == 2


def test_remote_ids_are_those_of_the_local_store(server: ObjectServer, tmp_path: Path) -> None:
    """With changed bits in half of all answers, and after damage to the copy on this machine."""
    rows = np.random.default_rng(1).normal(size=(500, 2)).astype(np.float32)
    table = pa.table(
        {"id": [f"row {k}" for k in range(500)], "a": rows[:, 0], "b": rows[:, 1], "y": (rows[:, 0] > 0).astype(int)}
    )
    sv.ingest(table, tmp_path / "ids.zarr", label="y", id="id", chunk="4KiB")
    server.put_folder(tmp_path / "ids.zarr", "/bucket/ids.zarr")
    model = sv.fit(tmp_path / "ids.zarr", tmp_path / "m.ssvm").model
    sv.predict(model, str(tmp_path / "ids.zarr"), tmp_path / "local.csv")
    assert b"row 499" in (tmp_path / "local.csv").read_bytes()
    for _ in range(2):
        server.faults = {"flip": 0.5}
        sv.predict(model, "s3://bucket/ids.zarr", tmp_path / "remote.csv", overwrite=True)
        assert (tmp_path / "remote.csv").read_bytes() == (tmp_path / "local.csv").read_bytes()
        (copy,) = (tmp_path / "cache").rglob("ids.parquet")
        copy.write_bytes(copy.read_bytes()[:-100])


def test_remote_damage_at_rest_is_an_error(server: ObjectServer) -> None:
    """Changed bits, an object of another size and one that is missing name the chunk and the object."""
    key = "/bucket/rows.zarr/X/c.3.0"
    good = server.objects[key]
    for body, code in ((bytes([good[0] ^ 1]) + good[1:], "E-CRC"), (good[:-1], "E-CHUNKS"), (None, "E-CHUNKS")):
        server.objects.pop(key)
        if body is not None:
            server.objects[key] = body
        store = sv.open_store(URL)
        with pytest.raises(sv.DataError, match=f"chunk 3 of store '{URL}'") as error:
            rows_of(store)
        assert error.value.code == code
        server.objects[key] = good
    server.objects["/bucket/rows.zarr/manifest.json"] = server.objects["/bucket/rows.zarr/manifest.json"].replace(
        b"20", b"21"
    )
    with pytest.raises(sv.DataError, match="is damaged"):
        sv.open_store(URL)


def test_remote_store_replaced_under_a_fit_is_noticed(server: ObjectServer, tmp_path: Path) -> None:
    manifest = "/bucket/rows.zarr/manifest.json"

    def replace_store(_: object) -> None:
        server.objects[manifest] = server.objects["/bucket/sparse.zarr/manifest.json"]

    with pytest.raises(sv.DataError, match="has other rows now") as error:
        sv.fit(URL, tmp_path / "m.ssvm", tolerance=1e-12, solver="dcd", on_pass=replace_store)
    assert error.value.code == "E-CHANGED"


def test_remote_access_refused_tells_no_secret(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what was refused and which variables are set; without any, which are needed."""
    server.denied = True
    with pytest.raises(sv.SecurityError, match="the service refused the credentials") as error:
        sv.open_store(URL)
    assert "AWS_SECRET_ACCESS_KEY" in str(error.value.hint)
    assert SECRET not in f"{error.value}{error.value.hint}{error.value.__cause__}"
    server.denied = False
    with pytest.raises(sv.MissingError, match=r"there is no store at s3://bucket/other\.zarr"):
        sv.open_store("s3://bucket/other.zarr")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(sv.UsageError, match="obstore is not installed"):
        sv.open_store(URL)


def test_remote_service_that_stays_away_is_an_error_without_secrets(server: ObjectServer) -> None:
    server.faults = {"busy": 1.0}
    with pytest.raises(sv.StorageError, match=r"after 8 tries: the service answered 503"):
        sv.open_store(URL)


def test_remote_fit_writes_no_secret(server: ObjectServer, tmp_path: Path) -> None:
    sv.fit(URL, tmp_path / "m.ssvm", report=tmp_path / "page.html")
    sv.evaluate(tmp_path / "m.ssvm", URL)
    sv.predict(tmp_path / "m.ssvm", URL, tmp_path / "p.csv")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        assert SECRET.encode() not in path.read_bytes()
        assert ACCESS_KEY.encode() not in path.read_bytes()


@pytest.mark.parametrize("limit", [260, 400, 900])
def test_remote_plan_reads_as_far_ahead_as_the_memory_leaves(limit: int, folder: Path, server: ObjectServer) -> None:
    """Requests in flight are a term of it; its other terms, and with them the bits of the model, are those of a local fit."""
    plans = [
        make_plan(FitJob(str(where), "m.ssvm", memory=limit * MIB), sv.open_store(where))
        for where in (folder / "rows.zarr", URL)
    ]
    local, remote = ({term.name: term.nbytes for term in plan.memory.terms} for plan in plans)
    assert plans[1].memory.total <= limit * MIB
    assert plans[1].memory.depth is not None
    assert remote.pop("requests in flight") > 0
    assert remote.pop("blocks in flight") >= local.pop("blocks in flight")
    assert remote == local
    assert plans[0].memory.depth is None


def test_remote_client_is_loaded_for_urls_only(folder: Path) -> None:
    code = f"import sys, streamsvm as sv; sv.open_store({str(folder / 'rows.zarr')!r}).statistics(); print('obstore' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"


def test_remote_profile_gives_the_keys(server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ~/.aws, where the environment has none."""
    (tmp_path / "credentials").write_text(
        f"[work]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET}\n"
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_PROFILE", "work")
    object_store._client.cache_clear()
    assert sv.open_store(URL).layout.rows == 3000


def test_remote_cache_saves_what_it_keeps_in_each_later_pass(server: ObjectServer, tmp_path: Path) -> None:
    """N chunks of which C are kept: p passes ask for p N - (p - 1) C; another opening of the store finds the same."""
    chunks = len(sv.open_store(URL).layout.chunks)
    for kept, limit in ((0, 0), (5, 5 * 16_400 + chunks * 900), (chunks, 1 << 30)):
        remove_stores()
        store = open_store(URL, disk_cache=limit)
        first = rows_of(store)
        have = len(list((tmp_path / "cache").rglob("X.*")))
        assert have == kept
        server.keys.clear()
        assert same(rows_of(store), first)
        assert same(rows_of(open_store(URL, disk_cache=limit)), first)
        assert len([key for key in server.keys if "/X/" in key]) == 2 * (chunks - kept)
    counted = int((tmp_path / "cache" / "bytes").read_text())
    assert counted == sum(path.stat().st_size for name in "Xy" for path in (tmp_path / "cache").rglob(f"{name}.*"))


def test_remote_cache_that_is_damaged_or_full_changes_nothing(server: ObjectServer, tmp_path: Path) -> None:
    first = rows_of(open_store(URL, disk_cache=1 << 30))
    for path, body in zip(sorted((tmp_path / "cache").rglob("X.*")), (b"", b"\0" * 10, b"\1" * 16_320), strict=False):
        path.write_bytes(body)
    (tmp_path / "cache" / "bytes").write_text("what?")
    assert same(rows_of(open_store(URL, disk_cache=1 << 30)), first)
    remove_stores()
    (tmp_path / "cache").chmod(0o500)
    assert same(rows_of(open_store(URL, disk_cache=1 << 30)), first)
    (tmp_path / "cache").chmod(0o700)


def test_remote_cache_makes_room_for_another_store(server: ObjectServer, tmp_path: Path) -> None:
    """Of stores that were not opened for an hour."""
    rows_of(open_store(URL, disk_cache=200_000))
    (folder,) = [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    rows_of(open_store("s3://bucket/sparse.zarr", disk_cache=200_000))
    assert list(folder.glob("X.*"))
    os.utime(folder, (0, 0))
    rows_of(open_store("s3://bucket/packed.zarr", disk_cache=200_000))
    assert not folder.exists()


def test_remote_cache_is_listed_and_removed(server: ObjectServer, tmp_path: Path) -> None:
    sv.fit(URL, tmp_path / "m.ssvm", disk_cache="1GiB")
    listed = CliRunner().invoke(cli, ["cache", "list"]).output
    assert URL in listed
    assert "of 1 store in" in listed
    assert "removed" in CliRunner().invoke(cli, ["cache", "prune"]).output
    assert '"url"' not in CliRunner().invoke(cli, ["cache", "list", "--json"]).output
    planned = CliRunner().invoke(cli, ["plan", URL, "--disk-cache", "100kB"]).output
    assert f"{len(sv.open_store(URL).layout.chunks)} requests a pass for features" in planned
    assert "100 kB of it is kept" in planned
