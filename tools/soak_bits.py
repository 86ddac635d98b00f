"""One model, made in many ways: python -m tools.soak_bits [--rounds 1] [--seed 0] [--kind NAME]. Exits 1 if any bit differs.

Of each kind of fit, on data drawn anew each round, the sha256 of the model's file is compared with that of one thread: on several
threads, with blocks read ahead or not, on workers of a cluster, and killed at random durable steps and resumed, on another
number of threads each time. Chunks are small and each is a group, so that much is joined.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from streamsvm.cluster.connection import connected
from streamsvm.engine import partition
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.jobs.synth.options import SynthJob
from streamsvm.jobs.synth.run import synth
from tests.fault.golden import ingested, write_table
from tests.fault.killing import Server

RBF: dict[str, Any] = {"kernel": "rbf", "gamma": 0.1}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "newton": ("susy", {"solver": "newton", "standardize": True}),
    "newton, CSR": ("table", {"solver": "newton"}),
    "newton, hinge": ("susy", {"solver": "newton", "loss": "hinge"}),
    "Nystrom on the fly": ("susy", {"solver": "newton", "landmarks": 40, "embedding": "fly", **RBF}),
    "Nystrom on disk": ("susy", {"solver": "newton", "landmarks": 40, "embedding": "disk", **RBF}),
    "ten classes": ("classes", {"solver": "newton"}),
    "decomposition": ("susy", {"solver": "decomposition", **RBF}),
    "blended": ("susy", {"solver": "blended", "loss": "squared_hinge", **RBF}),
    "interior_point": ("susy", {"solver": "interior_point", "loss": "hinge", "options": {"kept": 200}}),
}
"""Which rows, and what is fitted on them."""
THREADS = (2, 3, 7, 16)
WORKERS = (1, 2, 4)
AHEAD = (0, 1, 4)
KILLS = 3


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


def in_this_process(job: FitJob) -> Iterator[tuple[str, str]]:
    """The model on several threads, and with blocks read ahead."""
    for threads in THREADS:
        fit(replace(job, threads=threads))
        yield f"{threads} threads", sha256(Path(job.model))
    for prefetch in AHEAD:
        fit(replace(job, threads=2, prefetch=prefetch))
        yield f"prefetch {prefetch}", sha256(Path(job.model))


def killed(server: Server, job: FitJob, draw: random.Random) -> Iterator[tuple[str, str]]:
    """The model of runs that were killed at a durable step, and resumed."""
    settings = asdict(job) | {"checkpoint_every": 1e-9, "in_file": True, "overwrite": False}
    steps = server.run("fit", **(settings | {"model": job.model + ".steps", "threads": 1})).steps
    for trial in range(KILLS):
        mine = settings | {"model": f"{job.model}.{trial}"}
        server.run("fit", kill=draw.randrange(1, steps), **(mine | {"threads": draw.choice(THREADS)}))
        server.run("fit", **(mine | {"threads": draw.choice((1, *THREADS)), "resume": True}))
        yield "killed and resumed", sha256(Path(mine["model"]))


def one_round(folder: Path, seed: int, kinds: list[str], server: Server, counts: Counter[tuple[str, bool]]) -> None:
    """These kinds of fit in every way, counted by whether their bits are those of one thread."""
    draw, rows = random.Random(seed), stores(folder, seed)
    reference: dict[str, str] = {}

    def judge(kind: str, how: str, found: str) -> None:
        counts[kind, found == reference[kind]] += 1
        if found != reference[kind]:
            print(f"DIFFERS {kind}, {how}, seed {seed}", flush=True)

    jobs = {
        kind: FitJob(str(rows[name]), str(folder / f"{number}"), max_passes=4, tolerance=0.02, overwrite=True, **more)
        for number, (kind, (name, more)) in enumerate(KINDS.items())
        if kind in kinds
    }
    for kind, job in jobs.items():
        fit(replace(job, threads=1))
        reference[kind] = sha256(Path(job.model))
        for how, found in in_this_process(job):
            judge(kind, how, found)
        for how, found in killed(server, job, draw):
            judge(kind, how, found)
    for workers in WORKERS:
        with connected(f"local:{workers}") as executor:
            for kind, job in jobs.items():
                fit(job, executor=executor)
                judge(kind, f"{workers} workers", sha256(Path(job.model)))


def main() -> int:
    """Make the rounds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, action="append", help="this kind of fit only; may be repeated")
    options = parser.parse_args()
    kinds = options.kind or list(KINDS)
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
