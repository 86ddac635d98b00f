"""A fit on one and on two workers of one thread each: seconds of the fit phase, certificate, traffic of a round.

Scheduler and workers are processes of their own on the loopback address. "critical s" is what the fit phase takes where
nobody else wants the processors: the processor seconds of the busiest worker and of the driver, added up. Traffic is
counted where it passes: every message the scheduler gets and sends, heartbeats and all, and what workers send each other.
Each setting is run several times in turn and the fastest counts: the machine may be shared. With 0 among the workers the
fit without a cluster is run beside the others.
"""

from __future__ import annotations

import json
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

from streamsvm.cluster import using
from streamsvm.jobs.common_options import SynthJob
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.synth import synth
from tools.measure.datasets import load, stored
from tools.measure.harness import REPOSITORY, Row, arguments, show

JOBS: dict[str, dict[str, Any]] = {
    "newton": {"solver": "newton", "standardize": True, "tolerance": 1e-6},
    "nystrom": {"solver": "newton", "kernel": "rbf", "gamma": 0.02, "embedding": "fly", "tolerance": 1e-3},
    "dcd": {"solver": "dcd"},
}
SEEN = {"scheduler in": "in", "scheduler out": "out", "between workers": "peers"}
"""Bytes a round, and what ``Meter`` calls them."""


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


def count_messages(dask_scheduler: Any) -> None:
    """Make a scheduler count the bytes of all it sends and receives from now on, whoever the other one is."""
    from importlib import import_module

    from distributed.utils import nbytes

    tcp: Any = import_module("distributed.comm.tcp")  # what is replaced in it is not what it declares

    seen = dask_scheduler.bytes_seen = {"in": 0, "out": 0}
    write, from_frames = tcp.TCP.write, tcp.from_frames

    async def writing(comm: Any, message: Any, **more: Any) -> Any:
        count = await write(comm, message, **more)
        seen["out"] += count
        return count

    async def reading(frames: Any, **more: Any) -> Any:
        seen["in"] += sum(map(nbytes, frames))
        return await from_frames(frames, **more)

    tcp.TCP.write, tcp.from_frames = writing, reading


class Meter:
    """What workers, scheduler and this process have done since ``start``."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._before: dict[str, Any] = {}
        client.run_on_scheduler(count_messages)

    def start(self) -> None:
        self._before = self._now()

    def stop(self) -> dict[str, float]:
        return {name: value - self._before[name] for name, value in self._now().items()}

    def _now(self) -> dict[str, float]:
        workers = self._client.run(lambda dask_worker: (time.process_time(), dask_worker.transfer_outgoing_bytes_total))
        seen = self._client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.bytes_seen)
        figures: dict[str, float] = {"driver": time.process_time(), "peers": 0.0, **seen}
        for worker, (seconds, sent) in workers.items():
            figures[worker] = seconds
            figures["peers"] += sent
        return figures


class Alone:
    """Stands for the meter where there is no cluster."""

    def start(self) -> None:
        self._before = time.process_time()

    def stop(self) -> dict[str, float]:
        return {"://here": time.process_time() - self._before, "driver": 0.0}


@contextmanager
def executed(folder: Path, workers: int) -> Iterator[tuple[Any, Any]]:
    """An executor on a fresh cluster and what measures it."""
    if not workers:
        yield None, Alone()
        return
    with cluster(folder, workers) as client, using(client) as executor:
        yield executor, Meter(client)


def measured(name: str, store: Path, workers: int, options: Namespace, folder: Path) -> Row:
    """One fit on a fresh cluster; workers have compiled and read everything once before."""
    settings = JOBS[name] | {"loss": options.loss, "C": options.C, "max_passes": options.passes}
    if name == "nystrom":
        settings["landmarks"] = options.landmarks
    if name == "dcd":
        settings["groups"] = options.groups or workers or None
    with executed(folder, workers) as (executor, meter):
        fit(
            FitJob(str(store), str(folder / "warm"), overwrite=True, **(settings | {"max_passes": 1})),
            executor=executor,
        )

        def mark(event: dict[str, Any]) -> None:
            if event["event"] in ("plan", "landmarks"):  # the last before the first round
                meter.start()

        result = fit(FitJob(str(store), str(folder / "m"), overwrite=True, **settings), mark, executor)
        used = meter.stop()
    training, certificate = result.training, result.training.runs[0].certificate
    assert certificate is not None
    rounds, busiest = training.passes, max(seconds for who, seconds in used.items() if "://" in who)
    row: Row = {"fit": name, "workers": workers, "rounds": rounds, "fit s": training.seconds}
    row |= {"critical s": busiest + used["driver"], "driver s": used["driver"]}
    row |= {f"{to} MB": used.get(what, 0.0) / rounds / 1e6 for to, what in SEEN.items()}
    row["w MB"] = result.model.weights.nbytes / 1e6
    return row | {"primal": certificate.primal, "dual": certificate.dual, "gap": certificate.gap}


def main() -> None:
    options = arguments(
        __doc__, store="", data="susy", rows=5_000_000, fits="newton,nystrom", workers="1,2", repeats=3, landmarks=500,
        loss="squared_hinge", C=1.0, passes=1000, groups=0,
    )  # fmt: skip
    table: list[Row] = []
    with tempfile.TemporaryDirectory() as place:
        store = Path(options.store or f"{place}/{options.data}.zarr")
        if not options.store and options.data != "susy":
            stored(load(options.data, Path(place)), store)
        elif not options.store:
            synth(SynthJob("susy", str(store), rows=options.rows))
        for name in options.fits.split(","):
            best: dict[int, Row] = {}
            for repeat in range(options.repeats):
                for workers in map(int, options.workers.split(",")):
                    folder = Path(place) / f"{name}-{workers}-{repeat}"
                    folder.mkdir()
                    row = measured(name, store, workers, options, folder)
                    if workers not in best or row["fit s"] < best[workers]["fit s"]:
                        best[workers] = row
            first = next(iter(best.values()))
            for row in best.values():
                row |= {of: first[key] / row[key] for of, key in (("speed-up", "fit s"), ("critical", "critical s"))}
                row["same certificate"] = all(row[key] == first[key] for key in ("primal", "dual"))
            table += best.values()
    show(f"{store.name}: fit phase by workers, best of {options.repeats}", table, options)


if __name__ == "__main__":
    main()
