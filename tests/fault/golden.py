"""The small jobs all fault tests run, and what is left of them when they are done."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.engine import partition
from streamsvm.jobs.fit import driver as fitting
from streamsvm.jobs.fit import resume
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.solvers import SOLVERS
from streamsvm.store.format.manifest import JOURNAL_FILE

ROWS, COLUMNS = 600, 6
CHUNK = 4096
RBF = {"kernel": "rbf", "gamma": 0.2, "standardize": True, "loss": "squared_hinge"}
EXACT: dict[str, dict[str, Any]] = {
    "blended": {**RBF, "solver": "blended", "options": {"pool": 150}},
    "decomposition": {**RBF, "solver": "decomposition", "options": {"pool": 150}},
    "kernel_active_set": {**RBF, "solver": "kernel_active_set"},
    **{
        name: {**RBF, "solver": name, "options": {"pool": 150, "epsilon": 1e-9, "iterations": 200}}
        for name in ("fw", "mfw")
    },
    **{
        f"{name} sampled": {
            **RBF,
            "solver": name,
            "options": {"pool": 300, "sample": 20, "epsilon": 1e-9, "iterations": 90},
        }
        for name in ("swap", "partan")
    },
}
"""Solvers that evaluate the kernel on the rows, with pools that do not hold all of them."""
NYSTROM = {"kernel": "rbf", "landmarks": 12, "standardize": True, "embedding": "fly"}
FITS: dict[str, dict[str, Any]] = {
    "dcd": {},
    "newton": {"solver": "newton", "options": {"sample": 100}, "max_passes": 6},
    "interior_point": {"solver": "interior_point", "loss": "hinge", "options": {"kept": 100}, "max_passes": 6},
    "cutting_plane": {"solver": "cutting_plane", "loss": "hinge", "options": {"planes": 9}, "max_passes": 6},
    "sgd": {"solver": "sgd"},
    "sgd_qn": {"solver": "sgd_qn"},
    "mpu": {"solver": "mpu"},
    "pegasos": {"solver": "pegasos", "options": {"batch": 4}},
    "active_set": {"solver": "active_set", "loss": "hinge"},
    "assg": {"solver": "assg", "options": {"rows_per_stage": 70}},
    "lbfgs": {"solver": "lbfgs", "loss": "squared_hinge", "options": {"history": 3}, "max_passes": 6},
    "nystrom": {"solver": "newton", **NYSTROM},
    "nystrom, rows remade": {"solver": "newton", **NYSTROM, "landmarks": 8 * COLUMNS, "options": {"sample": 100}},
    "nystrom-dcd": {"solver": "dcd", **NYSTROM},
    **EXACT,
}
"""A setting or more of every solver there is (asserted below), small enough to be run many times."""
assert set(SOLVERS) == {settings.get("solver", "dcd") for settings in FITS.values()}


def table(rows: int = ROWS, columns: int = COLUMNS, classes: int = 2) -> str:
    """A CSV: column 0 is the number of the row, the last one its class; the others are random."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(rows, columns)).round(3)
    y = label_of(np.arange(rows), classes)
    X[:, 1] += y
    lines = [",".join(["x0", *(f"x{j}" for j in range(1, columns)), "y"])]
    lines += [f"{i}," + ",".join(map(str, X[i, 1:])) + f",{y[i]}" for i in range(rows)]
    return "\n".join(lines) + "\n"


def label_of(row: Any, classes: int = 2) -> Any:
    """The class of a row: a function of its number, so that a row and a label that do not belong together show."""
    return (row * 2654435761 % 4294967296 // 1000) % classes


def write_table(directory: Path, **shape: int) -> Path:
    path = directory / "t.csv"
    path.write_text(table(**shape))
    return path


def ingested(directory: Path, **options: Any) -> Path:
    """A store of the table: ten chunks or so."""
    source = directory / "t.csv"
    if not source.exists():
        write_table(directory)
    job = ingest_job(directory, **options)
    ingest(job)
    return job.store


def ingest_job(directory: Path, **options: Any) -> IngestJob:
    """The table of a directory to a store beside it."""
    given = {"store": directory / "s.zarr", "chunk_bytes": CHUNK, "label": "y"}
    return IngestJob(sources=(directory / "t.csv",), **{**given, **options})


def digest_of(root: Path) -> dict[str, str]:
    """sha256 of every file below a directory, by its name; the journal apart."""
    files = sorted(p for p in root.rglob("*") if p.is_file())
    names = {p: str(p.relative_to(root)) for p in files if p.name != JOURNAL_FILE}
    return {name: hashlib.sha256(p.read_bytes()).hexdigest() for p, name in names.items()}


def leftovers(root: Path) -> list[Path]:
    """What a killed writer left behind below a directory."""
    return [*root.rglob(".*.partial"), *root.rglob(".*.building")]


def fit_job(store: Path, model: Path, **settings: Any) -> FitJob:
    """A fit of three passes that does not converge."""
    given = {
        "solver": "dcd",
        "loss": "hinge",
        "tolerance": 1e-12,
        "max_passes": 3,
        "checkpoint_every": 0.0,
        "threads": 1,
    }
    return FitJob(str(store), str(model), **{**given, **settings})


def placed(monkeypatch: Any, *, cached: bool = False, resident: bool = True) -> None:
    """Have blocks read in every pass and per-row state where it is wanted, although there is memory for everything.

    Every chunk is a group, so that there is something to join, and to save, between any two.
    """
    from dataclasses import replace

    plan_of = resume.make_plan
    monkeypatch.setattr(partition, "PASS_GROUP_BYTES", 1)

    def planned(job: FitJob, store: Any) -> Any:
        plan = plan_of(job, store)
        return replace(plan, memory=replace(plan.memory, cached=cached, resident=resident))

    monkeypatch.setattr(resume, "make_plan", planned)


def fitted(job: FitJob) -> bytes:
    """The bytes of the model of a fit."""
    fitting.fit(job)
    return Path(job.model).read_bytes()
