"""Jobs on a real scheduler and real workers: the same bits as without, through the command line and from a program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from distributed import Client

import streamsvm as sv
from streamsvm.cluster import ingest_dask, using
from streamsvm.cluster.dask_executor import run_task
from streamsvm.engine import time_limit
from streamsvm.engine.executor import SerialExecutor, Task
from streamsvm.errors import ClusterError, DataError, InterruptedRun
from streamsvm.jobs import calibration_scores as leave_one_out
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob, PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.common_options import EmbedJob
from streamsvm.jobs.embed.build import embed
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.run import tune
from streamsvm.schedule.machine import anonymous_bytes
from streamsvm.store import open_store
from tests.cluster.processes import START_SECONDS, Processes, command, environment
from tests.engine.conftest import rows_of


def job_of(store: Path, model: Path, solver: str, **more: Any) -> FitJob:
    return FitJob(str(store), str(model), solver=solver, C=0.05, groups=4, **more)


@pytest.fixture(scope="module")
def model(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "m.ssvm"
    fit(FitJob(str(store), str(path), solver="newton", C=0.05))
    return path


@pytest.mark.parametrize(
    ("solver", "more"),
    [("newton", {}), ("dcd", {}), ("dcd", {"multi_class": "crammer_singer"})],
    ids=["newton", "dcd", "all classes together"],
)
def test_cluster_fit_finds_the_bits_of_this_process_alone(
    store: Path, tmp_path: Path, client: Client, solver: str, more: dict[str, Any]
) -> None:
    job = job_of(store, tmp_path / "a", solver, tolerance=1e-2, **more)
    alone = fit(job, executor=SerialExecutor())
    with using(client) as executor:
        spread = fit(replace(job, model=str(tmp_path / "b")), executor=executor)
    np.testing.assert_array_equal(spread.model.weights, alone.model.weights)
    assert spread.training.runs[0].certificate == alone.training.runs[0].certificate


def test_cluster_probabilities_are_learned_by_the_workers(
    store: Path, tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bits of this process alone; which scores no chunk itself when there are workers."""
    job = job_of(store, tmp_path / "a", "newton", calibrate="isotonic", tolerance=1e-2)
    alone = fit(job, executor=SerialExecutor()).model
    local = fit(replace(job, model=str(tmp_path / "c"), threads=2)).model
    with using(client) as executor, monkeypatch.context() as patch:
        patch.setattr(leave_one_out, "iterate_tables", None)
        spread = fit(replace(job, model=str(tmp_path / "b")), executor=executor).model
    for other in (spread, local):
        assert other.calibration.header() == alone.calibration.header()
        assert all(np.array_equal(other.calibration.tensors()[k], v) for k, v in alone.calibration.tensors().items())
    assert alone.calibration.scores == "leave-one-out"


def test_cluster_end_of_a_fit_knows_the_dual_variables(store: Path, tmp_path: Path, client: Client) -> None:
    """Those of Newton's method are found in a worker's memory."""
    job = job_of(store, tmp_path / "a", "newton", dual=str(tmp_path / "a.npy"))
    fit(job, executor=SerialExecutor())
    with using(client) as executor:
        spread = fit(replace(job, model=str(tmp_path / "b"), dual=str(tmp_path / "b.npy")), executor=executor)
    assert spread.training.runs[0].certificate is not None
    assert spread.training.runs[0].certificate.facts["rows"] == "all in memory"
    assert (tmp_path / "b.npy").read_bytes() == (tmp_path / "a.npy").read_bytes()
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()


BATCH: dict[str, dict[str, Any]] = {
    "newton": {"tolerance": 1e-6},
    "blended": {"kernel": "rbf", "gamma": 0.1, "max_passes": 3},
    "nystrom": {"solver": "newton", "kernel": "rbf", "landmarks": 30, "embedding": "fly", "max_passes": 4},
}


def test_cluster_one_or_four_workers_find_the_same_bits(store: Path, tmp_path: Path, processes: Processes) -> None:
    jobs = {kind: job_of(store, tmp_path / kind, **{"solver": kind} | more) for kind, more in BATCH.items()}
    alone = {kind: fit(job, executor=SerialExecutor()).model.weights for kind, job in jobs.items()}
    processes.start_scheduler()
    with Client(processes.address, set_as_default=False) as client:
        for executor, workers in growing(client, processes):
            assert executor.threads == workers
            for kind, job in jobs.items():
                found = fit(replace(job, overwrite=True), executor=executor).model.weights
                np.testing.assert_array_equal(found, alone[kind], err_msg=f"{kind}, {workers} workers")


def growing(client: Client, processes: Processes) -> Iterator[tuple[Any, int]]:
    """An executor with one worker, then with four; other tests have two."""
    for more in (1, 3):
        for _ in range(more):
            processes.start_worker()
        workers = len(processes.running) - 1
        client.wait_for_workers(workers, timeout=START_SECONDS)
        with using(client) as executor:
            yield executor, workers


def test_cluster_held_out_rows_are_looked_at_by_the_workers(store: Path, tmp_path: Path, client: Client) -> None:
    job = job_of(store, tmp_path / "a", "dcd", validation=0.2, patience=2, tolerance=1e-12, max_passes=9)
    alone = fit(job, executor=SerialExecutor())
    with using(client) as executor:
        spread = fit(replace(job, model=str(tmp_path / "b")), executor=executor)
    np.testing.assert_array_equal(spread.model.weights, alone.model.weights)
    assert spread.model.provenance["validation"] == alone.model.provenance["validation"]


@pytest.mark.parametrize("kind", ["file", "tcp", "local"])
def test_cluster_command_line_reaches_the_cluster(store: Path, tmp_path: Path, cluster: Processes, kind: str) -> None:
    there = {"file": f"scheduler-file:{cluster.file}", "tcp": cluster.address, "local": "local:1"}[kind]
    asked = ("--solver", "newton", "--landmarks", "20", "--kernel", "rbf", "--cluster", there)
    done = command("fit", store, tmp_path / "m", *asked)
    assert done.returncode == 0, done.stderr
    assert "gap" in done.stdout


def test_cluster_embedding_and_a_search_are_the_same(store: Path, tmp_path: Path, client: Client) -> None:
    made = EmbedJob(str(store), str(tmp_path / "a.zarr"), landmarks=20)
    search = TuneJob(str(store), str(tmp_path / "a"), C=(0.1, 1.0), kernel="rbf", landmarks=(10, 20), folds=3)
    embed(made)
    tune(search)
    with using(client) as executor:
        embed(replace(made, embedding=str(tmp_path / "b.zarr")), executor=executor)
        tune(replace(search, out=str(tmp_path / "b")), executor=executor)
    assert open_store(tmp_path / "a.zarr").digest == open_store(tmp_path / "b.zarr").digest
    assert (tmp_path / "a" / "table.csv").read_bytes() == (tmp_path / "b" / "table.csv").read_bytes()


def test_cluster_predict_and_evaluate_say_the_same(store: Path, model: Path, tmp_path: Path, client: Client) -> None:
    with using(client) as executor:
        for name, output in (
            ("p.csv", "label"),
            ("p.npy", "decision"),
            ("p.parquet", ("label", "decision")),
            ("p.txt", "label"),
        ):
            job = PredictJob(str(model), (str(store),), str(tmp_path / name), output)
            predict(job)
            predict(replace(job, out=str(tmp_path / f"spread-{name}")), executor=executor)
            assert (tmp_path / name).read_bytes() == (tmp_path / f"spread-{name}").read_bytes()
        asked = EvaluateJob(str(model), (str(store),))
        here, there = evaluate(asked).evaluation, evaluate(asked, executor=executor).evaluation
    assert there.confusion == here.confusion
    assert there.AUC == here.AUC
    assert there.hinge == pytest.approx(here.hinge, rel=1e-12)


def test_cluster_files_make_the_same_store(tmp_path: Path, client: Client) -> None:
    files = []
    for k in range(4):
        X, codes = rows_of(700, seed=k)
        files.append(tmp_path / f"{k}.csv")
        labels = np.where(codes == 1, "yes", "no")
        lines = [",".join(map(repr, row.tolist())) + f",{y}" for row, y in zip(X, labels, strict=True)]
        files[-1].write_text("\n".join(["a,b,c,d,e,f,g,h,label", *lines]) + "\n")
    job = IngestJob(sources=tuple(files), store=tmp_path / "here.zarr", label="label", test_fraction=0.2)
    ingest(job)
    with using(client) as executor:
        spread = replace(job, store=tmp_path / "there.zarr")
        ingest(spread, executor=executor)
    for name in ("{}.zarr", "{}.test.zarr"):
        here, there = (open_store(tmp_path / name.format(where)) for where in ("here", "there"))
        assert here.digest == there.digest
        assert here.facts["sources"] == there.facts["sources"]
        assert here.facts["encoding"] == there.facts["encoding"]
    assert not list(tmp_path.glob(".*parts"))


@pytest.mark.parametrize("suffix", ["csv", "svm"])
def test_cluster_store_made_by_workers_has_the_same_bytes(
    suffix: str, tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its manifest too: sources are called as they were named, also in a folder that another path leads to."""
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()
    for k in range(3):
        lines = ["1,2,p", "3,4,q"] if suffix == "csv" else ["1 1:2", "-1 2:3"]
        Path(f"rows/{k}.{suffix}").write_text("\n".join([*(["a,b,y"] if suffix == "csv" else []), *lines * 20]) + "\n")
    Path("link").symlink_to("rows")
    for sources in (f"rows/*.{suffix}", "link"):
        options: Any = {"label": "y"} if suffix == "csv" else {}
        sv.ingest(sources, "here.zarr", overwrite=True, **options)
        with client.as_current():
            sv.ingest(sources, "there.zarr", overwrite=True, cluster="client:", **options)
        for file in (file for file in Path("here.zarr").rglob("*") if file.is_file()):
            assert file.read_bytes() == Path("there.zarr", file.relative_to("here.zarr")).read_bytes(), file


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "int8"])
def test_cluster_store_of_few_bytes_has_the_same_bytes_and_the_fit_the_same_bits(
    dtype: str, tmp_path: Path, client: Client
) -> None:
    """Auto is float16, which the files have; for int8 the workers find the scale of all files."""
    for k in range(3):
        X, codes = rows_of(500, seed=k)
        X[:, 0] = np.rint(X[:, 0] * 5)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array((X * (k + 1)).astype(np.float16).ravel()), X.shape[1])
        pq.write_table(pa.table({"emb": vectors, "label": codes}), tmp_path / f"{k}.parquet")
    job = IngestJob(
        sources=tuple(sorted(tmp_path.glob("*.parquet"))),
        store=tmp_path / "here.zarr",
        label="label",
        store_dtype=dtype,
        chunk_bytes=4096,
    )
    ingest(job)
    with using(client) as executor:
        ingest(replace(job, store=tmp_path / "there.zarr"), executor=executor)
        for file in (file for file in job.store.rglob("*") if file.is_file()):
            assert file.read_bytes() == (tmp_path / "there.zarr" / file.relative_to(job.store)).read_bytes(), file
        assert open_store(job.store).layout.kind == f"dense {'float16' if dtype == 'auto' else dtype}"
        there = fit(job_of(tmp_path / "there.zarr", tmp_path / "there.ssvm", "newton"), executor=executor)
    here = fit(job_of(job.store, tmp_path / "here.ssvm", "newton"))
    assert (here.model.weights == there.model.weights).all()


def test_cluster_what_is_wrong_in_a_file_is_said_as_ever(tmp_path: Path, client: Client) -> None:
    files = [tmp_path / "0.svm", tmp_path / "1.svm"]
    files[0].write_text("1 1:2\n-1 2:3\n")
    files[1].write_text("1 1:2\n-1 a:3\n")
    with using(client) as executor, pytest.raises(DataError) as caught:
        ingest(IngestJob(sources=tuple(files), store=tmp_path / "s.zarr"), executor=executor)
    assert "1.svm" in caught.value.message
    assert caught.value.exit_code == 65
    assert not (tmp_path / "s.zarr" / "manifest.json").exists()


def test_cluster_dask_array_is_never_gathered(tmp_path: Path, client: Client) -> None:
    """160 MB in blocks of 4 MB: whoever calls holds a few chunks at a time, the scheduler nothing of them."""
    small = dask.array.random.random((1_000, 50), chunks=(500, 50))
    ingest_dask(small, dask.array.arange(1_000, chunks=500) % 2, tmp_path / "small.zarr", client=client)
    rows = dask.array.random.random((400_000, 50), chunks=(10_000, 50))
    scheduler = psutil.Process(client.run_on_scheduler(os.getpid))
    before = (anonymous_bytes(), scheduler.memory_info().rss)
    most = [0, 0]
    with sampled(lambda: [anonymous_bytes(), scheduler.memory_info().rss], most):
        ingest_dask(rows, dask.array.arange(400_000, chunks=10_000) % 2, tmp_path / "s.zarr", client=client)
    assert open_store(tmp_path / "s.zarr").layout.rows == 400_000
    for peak, start in zip(most, before, strict=True):
        assert peak - start < 32 << 20


@contextmanager
def sampled(look: Any, most: list[int]) -> Iterator[None]:
    """Keep the largest of what ``look`` says while something is done."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.01):
            most[:] = map(max, most, look())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_cluster_sparse_dask_array_stays_sparse(tmp_path: Path, client: Client) -> None:
    whole = scipy.sparse.random(300, 40, 0.1, "csr", np.float32, np.random.default_rng(1))
    rows = dask.array.from_array(whole.toarray(), chunks=(100, 40)).map_blocks(scipy.sparse.csr_matrix)
    path = ingest_dask(rows, dask.array.arange(300, chunks=100) % 3, tmp_path / "s.zarr", client=client)
    store: Any = open_store(path)
    assert not store.layout.dense
    assert sum(store.layout.nonzeros) == whole.nnz


def test_cluster_another_version_is_refused() -> None:
    with pytest.raises(ClusterError, match="a worker runs"):
        run_task(len, "0.0.0", [])


def test_cluster_job_that_no_alarm_reaches_does_not_wait_beyond_its_time(client: Client) -> None:
    """In a thread, as in a task: who waits for the cluster looks at the time."""

    def waits() -> list[Any]:
        with using(client) as executor, time_limit.limit_time(0.0):
            return list(executor.map(Task("wait", abs), [-1, -2]))

    with ThreadPoolExecutor(1) as thread, pytest.raises(InterruptedRun, match="time limit"):
        thread.submit(waits).result()


def test_cluster_nothing_listens_but_on_this_machine(cluster: Processes, client: Client) -> None:
    for process in cluster.running:
        for found in psutil.Process(process.pid).net_connections("inet"):
            assert found.status != psutil.CONN_LISTEN or found.laddr.ip == "127.0.0.1"


def test_cluster_workers_of_our_own_listen_on_this_machine_only(store: Path) -> None:
    """No dashboards either: whatever listens is a scheduler or worker on the loopback address."""
    code = """
import psutil
from streamsvm.cluster import connect_cluster
if __name__ == "__main__":
    with connect_cluster("local:1") as executor:
        executor.share(0)  # which starts them
        me = psutil.Process()
        for process in [me, *me.children(recursive=True)]:
            for found in process.net_connections("inet"):
                if found.status == psutil.CONN_LISTEN:
                    print(found.laddr.ip, found.laddr.port)
"""
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=100, check=True
    )
    lines = found.stdout.split("\n")[:-1]
    assert lines
    assert {line.split()[0] for line in lines} == {"127.0.0.1"}


def test_cluster_control_c_ends_a_run_on_workers_of_its_own_with_one_error(store: Path, tmp_path: Path) -> None:
    """A terminal sends it to the workers, too: they wrote a traceback each."""
    words = ["fit", store, tmp_path / "m", "--solver", "dcd", "--tolerance", "1e-14", "--max-passes", "100000"]
    asked = [sys.executable, "-m", "streamsvm", *map(str, words), "--cluster", "local:2"]
    with subprocess.Popen(
        asked, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("fit, pass"):
                break
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 75, said
    assert said.count("error[") == 1
    assert not [word for word in ("Traceback", "KeyboardInterrupt", "Compute Failed", "leaked") if word in said], said


def test_cluster_script_without_a_guard_is_run_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, streamsvm as sv\n"
        "open('runs', 'a').write('once ')\n"
        "X = np.arange(40.0).reshape(20, 2)\n"
        "sv.ingest(X, 's.zarr', y=X[:, 0] > 20)\n"
        "sv.fit('s.zarr', 'm', cluster='local:1')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    ended = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "runs").read_text() == "once "
    assert (tmp_path / "m").is_file()
