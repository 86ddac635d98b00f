"""Stores, models and other outputs at URLs: the bytes of local ones, one writer at a time, complete or not there, no secret written."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import streamsvm as sv
from streamsvm import durable, object_store, working_copies
from streamsvm.cli.main import cli
from streamsvm.engine import signals
from streamsvm.engine.executor import SerialExecutor
from streamsvm.engine.shared_files import close_place, open_place, write_shared, write_shared_file
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.rows import Dense
from streamsvm.store import create
from tests.object_server import ACCESS_KEY, SECRET, ObjectServer, serve_folder

FAULTS = {"busy": 0.02, "reset": 0.04, "lost": 0.05, "cut": 0.03, "flip": 0.03}
STORE, MODEL = "s3://bucket/data/rows.zarr", "s3://bucket/models/m.ssvm"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 2000 rows and its stores: 'rows.zarr' in 10 chunks and 'rows.test.zarr'."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 12)).astype(np.float32)
    y = (X[:, 0] + rng.normal(size=2000) > 0).astype(int)
    lines = (",".join([*map(repr, row), str(label)]) for row, label in zip(X.tolist(), y, strict=True))
    names = ",".join([*(f"x{k}" for k in range(12)), "y"])
    (folder / "rows.csv").write_text("\n".join([names, *lines]) + "\n")
    sv.ingest(folder / "rows.csv", folder / "rows.zarr", **INGEST)
    return folder


INGEST: dict[str, Any] = {"label": "y", "chunk": "8KiB", "test_fraction": 0.1, "seed": 1}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """An empty server, which the environment names."""
    monkeypatch.setenv("STREAMSVM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "empty").mkdir()
    with serve_folder(tmp_path / "empty", "/bucket", monkeypatch) as server:
        yield server


@pytest.fixture
def stores(folder: Path, server: ObjectServer) -> ObjectServer:
    """The server with the stores below ``data``."""
    server.put_folder(folder, "/bucket/data")
    return server


def files_of(folder: Path, name: str) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in (folder / name).rglob("*") if path.is_file()}


def objects_of(server: ObjectServer, prefix: str) -> dict[str, bytes]:
    return {key.removeprefix(f"{prefix}/"): body for key, body in server.objects.items() if key.startswith(prefix)}


def test_remote_store_that_is_written_has_the_bytes_of_a_local_one(
    folder: Path, server: ObjectServer, tmp_path: Path
) -> None:
    """Of ingest with a test store, synth and embed, with a sixth of all requests broken; the manifest is written last."""
    server.faults = FAULTS
    result = sv.ingest(folder / "rows.csv", STORE, **INGEST)
    assert (result.store, result.test_store) == (STORE, "s3://bucket/data/rows.test.zarr")
    assert objects_of(server, "/bucket/data") == files_of(folder, "rows.zarr") | files_of(folder, "rows.test.zarr")
    assert server.written[-1] == "/bucket/data/rows.zarr/manifest.json"
    sv.synth("susy", "s3://bucket/synth/s.zarr", rows=1000, chunk="16KiB")
    sv.synth("susy", tmp_path / "s.zarr", rows=1000, chunk="16KiB")
    assert objects_of(server, "/bucket/synth") == files_of(tmp_path, "s.zarr")
    for store, out in ((STORE, "s3://bucket/embedded/e.zarr"), (folder / "rows.zarr", tmp_path / "e.zarr")):
        sv.embed(store, out, kernel="rbf", landmarks=10, chunk="8KiB")
    assert objects_of(server, "/bucket/embedded") == files_of(tmp_path, "e.zarr")
    assert sv.embed(STORE, "s3://bucket/embedded/e.zarr", kernel="rbf", landmarks=10, chunk="8KiB").reused
    assert sum(server.requests[fault] for fault in FAULTS) > 5


def test_remote_store_is_replaced_only_if_asked_for(folder: Path, server: ObjectServer) -> None:
    """An error leaves the store as it was; of a larger store nothing is left."""
    sv.synth("susy", STORE, rows=2000, chunk="16KiB")
    before = dict(server.objects)
    with pytest.raises(sv.ExistsError, match=f"{STORE} exists already"):
        sv.ingest(folder / "rows.csv", STORE, **INGEST)
    with pytest.raises(sv.StreamSVMError, match=r"absent\.csv"):
        sv.ingest(folder / "absent.csv", STORE, overwrite=True, label="y")
    assert server.objects == before
    assert CliRunner().invoke(cli, ["synth", "susy", STORE, "--rows", "50", "--overwrite"]).exit_code == 0
    assert sv.open_store(STORE).layout.rows == 50
    assert len(objects_of(server, "/bucket/data/rows.zarr/X")) == 2
    with pytest.raises(sv.UsageError, match="only Zarr stores are written"):
        sv.synth("susy", "s3://bucket/data/rows.h5", rows=50)
    with pytest.raises(sv.UsageError, match="web servers are only read"):
        sv.synth("susy", f"{server.url}/bucket/other.zarr", rows=50)


def test_remote_ingest_that_was_interrupted_goes_on(
    folder: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units that are stored are not sent again; nobody can take the unfinished store for a store."""
    monkeypatch.setattr("streamsvm.store.write.writer.CHUNKS_PER_SYNC", 2)
    sent = 0

    def stop_at_the_eighth_unit(done: str, *_: Path) -> None:
        nonlocal sent
        sent += done == "sent"
        if sent == 8:
            raise sv.StorageError("the network is gone", hint="")

    monkeypatch.setattr(durable, "observe", stop_at_the_eighth_unit)
    with pytest.raises(sv.StorageError, match="the network is gone"):
        sv.ingest(folder / "rows.csv", STORE, **INGEST)
    monkeypatch.setattr(durable, "observe", None)
    with pytest.raises(sv.MissingError, match="there is no store"):
        sv.open_store(STORE)
    assert not [key for key in server.objects if key.endswith(".lock")]
    with pytest.raises(sv.ConfigError, match="was started with other settings: chunk_bytes"):
        sv.ingest(folder / "rows.csv", STORE, **INGEST | {"chunk": "16KiB"})
    server.written.clear()
    sv.ingest(folder / "rows.csv", STORE, **INGEST)
    assert objects_of(server, "/bucket/data") == files_of(folder, "rows.zarr") | files_of(folder, "rows.test.zarr")
    units = [key for key in objects_of(server, "/bucket/data/rows.zarr") if "/c." in key]
    assert len([key for key in server.written if "rows.zarr" in key and "/c." in key]) < len(units)


FITS: dict[str, dict[str, Any]] = {
    "newton": {"C": [1.0, 2.0]},
    "dcd": {"solver": "dcd", "loss": "hinge", "tolerance": 1e-4},
}


@pytest.mark.parametrize("name", FITS)
def test_remote_model_has_the_bytes_of_a_local_one(
    name: str, folder: Path, stores: ObjectServer, tmp_path: Path
) -> None:
    """Also of a fit that ended after a checkpoint and is resumed on another machine; beside it is the record of the run."""
    sv.fit(folder / "rows.zarr", tmp_path / "m.ssvm", **FITS[name])
    local = {path.name: path.read_bytes() for path in tmp_path.glob("*.ssvm")}
    stores.faults = FAULTS

    def die(event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sv.fit(STORE, MODEL, **FITS[name], checkpoint_every=0.001, on_event=die)
    left = objects_of(stores, "/bucket/models")
    assert "m.ssvm.run/checkpoint/ckpt-A" in left
    assert not [key for key in left if "/" not in key]
    with pytest.raises(sv.ExistsError, match=rf"{MODEL}.run/checkpoint holds the checkpoint"):
        sv.fit(STORE, MODEL, **FITS[name])
    assert sv.fit(STORE, MODEL, **FITS[name], resume=True).run == f"{MODEL}.run"
    written = objects_of(stores, "/bucket/models")
    assert {key: body for key, body in written.items() if "/" not in key} == local
    assert not [key for key in written if "checkpoint" in key]
    for file in ("job.json", "plan.json", "certificate.json", "record.json", "events.jsonl"):
        assert file in {key.removeprefix("m.ssvm.run/") for key in written}
    assert json.loads(written["m.ssvm.run/job.json"])["model"] == MODEL
    everything = b"".join(stores.objects.values())
    assert SECRET.encode() not in everything
    assert ACCESS_KEY.encode() not in everything
    assert b"/streamsvm-" not in everything  # paths of the copies on this machine


def test_remote_files_are_taken_by_all_commands(folder: Path, stores: ObjectServer, tmp_path: Path) -> None:
    """A model to start from, landmarks, pages, dual variables, predictions, exports, searches and job files."""
    (tmp_path / "job.toml").write_text(
        f'[fit]\nstore = "{STORE}"\nmodel = "{MODEL}"\nreport = "s3://bucket/page.html"\ndual = "s3://bucket/dual.npy"\n'
        f'[predict]\nmodel = "{MODEL}"\ndata = ["{STORE}"]\nout = "s3://bucket/p.csv"\n'
    )
    ended = CliRunner().invoke(cli, ["run", str(tmp_path / "job.toml")])
    assert ended.exit_code == 0, ended.output
    assert "/streamsvm-" not in ended.output
    model = sv.fit(folder / "rows.zarr", tmp_path / "m.ssvm", dual=tmp_path / "dual.npy").model
    sv.predict(tmp_path / "m.ssvm", str(folder / "rows.zarr"), tmp_path / "p.csv")
    for name in ("dual.npy", "p.csv"):
        assert stores.objects[f"/bucket/{name}"] == (tmp_path / name).read_bytes()
    assert stores.objects["/bucket/page.html"].startswith(b"<!doctype html>")
    assert sv.load_model(MODEL) == model
    model.save(Path("s3://bucket/again.ssvm"))
    assert stores.objects["/bucket/again.ssvm"] == (tmp_path / "m.ssvm").read_bytes()
    assert sv.evaluate(MODEL, STORE).facts()["accuracy"] == sv.evaluate(model, folder / "rows.zarr").facts()["accuracy"]
    assert sv.fit(STORE, "s3://bucket/w.ssvm", warm_start=MODEL).certified
    assert sv.export(MODEL, "s3://bucket/m.txt", format="liblinear").out == "s3://bucket/m.txt"
    assert sv.tune(STORE, "s3://bucket/search", C=[0.1, 1], folds=2).out == "s3://bucket/search"
    assert "/bucket/search/table.json" in stores.objects
    assert sv.report([MODEL, "s3://bucket/search"], "s3://bucket/both.html").runs == 2
    for command in ("info", "verify"):
        ended = CliRunner().invoke(cli, [command, MODEL])
        assert ended.exit_code == 0, ended.output
    with pytest.raises(sv.ExistsError, match=r"s3://bucket/p\.csv exists already"):
        sv.predict(MODEL, STORE, "s3://bucket/p.csv")
    with pytest.raises(sv.MissingError, match=r"there is nothing at s3://bucket/absent\.ssvm"):
        sv.predict("s3://bucket/absent.ssvm", STORE, "s3://bucket/q.csv")


def test_remote_output_has_one_writer_at_a_time(stores: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock of a living writer is respected, one that was not renewed is taken, and one that was taken stops its writer."""
    lock = "/bucket/models/.m.ssvm.lock"
    other = {"pid": 7, "host": "elsewhere", "boot": "", "since": "2026-01-01 00:00", "renewed": time.time()}
    stores.objects[lock] = json.dumps(other).encode()
    with pytest.raises(sv.ExistsError, match=f"{MODEL} is being written by pid 7 on host elsewhere") as refused:
        sv.fit(STORE, MODEL)
    assert refused.value.code == "E-LOCKED"
    stores.objects[lock] = json.dumps(other | {"renewed": time.time() - 100}).encode()
    monkeypatch.setattr(working_copies, "RENEWAL_SECONDS", 0.01)

    def take_the_lock(event: dict[str, Any]) -> None:
        if event["event"] == "pass":
            stores.objects[lock] = json.dumps(other).encode()
            time.sleep(0.2)

    with pytest.raises(sv.ExistsError, match=f"{MODEL} was taken over by pid 7 on host elsewhere"):
        sv.fit(STORE, MODEL, on_event=take_the_lock)
    assert "/bucket/models/m.ssvm" not in stores.objects
    assert json.loads(stores.objects[lock])["pid"] == 7  # it is not removed by the one that lost it
    stores.objects[lock] = json.dumps(other | {"host": os.uname().nodename}).encode()  # a process that has ended
    assert sv.fit(STORE, MODEL).certified
    assert lock not in stores.objects


def test_remote_model_that_another_writer_has_made_meanwhile_is_not_replaced(stores: ObjectServer) -> None:
    def make_it(event: dict[str, Any]) -> None:
        if event["event"] == "pass":
            stores.objects["/bucket/models/m.ssvm"] = b"of another writer"

    with pytest.raises(sv.ExistsError, match=f"{MODEL} exists already"):
        sv.fit(STORE, MODEL, on_event=make_it)
    assert stores.objects["/bucket/models/m.ssvm"] == b"of another writer"


def test_remote_file_whose_bits_change_on_the_way_is_copied_again(server: ObjectServer, tmp_path: Path) -> None:
    """Also from a service whose ETags say nothing of the content."""
    content = np.random.default_rng(0).bytes(3000)
    server.objects["/bucket/m.ssvm"] = content
    server.faults = {"flip": 0.4}
    for etags_are_md5 in (True, False):
        server.salt = b"" if etags_are_md5 else b"salt"
        for _ in range(10):
            working_copies.download_file("s3://bucket/m.ssvm", tmp_path / "copy")
            assert (tmp_path / "copy").read_bytes() == content
    assert server.requests["flip"] > 5


@pytest.mark.filterwarnings("ignore:not certified")
@pytest.mark.parametrize("model", ["m.ssvm", MODEL])
def test_remote_service_that_is_gone_in_the_middle_of_a_fit_leaves_a_checkpoint(
    model: str, folder: Path, stores: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the credentials are refused, as when they expire; of a model at a URL that is gone, too, the last one that was written."""
    monkeypatch.chdir(tmp_path)
    settings: dict[str, Any] = {
        "solver": "dcd",
        "loss": "hinge",
        "tolerance": 1e-12,
        "max_passes": 6,
        "checkpoint_every": 0.001,
    }
    sv.fit(folder / "rows.zarr", tmp_path / "local.ssvm", **settings)
    for attribute, error in {"gone": sv.StorageError, "denied": sv.SecurityError}.items():

        def break_off(event: dict[str, Any], attribute: str = attribute) -> None:
            if event["event"] == "pass":
                setattr(stores, attribute, True)

        with pytest.raises(error) as refused:
            sv.fit(STORE, model, **settings, on_event=break_off, resume=attribute == "denied")
        assert SECRET not in f"{refused.value}{refused.value.__cause__}"
        assert model == MODEL or "resume=True the fit goes on" in refused.value.hint
        stores.gone = stores.denied = False
    sv.fit(STORE, model, **settings, resume=True)
    written = stores.objects["/bucket/models/m.ssvm"] if model == MODEL else (tmp_path / model).read_bytes()
    assert written == (tmp_path / "local.ssvm").read_bytes()


def test_remote_file_is_sent_in_parts_where_it_is_large(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "MAX_WHOLE_BYTES", 1 << 20)
    monkeypatch.setattr(object_store, "SENT_PART_BYTES", 5 << 20)
    content = np.random.default_rng(0).bytes(12_000_001)
    (tmp_path / "large").write_bytes(content)
    object_store.upload_file(tmp_path / "large", "s3://bucket/large", create=True)
    assert server.objects["/bucket/large"] == content
    with pytest.raises(sv.ExistsError, match="s3://bucket/large exists already"):
        object_store.upload_file(tmp_path / "large", "s3://bucket/large", create=True)


def test_remote_units_that_are_sent_are_counted_in_the_plan(folder: Path, server: ObjectServer) -> None:
    with pytest.raises(sv.BudgetError, match="units being sent"):
        sv.ingest(folder / "rows.csv", STORE, label="y", memory="150MiB", chunk="64MiB")


def test_file_of_a_task_that_ends_after_its_run_does_not_stay_in_the_bucket(server: ObjectServer) -> None:
    place = "s3://bucket/m.ssvm.run/checkpoint"
    open_place(place)
    write_shared(place, "alpha.00000.1", b"state")
    write_shared_file(place, "home.1", lambda path: durable.write_file(path, b"state"))
    assert {
        "/bucket/m.ssvm.run/checkpoint/alpha.00000.1",
        "/bucket/m.ssvm.run/checkpoint/home.1",
    } <= server.objects.keys()
    close_place(place)
    write_shared(place, "alpha.00001.1", b"state")
    write_shared_file(place, "home.2", lambda path: durable.write_file(path, b"state"))
    assert "/bucket/m.ssvm.run/checkpoint/alpha.00001.1" in server.written
    assert not [key for key in server.objects if "/checkpoint/" in key]


def test_file_of_a_late_task_does_not_stay_in_a_folder_of_its_run(server: ObjectServer) -> None:
    run, place = "s3://bucket/m.ssvm.run/checkpoint", "s3://bucket/m.ssvm.run/checkpoint/float64"
    open_place(run)
    open_place(place)
    write_shared(place, "alpha.00000.1", b"state")
    assert "/bucket/m.ssvm.run/checkpoint/float64/alpha.00000.1" in server.objects
    close_place(run)
    write_shared(place, "alpha.00001.1", b"state")
    assert "/bucket/m.ssvm.run/checkpoint/float64/alpha.00001.1" in server.written
    assert not [key for key in server.objects if "/checkpoint/" in key]


def test_tasks_whose_fit_goes_on_in_float64_find_their_files_at_a_url(server: ObjectServer, tmp_path: Path) -> None:
    """With the model at a URL; and with --scratch, where this process alone goes on after an interruption."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (60, 3))
    y = (np.square(X[:, :2]).sum(1) < 0.6) ^ (rng.random(60) < 0.1)
    writer = create(tmp_path / "rows.zarr", sparse=False, chunk_bytes=1 << 10)
    writer.append(Dense(X.astype(np.float32)), y.astype(np.int32), None)
    writer.commit(("a", "b"), 3, {"names": None})
    settings: dict[str, Any] = {"kernel": "rbf", "gamma": 0.5, "C": 1e6, "landmarks": 30, "loss": "hinge"}
    settings |= {"memory": 2 << 30, "embedding": "fly", "solver": "newton"}

    def fit_to(model: str, on_event: Any = lambda _: None, executor: Any = None, **more: Any) -> None:
        fit(FitJob(str(tmp_path / "rows.zarr"), model, **settings, **more), on_event, executor=executor)

    fit_to(str(tmp_path / "local"))
    fit_to("s3://bucket/m", executor=SerialExecutor())
    assert server.objects["/bucket/m"] == (tmp_path / "local").read_bytes()
    assert any("/checkpoint/float64/" in key for key in server.written)

    seen: list[str] = []

    def interrupt(event: dict[str, Any]) -> None:
        seen.append(event["event"])
        if event["event"] == "pass" and "features" in seen:
            signals.interruption.name = "SIGTEST"

    scratch = {"scratch": "s3://bucket/scratch"}
    try:
        with pytest.raises(sv.InterruptedRun):
            fit_to(str(tmp_path / "again"), interrupt, SerialExecutor(), **scratch)
    finally:
        signals.interruption.name = ""
    assert any("/float64/home." in key for key in server.objects)
    fit_to(str(tmp_path / "again"), resume=True, **scratch)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "local").read_bytes()
    assert not [key for key in server.objects if "/checkpoint/" in key or "/scratch/" in key]
