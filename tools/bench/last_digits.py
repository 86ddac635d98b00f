"""How close the methods for the last digits come, and in how many readings: ``interior_point`` out of core, ``active_set`` on what fits.

Hinge by ``interior_point`` to 1e-8 on a9a (5,000 of 32,561 rows kept), all of covtype (50,000 of 581,012 kept, standardized) and flights (standardized; all
3,000,000 rows kept, because two million of them tie at the corner: ``--kept 100000`` shows what becomes of it with fewer). ``active_set`` on 50,000
rows of covtype as they are, and ``kernel_active_set`` on 2,000 rows of a9a, both until they say that they are at the optimum. "P - D" is relative to P,
as the solver has it; "printed" is what a fit says, the bound on rounding counted against both.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from tools.bench.stores import FLIGHTS
from tools.measure.datasets import Data, load, stored
from tools.measure.harness import DATA, Row, arguments, scratch, show, unpacked
from tools.measure.kernel_features import cpu_of

EXACT = 1e-15
"""A tolerance that no certificate meets: the method ends when it is at the optimum."""
DRAWN, FIRST = 50_000, 2_000
"""Rows of covtype and of a9a that ``active_set`` is given."""


class Case(NamedTuple):
    """A store by name, and the settings of the fits that are made of it."""

    name: str
    settings: tuple[dict[str, Any], ...]


def cases(options: Any) -> Iterator[Case]:
    """What is measured, each store once."""
    outer: dict[str, Any] = {
        "solver": "interior_point",
        "loss": "hinge",
        "tolerance": 1e-8,
        "max_passes": options.passes,
    }
    for name, kept in (("a9a", 5_000), ("covtype", 50_000), ("flights", options.kept)):
        settings = outer | {"options": {"kept": kept}, "standardize": name != "a9a", "memory": 6 << 30}
        yield Case(name, tuple(settings | {"lambda_": lam} for lam in map(float, options.lams.split(","))))
    inner: dict[str, Any] = {"tolerance": EXACT, "max_passes": options.passes}
    linear = inner | {"solver": "active_set", "lambda_": 1e-4}
    yield Case("covtype-50k", tuple(linear | {"loss": loss} for loss in ("hinge", "huber", "squared_hinge")))
    kernel = inner | {"solver": "kernel_active_set", "kernel": "rbf", "gamma": 0.05, "C": 10.0}
    yield Case("a9a-2k", tuple(kernel | {"loss": loss} for loss in ("hinge", "huber")))


def covtype_as_it_is(directory: Path) -> Data:
    """So many rows drawn at random; class 2 against the rest."""
    table = np.loadtxt(unpacked("covtype.csv.gz", directory), np.float32, delimiter=",", skiprows=1)
    chosen = np.random.default_rng(0).permutation(len(table))[:DRAWN]
    return Data("covtype-50k", np.ascontiguousarray(table[chosen, :-1]), np.where(table[chosen, -1] == 2, 1.0, -1.0))


def made(name: str, directory: Path) -> Path:
    """Make the store, in a process of its own: what that took of memory is not the fit's."""
    path = directory / f"{name}.zarr"
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(_make, name, path).result()
    return path


def _make(name: str, path: Path) -> None:
    if name == "covtype":
        ingest(IngestJob(sources=(DATA / "covtype.csv.gz",), store=path, label="Cover_Type", positive="2"))
    elif name == "flights":
        ingest(IngestJob(sources=(DATA / "flights-3m.parquet",), store=path, label_threshold=15.0, **FLIGHTS))
    elif name == "covtype-50k":
        stored(covtype_as_it_is(path.parent), path)
    else:
        data = load("a9a", path.parent)
        rows = slice(FIRST if name == "a9a-2k" else None)
        stored(Data(name, data.X[rows], data.y[rows]), path)


def measured(name: str, store: Path, settings: dict[str, Any]) -> Row:
    """One fit."""
    seconds, _, result = cpu_of(lambda: fit(FitJob(str(store), f"{store}.model", overwrite=True, **settings)))
    training = result.training
    found = training.runs[0].certificate
    assert found is not None
    row: Row = {"set": name, "solver": settings["solver"], "loss": settings["loss"], "lambda": settings.get("lambda_")}
    row |= {"C": settings.get("C"), "readings": training.passes, "P": found.primal}
    row |= {
        "P - D": (found.primal - found.dual) / found.primal,
        "printed": found.gap,
        "exchanges": found.facts.get("exchanges"),
    }
    return row | {"CPU s": seconds, "peak MiB": training.peak / 2**20, "status": training.status.value}


def main() -> None:
    options = arguments(
        __doc__, sets="a9a,covtype,flights,covtype-50k,a9a-2k", lams="1e-2,1e-4,1e-6", kept=3_000_000, passes=60
    )
    rows: list[Row] = []
    with scratch() as directory:
        for case in cases(options):
            if case.name in options.sets.split(","):
                store = made(case.name, directory)
                for settings in case.settings:
                    rows.append(measured(case.name, store, settings))
                    print(rows[-1], flush=True)
    show("the last digits", rows, options)


if __name__ == "__main__":
    main()
