"""The problems of a fit: a class against the rest or a pair of classes, for each of them and every C, and the weights each starts from.

A pair is a problem of the rows of its two classes alone, as in LIBSVM: f > 0 speaks for the first of both, as labels are sorted. All pairs
are shown the blocks of one reading (``engine.problem_rows``).

A fit that starts from a model starts from the same function, said in the weights its solver sees. Columns and classes
must be those of the model. Scaling, C and the loss may differ: a linear function of the columns is one in any scaling of
them, and what it is worth here the first pass finds out.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import combinations

import numpy as np

from streamsvm.config.checks import build
from streamsvm.errors import DataError, UsageError, quote
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.elastic_net import check_l1
from streamsvm.jobs.fit.planning.l1_ball import check_ball
from streamsvm.jobs.fit.planning.nu_classes import check_nu, loss_by_nu
from streamsvm.jobs.fit.planning.one_class import outcomes_of, problem_of
from streamsvm.jobs.options import CRAMMER_SINGER, OVO
from streamsvm.losses import LOSSES
from streamsvm.model.model import LINEAR, Model
from streamsvm.rows import Float64
from streamsvm.store.format.labels import REST, sort_key
from streamsvm.types import AnySolver, Layout, Loss, Problem, Store, Term
from streamsvm.types.problem import TWO

ROUNDED = 1e-6
"""Of a sum of weights times shifts: a constant that is less is what rounding the shifts has left."""


def problems_of(job: FitJob, layout: Layout) -> tuple[list[Problem], tuple[str, ...]]:
    """One problem, or one per class against the rest; and the names of the outcomes."""
    if job.one_class:
        return [problem_of(job, layout, C) for C in costs_of_loss(job, layout.rows)], outcomes_of(job, layout)
    loss = build(LOSSES[job.loss], job.loss_options, f"loss '{job.loss}'")
    check_task(job, loss, layout)
    check_nu(job, layout)
    loss = loss_by_nu(job, loss)
    check_ball(job, loss)
    check_l1(job)
    positives, names = targets(job, layout)
    costs, together = costs_of_loss(job, layout.rows), job.multi_class == CRAMMER_SINGER
    if job.multi_class == OVO and len(layout.classes) > TWO:
        order = in_order(layout)
        pairs = [_of_pair(job, layout, loss, *pair) for pair in combinations(order, 2)]
        return [replace(one, C=C) for C in costs for one in pairs], tuple(layout.classes[code] for code in order)
    nonzeros = None if layout.nonzeros is None else sum(layout.nonzeros)
    return [
        Problem(
            loss,
            C,
            layout.rows,
            layout.columns,
            p,
            job.bias,
            factors(job, layout, p),
            tolerance=job.tolerance,
            nonzeros=nonzeros,
            classes=len(layout.classes) if together else 0,
            l1_ball=job.l1_ball,
            nu=job.nu,
            l1=job.l1,
        )
        for C in costs
        for p in (positives[:1] if together else positives)
    ], names


def in_order(layout: Layout) -> list[int]:
    """Return the codes of the classes as models sort them."""
    return sorted(range(len(layout.classes)), key=lambda code: sort_key(layout.classes[code]))


def _of_pair(job: FitJob, layout: Layout, loss: Loss, positive: int, negative: int) -> Problem:
    """The problem of a pair of classes, of C = 1. Raises DataError where neither has a row."""
    counts, pair = layout.counts, (positive, negative)
    rows = counts[positive] + counts[negative]
    if not rows:
        names = " and ".join(repr(layout.classes[code]) for code in pair)
        raise DataError(f"there are no rows of {names}", code="E-LABEL", hint="ingest rows of every class")
    given = factors(job, layout, positive) or (1.0,) * len(counts)
    weights = tuple(factor if code in pair else 0.0 for code, factor in enumerate(given))
    # how many entries rows of a class have is not recorded: as many as others have, on average
    nonzeros = None if layout.nonzeros is None else -(-sum(layout.nonzeros) * rows // layout.rows)
    return Problem(
        loss,
        1.0,
        rows,
        layout.columns,
        positive,
        job.bias,
        weights,
        tolerance=job.tolerance,
        nonzeros=nonzeros,
        negative=negative,
        nu=job.nu,
        l1=job.l1,
    )


def check_task(job: FitJob, loss: Loss, layout: Layout) -> None:
    """Raise UsageError for a loss of another task than the store is for, and for options that need classes; DataError for one class."""
    if loss.numeric() != layout.numeric:
        able = [name for name, kind in LOSSES.items() if kind().numeric() == layout.numeric]
        held = "numbers to predict" if layout.numeric else "classes"
        other = "classes" if layout.numeric else "numbers, which ingest --task regression keeps"
        hint = f"choose a loss for {held}: {', '.join(able)}"
        raise UsageError(f"the store holds {held}, and the loss '{job.loss}' is one of {other}", hint=hint)
    if layout.numeric:
        asked = {"--positive": job.positive, "--class-weight": job.class_weight, "--calibrate": job.calibrate}
        asked |= {"--multi-class": job.multi_class}
        for option in (name for name, value in asked.items() if value is not None):
            raise UsageError(f"{option} is for classes, and the store holds numbers to predict", hint="leave it out")
    elif len(layout.classes) < 2:
        raise DataError(f"the store has one class, {layout.classes}", code="E-LABEL", hint="ingest rows of two classes")


def costs_of_loss(job: FitJob, rows: int) -> list[float]:
    """Every C, from C or lambda. Raises UsageError."""
    if job.C is not None and job.lambda_ is not None:
        raise UsageError("both C and lambda are given", hint="they are two spellings: C = 1 / (lambda n)")
    if job.lambda_ is not None:
        return [checked_cost(1.0 / (job.lambda_ * rows))]
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
    """The classes taken as +1, and the names of the outcomes; of numbers there is one problem, and no names."""
    classes = layout.classes
    if layout.numeric:
        return [0], ()
    if job.positive is not None and job.multi_class is not None:
        hint = "leave out one of the two"
        raise UsageError(
            "one class against the rest is not several classes: --positive goes without --multi-class", hint=hint
        )
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
    """The weight of each class in the problem of class ``positive``; of pairs, and of all classes together, it is the same in all."""
    if job.class_weight is None:
        return ()
    if isinstance(job.class_weight, dict):
        given = job.class_weight
        if set(layout.classes) == {"false", "true"}:  # tables write truth values so, programs and arrays 0 and 1
            given = {{"0": "false", "1": "true"}.get(name, name): factor for name, factor in given.items()}
        for name in given:
            if name not in layout.classes:
                raise UsageError(f"there is no class '{name}' to weight", hint=f"there are {', '.join(layout.classes)}")
        weighted = [c for c in layout.classes if given.get(c, 1.0) > 0.0]
        if len(weighted) < 2 or (job.positive is not None and job.positive not in weighted):
            what = (
                f"class '{weighted[0]}' alone has"
                if len(weighted) == 1
                else "no class has"
                if not weighted
                else f"class '{job.positive}' has no"
            )
            raise UsageError(f"{what} weight", hint="give two classes or more a class weight above 0")
        return tuple(given.get(c, 1.0) for c in layout.classes)
    if job.class_weight != "balanced":
        raise UsageError(f"class_weight '{job.class_weight}' is not known", hint="'balanced', or a number per class")
    mine, rows = layout.counts[positive], layout.rows
    if job.multi_class in {OVO, CRAMMER_SINGER}:
        present = sum(count > 0 for count in layout.counts)
        return tuple(rows / (present * count) if count else 1.0 for count in layout.counts)
    if mine in (0, rows):  # a class without rows, or no others: there is nothing to balance
        return (1.0,) * len(layout.classes)
    return tuple(rows / (2 * (mine if c == positive else rows - mine)) for c in range(len(layout.classes)))


def warm_started(  # noqa: PLR0917 (what a plan has at hand)
    model: Model,
    where: str,
    solver: AnySolver,
    store: Store,
    features: Raw | Standardized,
    problems: list[Problem],
    names: tuple[str, ...],
) -> list[Problem]:
    """Return the problems, each with the weights of a model to start from; ``where`` is what errors call it.

    Raises DataError, UsageError.
    """
    from streamsvm.jobs.apply.rows import moved_from

    check(model, where, store, names)
    if problems[0].classes == TWO:
        hint = "leave out --warm-start, or --multi-class"
        raise UsageError("a problem of two classes together does not start from a model", hint=hint)
    positives = list(dict.fromkeys(code for problem in problems for code in problem.positives))
    order = [0] if len(model.weights) == 1 else [model.classes.index(name) for name in names]
    moved = moved_from(model, store.facts)
    rows = model.weights.copy()
    rows[:, -1] -= rows[:, moved.columns] @ moved.values
    weights = {p: unfolded(rows[k], features, where) for p, k in zip(positives, order, strict=True)}
    return [solver.starting_at(one, np.concatenate([weights[code] for code in one.positives])) for one in problems]


def check(model: Model, path: str, store: Store, names: tuple[str, ...]) -> None:
    """Refuse a model of other columns, of other classes, or of a kernel."""
    from streamsvm.jobs.apply.rows import check_names

    if model.kind != LINEAR or store.facts.get("map") is not None:
        raise UsageError(
            f"{path} or the store is one of kernel features: only a linear fit of stored columns starts from a model",
            hint="leave out --warm-start",
        )
    if model.columns != store.layout.columns:
        found = f"{path} has {model.columns} columns, store '{store.name}' {store.layout.columns}"
        raise DataError(found, code="E-SCHEMA", hint="start from a model of the same columns")
    check_names(model.provenance.get("names"), store.facts.get("names"), store.name)
    same = model.classes == names if len(model.weights) == 1 else sorted(model.classes) == sorted(names)
    if not same:
        raise DataError(
            f"{path} tells apart {quote(list(model.classes))}, this fit {quote(list(names))}",
            code="E-LABEL",
            hint="start from a model of the same classes, or say --positive as it was said then",
        )


def unfolded(row: Float64, features: Raw | Standardized, path: str) -> Float64:
    """The inverse of ``features.fold``: weights (columns + 1,) of the constant feature's value ``bias``."""
    scale = features.scale.astype(np.float64) if isinstance(features, Standardized) else 1.0
    shift = features.shift.astype(np.float64) if isinstance(features, Standardized) else np.zeros(len(row) - 1)
    constant = float(row[-1] + row[:-1] @ shift)
    if features.bias == 0.0 and abs(constant) <= ROUNDED * float(np.abs(row[:-1]) @ np.abs(shift)):
        constant = 0.0  # offsets are float64, shifts float32
    if features.bias == 0.0 and constant != 0.0:
        raise UsageError(f"{path} has a bias, this fit has none", hint="fit with a bias, or leave out --warm-start")
    return np.append(row[:-1] / scale, constant / features.bias if features.bias else 0.0)


def warm_terms(problems: list[Problem]) -> list[Term]:
    """What the weights hold: nothing without a warm start."""
    held = sum(p.warm.nbytes for p in problems if p.warm is not None)
    return [Term("warm start", 2 * held, "weights of the model to start from")] if held else []


def warm_digest(problems: list[Problem]) -> str | None:
    """sha256 of all weights to start from: what a run that is resumed must have started from too."""
    weights = [p.warm for p in problems if p.warm is not None]
    return hashlib.sha256(np.array(weights).tobytes()).hexdigest() if weights else None
