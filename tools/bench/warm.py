"""What a warm start saves: passes of each linear solver from nothing, from its own model, and from that of a smaller C."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.jobs.synth.options import SynthJob
from streamsvm.jobs.synth.run import synth
from streamsvm.solvers import losses_of
from tools.measure.harness import Row, arguments, scratch, show

LINEAR = ("newton", "dcd", "sgd", "pegasos", "assg")


def fitted(job: FitJob) -> Row:
    """Passes, gap and primal of a fit."""
    result = fit(job)
    certificate = result.training.runs[0].certificate
    assert certificate is not None
    return {"passes": result.training.passes, "gap": certificate.gap, "primal": certificate.primal}


def jobs(directory: Path, solver: str, loss: str, options: Any) -> list[FitJob]:
    """At the small C and at the large one: from nothing, and from the model of the small one."""
    store, first = str(directory / "susy.zarr"), str(directory / "first.ssvm")
    cold = FitJob(
        store, first, solver=solver, loss=loss, C=options.small, standardize=True, overwrite=True,
        tolerance=options.tolerance, max_passes=options.passes,
    )  # fmt: skip
    other = replace(cold, model=str(directory / "other.ssvm"))
    return [
        cold,
        replace(other, warm_start=first),
        *(replace(other, C=options.large, warm_start=w) for w in (None, first)),
    ]


def main() -> None:
    options = arguments(__doc__, rows=40_000, small=0.01, large=0.1, tolerance=1e-3, passes=60)
    rows: list[Row] = []
    with scratch() as directory:
        synth(SynthJob("susy", str(directory / "susy.zarr"), rows=options.rows))
        for loss in ("squared_hinge", "hinge"):
            for solver in (name for name in LINEAR if loss in losses_of(name)):
                for job in jobs(directory, solver, loss, options):
                    begun = "nothing" if job.warm_start is None else f"C = {options.small:g}"
                    rows.append({"solver": solver, "loss": loss, "C": job.C, "from": begun, **fitted(job)})
    show(f"warm starts, {options.rows} rows of susy, tolerance {options.tolerance:g}", rows, options)


if __name__ == "__main__":
    main()
