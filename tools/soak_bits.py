"""One model, made in many ways: python -m tools.soak_bits [--rounds 1] [--seed 0] [--kind NAME]. Exits 1 if any bit differs.

Of each kind of fit, on data drawn anew each round, the sha256 of the model's file is compared with that of one thread: on several
threads, with blocks read ahead or not, on workers of a cluster, and killed at random durable steps and resumed, on another
number of threads each time. Of a search it is that of its table. Chunks are small and each is a group, so that much is joined.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from streamsvm.cluster.connection import connected
from streamsvm.engine import partition
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.jobs.synth.options import SynthJob
from streamsvm.jobs.synth.run import synth
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.results import SHEET
from streamsvm.jobs.tune.run import tune
from tests.fault.golden import ingested, write_table
from tests.fault.killing import Server

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


def stores(folder: Path, seed: int) -> dict[str, Path]:
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
    draw, rows = random.Random(seed), stores(folder, seed)
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
        with connected(f"local:{workers}") as executor:
            for kind, job in jobs.items():
                judge(kind, f"{workers} workers", made(job, executor))


def main() -> int:
    """Make the rounds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--kind", choices=[*KINDS, *SEARCHES], action="append", help="this kind of fit only; may be repeated"
    )
    options = parser.parse_args()
    kinds = options.kind or [*KINDS, *SEARCHES]
    counts: Counter[tuple[str, bool]] = Counter()
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(partition, "PASS_GROUP_BYTES", 1)
        server = stack.enter_context(Server())
        for seed in range(options.seed, options.seed + options.rounds):
            with tempfile.TemporaryDirectory(prefix="streamsvm-bits-") as folder:
                one_round(Path(folder), seed, kinds, server, counts)
    for kind in kinds:
        print(f"{kind:<20} {counts[kind, True]:>5} equal {counts[kind, False]:>4} different")
    return int(any(not same for _, same in counts))


if __name__ == "__main__":
    sys.exit(main())
