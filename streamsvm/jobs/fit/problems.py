"""The problems of a fit: for every C one problem, or one a class against the rest, or one a pair of classes; and where
each starts.

**Pairs** (one-vs-one) are problems of the rows of their two classes alone, as in LIBSVM: f > 0 speaks for the first of
both, as labels are sorted. All pairs are shown the blocks of one reading.

**One class** asks where rows are and not which of two classes they are of. With ``nu`` it has a free offset
(``solvers.one_class``). With C it is 1/2 ||w||^2 + C sum_i s_i l(w.x_i), whose offset is the margin of the loss: a
problem for every solver; with the squared hinge on the simplex it is the minimum enclosing ball. Either way there is
no constant feature, rows are inside where the decision value is above 0, and labels do not matter, but that
``positive`` leaves out the rows of all other classes.

**Two classes by nu** find C themselves (``solvers.nu``); several classes are one against the rest each, or pairs, with
the same nu. **l1**: a multiple of ||w||_1 beside ||w||^2 / 2 (``solvers.elastic_net``), or least squares over ||w||_1
<= t (``solvers.l1_ball``). Both are of columns: kernel features have none whose weights could mean something.

**A warm start** begins with the function of a model, in the weights its solver sees. Columns and classes must be those
of the model. Scaling, C and the loss may differ: a linear function of the columns is one in any scaling of them, and
the first pass finds out what it is worth here.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from streamsvm.config.options import build
from streamsvm.errors import DataError, UsageError, quote
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.common_options import CRAMMER_SINGER, NU, OVO
from streamsvm.jobs.embed.plan import wants_landmarks
from streamsvm.jobs.fit.options import FitJob
from streamsvm.losses import LOSSES, Logistic, threshold
from streamsvm.model.measures import PredictionTask
from streamsvm.model.model import LINEAR, Model
from streamsvm.rows import Float64
from streamsvm.solvers.nu import MARGIN, NuMargin
from streamsvm.solvers.one_class import CORNER, OFFSET, FreeOffset, relative_spread
from streamsvm.solvers.problem_kinds import Multinomial, OneAgainstRest, OneClass, OneVsOne, Regression
from streamsvm.solvers.regularizers import ElasticNet, L1Ball
from streamsvm.store.format.labels import REST, TARGET, sort_key
from streamsvm.store.sources.offsets import offsets_of_store
from streamsvm.types import SQUARED_NORM, AnySolver, Kind, Layout, Loss, Problem, Regularizer, Store, Term
from streamsvm.types.problem import BINARY, has_box

OUTCOMES = ("-1", "1")
"""Names of rows outside and inside where the store has none for them, as in scikit-learn."""
ROUNDED = 1e-6
"""A constant below this share of the sum of weights times shifts is rounding of the shifts."""


def build_problems(job: FitJob, layout: Layout) -> tuple[list[Problem], tuple[str, ...]]:
    """Return the problems, by C and then by class, and the names of the outcomes. Raises UsageError, DataError."""
    if job.one_class:
        return [_build_one_class(job, layout, C) for C in resolve_costs(job, layout.rows)], _name_outcomes(job, layout)
    loss = build(LOSSES[job.loss], job.loss_options, f"loss '{job.loss}'")
    _check_task(job, loss, layout)
    _check_nu(job, layout)
    if finds_C_by_nu(job):
        loss = MARGIN
    _check_l1_ball(job, loss)
    _check_l1(job)
    positives, names = _choose_positives(job, layout)
    costs, together = resolve_costs(job, layout.rows), job.multi_class == CRAMMER_SINGER
    if job.multi_class == OVO and len(layout.classes) > BINARY:
        order = _sort_codes(layout)
        pairs = [_build_pair(job, layout, loss, *pair) for pair in combinations(order, 2)]
        return [replace(one, C=C) for C in costs for one in pairs], tuple(layout.classes[code] for code in order)
    nonzeros = None if layout.nonzeros is None else sum(layout.nonzeros)
    return [
        Problem(
            loss,
            C,
            layout.rows,
            layout.columns,
            _kind_of_class(job, layout, p),
            job.bias,
            _class_weights(job, layout, p),
            tolerance=job.tolerance,
            nonzeros=nonzeros,
            regularizer=_regularizer(job),
        )
        for C in costs
        for p in (positives[:1] if together else positives)
    ], names


def _kind_of_class(job: FitJob, layout: Layout, positive: int) -> Kind:
    """Return the kind of problem in which class ``positive`` is +1; of numbers, and of all classes together, the only one."""
    if layout.numeric:
        return Regression()
    return Multinomial(len(layout.classes), positive) if job.multi_class == CRAMMER_SINGER else OneAgainstRest(positive)


def _regularizer(job: FitJob) -> Regularizer:
    """Return what stands beside the sum of losses, where classes or numbers are learned."""
    if job.l1 is not None:
        return ElasticNet(job.l1)
    if job.l1_ball is not None:
        return L1Ball(job.l1_ball)
    return SQUARED_NORM if job.nu is None else NuMargin(job.nu)


def _build_pair(job: FitJob, layout: Layout, loss: Loss, positive: int, negative: int) -> Problem:
    """Return the problem of a pair of classes, with C = 1. Raises DataError where neither has a row."""
    counts, pair = layout.counts, (positive, negative)
    rows = counts[positive] + counts[negative]
    if not rows:
        names = " and ".join(repr(layout.classes[code]) for code in pair)
        raise DataError(f"there are no rows of {names}", code="E-LABEL", hint="ingest rows of every class")
    given = _class_weights(job, layout, positive) or (1.0,) * len(counts)
    weights = tuple(factor if code in pair else 0.0 for code, factor in enumerate(given))
    # how many entries rows of a class have is not recorded: as many as others have, on average
    nonzeros = None if layout.nonzeros is None else -(-sum(layout.nonzeros) * rows // layout.rows)
    return Problem(
        loss,
        1.0,
        rows,
        layout.columns,
        OneVsOne(positive, negative),
        job.bias,
        weights,
        tolerance=job.tolerance,
        nonzeros=nonzeros,
        regularizer=_regularizer(job),
    )


def _build_one_class(job: FitJob, layout: Layout, C: float) -> Problem:
    """Return a one-class problem. Raises UsageError."""
    nu = effective_nu(job)
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
        OneClass(),
        bias_value(job),
        weights,
        tolerance=job.tolerance,
        nonzeros=nonzeros,
        regularizer=SQUARED_NORM if nu is None else FreeOffset(nu),
    )


def effective_nu(job: FitJob) -> float | None:
    """Return nu, for one class or two; None where C is asked for."""
    if not job.one_class:
        return job.nu
    if job.C is not None or job.lambda_ is not None:
        return None
    return NU if job.nu is None else job.nu


def finds_C_by_nu(job: FitJob) -> bool:
    """Return whether the fit tells classes apart with nu in place of C."""
    return job.nu is not None and not job.one_class


def bias_value(job: FitJob) -> float:
    """Return the value of the constant feature: the one asked for; for one class that of the offset, or 0."""
    if not job.one_class:
        return job.bias
    return 0.0 if effective_nu(job) is None else OFFSET


def undo_offsets(problem: Problem, features: Raw | Standardized, store: Store) -> Problem:
    """Return a linear problem of one class with a free offset, of the rows as their sources have them, before offsets were
    subtracted.

    Its tolerance is that of a gap which tells the rows apart.
    """
    offsets, statistics = offsets_of_store(store.facts), store.statistics()
    origin = offsets.at(np.arange(store.layout.columns))
    mean, variance = statistics.mean + origin, statistics.M2 / store.layout.rows
    if isinstance(features, Standardized):
        scale = features.scale.astype(np.float64)
        origin, mean, variance = origin * scale, mean * scale, variance * np.square(scale)
    tolerance = problem.tolerance * relative_spread(mean, variance)
    regularizer = problem.regularizer
    assert isinstance(regularizer, FreeOffset)  # asked for before
    if len(offsets.columns):
        regularizer = replace(regularizer, origin=origin)
    return replace(problem, regularizer=regularizer, tolerance=tolerance)


def _check_task(job: FitJob, loss: Loss, layout: Layout) -> None:
    """Raise UsageError for a loss or an option of the other task, classes or regression; DataError for a single class."""
    if loss.numeric() != layout.numeric:
        able = [name for name, kind in LOSSES.items() if kind().numeric() == layout.numeric]
        held = "numbers to predict" if layout.numeric else "classes"
        other = "classes" if layout.numeric else "numbers, which ingest --task regression keeps"
        hint = f"choose a loss for {held}: {', '.join(able)}"
        raise UsageError(f"the store holds {held}, and the loss '{job.loss}' is one of {other}", hint=hint)
    if layout.numeric:
        asked = {"--positive": job.positive, "--class-weight": job.class_weight, "--calibrate": job.calibrate}
        asked |= {"--threshold": job.threshold}
        asked |= {"--multi-class": job.multi_class}
        for option in (name for name, value in asked.items() if value is not None):
            raise UsageError(f"{option} is for classes, and the store holds numbers to predict", hint="leave it out")
    elif len(layout.classes) < 2:
        raise DataError(f"the store has one class, {layout.classes}", code="E-LABEL", hint="ingest rows of two classes")


def _check_nu(job: FitJob, layout: Layout) -> None:
    """Raise UsageError for what cannot be combined with nu of classes."""
    if not finds_C_by_nu(job):
        return
    if layout.numeric:
        raise UsageError("--nu is for classes, and the store holds numbers to predict", hint="leave it out")
    if job.kernel != "linear" and not wants_landmarks(job):
        hint = "--landmarks 1000, or --C"
        raise UsageError("--nu of two classes is for linear functions and landmarks, not for exact kernels", hint=hint)
    if job.multi_class == CRAMMER_SINGER:
        raise UsageError("--nu is of two classes", hint="--multi-class ovr or ovo, or --C in place of --nu")


def _check_l1_ball(job: FitJob, loss: Loss) -> None:
    """Raise UsageError for what cannot be combined with an l1 ball."""
    if job.l1_ball is None:
        return
    if job.kernel != "linear" or wants_landmarks(job):
        raise UsageError(
            "--kernel cannot be combined with --l1-ball, which is about columns", hint="leave one of them out"
        )
    if not is_least_squares(loss):
        hint = "--loss squared, on a store of numbers (ingest --task regression)"
        raise UsageError(f"--l1-ball is for least squares, and the loss is '{job.loss}'", hint=hint)


def is_least_squares(loss: Loss) -> bool:
    """Return whether the loss is a multiple of the squared residual: as steep at 0 as anywhere."""
    parabola = loss.numeric() and loss.quadratic() and not has_box(loss)
    return parabola and loss.second_derivative(0.0) * loss.curvature(1.0) == 1.0


def _check_l1(job: FitJob) -> None:
    """Raise UsageError for what cannot be combined with an l1 term."""
    if job.l1 is None:
        return
    if job.kernel != "linear" or wants_landmarks(job):
        raise UsageError("--kernel cannot be combined with --l1, which is about columns", hint="leave one of them out")
    if job.l1_ball is not None:
        raise UsageError(
            "--l1 cannot be combined with --l1-ball, which has no other term", hint="leave one of them out"
        )
    if job.dual:
        raise UsageError(
            "--dual cannot be combined with --l1: its bound is recomputed from the model", hint="leave it out"
        )


def resolve_costs(job: FitJob, rows: int) -> list[float]:
    """Return every C, from C or lambda. Raises UsageError."""
    if job.C is not None and job.lambda_ is not None:
        raise UsageError("both C and lambda are given", hint="they are two spellings: C = 1 / (lambda n)")
    if job.lambda_ is not None:
        return [check_cost(1.0 / (job.lambda_ * rows))]
    given = job.C if isinstance(job.C, tuple) else (1.0 if job.C is None else job.C,)
    if not given or len(set(given)) < len(given):
        raise UsageError(f"C must be one number or different numbers, not {given}", hint="give each C once")
    return [check_cost(C) for C in given]


def check_cost(C: float) -> float:
    """Return C as a float. Raises UsageError unless it is positive."""
    if not 0.0 < C < float("inf"):
        raise UsageError(f"C must be a positive number, not {C}", hint="lambda is positive too: C = 1 / (lambda n)")
    return float(C)


def _choose_positives(job: FitJob, layout: Layout) -> tuple[list[int], tuple[str, ...]]:
    """Return the classes taken as +1 and the names of the outcomes; regression is one problem without names."""
    classes = layout.classes
    if layout.numeric:
        return [0], ()
    if job.positive is not None and job.multi_class is not None:
        hint = "leave out one of the two"
        raise UsageError(
            "--positive cannot be combined with --multi-class: one class against the rest is not several classes",
            hint=hint,
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


def describe_task(problems: Sequence[Problem], layout: Layout, positive: str | None) -> PredictionTask:
    """Return what measures have to know of a fit: of two classes the positive one is ``positive``, else the rarer one."""
    first = problems[0]
    if layout.numeric:
        return PredictionTask(0)
    if first.kind.votes:
        return PredictionTask(len(layout.classes), pairs=True)
    values = [code for one in problems if one.C == first.C for code in one.kind.positives]
    has_probabilities = isinstance(first.loss, Logistic)
    if len(values) > 1:
        return PredictionTask(len(values), probabilities=has_probabilities)
    second = layout.counts[values[0]]
    rarer = 1 if positive is not None or first.kind.one_class or 2 * second <= layout.rows else 0
    return PredictionTask(2, rarer, one_class=first.kind.one_class, probabilities=has_probabilities)


def _name_outcomes(job: FitJob, layout: Layout) -> tuple[str, str]:
    """Return the names of rows outside and inside. Raises UsageError for an unknown class."""
    classes = layout.classes
    if job.positive is not None and job.positive not in classes:
        raise UsageError(f"there is no class '{job.positive}'", hint=f"the classes are {', '.join(classes)}")
    inside = job.positive if job.positive is not None else (classes[0] if len(classes) == 1 else None)
    if inside is None:
        return OUTCOMES
    others = [name for name in classes if name != inside]
    return others[0] if len(others) == 1 else REST, inside


def _sort_codes(layout: Layout) -> list[int]:
    """Return the codes of the classes as models sort them."""
    return sorted(range(len(layout.classes)), key=lambda code: sort_key(layout.classes[code]))


def _class_weights(job: FitJob, layout: Layout, positive: int) -> tuple[float, ...]:
    """Return the weight of each class in the problem of class ``positive``; for pairs and multinomial problems all
    have the same.
    """
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


def start_from_model(  # noqa: PLR0917 (what a plan has at hand)
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
    from streamsvm.jobs.apply.rows import find_moved_offsets

    _check_start(model, where, store, names)
    if problems[0].kind.classes == BINARY:
        hint = "leave out --warm-start, or --multi-class"
        raise UsageError("a problem of two classes together does not start from a model", hint=hint)
    positives = list(dict.fromkeys(code for problem in problems for code in problem.kind.positives))
    order = [0] if len(model.weights) == 1 else [model.classes.index(name) for name in names]
    moved = find_moved_offsets(model, store.facts)
    rows = model.weights.copy()
    rows[:, -1] -= rows[:, moved.columns] @ moved.values
    weights = {p: unfold(rows[k], features, where) for p, k in zip(positives, order, strict=True)}
    return [
        solver.with_start_weights(one, np.concatenate([weights[code] for code in one.kind.positives]))
        for one in problems
    ]


def _check_start(model: Model, path: str, store: Store, names: tuple[str, ...]) -> None:
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


def unfold(row: Float64, features: Raw | Standardized, path: str) -> Float64:
    """Return the weights (columns + 1,) that ``features.to_input_space`` maps to ``row``. Raises UsageError for a bias where
    this fit has none.
    """
    scale = features.scale.astype(np.float64) if isinstance(features, Standardized) else 1.0
    shift = features.shift.astype(np.float64) if isinstance(features, Standardized) else np.zeros(len(row) - 1)
    constant = float(row[-1] + row[:-1] @ shift)
    if features.bias == 0.0 and abs(constant) <= ROUNDED * float(np.abs(row[:-1]) @ np.abs(shift)):
        constant = 0.0  # offsets are float64, shifts float32
    if features.bias == 0.0 and constant != 0.0:
        raise UsageError(f"{path} has a bias, this fit has none", hint="fit with a bias, or leave out --warm-start")
    return np.append(row[:-1] / scale, constant / features.bias if features.bias else 0.0)


def warm_start_terms(problems: list[Problem]) -> list[Term]:
    """Return the memory of the weights to start from; nothing without a warm start."""
    held = sum(p.warm.nbytes for p in problems if p.warm is not None)
    return [Term("warm start", 2 * held, "weights of the model to start from")] if held else []


def digest_warm_start(problems: list[Problem]) -> str | None:
    """Return the sha256 of all weights to start from, which a resumed run must share; None without a warm start."""
    weights = [p.warm for p in problems if p.warm is not None]
    return hashlib.sha256(np.array(weights).tobytes()).hexdigest() if weights else None


def target_center(solver: AnySolver, store: Store) -> float:
    """Return what is subtracted from targets: their mean, where the intercept is free and the store knows it; else 0."""
    return float(store.facts[TARGET]["mean"]) if solver.free_bias and TARGET in store.facts else 0.0
