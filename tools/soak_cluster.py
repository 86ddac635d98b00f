"""Kill one of two workers at a random moment of every phase and see what comes of the job: `tools/soak_cluster.py --seeds 10`.

The result must be what it is without a cluster, to the last bit, or the job must end with exit code 69 in good time. A
worker that was killed is started again after a second, as a nanny would. tests/cluster has the small version.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distributed import Client

from streamsvm.cluster import using
from streamsvm.errors import ClusterError
from streamsvm.jobs.embed import EmbedJob, embed
from streamsvm.jobs.evaluate import EvaluateJob, evaluate
from streamsvm.jobs.fit import fit
from streamsvm.jobs.ingest import IngestJob, ingest
from streamsvm.jobs.planning import FitJob
from streamsvm.jobs.predict import PredictJob, predict
from streamsvm.jobs.spread.executor import Here
from streamsvm.jobs.synth import SynthJob, synth
from streamsvm.store import open_store

REPOSITORY = Path(__file__).resolve().parents[1]
MOST_SECONDS = 60.0
"""Of a wait without progress: the promise is that none is longer."""
AGAIN_SECONDS = 1.0

Phase = Callable[[Path, Any], str]
"""Does a job in a folder, through an executor; returns what stands for all bits of its result."""


def fitted(solver: str, **more: Any) -> Phase:
    def phase(folder: Path, executor: Any) -> str:
        job = FitJob(str(folder.parent / "rows.zarr"), str(folder / "m"), solver=solver, C=0.01, groups=4, **more)
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


PHASES: dict[str, Phase] = {
    "newton": fitted("newton", tolerance=1e-7),
    "nystrom": fitted("newton", kernel="rbf", landmarks=100, embedding="fly", max_passes=4),
    "dcd": fitted("dcd", tolerance=1e-9, max_passes=6),
    "embed": embedded,
    "ingest": ingested,
    "predict": predicted,
    "evaluate": evaluated,
}


class Workers:
    """A scheduler and two workers; one of them dies when it is told to, and comes back."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.file = folder, folder / "scheduler.json"
        self.running = [self._start("scheduler", "--port", "0")]
        while not (self.file.exists() and self.file.read_text().rstrip().endswith("}")):
            time.sleep(0.05)
        self.running += [self._worker(), self._worker()]

    def kill(self, which: int) -> None:
        self.running[which].kill()
        threading.Timer(AGAIN_SECONDS, lambda: self.running.append(self._worker())).start()

    def stop(self) -> None:
        time.sleep(AGAIN_SECONDS)
        for process in reversed(self.running):
            process.kill()
            process.wait()

    def _worker(self) -> subprocess.Popen[bytes]:
        place = ("--local-directory", str(self._folder), "--nthreads", "1", "--memory-limit", "2GiB", "--no-nanny")
        return self._start("worker", *place)

    def _start(self, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        here = ("--scheduler-file", str(self.file), "--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")
        command = [sys.executable, "-m", "dask", kind, *here, *arguments]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, cwd=REPOSITORY, stdout=quiet, stderr=quiet)


def trial(phase: Phase, folder: Path, expected: str, longest: float, seed: int) -> tuple[str, float]:
    """One run with a death in it: 'same bits', 'exit 69' or what went wrong; and its seconds."""
    folder.mkdir()
    rng, workers = random.Random(seed), Workers(folder)
    began = time.monotonic()
    try:
        with Client(json.loads(workers.file.read_text())["address"], set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            began = time.monotonic()
            death = threading.Timer(rng.uniform(0.0, longest), workers.kill, (1 + seed % 2,))
            death.start()
            with using(client) as executor:
                found = "same bits" if phase(folder, executor) == expected else "OTHER BITS"
            death.cancel()
    except ClusterError:
        found = "exit 69"
    except Exception as error:  # noqa: BLE001  what a trial is for
        found = f"{type(error).__name__}: {error}"
    finally:
        seconds = time.monotonic() - began
        workers.stop()
    return (found if seconds < longest + MOST_SECONDS else f"{found}, but LATE"), seconds


def prepared(place: Path, rows: int) -> None:
    """The inputs of all phases."""
    synth(SynthJob("susy", str(place / "rows.zarr"), rows=rows, chunk_bytes=1 << 18))
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
    options, bad = parser.parse_args(), 0
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        prepared(place, options.rows)
        for phase in options.phases.split(","):
            folder = place / phase
            folder.mkdir()
            began = time.monotonic()
            expected = PHASES[phase](folder, Here())
            alone = time.monotonic() - began
            for seed in range(options.seeds):
                found, seconds = trial(PHASES[phase], place / f"{phase}-{seed}", expected, 2 * alone, seed)
                bad += found not in ("same bits", "exit 69")
                print(f"{phase:9} seed {seed}: {found} in {seconds:.1f} s (alone {alone:.1f} s)", flush=True)
    print(f"{bad} of the trials went wrong" if bad else "all trials ended as they should")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
