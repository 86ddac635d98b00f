"""The fault program in full, opt-in: python tools/soak.py [--what faults,bits,cluster] [--minutes 60] [--seed 0]. Exits 1 on a failure.

``faults``: kills at every durable step and at random ones, power cuts, flipped bits and tampered models, with data and options drawn
anew each round, for --minutes.
``bits``: one model, made in many ways. Of each kind of fit, on data drawn anew each of --rounds, the sha256 of the model's file is compared
with that of one thread: on several threads, with blocks read ahead or not, on workers of a cluster, and killed at random durable steps
and resumed, on another number of threads each time. Of a search it is that of its table. Chunks are small and each is a group, so
that much is joined.
``cluster``: one of two workers is killed at a random moment of every phase, --seeds times. The result must be what it is without a
cluster, to the last bit, or the job must end with exit code 69 in good time. A worker that was killed is started again after a
second, as a nanny would.

The fast tiers, in tests/fault and tests/cluster, do a fixed small part of the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from distributed import Client

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from safetensors.numpy import load

from streamsvm.cluster import using
from streamsvm.cluster.connection import connect_cluster
from streamsvm.engine import partition
from streamsvm.engine.executor import SerialExecutor
from streamsvm.errors import ClusterError
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob, PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.common_options import EmbedJob, SynthJob
from streamsvm.jobs.embed.build import embed
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.synth import synth
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.results import SHEET
from streamsvm.jobs.tune.run import tune
from streamsvm.store import open_store
from tests.fault import test_corruption as corruption
from tests.fault import test_models as tampering
from tests.fault import test_power as power
from tests.fault.golden import digest_of, fit_job, ingested, leftovers, write_table
from tests.fault.killing import Server

REPOSITORY = Path(__file__).resolve().parents[1]
KILLED = -9
COUNTS: Counter[str] = Counter()
FAILURES: Counter[str] = Counter()


def judge(part: str, good: bool, what: str) -> None:
    """Count one trial."""
    COUNTS[part] += 1
    if not good:
        FAILURES[part] += 1
        print(f"FAILED {part}: {what}", flush=True)


def kill_ingest(server: Server, directory: Path, draw: random.Random) -> None:
    """Every durable step of one ingest."""
    source = write_table(directory, rows=draw.randrange(200, 900), columns=draw.randrange(3, 9))
    name, layout = draw.choice(["s.zarr", "s.h5"]), draw.choice(["dense", "csr"])
    settings: dict[str, Any] = {
        "sources": [str(source)],
        "label": "y",
        "chunk_bytes": draw.choice([4096, 8192]),
        "layout": layout,
    }
    reference = directory / f"reference{Path(name).suffix}"
    steps, expected = server.run("ingest", store=str(reference), **settings).steps, digest_of(reference)
    for at in range(1, steps + 1):
        store = directory / str(at) / name
        died = server.run("ingest", kill=at, store=str(store), **settings).status
        again = server.run("ingest", store=str(store), **settings)
        good = died == KILLED and again.status in (0, 73) and digest_of(store) == expected
        judge("kill ingest", good, f"{name} {layout} at step {at}: {again.said}")
        shutil.rmtree(store.parent)


def kill_fit(server: Server, directory: Path, draw: random.Random) -> None:
    """Random durable steps of one fit, several kills each."""
    write_table(directory, rows=draw.randrange(200, 900), columns=draw.randrange(3, 9))
    store = ingested(directory)
    solver = draw.choice(["dcd", "newton", "sgd", "pegasos", "assg"])
    settings: dict[str, Any] = {
        "store": str(store),
        "solver": solver,
        "loss": "hinge",
        "tolerance": 1e-12,
        "max_passes": 4,
    }
    settings |= {"checkpoint_every": 1e-9, "resume": True, "in_file": draw.random() < 0.5, "C": draw.choice([0.1, 1.0])}
    reference = directory / "reference"
    steps = server.run("fit", model=str(reference), **settings).steps
    for trial in range(40):
        model = directory / f"m{trial}"
        for _ in range(draw.randrange(1, 4)):
            if not model.exists():
                server.run("fit", kill=draw.randrange(1, steps + 1), model=str(model), **settings)
        again = server.run("fit", model=str(model), **settings)
        good = again.status in (0, 73) and weights(model) == weights(reference)
        judge("kill fit", good, f"{solver}, trial {trial}: {again.said}")


def kill_predict(server: Server, directory: Path, draw: random.Random) -> None:
    """Every durable step of predictions in one of three forms."""
    write_table(directory, rows=draw.randrange(200, 3000), columns=draw.randrange(3, 9))
    store = ingested(directory, store=directory / draw.choice(["s.zarr", "s.h5"]))
    fit(fit_job(store, directory / "m", max_passes=1))
    name, source = draw.choice(["p.npy", "p.csv", "p.txt"]), draw.choice([store, directory / "t.csv"])
    settings: dict[str, Any] = {
        "model": str(directory / "m"),
        "data": [str(source)],
        "output": draw.choice(["label", "decision"]),
    }
    reference = directory / f"reference{Path(name).suffix}"
    steps = server.run("predict", out=str(reference), **settings).steps
    for at in range(1, steps + 1):
        out = directory / str(at) / name
        out.parent.mkdir()
        died = server.run("predict", kill=at, out=str(out), **settings).status
        whole = not out.exists() or out.read_bytes() == reference.read_bytes()
        again = server.run("predict", out=str(out), overwrite=True, **settings)
        good = died == KILLED and whole and again.status == 0 and out.read_bytes() == reference.read_bytes()
        judge("kill predict", good and not leftovers(out.parent), f"{name} at step {at}: {again.said}")


def weights(model: Path) -> bytes:
    return bytes(load(model.read_bytes())["weights"].tobytes())


def cut_power(_: Server, directory: Path, draw: random.Random) -> None:
    states, findings = power.lost(directory, choices=draw.randrange(4, 9))
    COUNTS["power cut"] += states - len(findings)
    for finding in findings:
        judge("power cut", good=False, what=finding)


def flip_bits(_: Server, directory: Path, draw: random.Random) -> None:
    """Single bits of every file of a store."""
    store = ingested(directory, store=directory / draw.choice(["s.zarr", "s.h5"]), layout=draw.choice(["dense", "csr"]))
    files = corruption.payload(store)
    for _trial in range(300):
        path = draw.choice(files)
        raw = path.read_bytes()
        bit = draw.randrange(8 * len(raw))
        path.write_bytes(raw[: bit // 8] + bytes([raw[bit // 8] ^ 1 << bit % 8]) + raw[bit // 8 + 1 :])
        judge("flipped bit", bool(corruption.complaints(store)), f"bit {bit} of {path.name}")
        path.write_bytes(raw)


def tamper(_: Server, directory: Path, draw: random.Random) -> None:
    """Bytes of a model."""
    fit(fit_job(ingested(directory), directory / "m", max_passes=1))
    raw, path = (directory / "m").read_bytes(), directory / "mutant"
    for _trial in range(300):
        at = draw.randrange(len(raw))
        mutant = raw[:at] + draw.randbytes(draw.randrange(0, 9)) + raw[at + draw.randrange(0, 9) :]
        path.write_bytes(mutant)
        judge("tampered model", mutant == raw or tampering.refused(path), mutant.hex()[:80])


PARTS: list[Callable[[Server, Path, random.Random], Any]] = [
    kill_ingest,
    kill_fit,
    kill_predict,
    cut_power,
    flip_bits,
    tamper,
]


def faults(options: argparse.Namespace) -> bool:
    """Rounds of all parts, for so many minutes."""
    until, rounds = time.monotonic() + 60 * options.minutes, 0
    with Server() as server:
        while time.monotonic() < until:
            for part in PARTS:
                draw = random.Random(f"{options.seed} {rounds} {part.__name__}")
                with tempfile.TemporaryDirectory(prefix="streamsvm-soak-") as directory:
                    try:
                        part(server, Path(directory), draw)
                    except Exception:  # noqa: BLE001  a finding like any other
                        judge(part.__name__, good=False, what=traceback.format_exc())
            rounds += 1
    print(f"{rounds} rounds, seed {options.seed}")
    for name in sorted(COUNTS):
        print(f"{name:<16} {COUNTS[name]:>8} trials {FAILURES[name]:>4} failures")
    return not FAILURES


# -- one model in many ways --------------------------------------------------------------------------------------------

RBF: dict[str, Any] = {"kernel": "rbf", "gamma": 0.1}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "newton": ("susy", {"solver": "newton", "standardize": True}),
    "newton, CSR": ("table", {"solver": "newton"}),
    "newton, hinge": ("susy", {"solver": "newton", "loss": "hinge"}),
    "Nystrom on the fly": ("susy", {"solver": "newton", "landmarks": 150, "embedding": "fly", **RBF}),
    "Nystrom on disk": ("susy", {"solver": "newton", "landmarks": 40, "embedding": "disk", **RBF}),
    "ten classes": ("classes", {"solver": "newton"}),
    "decomposition": ("susy", {"solver": "decomposition", **RBF}),
    "blended": ("susy", {"solver": "blended", "loss": "squared_hinge", **RBF}),
    "interior_point": ("susy", {"solver": "interior_point", "loss": "hinge", "options": {"kept": 200}}),
}
"""Which rows, and what is fitted on them."""
SEARCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "tune, linear": ("classes", {"solver": "newton", "C": (0.1, 1.0), "folds": 3}),
    "tune, landmarks": (
        "susy",
        {"kernel": "rbf", "gamma": (0.05, 0.2), "landmarks": (16,), "C": (0.1, 1.0), "folds": 2},
    ),
    "tune, exact": ("susy", {"kernel": "rbf", "gamma": (0.1,), "C": (0.1, 1.0), "folds": 2}),
}
"""The same of searches."""
THREADS = (2, 3, 7, 16)
WORKERS = (1, 2, 4)
AHEAD = (0, 1, 4)
KILLS = 3
USUAL = partition.PASS_GROUP_BYTES
Job: TypeAlias = FitJob | TuneJob


def sha256(model: Path) -> str:
    """That of a model's file."""
    return hashlib.sha256(model.read_bytes()).hexdigest()


def stores_of_round(folder: Path, seed: int) -> dict[str, Path]:
    """The rows of one round."""
    rows = 600 + 37 * (seed % 11)
    found = {name: folder / f"{name}.zarr" for name in ("susy", "table")}
    synth(SynthJob("susy", str(found["susy"]), rows=rows, chunk_bytes=6_000, seed=seed))
    synth(SynthJob("table", str(found["table"]), rows=rows, columns=200, chunk_bytes=8_000, seed=seed))
    write_table(folder, rows=rows, classes=10)
    return {**found, "classes": ingested(folder, store=folder / "classes.zarr")}


def made(job: Job, executor: Any = None) -> str:
    """Do a job, and return the sha256 of what it is about: a model, or the table of a search, which begins anew."""
    if isinstance(job, FitJob):
        fit(job, executor=executor)
        return sha256(Path(job.model))
    shutil.rmtree(job.out, ignore_errors=True)
    tune(job, executor=executor)
    return sha256(Path(job.out) / SHEET)


def in_this_process(job: Job) -> Iterator[tuple[str, str]]:
    """What is made on several threads, and with blocks read ahead."""
    for threads in THREADS:
        yield f"{threads} threads", made(replace(job, threads=threads))
    for prefetch in AHEAD:
        yield f"prefetch {prefetch}", made(replace(job, threads=2, prefetch=prefetch))


def killed(server: Server, job: Job, draw: random.Random) -> Iterator[tuple[str, str]]:
    """What is made by runs that were killed at a durable step, and resumed: a search by the same command."""
    settings, fits = asdict(job) | {"overwrite": False, "in_file": True}, isinstance(job, FitJob)
    command, target, found = ("fit", "model", "") if fits else ("tune", "out", f"/{SHEET}")
    settings |= {"checkpoint_every": 1e-9} if fits else {}
    again: dict[str, Any] = {"resume": True} if fits else {}
    counted = server.run(command, **(settings | {target: f"{settings[target]}.steps", "threads": 1}))
    assert counted.status == 0, counted.said
    for trial in range(KILLS):
        mine = settings | {target: f"{settings[target]}.{trial}"}
        server.run(command, kill=draw.randrange(1, counted.steps), **(mine | {"threads": draw.choice(THREADS)}))
        threads, whole = draw.choice((1, *THREADS)), not fits and Path(mine[target] + found).exists()
        if not whole:  # all of a search comes at once: killed after that it has only litter left to remove
            resumed = server.run(command, **(mine | {"threads": threads} | again))
            assert resumed.status == 0, resumed.said
        yield "killed and resumed", sha256(Path(mine[target] + found))


def jobs_of(folder: Path, rows: dict[str, Path], kinds: list[str]) -> Iterator[tuple[str, Job]]:
    """The jobs of these kinds, by their names."""
    common: dict[str, Any] = {"max_passes": 4, "tolerance": 0.02, "overwrite": True}
    for number, (kind, (name, more)) in enumerate((KINDS | SEARCHES).items()):
        if kind in kinds:
            make = FitJob if kind in KINDS else TuneJob
            yield kind, make(str(rows[name]), str(folder / f"{number}"), **common, **more)


def one_round(folder: Path, seed: int, kinds: list[str], server: Server, counts: Counter[tuple[str, bool]]) -> None:
    """These kinds of fit in every way, counted by whether their bits are those of one thread."""
    draw, rows = random.Random(seed), stores_of_round(folder, seed)
    reference: dict[str, str] = {}

    def judge(kind: str, how: str, found: str) -> None:
        counts[kind, found == reference[kind]] += 1
        if found != reference[kind]:
            print(f"DIFFERS {kind}, {how}, seed {seed}", flush=True)

    jobs = dict(jobs_of(folder, rows, kinds))
    for kind, job in jobs.items():
        reference[kind] = made(replace(job, threads=1))
        for how, found in in_this_process(job):
            judge(kind, how, found)
        for how, found in killed(server, job, draw):
            judge(kind, how, found)
    with pytest.MonkeyPatch.context() as patch:  # workers make whole cells of a search, with the groups they know
        patch.setattr(partition, "PASS_GROUP_BYTES", USUAL)
        reference |= {kind: made(replace(job, threads=1)) for kind, job in jobs.items() if kind in SEARCHES}
    for workers in WORKERS:
        with connect_cluster(f"local:{workers}") as executor:
            for kind, job in jobs.items():
                judge(kind, f"{workers} workers", made(job, executor))


def bits(options: argparse.Namespace) -> bool:
    """So many rounds of all kinds of fits and searches."""
    kinds, counts = [*KINDS, *SEARCHES], Counter[tuple[str, bool]]()
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(partition, "PASS_GROUP_BYTES", 1)
        server = stack.enter_context(Server())
        for seed in range(options.seed, options.seed + options.rounds):
            with tempfile.TemporaryDirectory(prefix="streamsvm-bits-") as folder:
                one_round(Path(folder), seed, kinds, server, counts)
    for kind in kinds:
        print(f"{kind:<20} {counts[kind, True]:>5} equal {counts[kind, False]:>4} different")
    return all(same for _, same in counts)


# -- deaths of workers -------------------------------------------------------------------------------------------------

MOST_SECONDS = 60.0
"""Of a wait without progress: the promise is that none is longer."""
AGAIN_SECONDS = 1.0
SAME, CLEAN = "same bits", "exit 69"

Phase = Callable[[Path, Any], str]
"""Does a job in a folder, through an executor; returns what stands for all bits of its result."""


def fit_phase(solver: str, store: str = "rows.zarr", **more: Any) -> Phase:
    def phase(folder: Path, executor: Any) -> str:
        job = FitJob(str(folder.parent / store), str(folder / "m"), solver=solver, C=0.01, groups=4, **more)
        return hashlib.sha256(fit(job, executor=executor).model.weights.tobytes()).hexdigest()

    return phase


def embed_phase(folder: Path, executor: Any) -> str:
    embed(EmbedJob(str(folder.parent / "rows.zarr"), str(folder / "e.zarr"), landmarks=200), executor=executor)
    return open_store(folder / "e.zarr").digest


def ingest_phase(folder: Path, executor: Any) -> str:
    files = tuple(sorted(folder.parent.glob("*.csv")))
    ingest(IngestJob(sources=files, store=folder / "s.zarr", label="label"), executor=executor)
    return open_store(folder / "s.zarr").digest


def predict_phase(folder: Path, executor: Any) -> str:
    data = (str(folder.parent / "rows.zarr"),)
    predict(PredictJob(str(folder.parent / "model"), data, str(folder / "p.csv"), "decision"), executor=executor)
    return hashlib.sha256((folder / "p.csv").read_bytes()).hexdigest()


def evaluate_phase(folder: Path, executor: Any) -> str:
    found = evaluate(EvaluateJob(str(folder.parent / "model"), (str(folder.parent / "rows.zarr"),)), executor=executor)
    return repr((found.evaluation.confusion, found.evaluation.AUC))


def tune_phase(folder: Path, executor: Any) -> str:
    few = str(folder.parent / "few.zarr")
    job = TuneJob(few, str(folder / "t"), C=(0.01, 0.1), kernel="rbf", landmarks=(20, 40, 60, 80), folds=3)
    return repr(tune(job, executor=executor).scores)


PHASES: dict[str, Phase] = {
    "newton": fit_phase("newton", tolerance=1e-7),
    "nystrom": fit_phase("newton", kernel="rbf", landmarks=100, embedding="fly", max_passes=4),
    "dcd": fit_phase("dcd", tolerance=1e-9, max_passes=6),
    "sgd": fit_phase("sgd", loss="hinge", tolerance=1e-9, max_passes=6),
    "assg": fit_phase("assg", loss="hinge", tolerance=1e-9, max_passes=6),
    "blended": fit_phase("blended", "few.zarr", kernel="rbf", gamma=0.05, tolerance=1e-3, max_passes=3),
    "validation": fit_phase("newton", validation=0.1, patience=3, tolerance=1e-7),
    "embed": embed_phase,
    "ingest": ingest_phase,
    "predict": predict_phase,
    "evaluate": evaluate_phase,
    "tune": tune_phase,
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


def prepare_inputs(place: Path, rows: int) -> None:
    """The inputs of all phases."""
    synth(SynthJob("susy", str(place / "rows.zarr"), rows=rows, chunk_bytes=1 << 18))
    synth(SynthJob("susy", str(place / "few.zarr"), rows=rows // 20, chunk_bytes=1 << 15))
    fit(FitJob(str(place / "rows.zarr"), str(place / "model"), solver="newton"))
    for k in range(4):
        rng = random.Random(k)
        lines = [f"{rng.random()},{rng.random()},{rng.choice('ab')}" for _ in range(rows // 8)]
        (place / f"{k}.csv").write_text("\n".join(["x,y,label", *lines]) + "\n")


def cluster(options: argparse.Namespace) -> bool:
    """So many trials of all phases."""
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        prepare_inputs(place, options.rows)
        for phase in PHASES:
            ends = trials(phase, place, options.seeds)
            print(f"{phase:10} " + ", ".join(f"{count} {what}" for what, count in ends.items()), flush=True)
            wrong += sum(count for what, count in ends.items() if not what.startswith((SAME, CLEAN)))
    print(f"{wrong} of the trials went wrong" if wrong else "all trials ended as they should")
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--what", default="faults", help="faults, bits, cluster, with commas between [faults]")
    parser.add_argument("--seed", type=int, default=0)
    for name, default in (("minutes", 60.0), ("rounds", 1), ("seeds", 10), ("rows", 200_000)):
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"[{default}]")
    options = parser.parse_args()
    programs = {"faults": faults, "bits": bits, "cluster": cluster}
    good = [programs[name](options) for name in options.what.split(",")]
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
