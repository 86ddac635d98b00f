"""Kill one of two workers at a random moment of every phase and see what comes of the job: `tools/soak_cluster.py --seeds 10`.

The result must be what it is without a cluster, to the last bit, or the job must end with exit code 69 in good time. A
worker that was killed is started again after a second, as a nanny would. tests/cluster has the small version.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client

from streamsvm.cluster import using
from streamsvm.engine.executors.executor import SerialExecutor
from streamsvm.errors import ClusterError
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob, PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.embed.options import EmbedJob
from streamsvm.jobs.embed.run import embed
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.synth.options import SynthJob
from streamsvm.jobs.synth.run import synth
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.run import tune
from streamsvm.store import open_store

REPOSITORY = Path(__file__).resolve().parents[1]
MOST_SECONDS = 60.0
"""Of a wait without progress: the promise is that none is longer."""
AGAIN_SECONDS = 1.0
SAME, CLEAN = "same bits", "exit 69"

Phase = Callable[[Path, Any], str]
"""Does a job in a folder, through an executor; returns what stands for all bits of its result."""


def fitted(solver: str, store: str = "rows.zarr", **more: Any) -> Phase:
    def phase(folder: Path, executor: Any) -> str:
        job = FitJob(str(folder.parent / store), str(folder / "m"), solver=solver, C=0.01, groups=4, **more)
        return hashlib.sha256(fit(job, executor=executor).model.weights.tobytes()).hexdigest()

    return phase


def embedded(folder: Path, executor: Any) -> str:
    embed(EmbedJob(str(folder.parent / "rows.zarr"), str(folder / "e.zarr"), landmarks=200), executor=executor)
    return open_store(folder / "e.zarr").digest


def ingested(folder: Path, executor: Any) -> str:
    files = tuple(sorted(folder.parent.glob("*.csv")))
    ingest(IngestJob(sources=files, store=folder / "s.zarr", label="label"), executor=executor)
    return open_store(folder / "s.zarr").digest


def predicted(folder: Path, executor: Any) -> str:
    data = (str(folder.parent / "rows.zarr"),)
    predict(PredictJob(str(folder.parent / "model"), data, str(folder / "p.csv"), "decision"), executor=executor)
    return hashlib.sha256((folder / "p.csv").read_bytes()).hexdigest()


def evaluated(folder: Path, executor: Any) -> str:
    found = evaluate(EvaluateJob(str(folder.parent / "model"), (str(folder.parent / "rows.zarr"),)), executor=executor)
    return repr((found.evaluation.confusion, found.evaluation.AUC))


def tuned(folder: Path, executor: Any) -> str:
    few = str(folder.parent / "few.zarr")
    job = TuneJob(few, str(folder / "t"), C=(0.01, 0.1), kernel="rbf", landmarks=(20, 40, 60, 80), folds=3)
    return repr(tune(job, executor=executor).scores)


PHASES: dict[str, Phase] = {
    "newton": fitted("newton", tolerance=1e-7),
    "nystrom": fitted("newton", kernel="rbf", landmarks=100, embedding="fly", max_passes=4),
    "dcd": fitted("dcd", tolerance=1e-9, max_passes=6),
    "sgd": fitted("sgd", loss="hinge", tolerance=1e-9, max_passes=6),
    "assg": fitted("assg", loss="hinge", tolerance=1e-9, max_passes=6),
    "blended": fitted("blended", "few.zarr", kernel="rbf", gamma=0.05, tolerance=1e-3, max_passes=3),
    "validation": fitted("newton", validation=0.1, patience=3, tolerance=1e-7),
    "embed": embedded,
    "ingest": ingested,
    "predict": predicted,
    "evaluate": evaluated,
    "tune": tuned,
}


class Workers:
    """A scheduler and two workers; one of them dies when it is told to, and comes back."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.file = folder, folder / "scheduler.json"
        self._scheduler = self._start("scheduler", "--port", "0")
        while not (self.file.exists() and self.file.read_text().rstrip().endswith("}")):
            time.sleep(0.05)
        self._workers = [self._worker(), self._worker()]
        self._again: threading.Timer | None = None

    def kill(self, which: int) -> None:
        self._workers[which].kill()
        self._workers[which].wait()
        self._again = threading.Timer(AGAIN_SECONDS, self._replace, (which,))
        self._again.start()

    def stop(self) -> None:
        if self._again is not None:
            self._again.join()
        for process in [*self._workers, self._scheduler]:
            process.kill()
            process.wait()

    def _replace(self, which: int) -> None:
        self._workers[which] = self._worker()

    def _worker(self) -> subprocess.Popen[bytes]:
        place = ("--local-directory", str(self._folder), "--nthreads", "1", "--memory-limit", "2GiB", "--no-nanny")
        return self._start("worker", *place)

    def _start(self, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        here = ("--scheduler-file", str(self.file), "--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")
        command = [sys.executable, "-m", "dask", kind, *here, *arguments]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, cwd=REPOSITORY, stdout=quiet, stderr=quiet)


class Late(Exception):
    """A trial has taken longer than is promised."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise Late in what is done when it takes longer."""

    def ring(*_: Any) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def trial(phase: Phase, folder: Path, client: Client, death: threading.Timer) -> str:
    """One run with a death in it: the bits of its result, 'exit 69', or what went wrong."""
    folder.mkdir()
    death.start()
    try:
        with using(client) as executor:
            return phase(folder, executor)
    except ClusterError:
        return CLEAN
    except Late:
        return "HANGS"
    except Exception as error:  # noqa: BLE001  what a trial is for
        return f"{type(error).__name__}: {error}"
    finally:
        death.cancel()


def trials(name: str, place: Path, seeds: int) -> Counter[str]:
    """A phase with a death at a random moment of each of its runs: how often it ended how."""
    phase, folder, ends = PHASES[name], place / name, Counter[str]()
    folder.mkdir()
    expected = phase(folder, SerialExecutor())
    workers = Workers(folder)
    try:
        with Client(json.loads(workers.file.read_text())["address"], set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            for attempt in ("first", "whole"):  # in the first the workers import and compile
                (place / f"{name}-{attempt}").mkdir()
                began = time.monotonic()
                with using(client) as executor:
                    assert phase(place / f"{name}-{attempt}", executor) == expected, "other bits without any death"
                whole = time.monotonic() - began
            for seed in range(seeds):
                client.wait_for_workers(2, timeout=60)
                rng, began = random.Random(seed), time.monotonic()
                moment = rng.uniform(0.0, whole)
                with deadline(whole + MOST_SECONDS):
                    death = threading.Timer(moment, workers.kill, (rng.randrange(2),))
                    found = trial(phase, place / f"{name}-{seed}", client, death)
                took = time.monotonic() - began
                died = "killed" if took > moment else "spared"
                found = SAME if found == expected else found
                ends[found if died == "killed" else f"{found}, over before the death"] += 1
                print(f"{name:10} seed {seed}: {died} at {moment:.2f} of {whole:.2f} s, {found}", flush=True)
                whole = took if died == "spared" else whole  # the machine is not as busy as it was
                death.join()
                time.sleep(AGAIN_SECONDS)
    finally:
        workers.stop()
    return ends


def prepared(place: Path, rows: int) -> None:
    """The inputs of all phases."""
    synth(SynthJob("susy", str(place / "rows.zarr"), rows=rows, chunk_bytes=1 << 18))
    synth(SynthJob("susy", str(place / "few.zarr"), rows=rows // 20, chunk_bytes=1 << 15))
    fit(FitJob(str(place / "rows.zarr"), str(place / "model"), solver="newton"))
    for k in range(4):
        rng = random.Random(k)
        lines = [f"{rng.random()},{rng.random()},{rng.choice('ab')}" for _ in range(rows // 8)]
        (place / f"{k}.csv").write_text("\n".join(["x,y,label", *lines]) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--phases", default=",".join(PHASES))
    options, wrong = parser.parse_args(), 0
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        prepared(place, options.rows)
        for phase in options.phases.split(","):
            ends = trials(phase, place, options.seeds)
            print(f"{phase:10} " + ", ".join(f"{count} {what}" for what, count in ends.items()), flush=True)
            wrong += sum(count for what, count in ends.items() if not what.startswith((SAME, CLEAN)))
    print(f"{wrong} of the trials went wrong" if wrong else "all trials ended as they should")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
