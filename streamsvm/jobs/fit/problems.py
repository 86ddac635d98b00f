"""The problems of a fit: a class against the rest, for every class and every C that is asked for."""

from __future__ import annotations

from streamsvm.config.checks import build
from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.fit.options import FitJob
from streamsvm.losses import LOSSES
from streamsvm.store.format.labels import REST, sort_key
from streamsvm.types import Layout, Problem


def problems_of(job: FitJob, layout: Layout) -> tuple[list[Problem], tuple[str, ...]]:
    """One problem, or one per class against the rest; and the names of the outcomes."""
    if len(layout.classes) < 2:
        raise DataError(f"the store has one class, {layout.classes}", code="E-LABEL", hint="ingest rows of two classes")
    loss = build(LOSSES[job.loss], job.loss_options, f"loss '{job.loss}'")
    positives, names = targets(job, layout)
    nonzeros = None if layout.nonzeros is None else sum(layout.nonzeros)
    return [
        Problem(
            loss, C, layout.rows, layout.columns, p, job.bias, factors(job, layout, p), job.tolerance, nonzeros=nonzeros
        )
        for C in costs_of_loss(job, layout.rows)
        for p in positives
    ], names


def costs_of_loss(job: FitJob, rows: int) -> list[float]:
    """Every C, from C or lambda. Raises UsageError."""
    if job.C is not None and job.lambda_ is not None:
        raise UsageError("both C and lambda are given", hint="they are two spellings: C = 1 / (lambda n)")
    if job.lambda_ is not None:
        return [checked_cost(1.0 / (job.lambda_ * rows) if job.lambda_ > 0 else -1.0)]
    given = job.C if isinstance(job.C, tuple) else (1.0 if job.C is None else job.C,)
    if not given or len(set(given)) < len(given):
        raise UsageError(f"C must be one number or different numbers, not {given}")
    return [checked_cost(C) for C in given]


def checked_cost(C: float) -> float:
    """C as a float. Raises UsageError unless it is positive."""
    if not 0.0 < C < float("inf"):
        raise UsageError(f"C must be a positive number, not {C}", hint="lambda is positive too: C = 1 / (lambda n)")
    return float(C)


def targets(job: FitJob, layout: Layout) -> tuple[list[int], tuple[str, ...]]:
    """The classes taken as +1, and the names of the outcomes."""
    classes = layout.classes
    if job.positive is not None:
        if job.positive not in classes:
            raise UsageError(f"there is no class '{job.positive}'", hint=f"the classes are {', '.join(classes)}")
        others = [c for c in classes if c != job.positive]
        return [classes.index(job.positive)], (others[0] if len(others) == 1 else REST, job.positive)
    if len(classes) == 2:
        positive = max(range(2), key=lambda code: sort_key(classes[code]))
        return [positive], (classes[1 - positive], classes[positive])
    return list(range(len(classes))), classes


def factors(job: FitJob, layout: Layout, positive: int) -> tuple[float, ...]:
    """The weight of each class in the problem of class ``positive``."""
    if job.class_weight is None:
        return ()
    if isinstance(job.class_weight, dict):
        for name in job.class_weight:
            if name not in layout.classes:
                raise UsageError(f"there is no class '{name}' to weight", hint=f"there are {', '.join(layout.classes)}")
        return tuple(job.class_weight.get(c, 1.0) for c in layout.classes)
    if job.class_weight != "balanced":
        raise UsageError(f"class_weight '{job.class_weight}' is not known", hint="'balanced', or a number per class")
    mine, rows = layout.counts[positive], layout.rows
    return tuple(rows / (2 * (mine if c == positive else rows - mine)) for c in range(len(layout.classes)))
