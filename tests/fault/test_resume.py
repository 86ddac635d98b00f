"""A fit that is stopped at any visit, or at any step between two passes, and resumed gives the model of one that was not, to the last byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import streamsvm as sv
from streamsvm import durable
from streamsvm.cli.main import cli
from streamsvm.durable import write_file
from streamsvm.engine import checkpoint
from streamsvm.engine.block_visitor import BlockVisitor
from streamsvm.engine.checkpoint import GENERATIONS, CheckpointDirectory, Decoder, Encoder
from streamsvm.errors import ConfigError, DataError, ExistsError, InterruptedRun, StreamSVMError
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.solvers import SOLVERS
from streamsvm.solvers.kernel import frank_wolfe, smo
from streamsvm.solvers.newton import row_products as rows_in_memory
from streamsvm.store import open_store
from tests.axes import each_value
from tests.fault.golden import FITS, fit_job, fitted, ingested, placed, write_table
from tests.fault.test_determinism import bits_of
from tests.stopping import stopping

SETTINGS: dict[str, dict[str, Any]] = {
    **FITS,
    "dcd-squared": {"loss": "squared_hinge", "prefetch": 0},
    "sgd-r": {"solver": "sgd", "options": {"variant": "r"}},
    "sgd-r-all": {"solver": "sgd", "options": {"variant": "r", "draws": "all"}},
    "balanced": {"class_weight": "balanced", "standardize": True},
}


def visited(job: FitJob, stop: int = 0) -> int:
    """Fit until ``stop`` visits have been made, 0: to the end; how many were."""
    with stopping(BlockVisitor, "visit", stop) as calls:
        fit(job)
    return calls.made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ingested(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def classes_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("classes")
    write_table(directory, classes=3)
    return ingested(directory)


def check_every_visit(job: FitJob, step: int = 1) -> None:
    reference = fitted(replace(job, model=job.model + ".whole"))
    total = visited(replace(job, model=job.model + ".counted"))
    assert total > 3
    for k in range(1, total, step):
        model = Path(f"{job.model}.{k}")
        try:
            visited(replace(job, model=str(model)), k)
        except InterruptedRun as stopped:
            passes, visits = divmod(k - 1, len(chunks(job)))  # after the last visit a pass is still to be closed
            assert f"epoch {passes + 1}, chunk {visits + 1} " in stopped.message
            made = visited(replace(job, model=str(model), resume=True))
            assert k + made == total
        assert same_model(model.read_bytes(), reference), f"stopped after {k} visits"
        assert not (model.parent / f"{model.name}.run" / "checkpoint").exists()


def chunks(job: FitJob) -> tuple[int, ...]:
    return open_store(job.store).layout.chunks


def same_model(found: bytes, reference: bytes) -> bool:
    """Whether all arrays and the certificates of two models are equal, bit by bit."""
    from safetensors.numpy import load

    one, two = load(found), load(reference)
    assert one.keys() == two.keys()
    return all(one[key].tobytes() == two[key].tobytes() for key in one) and (
        found[8:].split(b'\\"certificates')[1].split(b"]")[0]
        == reference[8:].split(b'\\"certificates')[1].split(b"]")[0]
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_resume_at_every_visit(name: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed(monkeypatch)
    check_every_visit(fit_job(store, tmp_path / "m", **SETTINGS[name]), 1 if name == "dcd" else 11)


@each_value(("name", ["newton", "nystrom", "decomposition", "blended", "partan sampled"]), ("resident", [True, False]))
def test_resume_on_another_number_of_threads_has_the_same_bytes(
    name: str, resident: bool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was joined when three threads were stopped is what one, or two, join the rest to."""
    placed(monkeypatch, resident=resident)
    job = fit_job(store, tmp_path / "m", **SETTINGS[name])
    reference = fitted(replace(job, model=job.model + ".whole"))
    for k in (2, 5, 10):
        with pytest.raises(InterruptedRun):
            visited(replace(job, threads=3, overwrite=True), k)
        saved = CheckpointDirectory(tmp_path / "m.run" / "checkpoint").read()[0].read_content()
        assert saved["index"] == sum(stop - first for first, stop, _ in saved["partials"])
        visited(replace(job, threads=1 + k % 2, overwrite=True, resume=True))
        assert same_model((tmp_path / "m").read_bytes(), reference)


def test_resume_with_per_row_state_in_a_file(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed(monkeypatch, resident=False)
    check_every_visit(fit_job(store, tmp_path / "m"), 2)


def test_resume_of_several_problems(classes_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed(monkeypatch, resident=False)
    check_every_visit(fit_job(classes_store, tmp_path / "m"), 3)


def test_resume_of_softmax_problems_one_after_the_other(
    classes_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the passes of each of them."""
    placed(monkeypatch)
    softmax = {"solver": "lbfgs", "loss": "logistic", "multi_class": "softmax", "C": (0.01, 0.1, 1.0)}
    more = {"options": {"problems": 1}, "max_passes": 1000, "tolerance": 0.05}
    job = fit_job(classes_store, tmp_path / "m", overwrite=True, **more, **softmax)
    total, reference = visited(job), bits_of(job)
    for k in range(5, total, total // 3):
        with pytest.raises(InterruptedRun):
            visited(job, k)
        assert k + visited(replace(job, resume=True)) == total
        assert bits_of(job) == reference, f"stopped after {k} visits"


def test_resume_where_blocks_stay_in_memory(store: Path, tmp_path: Path) -> None:
    job = fit_job(store, tmp_path / "m", max_passes=5)
    reference = fitted(replace(job, model=job.model + ".whole"))
    for k in range(1, 5):
        with pytest.raises(InterruptedRun):
            visited(replace(job, overwrite=True), k)
        visited(replace(job, overwrite=True, resume=True, memory=None))
        assert same_model((tmp_path / "m").read_bytes(), reference)


def test_resume_after_many_stops_has_the_same_bytes(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every third visit, with checkpoints in between, until it is done."""
    placed(monkeypatch, resident=False)
    monkeypatch.setattr(checkpoint, "PAUSE_FACTOR", 0)
    job = fit_job(store, tmp_path / "m", checkpoint_every=1e-9)
    reference = fitted(replace(job, model=job.model + ".whole"))
    for _ in range(100):
        try:
            visited(replace(job, resume=True), 3)
            break
        except InterruptedRun:
            continue
    assert same_model((tmp_path / "m").read_bytes(), reference)


def test_resume_takes_the_older_checkpoint_where_the_newest_is_damaged(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older checkpoint is whole to the last row although training went on for up to a checkpoint after it."""
    placed(monkeypatch, resident=False)
    monkeypatch.setattr(checkpoint, "PAUSE_FACTOR", 0)
    job = fit_job(store, tmp_path / "m", checkpoint_every=1e-9)
    reference = fitted(replace(job, model=job.model + ".whole"))
    for k in range(3, job.max_passes * len(chunks(job)), 4):
        with pytest.raises(InterruptedRun):
            visited(replace(job, overwrite=True), k)
        directory = tmp_path / "m.run" / "checkpoint"
        newest = max((directory / name for name in GENERATIONS), key=lambda p: checkpoint.read_checkpoint(p).number)
        raw = bytearray(newest.read_bytes())
        raw[len(raw) // 2] ^= 1
        newest.write_bytes(raw)
        made = visited(replace(job, overwrite=True, resume=True))
        assert same_model((tmp_path / "m").read_bytes(), reference)
        assert made == job.max_passes * len(chunks(job)) - k + 1


@pytest.fixture
def stopped(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FitJob:
    """A fit with a checkpoint in the middle of its second pass."""
    placed(monkeypatch, resident=False)
    job = fit_job(store, tmp_path / "m")
    with pytest.raises(InterruptedRun):
        visited(job, len(chunks(job)) + 3)
    return replace(job, resume=True)


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"C": 10.0}, "C='10.0'|C=10.0"),
    ({"loss": "squared_hinge"}, "loss='squared_hinge'"),
    ({"standardize": True}, "standardize=True"),
    ({"solver": "sgd"}, "solver='sgd'"),
    ({"options": {"sweeps": 2}}, "options="),
    ({"kernel": "rbf", "landmarks": 10, "embedding": "fly"}, "kernel="),
]


@pytest.mark.parametrize(("change", "said"), CHANGES, ids=[next(iter(c)) for c, _ in CHANGES])
def test_resume_with_other_settings_is_refused(stopped: FitJob, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        fit(replace(stopped, **change))
    assert (caught.value.code, caught.value.exit_code) == ("E-CONFIG", 78)
    assert any(part in caught.value.message for part in said.split("|")), caught.value.message


def test_resume_with_other_data_is_refused(stopped: FitJob, tmp_path: Path) -> None:
    text = (Path(stopped.store).parent / "t.csv").read_text().replace("\n7,", "\n7.5,")
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ConfigError, match="store="):
        fit(replace(stopped, store=str(ingested(tmp_path))))


def test_resume_same_data_elsewhere_and_the_way_of_running_are_not_another_job(
    stopped: FitJob, store: Path, tmp_path: Path
) -> None:
    import shutil

    reference = fitted(replace(stopped, model=str(tmp_path / "whole"), resume=False))
    moved = tmp_path / "moved.zarr"
    shutil.copytree(store, moved)
    fit(replace(stopped, store=str(moved), prefetch=0, memory=1 << 33, checkpoint_every=5.0))
    assert same_model((tmp_path / "m").read_bytes(), reference)


def test_resume_starting_again_forgets_the_checkpoint(stopped: FitJob, tmp_path: Path) -> None:
    fit(replace(stopped, C=10.0, resume=False, overwrite=True))
    assert not (tmp_path / "m.run" / "checkpoint").exists()


def stop_after_journal(path: Path, *values: Any, **more: Any) -> None:
    """Write a file; the run is interrupted when that was the journal of an embedding."""
    write_file(path, *values, **more)
    if path.name == "journal.json":
        raise InterruptedRun("SIGTEST: the journal is written")


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """The folder of a store, of a fit that was stopped after its first block, and of an embedding that was stopped."""
    sv.synth("susy", tmp_path / "t.zarr", rows=2000, chunk=65536)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        with stopping(BlockVisitor, "visit", 1):
            fit = "fit t.zarr m.ssvm --solver dcd --tolerance 1e-12"
            assert CliRunner().invoke(cli, ["-q", *fit.split()]).exit_code == 75
        patch.setattr(durable, "write_file", stop_after_journal)
        embed = ["embed", "t.zarr", "e", "--landmarks", "40"]
        assert CliRunner().invoke(cli, ["-q", *embed]).exit_code == 75
    assert (tmp_path / "e" / "journal.json").exists()
    return tmp_path


def test_resume_what_an_interrupted_run_has_left_is_not_lost_without_leave(
    interrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(interrupted)
    before = {path: path.read_bytes() for path in interrupted.rglob("*") if path.is_file()}
    for command in ("fit t.zarr m.ssvm --C 0.1,1", "fit t.zarr m.ssvm --kernel rbf --landmarks 9"):
        found = CliRunner().invoke(cli, ["-q", *command.split()])
        assert found.exit_code == 73
        assert "--resume" in found.output
        assert "--overwrite" in found.output
    with pytest.raises(ExistsError, match="checkpoint of a run that was interrupted"):
        sv.fit("t.zarr", "m.ssvm", C=[0.1, 1.0])
    found = CliRunner().invoke(cli, ["-q", *["embed", "t.zarr", "e", "--landmarks", "9"]])
    assert found.exit_code == 78
    assert "run the original command again" in found.output
    now = {path: path.read_bytes() for path in interrupted.rglob("*") if path.is_file()}
    assert now == before
    again = ["--solver", "dcd", "--tolerance", "1e-12", "--max-passes", "2"]
    assert CliRunner().invoke(cli, ["-q", "fit", "t.zarr", "m.ssvm", *again, "--resume"]).exit_code == 0
    assert CliRunner().invoke(cli, ["-q", *["embed", "t.zarr", "e", "--landmarks", "9", "--overwrite"]]).exit_code == 0


@pytest.mark.parametrize("mode", ["flip", "cut", "pickle", "empty"])
def test_resume_damaged_checkpoints_are_refused(stopped: FitJob, tmp_path: Path, mode: str) -> None:
    directory = tmp_path / "m.run" / "checkpoint"
    for path in (p for p in directory.iterdir() if p.name in GENERATIONS):
        raw = path.read_bytes()
        flipped = raw[: len(raw) // 3] + bytes([raw[len(raw) // 3] ^ 4]) + raw[len(raw) // 3 + 1 :]
        canary = b"cposix\nsystem\n(S'touch canary'\ntR."
        path.write_bytes({"flip": flipped, "cut": raw[: len(raw) // 2], "pickle": canary, "empty": b""}[mode])
    with pytest.raises(DataError) as caught:
        fit(stopped)
    assert caught.value.code == "E-CHECKPOINT"
    assert "--resume" in caught.value.hint
    assert not Path("canary").exists()


def test_resume_damaged_state_of_rows_is_refused(stopped: FitJob, tmp_path: Path) -> None:
    path = tmp_path / "m.run" / "checkpoint" / "alpha"
    raw = path.read_bytes()
    path.write_bytes(bytes(b ^ 0x10 for b in raw))
    with pytest.raises(StreamSVMError, match="damaged at chunk") as caught:
        fit(stopped)
    assert caught.value.code == "E-CHECKPOINT"


def test_resume_time_limit_can_stop_with_a_checkpoint(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(monkeypatch)
    job = fit_job(store, tmp_path / "m", time_limit=0.0, at_limit="stop")
    with pytest.raises(InterruptedRun, match=r"time limit: checkpoint saved at epoch 1, chunk 1 .*--resume"):
        fit(job)
    fit(replace(job, resume=True, time_limit=60.0))


def test_resume_stop_in_the_last_evaluation_loses_nothing_of_the_training(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(monkeypatch)
    job = fit_job(store, tmp_path / "m", solver="newton", standardize=True)

    def stop(*_: Any) -> None:
        raise InterruptedRun("SIGTEST: in the last evaluation")

    with monkeypatch.context() as patched:
        patched.setattr("streamsvm.jobs.fit.driver.certify", stop)
        with pytest.raises(InterruptedRun, match="checkpoint saved at epoch") as caught:
            fit(job)
    assert "--resume" in str(caught.value)
    events: list[Any] = []
    resumed = fit(replace(job, resume=True), events.append)
    assert [event["passes"] for event in events if event["event"] == "resumed"] == [resumed.training.passes]
    assert resumed.training.status == fit(replace(job, model=str(tmp_path / "other"))).training.status
    assert Path(job.model).read_bytes() == (tmp_path / "other").read_bytes()


def test_resume_checkpoint_holds_data_only() -> None:
    with pytest.raises(StreamSVMError, match="cannot hold a function"):
        Encoder().encode([lambda: None])
    with pytest.raises(KeyError):
        Decoder(dict[str, Any]().__getitem__).decode({"class": "os.system", "fields": ["true"]})


def test_resume_run_that_ended_at_a_limit_is_resumed_with_a_larger_one(store: Path, tmp_path: Path) -> None:
    outputs = {"dual": str(tmp_path / "dual.npy"), "report": str(tmp_path / "page.html")}
    job = fit_job(store, tmp_path / "m", max_passes=1, tolerance=1e-9, time_limit=100.0, **outputs)
    fit(job)
    before = (tmp_path / "m").read_bytes()
    more = replace(job, resume=True, max_passes=3, time_limit=200.0)
    result = fit(more)
    assert result.training.passes == 3
    assert [line for line in result.notices if "the fit started again" in line]
    assert (tmp_path / "m").read_bytes() == fitted(replace(more, model=str(tmp_path / "whole"), resume=False, dual=None, report=None)) != before  # fmt: skip


@pytest.mark.parametrize("less", [{"max_passes": 1}, {"time_limit": 50.0}, {"dual": "other.npy"}, {"C": 2.0}])
def test_resume_what_a_resumed_run_would_lose_is_not_replaced(
    store: Path, tmp_path: Path, less: dict[str, Any]
) -> None:
    job = fit_job(store, tmp_path / "m", max_passes=2, tolerance=1e-9, time_limit=100.0, dual=str(tmp_path / "a.npy"))
    fit(job)
    (tmp_path / "other.npy").write_bytes((tmp_path / "a.npy").read_bytes())
    changed: dict[str, Any] = {"max_passes": 3} | less
    if "dual" in less:
        changed["dual"] = str(tmp_path / less["dual"])
    before = (tmp_path / "m").read_bytes()
    with pytest.raises(ExistsError, match="exists already"):
        fit(replace(job, resume=True, **changed))
    assert (tmp_path / "m").read_bytes() == before


# -- between two passes ------------------------------------------------------------------------------------------------

RBF: dict[str, Any] = {"kernel": "rbf", "gamma": 0.2, "standardize": True, "tolerance": 1e-3, "checkpoint_every": 0.0}
SQUARED = {"loss": "squared_hinge", "C": 1.0, "tolerance": 5e-2}


CASES: dict[str, dict[str, Any]] = {
    "levels": {"solver": "decomposition", "loss": "hinge", "options": {"working": 64}},
    "pools": {"solver": "decomposition", "loss": "huber", "options": {"working": 64, "pool": 120}},
    "blended": {"solver": "blended", **SQUARED, "options": {"working": 64, "pool": 100}},
    "lightened": {"solver": "blended", **SQUARED, "C": 0.1, "max_passes": 3, "options": {"working": 64, "keep": 60}},
    "cache": {"solver": "swap", **SQUARED, "tolerance": 0.3, "options": {"epsilon": 1e-3, "cache": 20_000}},
    "all rows": {"solver": "newton", "kernel": "linear", "gamma": None, "loss": "hinge", "tolerance": 1e-5},
    "sampled": {"solver": "partan", **SQUARED, "options": {"epsilon": 1e-3, "sample": 40}},
}
"""Every kind of work that is done between two passes."""


def stepped(job: FitJob, stop: int = 0) -> int:
    """Fit until its solver has made ``stop`` steps, 0: to the end; how many were."""
    with stopping(SOLVERS[job.solver], "make_step", stop) as calls:
        fit(job)
    return calls.made


@pytest.mark.parametrize("name", CASES)
def test_resume_stop_at_any_step_between_passes(
    name: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smo, "LEVEL_RATIO", 3)
    monkeypatch.setattr(frank_wolfe, "ITERATIONS_IN_STEP", 5)
    monkeypatch.setattr(rows_in_memory, "WORK", 1)
    monkeypatch.setattr(rows_in_memory, "PRODUCTS", 2)
    settings = {**RBF, **CASES[name]}
    job = FitJob(str(store), str(tmp_path / "m"), **settings)
    reference = fitted(replace(job, model=job.model + ".whole"))
    total = stepped(replace(job, model=job.model + ".counted"))
    assert total > 8
    for k in range(1, total + 1, max(1, total // 2)):
        this = replace(job, model=f"{job.model}.{k}")
        with pytest.raises(InterruptedRun, match=r"checkpoint saved at epoch \d+, chunk 0 "):
            stepped(this, k)
        assert k + stepped(replace(this, resume=True)) == total
        assert Path(this.model).read_bytes() == reference, f"stopped after {k} of {total} steps"


def test_resume_run_stopped_again_and_again_within_one_pass(store: Path, tmp_path: Path) -> None:
    job = FitJob(str(store), str(tmp_path / "m"), **{**RBF, **CASES["levels"]})
    reference = fitted(replace(job, model=job.model + ".whole"))
    stops = 0
    while True:
        try:
            stepped(replace(job, resume=True), 3)
            break
        except InterruptedRun:
            stops += 1
    assert stops > 5
    assert Path(job.model).read_bytes() == reference


def test_resume_takes_the_newest_of_two_intact_checkpoints(tmp_path: Path) -> None:
    run = CheckpointDirectory(tmp_path / "m.run" / "checkpoint")
    with run.open(keep_existing=False):
        for passes in (1, 2, 3):
            run.write({"C": 1.0}, {"passes": passes})
            saved = CheckpointDirectory(run.directory).read()
            assert [file.read_content()["passes"] for file in saved] == [passes, passes - 1][:passes]
