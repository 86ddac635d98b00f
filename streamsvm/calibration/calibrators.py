"""Calibrators: maps from decision values to probabilities by a sigmoid, an isotonic function or a temperature.

A calibrator is fitted to a ``ScoreTable`` (``scores.py``) and is a part of its model. A row of weight k counts like k copies.

**Sigmoid** (Platt): p = 1 / (1 + e^-(A f + B)) for each class against the rest. ``fit_sigmoid`` minimizes the log loss

    - sum_i [t_i log p_i + (1 - t_i) log(1 - p_i)]   over (A, B),     t = (N+ + 1) / (N+ + 2) for positive rows, 1 / (N- + 2) for negative,

(the targets of Platt's prior) by Newton's method with backtracking by halving. log(1 + e^z) and p are computed by formulas that do not
overflow for either sign of z. Reference: Lin, Lin and Weng, "A note on Platt's probabilistic outputs for support vector machines",
Machine Learning 68, 2007, Algorithm 1 (their A and B are ours with the other sign).

**Isotonic**: the nondecreasing function g with the least squared error,

    minimize  sum_i s_i (t_i - g(f_i))^2   over nondecreasing g,     t_i = 1 for rows of the class, else 0,

by pooling adjacent violators: each score starts as a block with a mean; a block whose mean does not exceed that of the block before is
merged with it. Each score is processed once, and each block is merged at most once. g is linear between two scores, and constant below the
first and above the last one.
References: Ayer et al., Annals of Mathematical Statistics 26, 1955; Zadrozny and Elkan, KDD 2002; the interpolation is that of
scikit-learn.

**Temperature**: p = softmax(f / T) for the vector f of decision values; for two classes p = sigma(f / T). ``fit_inverse`` minimizes the
log loss over b = 1 / T >= 0,

    L(b) = sum_i s_i [log sum_k e^(b f_ik) - b sum_k t_ik f_ik],

which is convex: L' = sum s (E_p[f] - E_t[f]), L'' = sum s Var_p[f]. The root of L' is found by Newton's method in one variable inside a
bracket, which every step shrinks; a step that would leave it is replaced by bisection. The targets are those of Platt's prior, so that the
minimizer b is finite even if all rows are classified correctly: t = (N + 1) / (N + 2) for the class of the row, which has weight N, and
equal parts of the rest for the other classes. Reference: Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np

from streamsvm.calibration import CALIBRATIONS
from streamsvm.calibration.scores import ScoreCounts, ScoreTable, Vectors
from streamsvm.errors import DataError, StreamSVMError
from streamsvm.rows import Float64
from streamsvm.type_aliases import Array, JsonMapping, JsonObject

PREFIX = "calibration."
"""Prefix of the names of a calibrator's arrays among those of its model."""
BY_LOSS = "logistic loss"
"""``Calibration.scores`` if the loss itself determines the probabilities, without calibration."""

MIN_WEIGHT = 1e-12
"""Smaller weights of classes are replaced by this one when their effect is removed from the probabilities."""
PROBABILITY_ROUNDING = 1e-12
"""Relative allowance for the rounding of a probability and of what it is made of: decision values of some hundreds, sums of some hundred classes."""
SIGMOID_MAX_STEPS = 100
SIGMOID_RIDGE = 1e-12
"""Added to the diagonal of the Hessian, which is singular if all scores are equal."""
SIGMOID_GRADIENT = 1e-10
"""Stop when no component of the gradient, divided by the weight of all rows, exceeds this."""
SUFFICIENT_DECREASE = 1e-4
"""A step must achieve this fraction of the decrease predicted by the slope (Armijo condition)."""
MIN_STEP = 1e-10

ROOT_MAX_STEPS = 200
ROOT_WIDTH = 1e-12
"""Stop when the relative width of the bracket of 1 / T is at most this."""
MIN_INVERSE = 1e-9
"""Minimum of 1 / T times the largest score. It is attained for scores without information, for which all classes get nearly equal probabilities."""
MAX_INVERSE = 1e9
"""Maximum of 1 / T times the largest score that is tried as the upper end of the bracket."""


class Calibrator(Protocol):
    """An immutable map from decision values (n, k) to probabilities of all classes (n, classes)."""

    method: ClassVar[str]
    """The name in ``CALIBRATIONS``."""

    @classmethod
    def fit(cls, table: ScoreTable) -> Self:
        """Return the calibrator fitted to these scores. Raises DataError if a class has no rows."""
        ...

    @classmethod
    def read(cls, facts: JsonObject, arrays: dict[str, Array]) -> Self:
        """Return the calibrator that ``facts`` and ``arrays`` describe. Raises DataError, KeyError, TypeError."""
        ...

    @property
    def problems(self) -> int:
        """The number of decision values of a row; 0: any number."""
        ...

    def probabilities(self, decision: Float64) -> Float64:
        """Return the probability of each class (n, classes) for decision values (n, k); rows sum to 1."""
        ...

    def probability_interval(self, low: Float64, high: Float64) -> tuple[Float64, Float64]:
        """Return the least and the largest probability of each class (n, classes) for decision values between low and high (n, k).

        They are rounded outward, and attained up to that.
        """
        ...

    def facts(self) -> JsonObject:
        """Return the parameters as plain JSON, except those in ``arrays``."""
        ...

    def arrays(self) -> dict[str, Array]:
        """Return the parameters that are too large for JSON, by name."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PlattSigmoid:
    """p_k = sigma(slopes_k f_k + offsets_k); with more than two classes, divided by their sum."""

    slopes: Float64
    """A for each decision value, (k,)."""
    offsets: Float64
    """B for each decision value, (k,)."""
    method: ClassVar[str] = "sigmoid"

    @classmethod
    def fit(cls, table: ScoreTable) -> PlattSigmoid:
        lines = [fit_sigmoid(table.counts(k)) for k in range(len(table.sums))]
        return cls(np.array([A for A, _ in lines]), np.array([B for _, B in lines]))

    @classmethod
    def read(cls, facts: JsonObject, arrays: dict[str, Array]) -> PlattSigmoid:
        del arrays
        return cls(_read_numbers(facts["slopes"]), _read_numbers(facts["offsets"]))

    @property
    def problems(self) -> int:
        return min(len(self.slopes), len(self.offsets))

    def probabilities(self, decision: Float64) -> Float64:
        return normalize(sigma(decision * self.slopes + self.offsets))

    def probability_interval(self, low: Float64, high: Float64) -> tuple[Float64, Float64]:
        ends = [sigma(decision * self.slopes + self.offsets) for decision in (low, high)]
        return bound_normalized(np.minimum(*ends), np.maximum(*ends))  # a slope may be negative

    def facts(self) -> JsonObject:
        return {"slopes": self.slopes.tolist(), "offsets": self.offsets.tolist()}

    def arrays(self) -> dict[str, Array]:
        return {}


@dataclass(frozen=True, slots=True, eq=False)
class Isotonic:
    """p_k = g_k(f_k); with more than two classes, divided by their sum."""

    steps: tuple[tuple[Float64, Float64], ...]
    """For each decision value, the breakpoints of g, ascending, and the values of g there, (m,) each."""
    method: ClassVar[str] = "isotonic"

    @classmethod
    def fit(cls, table: ScoreTable) -> Isotonic:
        return cls(tuple(fit_isotonic(table.counts(k)) for k in range(len(table.sums))))

    @classmethod
    def read(cls, facts: JsonObject, arrays: dict[str, Array]) -> Isotonic:
        scores, values = (_read_numbers(arrays[name]) for name in ("scores", "values"))
        ends = np.cumsum([int(size) for size in facts["bends"]])
        parts = list(zip(np.split(scores, ends)[:-1], np.split(values, ends)[:-1], strict=True))
        usable = len(ends) and ends[-1] == len(scores) == len(values) and all(len(at) for at, _ in parts)
        if not usable or not all(_is_rising(at) and _is_rising(g) and 0 <= g[0] and g[-1] <= 1 for at, g in parts):
            raise DataError("the calibration is not usable")
        return cls(tuple(parts))

    @property
    def problems(self) -> int:
        return len(self.steps)

    def probabilities(self, decision: Float64) -> Float64:
        return normalize(self._values(decision))

    def probability_interval(self, low: Float64, high: Float64) -> tuple[Float64, Float64]:
        return bound_normalized(self._values(low), self._values(high))

    def _values(self, decision: Float64) -> Float64:
        """Return g_k(f_k) (n, k)."""
        values = [np.interp(decision[:, k], at, values) for k, (at, values) in enumerate(self.steps)]
        return np.column_stack(values)

    def facts(self) -> JsonObject:
        return {"bends": [len(at) for at, _ in self.steps]}

    def arrays(self) -> dict[str, Array]:
        return {
            "scores": np.concatenate([at for at, _ in self.steps]),
            "values": np.concatenate([values for _, values in self.steps]),
        }


@dataclass(frozen=True, slots=True)
class Temperature:
    """softmax(f / T + offsets); for two classes sigma(f / T)."""

    inverse: float
    """1 / T, above 0."""
    offsets: tuple[float, ...] = ()
    """Numbers added to the decision values, from the weights of classes in a softmax fit; empty: 0."""
    method: ClassVar[str] = "temperature"

    @classmethod
    def fit(cls, table: ScoreTable) -> Temperature:
        return cls(fit_inverse_of_two(table.counts(0)) if len(table.sums) == 1 else fit_inverse(table.vectors))

    @classmethod
    def read(cls, facts: JsonObject, arrays: dict[str, Array]) -> Temperature:
        del arrays
        (inverse,) = _read_numbers([facts["inverse"]]).tolist()
        if inverse <= 0:
            raise DataError("the calibration is not usable")
        return cls(inverse, tuple(_read_numbers(facts["offsets"]).tolist()) if facts.get("offsets") else ())

    @property
    def problems(self) -> int:
        return len(self.offsets)

    def probabilities(self, decision: Float64) -> Float64:
        import scipy.special

        scaled = self.inverse * decision
        if decision.shape[1] == 1:
            return normalize(scipy.special.expit(scaled))
        return scipy.special.softmax(scaled + self.offsets if self.offsets else scaled, axis=1)

    def probability_interval(self, low: Float64, high: Float64) -> tuple[Float64, Float64]:
        low, high = (self.inverse * decision + (self.offsets or 0.0) for decision in (low, high))
        if low.shape[1] == 1:
            return bound_normalized(sigma(low), sigma(high))
        ends = []
        for own, others in ((low, high), (high, low)):  # p_k = sigma(f_k - log sum of the e^f_j of the others)
            ends.append(sigma(own - join_others(np.logaddexp, others, -np.inf)))
        return _round_outward(*ends)

    def facts(self) -> JsonObject:
        offsets: JsonObject = {"offsets": list(self.offsets)} if self.offsets else {}
        return {"inverse": self.inverse, "temperature": 1.0 / self.inverse} | offsets

    def arrays(self) -> dict[str, Array]:
        return {}


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """The calibrator of a model, and the scores to which it was fitted."""

    calibrator: Calibrator
    scores: str
    """The origin of the scores: 'leave-one-out', '5 folds', or 'logistic loss' if none were needed."""
    rows: int
    """Number of rows with scores."""

    @property
    def method(self) -> str:
        """'sigmoid', 'isotonic' or 'temperature'."""
        return self.calibrator.method

    def header(self) -> JsonObject:
        """Return the record of the calibration in the header of a model, as plain JSON."""
        facts = self.calibrator.facts()
        return {"method": self.method, "scores": self.scores, "rows": self.rows, "parameters": facts}

    def tensors(self) -> dict[str, Array]:
        """Return the arrays by their names in a model file."""
        return {PREFIX + name: np.ascontiguousarray(array) for name, array in self.calibrator.arrays().items()}


def read_calibration(header: JsonMapping, tensors: dict[str, Array], problems: int) -> Calibration:
    """Return the calibration of a model with ``problems`` decision values, from its header and arrays. Raises DataError."""
    arrays = {name.removeprefix(PREFIX): array for name, array in tensors.items() if name.startswith(PREFIX)}
    try:
        calibrator: Calibrator = CALIBRATIONS[str(header["method"])].read(header["parameters"], arrays)
        calibration = Calibration(calibrator, str(header["scores"]), int(header["rows"]))
    except (StreamSVMError, KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError) as error:
        raise DataError("the calibration is not usable") from error
    if calibrator.problems not in {0, problems}:
        raise DataError(f"the calibration is of {calibrator.problems} decision values, the model of {problems}")
    return calibration


def calibrate_by_loss(sharpness: float, ratios: Float64, rows: int) -> Calibration:
    """Return the probabilities that a fit of the logistic loss implies: p = 1 / (1 + e^-(k f - log r)).

    ``sharpness`` k: the parameter of the loss log(1 + e^-k m) / k. ``ratios`` r (problems,): c+ / c-, the weight of the positive class
    divided by that of the other classes. The optimum over all functions f satisfies c+ p sigma(-k f) = c- (1 - p) sigma(k f), that is
    k f = log(p / (1 - p)) + log(c+ / c-). So C and the weights of rows have no effect, and the effect of class weights is removed.
    """
    return Calibration(PlattSigmoid(np.full(len(ratios), float(sharpness)), -np.log(ratios)), BY_LOSS, rows)


def calibrate_by_softmax(sharpness: float, weights: Float64 | None, rows: int) -> Calibration:
    """Return the probabilities that a softmax fit implies: softmax(k f - log c) for ``weights`` c of the classes, (classes,).

    As in ``calibrate_by_loss``, the effect of class weights is removed; weights below ``MIN_WEIGHT`` count as that. None: all are 1.
    """
    offsets = () if weights is None else tuple((-np.log(np.maximum(weights, MIN_WEIGHT))).tolist())
    return Calibration(Temperature(float(sharpness), offsets), BY_LOSS, rows)


def fit_sigmoid(counts: ScoreCounts) -> tuple[float, float]:
    """Return A and B with the smallest log loss. Raises DataError if a class has no rows."""
    high, low = _platt_targets(counts)
    hits, total = high * counts.positive + low * counts.negative, counts.total
    A, B = 0.0, float(np.log((counts.positive.sum() + 1.0) / (counts.negative.sum() + 1.0)))
    scale = float(np.abs(counts.scores).max()) or 1.0  # it has no effect on Newton's steps, only on the ridge
    f = counts.scores / scale
    value = _log_loss(A * f + B, hits, total)
    for _ in range(SIGMOID_MAX_STEPS):
        p = sigma(A * f + B)
        residual, curvature = total * p - hits, total * p * (1.0 - p)
        gradient = np.array([residual @ f, residual.sum()])
        if np.abs(gradient).max() <= SIGMOID_GRADIENT * total.sum():
            break
        cross = float(curvature @ f)
        hessian = np.array([[float(curvature @ (f * f)), cross], [cross, float(curvature.sum())]])
        step = -np.linalg.solve(hessian + SIGMOID_RIDGE * np.eye(2), gradient)
        length, slope = 1.0, float(gradient @ step)
        while length >= MIN_STEP:
            new = _log_loss((A + length * step[0]) * f + B + length * step[1], hits, total)
            if new < value + SUFFICIENT_DECREASE * length * slope:
                break
            length /= 2.0
        else:
            break
        A, B, value = A + length * step[0], B + length * step[1], new
    return float(A / scale), float(B)


def fit_isotonic(counts: ScoreCounts) -> tuple[Float64, Float64]:
    """Return the breakpoints of g and the values of g there. Raises DataError if a class has no rows."""
    _check_both_classes(counts.positive, counts.negative)
    firsts, means = pool_violators(counts.positive, counts.total)
    lasts = np.append(firsts[1:], len(counts.scores)) - 1
    ends = np.unique(np.concatenate([firsts, lasts]))
    return counts.scores[ends], means[np.searchsorted(firsts, ends, side="right") - 1]


def pool_violators(hits: Float64, total: Float64) -> tuple[Array, Float64]:
    """Return the index of the first score of each block, and the means of the blocks, strictly increasing.

    ``hits``, ``total`` (m,): the weight of the rows of the class and of all rows for each score, in ascending order of the scores.
    """
    first: list[int] = []
    blocks: list[tuple[float, float]] = []
    for place, block in enumerate(zip(hits.tolist(), total.tolist(), strict=True)):
        start = place
        while blocks and blocks[-1][0] * block[1] >= block[0] * blocks[-1][1]:
            before, start = blocks.pop(), first.pop()
            block = (before[0] + block[0], before[1] + block[1])  # noqa: PLW2901 (the block grows)
        first.append(start)
        blocks.append(block)
    return np.array(first), np.array([sum_ / weight for sum_, weight in blocks])


def fit_inverse_of_two(counts: ScoreCounts) -> float:
    """Return 1 / T for two classes. Raises DataError if a class has no rows."""
    import scipy.special

    high, low = _platt_targets(counts)
    f, total, hits = counts.scores, counts.total, high * counts.positive + low * counts.negative

    def slopes(b: float) -> tuple[float, float]:
        p = scipy.special.expit(b * f)
        return float((total * p - hits) @ f), float((total * p * (1.0 - p)) @ (f * f))

    return _find_root(slopes, float(np.abs(f).max()))


def fit_inverse(vectors: Vectors) -> float:
    """Return 1 / T for more than two classes. Raises DataError if all rows are of one class."""
    import scipy.special

    f, truth, s = vectors
    classes, rows = f.shape[1], np.arange(len(f))
    weight: Float64 = np.bincount(truth, s, classes).astype(np.float64)
    _check_both_classes(weight[weight > 0][:1], weight[weight > 0][1:])
    right = (weight[truth] + 1.0) / (weight[truth] + 2.0)
    others = (1.0 - right) / (classes - 1)
    true_mean = (right - others) * f[rows, truth] + others * f.sum(axis=1)

    def slopes(b: float) -> tuple[float, float]:
        p = scipy.special.softmax(b * f, axis=1)
        mean = (p * f).sum(axis=1)
        return float(s @ (mean - true_mean)), float(s @ ((p * f * f).sum(axis=1) - mean * mean))

    return _find_root(slopes, float(np.abs(f).max()))


def _find_root(slopes: Callable[[float], tuple[float, float]], largest: float) -> float:
    """Return the root of an increasing function by Newton's method inside a bracket; ``slopes`` returns its value and its derivative."""
    low, high = MIN_INVERSE / (largest or 1.0), 1.0 / (largest or 1.0)
    if slopes(low)[0] >= 0.0:
        return low
    farthest = MAX_INVERSE * high
    while slopes(high)[0] < 0.0 and high < farthest:
        low, high = high, 2.0 * high
    b = 0.5 * (low + high)
    for _ in range(ROOT_MAX_STEPS):
        slope, curvature = slopes(b)
        low, high = (b, high) if slope < 0.0 else (low, b)
        if high - low <= ROOT_WIDTH * high:
            break
        step = b - slope / curvature if curvature > 0.0 else low
        if abs(step - b) <= ROOT_WIDTH * b:
            return step
        b = step if low < step < high else 0.5 * (low + high)
    return b


def normalize(values: Float64) -> Float64:
    """Return probabilities (n, classes) from probabilities of each class against the rest (n, k), divided by their sum.

    A single value is the probability of the second class. If all are 0, the classes get equal probabilities (Zadrozny and Elkan, KDD 2002).
    """
    if values.shape[1] == 1:
        return np.concatenate([1.0 - values, values], axis=1)
    sums = values.sum(axis=1, keepdims=True)
    return np.where(sums > 0, values, 1.0) / np.where(sums > 0, sums, values.shape[1])


def bound_normalized(low: Float64, high: Float64) -> tuple[Float64, Float64]:
    """Return the least and the largest probabilities (n, classes) that ``normalize`` gives for values between low and high (n, k), 0 <= low <= high.

    That of a class is least where its own value is least and the others are largest.
    """
    low, high = low * (1.0 - PROBABILITY_ROUNDING), high * (1.0 + PROBABILITY_ROUNDING)
    if low.shape[1] == 1:
        return _round_outward(np.concatenate([1.0 - high, low], axis=1), np.concatenate([1.0 - low, high], axis=1))
    ends = []
    for own, others in ((low, high), (high, low)):
        with np.errstate(invalid="ignore"):
            ends.append(np.nan_to_num(own / (own + join_others(np.add, others, 0.0)), nan=1.0 / low.shape[1]))
    # if all can be 0, all classes can get equal probabilities
    equal = np.where(low.sum(axis=1, keepdims=True) > 0.0, np.nan, 1.0 / low.shape[1])
    return _round_outward(np.fmin(ends[0], equal), np.fmax(ends[1], equal))


def join_others(join: np.ufunc, values: Float64, nothing: float) -> Float64:
    """Return for each column of values (n, k) what ``join`` makes of all other columns, without a difference, which would lose small values."""
    ends = np.full((len(values), 1), nothing)
    before = join.accumulate(np.concatenate([ends, values[:, :-1]], axis=1), axis=1)
    after = join.accumulate(np.concatenate([ends, values[:, :0:-1]], axis=1), axis=1)[:, ::-1]
    joined: Float64 = join(before, after)
    return joined


def _round_outward(low: Float64, high: Float64) -> tuple[Float64, Float64]:
    return (
        np.maximum(low * (1.0 - PROBABILITY_ROUNDING) - 4 * 2.0**-53, 0.0),
        np.minimum(high * (1.0 + PROBABILITY_ROUNDING) + 4 * 2.0**-53, 1.0),
    )


def sigma(z: Float64) -> Float64:
    """Return 1 / (1 + e^-z), with a relative error of a few roundings in both tails.

    It replaces ``scipy.special.expit``, because every fit imports this module and importing scipy.special takes 0.07 s.
    """
    tail = np.exp(-np.abs(z))
    values: Float64 = np.where(z < 0.0, tail, 1.0) / (1.0 + tail)
    return values


def _log_loss(z: Float64, hits: Float64, total: Float64) -> float:
    """Return the log loss at z = A f + B, the sum of total log(1 + e^z) - hits z."""
    return float(total @ (np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z)))) - hits @ z)


def _platt_targets(counts: ScoreCounts) -> tuple[float, float]:
    """Return the targets of positive and of negative rows. Raises DataError if a class has no rows."""
    _check_both_classes(counts.positive, counts.negative)
    positive, negative = float(counts.positive.sum()), float(counts.negative.sum())
    return (positive + 1.0) / (positive + 2.0), 1.0 / (negative + 2.0)


def _check_both_classes(positive: Float64, negative: Float64) -> None:
    if not (positive.sum() > 0 and negative.sum() > 0):
        raise DataError(
            "probabilities cannot be calibrated: a class has no rows among the scores",
            code="E-CALIBRATION",
            hint="leave out --calibrate, or train on rows of all classes",
        )


def _read_numbers(values: object) -> Float64:
    """Return numbers (k,) from a file, checked to be finite. Raises DataError, TypeError, ValueError."""
    numbers = np.asarray(values, np.float64)
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise DataError("the calibration is not usable")
    return numbers


def _is_rising(values: Float64) -> bool:
    return bool((np.diff(values) >= 0).all())
