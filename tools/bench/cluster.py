"""A fit on one and on two workers of one thread each: seconds of the fit phase, certificate, traffic of a round.

Scheduler and workers are processes of their own on the loopback address. "critical s" is what the fit phase takes where
nobody else wants the processors: the processor seconds of the busiest worker and of the driver, added up. Traffic is
counted message by message: what is shared goes to every worker, what workers pass to each other for joining, what comes
back. Each setting is run several times in turn and the fastest counts: the machine may be shared.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client
from harness import REPOSITORY, Row, arguments, show

from streamsvm.cluster import using
from streamsvm.jobs.fit import fit
from streamsvm.jobs.planning import FitJob
from streamsvm.jobs.synth import SynthJob, synth

JOBS: dict[str, dict[str, Any]] = {
    "newton": {"solver": "newton", "standardize": True, "tolerance": 1e-6},
    "nystrom": {"solver": "newton", "kernel": "rbf", "gamma": 0.02, "embedding": "fly", "tolerance": 1e-3},
    "dcd": {"solver": "dcd"},
}


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[Client]:
    """A scheduler and workers as users start them."""
    file, dashboard = folder / "scheduler.json", ("--dashboard-address", "127.0.0.1:0")
    start = [sys.executable, "-m", "dask"]
    here = ("--scheduler-file", str(file), "--host", "127.0.0.1", *dashboard)
    commands = [[*start, "scheduler", *here, "--port", "0"]]
    place = ("--local-directory", str(folder), "--nthreads", "1", "--memory-limit", "4GiB", "--no-nanny")
    commands += [[*start, "worker", *here, *place]] * workers
    running = []
    try:
        for command in commands:
            log = subprocess.DEVNULL
            running.append(subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log))
            while not (file.exists() and file.read_text().rstrip().endswith("}")):
                time.sleep(0.05)
        with Client(json.loads(file.read_text())["address"], set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=60)
            yield client
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


class Counting:
    """An executor with the bytes of what passes through it, the work that is sent once apart."""

    def __init__(self, executor: Any, client: Client, workers: int) -> None:
        self._executor, self._client, self._workers = executor, client, workers
        self.shared: list[int] = []
        self.returned = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def share(self, value: Any) -> Any:
        self.shared.append(len(pickle.dumps(value)) * self._workers)
        return self._executor.share(value)

    def reduce(self, *arguments: Any) -> Any:
        found = self._executor.reduce(*arguments)
        self.returned += len(pickle.dumps(found))
        return found

    def map(self, *arguments: Any) -> Iterator[Any]:
        for found in self._executor.map(*arguments):
            self.returned += len(pickle.dumps(found))
            yield found

    def sent_by_workers(self) -> int:
        return sum(self._client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())

    def cpu(self) -> dict[str, float]:
        """Processor seconds of each worker so far."""
        return self._client.run(process_time)


def process_time() -> float:
    return time.process_time()


def measured(name: str, store: Path, workers: int, options: Namespace, folder: Path) -> Row:
    """One fit on a fresh cluster; workers have compiled and read everything once before."""
    settings = JOBS[name] | {"loss": options.loss, "C": options.C, "max_passes": options.passes}
    if name == "nystrom":
        settings["landmarks"] = options.landmarks
    if name == "dcd":
        settings["groups"] = options.groups or workers
    with cluster(folder, workers) as client, using(client) as plain:
        executor = Counting(plain, client, workers)
        fit(FitJob(str(store), str(folder / "warm"), overwrite=True, **(settings | {"max_passes": 1})), executor=plain)
        began: dict[str, Any] = {}

        def mark(event: dict[str, Any]) -> None:
            if event["event"] in ("plan", "landmarks"):  # the last before the first round
                began.update(cpu=executor.cpu(), peers=executor.sent_by_workers(), driver=time.process_time())

        result = fit(FitJob(str(store), str(folder / "m"), overwrite=True, **settings), mark, executor)
        driver = time.process_time() - began["driver"]
        busiest = max(after - began["cpu"][who] for who, after in executor.cpu().items())
        peers = executor.sent_by_workers() - began["peers"]
    training, certificate = result.training, result.training.runs[0].certificate
    assert certificate is not None
    rounds = training.passes
    row: Row = {"fit": name, "workers": workers, "rounds": rounds, "fit s": training.seconds}
    row |= {"critical s": busiest + driver, "driver s": driver, "work MB": executor.shared[0] / 1e6}
    row |= {"down MB": sum(executor.shared[1:]) / rounds / 1e6, "workers send MB": peers / rounds / 1e6}
    row |= {"of it back MB": executor.returned / rounds / 1e6, "w MB": result.model.weights.nbytes / 1e6}
    return row | {"primal": certificate.primal, "dual": certificate.dual, "gap": certificate.gap}


def main() -> None:
    options = arguments(
        __doc__, store="", rows=5_000_000, fits="newton,nystrom", workers="1,2", repeats=3, landmarks=500,
        loss="squared_hinge", C=1.0, passes=1000, groups=0,
    )  # fmt: skip
    table: list[Row] = []
    with tempfile.TemporaryDirectory() as place:
        store = Path(options.store or f"{place}/susy.zarr")
        if not options.store:
            synth(SynthJob("susy", str(store), rows=options.rows))
        for name in options.fits.split(","):
            best: dict[int, Row] = {}
            for repeat in range(options.repeats):
                for workers in map(int, options.workers.split(",")):
                    folder = Path(place) / f"{name}-{workers}-{repeat}"
                    folder.mkdir()
                    row = measured(name, store, workers, options, folder)
                    if workers not in best or row["critical s"] < best[workers]["critical s"]:
                        best[workers] = row
            first = next(iter(best.values()))
            for row in best.values():
                row |= {of: first[key] / row[key] for of, key in (("speed-up", "fit s"), ("critical", "critical s"))}
                row["same certificate"] = all(row[key] == first[key] for key in ("primal", "dual"))
            table += best.values()
    show(f"{Path(options.store).name or options.rows}: fit phase by workers, best of {options.repeats}", table, options)


if __name__ == "__main__":
    main()
