"""One class: the problem of a fit that asks where rows are and not which of two classes they are of.

With ``nu`` it has a free offset (``solvers.one_class``). With C it is 1/2 ||w||^2 + C sum_i s_i l(w.x_i), whose offset is the margin
of the loss: a problem for every solver, of the squared hinge on the simplex the minimum enclosing ball. Either way there is no
constant feature beside, rows are inside where the decision value is above 0, and labels have no say in it, but that
``positive`` leaves out the rows of all other classes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from streamsvm.config.checks import build
from streamsvm.errors import UsageError
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.options import NU
from streamsvm.losses import LOSSES, threshold
from streamsvm.solvers.one_class import CORNER, OFFSET, relative_spread
from streamsvm.store.format.labels import REST
from streamsvm.store.sources.offsets import offsets_of_store
from streamsvm.types import EVERY_ROW, Layout, Problem, Store

OUTCOMES = ("-1", "1")
"""What rows outside and inside are called where the store has no name for them, as scikit-learn does."""


def share_of(job: FitJob) -> float | None:
    """Return nu, of one class or of two; None where C is asked for."""
    if not job.one_class:
        return job.nu
    if job.C is not None or job.lambda_ is not None:
        return None
    return NU if job.nu is None else job.nu


def constant_of(job: FitJob) -> float:
    """Return the value of the constant feature of a fit: the one asked for, of one class that of the offset or 0."""
    if not job.one_class:
        return job.bias
    return 0.0 if share_of(job) is None else OFFSET


def margin_of(problem: Problem) -> float:
    """Return what decision values are less than f: of one class without a free offset the margin of the loss, else 0."""
    return threshold(problem.loss) if problem.positive == EVERY_ROW and problem.nu is None else 0.0


def problem_of(job: FitJob, layout: Layout, C: float) -> Problem:
    """Return the problem of one class. Raises UsageError."""
    nu = share_of(job)
    loss = CORNER if nu is not None else build(LOSSES[job.loss], job.loss_options, f"loss '{job.loss}'")
    if nu is None and not math.isfinite(threshold(loss)):
        raise UsageError(f"one class is learned by a loss with a margin, not by '{job.loss}'", hint="--nu 0.1")
    weights = () if job.positive is None else tuple(float(name == job.positive) for name in layout.classes)
    nonzeros = None if layout.nonzeros is None else sum(layout.nonzeros)
    return Problem(
        loss,
        C if nu is None else 1.0,
        layout.rows,
        layout.columns,
        EVERY_ROW,
        constant_of(job),
        weights,
        tolerance=job.tolerance,
        nonzeros=nonzeros,
        nu=nu,
    )


def as_rows_are(problem: Problem, features: Raw | Standardized, store: Store) -> Problem:
    """Return the linear problem with a free offset, of the rows where they lie: columns less no offset, and to a gap that tells them apart."""
    offsets, statistics = offsets_of_store(store.facts), store.statistics()
    origin = offsets.at(np.arange(store.layout.columns))
    mean, variance = statistics.mean + origin, statistics.M2 / store.layout.rows
    if isinstance(features, Standardized):
        scale = features.scale.astype(np.float64)
        origin, mean, variance = origin * scale, mean * scale, variance * np.square(scale)
    tolerance = problem.tolerance * relative_spread(mean, variance)
    return replace(problem, origin=origin if len(offsets.columns) else None, tolerance=tolerance)


def outcomes_of(job: FitJob, layout: Layout) -> tuple[str, str]:
    """Return what rows outside and inside are called. Raises UsageError for a class that there is not."""
    classes = layout.classes
    if job.positive is not None and job.positive not in classes:
        raise UsageError(f"there is no class '{job.positive}'", hint=f"the classes are {', '.join(classes)}")
    inside = job.positive if job.positive is not None else (classes[0] if len(classes) == 1 else None)
    if inside is None:
        return OUTCOMES
    others = [name for name in classes if name != inside]
    return others[0] if len(others) == 1 else REST, inside
