"""Build the problems of a fit and their warm starts. For each C there is one problem, or one per class (one-vs-rest),
or one per pair of classes (one-vs-one).

**One-vs-one**: as in LIBSVM, the problem of a pair contains only the rows of its two classes. f > 0 is a vote for the
first class of the pair in sorted order. One pass over the data serves all pairs.

**One class** learns the region where rows lie, without labels. With ``nu`` the problem has a free offset
(``solvers.one_class``). With C it is 1/2 ||w||^2 + C sum_i s_i l(w.x_i), where the margin of the loss is the offset;
every solver can solve it, and with the squared hinge on the simplex it is the minimum enclosing ball. In both forms
there is no constant feature, and a row is inside if its decision value is above 0. Labels are ignored, except that
``positive`` restricts the training to the rows of one class.

**Two classes with nu**: the solver determines C (``solvers.nu``). Several classes are one-vs-rest or one-vs-one, all
with the same nu.

**l1**: the regularizer is ||w||^2 / 2 plus a multiple of ||w||_1 (``solvers.elastic_net``), or least squares is
minimized over ||w||_1 <= t (``solvers.l1_ball``). Both are for stored columns only, as sparse weights of kernel
features have no meaning.

**A free bias**: the weight of the constant feature is not regularized (``solvers.free_bias``). For stored columns only, whose
ranges bound it.

**A warm start** takes the linear function of a model, expressed in the weights that the solver sees. The columns and
classes of the model must be those of the fit. Scaling, C and loss may differ, because a function that is linear in the
columns is linear in any scaling of them; the first pass evaluates it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from streamsvm.config.options import build_from_settings
from streamsvm.errors import DataError, UsageError, quote
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.common_options import CRAMMER_SINGER, NU, OVO, SOFTMAX
from streamsvm.jobs.embed.plan import wants_landmarks
from streamsvm.jobs.fit.options import FitJob
from streamsvm.losses import LOSSES, Logistic, threshold
from streamsvm.model.measures import PredictionTask
from streamsvm.model.model import LINEAR, Model
from streamsvm.rows import Float64
from streamsvm.solvers.free_bias import SLACK, FreeBias
from streamsvm.solvers.nu import UNIT_HINGE, NuMargin
from streamsvm.solvers.one_class import HINGE_AT_ZERO, OFFSET, FreeOffset, relative_spread
from streamsvm.solvers.problem_kinds import Multinomial, OneAgainstRest, OneClass, OneVsOne, Regression
from streamsvm.solvers.regularizers import ElasticNet, L1Ball
from streamsvm.solvers.softmax import Softmax
from streamsvm.store.format.labels import REST, TARGET, sort_key
from streamsvm.store.sources.offsets import offsets_of_store
from streamsvm.types import SQUARED_NORM, AnySolver, Kind, Layout, Loss, Problem, Regularizer, Store, Term
from streamsvm.types.problem import BINARY, has_box

DEFAULT_OUTCOMES = ("-1", "1")
"""Class names of rows outside and inside if the store has no suitable labels, as in scikit-learn."""
NEGLIGIBLE_CONSTANT = 1e-6
"""A constant below this fraction of sum_j |weight_j| |shift_j| is rounding error of the float32 shifts, and set to 0."""


def build_problems(job: FitJob, layout: Layout) -> tuple[list[Problem], tuple[str, ...]]:
    """Return the problems, ordered by C and then by class, and the class names. Raises UsageError, DataError."""
    if job.one_class:
        return [_build_one_class(job, layout, C) for C in resolve_costs(job, layout.rows)], _name_outcomes(job, layout)
    loss = build_from_settings(LOSSES[job.loss], job.loss_options, f"loss '{job.loss}'")
    _check_task(job, loss, layout)
    _check_nu(job, layout)
    if uses_nu_for_classes(job):
        loss = UNIT_HINGE
    _check_l1_ball(job, loss)
    _check_l1(job)
    _check_softmax(job, loss)
    _check_free_bias(job, loss)
    positives, names = _choose_positives(job, layout)
    costs, is_joint = resolve_costs(job, layout.rows), job.multi_class == CRAMMER_SINGER or _uses_softmax(job, layout)
    if job.multi_class == OVO and len(layout.classes) > BINARY:
        order = _sort_codes(layout)
        pairs = [_build_pair(job, layout, loss, *pair) for pair in combinations(order, 2)]
        problems = [replace(pair, C=C) for C in costs for pair in pairs]
        return problems, tuple(layout.classes[code] for code in order)
    nonzeros = None if layout.nonzeros is None else sum(layout.nonzeros)
    return [
        Problem(
            loss,
            C,
            layout.rows,
            layout.columns,
            _choose_kind(job, layout, loss, p),
            job.bias,
            _resolve_class_weights(job, layout, p),
            tolerance=job.tolerance,
            nonzeros=nonzeros,
            regularizer=_choose_regularizer(job, layout),
        )
        for C in costs
        for p in (positives[:1] if is_joint else positives)
    ], names


def _choose_kind(job: FitJob, layout: Layout, loss: Loss, positive: int) -> Kind:
    """Return the kind of problem in which class ``positive`` is +1. Regression, Crammer-Singer and softmax have one problem only."""
    if layout.numeric:
        return Regression()
    if _uses_softmax(job, layout):
        assert isinstance(loss, Logistic)  # ``_check_softmax`` has checked it
        return Softmax(len(layout.classes), loss.sharpness)
    return Multinomial(len(layout.classes), positive) if job.multi_class == CRAMMER_SINGER else OneAgainstRest(positive)


def _uses_softmax(job: FitJob, layout: Layout) -> bool:
    """Return whether the fit is one softmax problem. With two classes it is the logistic loss of one decision function."""
    return job.multi_class == SOFTMAX and len(layout.classes) > BINARY


def _check_softmax(job: FitJob, loss: Loss) -> None:
    """Raise UsageError for options that cannot be combined with --multi-class softmax."""
    if job.multi_class != SOFTMAX:
        return
    if not isinstance(loss, Logistic):
        raise UsageError(
            f"--multi-class {SOFTMAX} has the logistic loss, and the loss is '{job.loss}'", hint="--loss logistic"
        )
    if job.kernel != "linear" and not wants_landmarks(job):
        what = f"--multi-class {SOFTMAX} is for linear functions and landmarks, not for exact kernels"
        raise UsageError(what, hint="--landmarks 1000, or another --multi-class")
    if job.l1 is not None:
        hint = "leave out --l1, or --multi-class"
        raise UsageError(f"--l1 cannot be combined with --multi-class {SOFTMAX}", hint=hint)


def _choose_regularizer(job: FitJob, layout: Layout) -> Regularizer:
    """Return the regularizer of a classification or regression problem."""
    if job.free_bias:
        return FreeBias(layout.columns + 1)
    if job.l1 is not None:
        return ElasticNet(job.l1)
    if job.l1_ball is not None:
        return L1Ball(job.l1_ball)
    return SQUARED_NORM if job.nu is None else NuMargin(job.nu)


def _build_pair(job: FitJob, layout: Layout, loss: Loss, positive: int, negative: int) -> Problem:
    """Return the problem of a pair of classes, with C = 1. Raises DataError if neither class has a row."""
    counts, pair = layout.counts, (positive, negative)
    rows = counts[positive] + counts[negative]
    if not rows:
        names = " and ".join(repr(layout.classes[code]) for code in pair)
        raise DataError(f"there are no rows of {names}", code="E-LABEL", hint="ingest rows of every class")
    class_weights = _resolve_class_weights(job, layout, positive) or (1.0,) * len(counts)
    weights = tuple(factor if code in pair else 0.0 for code, factor in enumerate(class_weights))
    # stores do not record the nonzeros of each class: assume the average
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
        regularizer=_choose_regularizer(job, layout),
    )


def _build_one_class(job: FitJob, layout: Layout, C: float) -> Problem:
    """Return a one-class problem. Raises UsageError."""
    nu = effective_nu(job)
    loss = (
        HINGE_AT_ZERO
        if nu is not None
        else build_from_settings(LOSSES[job.loss], job.loss_options, f"loss '{job.loss}'")
    )
    if nu is None and not math.isfinite(threshold(loss)):
        raise UsageError(f"--one-class needs a loss with a margin, and '{job.loss}' has none", hint="--nu 0.1")
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
    """Return nu, also the default nu of one-class problems; None if the fit uses C."""
    if not job.one_class:
        return job.nu
    if job.C is not None or job.lambda_ is not None:
        return None
    return NU if job.nu is None else job.nu


def uses_nu_for_classes(job: FitJob) -> bool:
    """Return whether the fit is a classification with nu in place of C."""
    return job.nu is not None and not job.one_class


def bias_value(job: FitJob) -> float:
    """Return the value of the constant feature: ``job.bias``; for one class that of the free offset, or 0 with C."""
    if not job.one_class:
        return job.bias
    return 0.0 if effective_nu(job) is None else OFFSET


def restore_column_offsets(problem: Problem, features: Raw | Standardized, store: Store) -> Problem:
    """Return a linear one-class problem with a free offset for rows as in their source, before offsets were subtracted.

    The tolerance is scaled by the relative spread of the rows, so that the gap is small against their differences.
    """
    offsets, statistics = offsets_of_store(store.facts), store.statistics()
    origin = offsets.at(np.arange(store.layout.columns))
    mean, variance = statistics.mean + origin, statistics.M2 / store.layout.rows
    if isinstance(features, Standardized):
        scale = features.scale.astype(np.float64)
        origin, mean, variance = origin * scale, mean * scale, variance * np.square(scale)
    tolerance = problem.tolerance * relative_spread(mean, variance)
    regularizer = problem.regularizer
    assert isinstance(regularizer, FreeOffset)  # the caller checks ``effective_nu``
    if len(offsets.columns):
        regularizer = replace(regularizer, origin=origin)
    return replace(problem, regularizer=regularizer, tolerance=tolerance)


def _check_task(job: FitJob, loss: Loss, layout: Layout) -> None:
    """Raise UsageError for a loss or an option of the other task, classes or regression; DataError for a single class."""
    if loss.numeric() != layout.numeric:
        able = [name for name, kind in LOSSES.items() if kind().numeric() == layout.numeric]
        targets = "numbers to predict" if layout.numeric else "classes"
        other = "classes" if layout.numeric else "numbers, which ingest --task regression keeps"
        hint = f"choose a loss for {targets}: {', '.join(able)}"
        raise UsageError(f"the store holds {targets}, and the loss '{job.loss}' is for {other}", hint=hint)
    if layout.numeric:
        class_options = {"--positive": job.positive, "--class-weight": job.class_weight, "--calibrate": job.calibrate}
        class_options |= {"--threshold": job.threshold}
        class_options |= {"--multi-class": job.multi_class}
        for option in (name for name, value in class_options.items() if value is not None):
            raise UsageError(f"{option} is for classes, and the store holds numbers to predict", hint="leave it out")
    elif len(layout.classes) < 2:
        raise DataError(f"the store has one class, {layout.classes}", code="E-LABEL", hint="ingest rows of two classes")


def _check_nu(job: FitJob, layout: Layout) -> None:
    """Raise UsageError for options that cannot be combined with --nu of a classification."""
    if not uses_nu_for_classes(job):
        return
    if layout.numeric:
        raise UsageError("--nu is for classes, and the store holds numbers to predict", hint="leave it out")
    if job.kernel != "linear" and not wants_landmarks(job):
        hint = "--landmarks 1000, or --C"
        raise UsageError("--nu of two classes is for linear functions and landmarks, not for exact kernels", hint=hint)
    if job.multi_class in {CRAMMER_SINGER, SOFTMAX}:
        hint = "--multi-class ovr or ovo, or --C in place of --nu"
        raise UsageError(f"--nu cannot be combined with --multi-class {job.multi_class}", hint=hint)


def _check_l1_ball(job: FitJob, loss: Loss) -> None:
    """Raise UsageError for options that cannot be combined with --l1-ball."""
    if job.l1_ball is None:
        return
    if job.kernel != "linear" or wants_landmarks(job):
        raise UsageError(
            "--kernel cannot be combined with --l1-ball, which needs weights of columns", hint="leave one of them out"
        )
    if not is_least_squares(loss):
        hint = "--loss squared, on a store of numbers (ingest --task regression)"
        raise UsageError(f"--l1-ball is for least squares, and the loss is '{job.loss}'", hint=hint)


def is_least_squares(loss: Loss) -> bool:
    """Return whether the loss is a multiple of the squared residual: its second derivative is constant, also at 0."""
    is_quadratic = loss.numeric() and loss.quadratic() and not has_box(loss)
    return is_quadratic and loss.second_derivative(0.0) * loss.curvature(1.0) == 1.0


def _check_l1(job: FitJob) -> None:
    """Raise UsageError for options that cannot be combined with --l1."""
    if job.l1 is None:
        return
    if job.kernel != "linear" or wants_landmarks(job):
        raise UsageError(
            "--kernel cannot be combined with --l1, which needs weights of columns", hint="leave one of them out"
        )
    if job.l1_ball is not None:
        raise UsageError(
            "--l1 cannot be combined with --l1-ball, which has no penalty term", hint="leave one of them out"
        )
    if job.dual:
        raise UsageError(
            "--dual cannot be combined with --l1, whose dual bound is recomputed from the model",
            hint="leave out --dual",
        )


def _check_free_bias(job: FitJob, loss: Loss) -> None:
    """Raise UsageError for options that cannot be combined with --free-bias."""
    if not job.free_bias:
        return
    reasons = {
        "--kernel, with or without landmarks": job.kernel != "linear" or wants_landmarks(job),
        f"the loss '{job.loss}', of numbers to predict": loss.numeric(),
        "--l1": job.l1 is not None,
        "--l1-ball": job.l1_ball is not None,
        f"--bias {job.bias:g}": job.bias != 1.0,
        "--dual": bool(job.dual),
    }
    for what, is_so in reasons.items():
        if is_so:
            raise UsageError(f"--free-bias cannot be combined with {what}", hint="leave one of them out")


def measure_rows(problem: Problem, features: Raw | Standardized, store: Store) -> Problem:
    """Return a problem with a free bias, with the center and the reach of the rows that its bounds need."""
    regularizer = problem.regularizer
    assert isinstance(regularizer, FreeBias)  # the caller checks ``free_bias``
    statistics = store.statistics()
    low, high = statistics.minimum.astype(np.float64), statistics.maximum.astype(np.float64)
    if not store.layout.dense:  # entries that are not stored are 0
        low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    if isinstance(features, Standardized):
        low, high = ((end - features.shift.astype(np.float64)) * features.scale for end in (low, high))
    center = 0.5 * (low + high)
    half = 0.5 * np.abs(high - low) + SLACK * np.maximum(np.abs(low), np.abs(high))
    reach = (1.0 + SLACK) * float(np.linalg.norm(half))
    return replace(problem, regularizer=replace(regularizer, center=center, reach=reach))


def resolve_costs(job: FitJob, rows: int) -> list[float]:
    """Return the values of C, as given or as 1 / (lambda n). Raises UsageError."""
    if job.C is not None and job.lambda_ is not None:
        raise UsageError("both C and lambda are given", hint="give one of them: C = 1 / (lambda n)")
    if job.lambda_ is not None:
        return [check_cost(1.0 / (job.lambda_ * rows))]
    costs = job.C if isinstance(job.C, tuple) else (1.0 if job.C is None else job.C,)
    if not costs or len(set(costs)) < len(costs):
        raise UsageError(f"C must be one number or different numbers, not {costs}", hint="give each C once")
    return [check_cost(C) for C in costs]


def check_cost(C: float) -> float:
    """Return C as a float. Raises UsageError unless it is positive."""
    if not 0.0 < C < float("inf"):
        raise UsageError(f"C must be a positive number, not {C}", hint="lambda is positive too: C = 1 / (lambda n)")
    return float(C)


def _choose_positives(job: FitJob, layout: Layout) -> tuple[list[int], tuple[str, ...]]:
    """Return the code of the class that is +1 in each problem, and the class names; for regression [0] and no names."""
    classes = layout.classes
    if layout.numeric:
        return [0], ()
    if job.positive is not None and job.multi_class is not None:
        raise UsageError(
            "--positive cannot be combined with --multi-class: --positive fits one class against the rest",
            hint="leave out one of the two",
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
    """Return the facts on which measures depend. In a binary task the positive class is ``positive``, by default the
    rarer class.
    """
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
    """Return the class names of rows outside and inside, for one-class fits. Raises UsageError for an unknown class."""
    classes = layout.classes
    if job.positive is not None and job.positive not in classes:
        raise UsageError(f"there is no class '{job.positive}'", hint=f"the classes are {', '.join(classes)}")
    inside = job.positive if job.positive is not None else (classes[0] if len(classes) == 1 else None)
    if inside is None:
        return DEFAULT_OUTCOMES
    others = [name for name in classes if name != inside]
    return others[0] if len(others) == 1 else REST, inside


def _sort_codes(layout: Layout) -> list[int]:
    """Return the codes of the classes in the order in which models list them."""
    return sorted(range(len(layout.classes)), key=lambda code: sort_key(layout.classes[code]))


def _resolve_class_weights(job: FitJob, layout: Layout, positive: int) -> tuple[float, ...]:
    """Return the weight of each class in the problem of class ``positive``; empty if all weights are 1.

    Weights by 'balanced' depend on ``positive`` in one-vs-rest problems only. Raises UsageError.
    """
    if job.class_weight is None:
        return ()
    if isinstance(job.class_weight, dict):
        weights = job.class_weight
        if set(layout.classes) == {"false", "true"}:  # tables name Boolean labels like this, arrays 0 and 1
            weights = {{"0": "false", "1": "true"}.get(name, name): factor for name, factor in weights.items()}
        for name in weights:
            if name not in layout.classes:
                raise UsageError(f"there is no class '{name}' to weight", hint=f"there are {', '.join(layout.classes)}")
        weighted = [c for c in layout.classes if weights.get(c, 1.0) > 0.0]
        if len(weighted) < 2 or (job.positive is not None and job.positive not in weighted):
            problem = (
                f"class '{weighted[0]}' alone has"
                if len(weighted) == 1
                else "no class has"
                if not weighted
                else f"class '{job.positive}' has no"
            )
            raise UsageError(f"{problem} weight", hint="give two classes or more a class weight above 0")
        return tuple(weights.get(c, 1.0) for c in layout.classes)
    if job.class_weight != "balanced":
        raise UsageError(f"class_weight '{job.class_weight}' is not known", hint="'balanced', or a number per class")
    positives, rows = layout.counts[positive], layout.rows
    if job.multi_class in {OVO, CRAMMER_SINGER} or _uses_softmax(job, layout):
        present = sum(count > 0 for count in layout.counts)
        return tuple(rows / (present * count) if count else 1.0 for count in layout.counts)
    if positives in (0, rows):  # one side has no rows: there is nothing to balance
        return (1.0,) * len(layout.classes)
    return tuple(rows / (2 * (positives if c == positive else rows - positives)) for c in range(len(layout.classes)))


def start_from_model(  # noqa: PLR0917
    model: Model,
    where: str,
    solver: AnySolver,
    store: Store,
    features: Raw | Standardized,
    problems: list[Problem],
    names: tuple[str, ...],
) -> list[Problem]:
    """Return the problems, warm-started with the weights of a model. ``where`` is the name of the model in errors.

    Raises DataError, UsageError.
    """
    from streamsvm.jobs.apply.rows import find_moved_offsets

    _check_start(model, where, store, names)
    if problems[0].kind.classes == BINARY:
        hint = "leave out --warm-start, or --multi-class"
        raise UsageError(
            f"--warm-start cannot be combined with --multi-class {CRAMMER_SINGER} of two classes", hint=hint
        )
    positives = list(dict.fromkeys(code for problem in problems for code in problem.kind.positives))
    order = [0] if len(model.weights) == 1 else [model.classes.index(name) for name in names]
    moved = find_moved_offsets(model, store.facts)
    rows = model.weights.copy()
    rows[:, -1] -= rows[:, moved.columns] @ moved.values
    weights = {code: to_solver_weights(rows[k], features, where) for code, k in zip(positives, order, strict=True)}
    return [
        solver.with_start_weights(problem, np.concatenate([weights[code] for code in problem.kind.positives]))
        for problem in problems
    ]


def _check_start(model: Model, path: str, store: Store, names: tuple[str, ...]) -> None:
    """Raise UsageError for kernel features, DataError for a model of other columns or classes."""
    from streamsvm.jobs.apply.rows import check_names

    if model.kind != LINEAR or store.facts.get("map") is not None:
        raise UsageError(
            f"{path} or the store has kernel features or curves: only a linear fit of stored columns can start from a model",
            hint="leave out --warm-start",
        )
    if model.columns != store.layout.columns:
        difference = f"{path} has {model.columns} columns, store '{store.name}' {store.layout.columns}"
        raise DataError(difference, code="E-SCHEMA", hint="start from a model of the same columns")
    check_names(model.provenance.get("names"), store.facts.get("names"), store.name)
    has_same_classes = model.classes == names if len(model.weights) == 1 else sorted(model.classes) == sorted(names)
    if not has_same_classes:
        raise DataError(
            f"{path} tells apart {quote(list(model.classes))}, this fit {quote(list(names))}",
            code="E-LABEL",
            hint="start from a model of the same classes, or give the same --positive as for that model",
        )


def to_solver_weights(row: Float64, features: Raw | Standardized, path: str) -> Float64:
    """Return the weights (columns + 1,) that ``features.to_input_space`` maps to ``row``, a row of a model's weights.

    Raises UsageError if the model has a bias and the fit has none.
    """
    scale = features.scale.astype(np.float64) if isinstance(features, Standardized) else 1.0
    shift = features.shift.astype(np.float64) if isinstance(features, Standardized) else np.zeros(len(row) - 1)
    constant = float(row[-1] + row[:-1] @ shift)
    if features.bias == 0.0 and abs(constant) <= NEGLIGIBLE_CONSTANT * float(np.abs(row[:-1]) @ np.abs(shift)):
        constant = 0.0  # the difference of float64 offsets and float32 shifts
    if features.bias == 0.0 and constant != 0.0:
        raise UsageError(f"{path} has a bias, this fit has none", hint="fit with a bias, or leave out --warm-start")
    return np.append(row[:-1] / scale, constant / features.bias if features.bias else 0.0)


def warm_start_terms(problems: list[Problem]) -> list[Term]:
    """Return the memory of warm-start weights; empty without a warm start."""
    nbytes = sum(p.warm.nbytes for p in problems if p.warm is not None)
    return [Term("warm start", 2 * nbytes, "weights of the model to start from")] if nbytes else []


def digest_warm_start(problems: list[Problem]) -> str | None:
    """Return the sha256 of all warm-start weights, which must be the same when a run is resumed; None without any."""
    weights = [p.warm for p in problems if p.warm is not None]
    return hashlib.sha256(np.array(weights).tobytes()).hexdigest() if weights else None


def choose_target_center(solver: AnySolver, store: Store) -> float:
    """Return the number to subtract from targets: their mean if the bias is free and the store records it; else 0."""
    return float(store.facts[TARGET]["mean"]) if solver.free_bias and TARGET in store.facts else 0.0
