"""Dual coordinate descent with chunks as blocks against all rows as one block: passes and certified gap.

The same rows, the same seed; only how far apart the rows of a visit may lie differs.
"""

from __future__ import annotations

from typing import Any

from streamsvm.engine.local import local_trainer
from streamsvm.engine.trainer import RunSettings
from streamsvm.features.scaling import Raw
from streamsvm.losses import LOSSES
from streamsvm.solvers.dcd.solver import DCD
from streamsvm.store.views.cached import Resident
from streamsvm.types import Problem, Stop, Store
from tools.measure.datasets import load, stored
from tools.measure.harness import arguments, scratch, show


def trained(store: Store, problem: Problem, sweeps: int, passes: int) -> dict[str, Any]:
    """Passes taken, the gap reached and the dual value."""
    trainer = local_trainer(store, DCD(sweeps), [problem], Raw(1.0), RunSettings(), lambda event: None)
    result = trainer.train(Stop(max_passes=passes))
    found = result.runs[0].certificate
    assert found is not None
    return {"passes": result.passes, "gap": found.gap, "dual": found.dual}


def main() -> None:
    options = arguments(__doc__, data="imdb,covtype", loss="hinge", lam=1e-4, tolerance=1e-3, passes=100)
    rows = []
    with scratch() as directory:
        for name in options.data.split(","):
            store = stored(load(name, directory), directory / f"{name}.zarr")
            layout = store.layout
            C = 1.0 / (options.lam * layout.rows)
            problem = Problem(LOSSES[options.loss](), C, layout.rows, layout.columns, 1, tolerance=options.tolerance)
            whole = Resident(store, lambda X: X)
            for what, seen, sweeps in (("chunks", store, 1), ("chunks, 3 sweeps", store, 3), ("all rows", whole, 1)):
                found = trained(seen, problem, sweeps, options.passes)
                rows.append({"set": name, "blocks": what, "chunks": len(seen.layout.chunks), **found})
    show(f"{options.loss}, lambda {options.lam}, tolerance {options.tolerance}", rows, options)


if __name__ == "__main__":
    main()
