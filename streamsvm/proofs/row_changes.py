"""Enclose the exact optimum after rows were removed or added, from matrices that all rows were added up to once.

Notation, and the lemma that all of this rests on, are those of ``streamsvm.proofs.enclosure``. w are weights at which all rows
were evaluated, g is the gradient there, a_i = C_i s(m_i), G = |g|_{H_lo^-1} + D.

**Levels.** For some sizes of steps, e_j = size * q'_j with q'_j about |x_j|_{H^-1}, passes over all rows add up H_lo and H_hi, and
find the *reach* min_j e_j / q_j, q_j = |x_j|_{H_lo^-1}. A problem whose secants lie between these bounds and whose gradient u at w
has |u|_{H_lo^-1} + D < reach is enclosed by the lemma: no margin moves by more than |x_j|_{H^-1} |u|_{H^-1} < e_j.

**Without one row i**, P has the gradient u = g + a_i z_i x_i at w, and H_lo loses c x_i x_i', c = C_i lo_i. Let own = 1 - c q_i^2. As
|x|^2_{(H - c x_i x_i')^-1} = |x|^2 + c (x'H^-1 x_i)^2 / own <= |x|^2 / own (Sherman and Morrison; Cauchy), no margin of a row j
moves by more than q_j (|a_i| q_i + G) / own, and the lemma holds if

    (|a_i| q_i + G) / own  <  reach.

Then the margin of row i at the optimum without it is m_i - a_i k - x_i.(...), where x'H^-1 x falls as H grows, so that with
p_i = |x_i|_{H_hi^-1}

    p_i^2 / (1 - C_i hi_i p_i^2)  <=  k  <=  q_i^2 / own,      |x_i.(...)|  <=  q_i G / own.

In the first of them lo_i may stand for hi_i, which loses next to nothing. Both ends are those of matrices, without any inequality of
Cauchy and Schwarz: the interval is about as wide as the matrices are apart. For a row that no level is enough for, the ball with
the diameter from w to w - u remains. The weight of a row is left out with it; scaling, C and the weights of classes stay.

**Without a set R of rows, with a set A of new rows** the gradient at w is u = g + sum_R a_i z_i x_i - sum_A a_i z_i x_i, and

    H_lo' = H_lo - sum_R C_i lo_i x_i x_i' + sum_A C_i lo_i x_i x_i',   H_hi' = H_hi - sum_R C_i hi_i x_i x_i' + sum_A C_i hi_i x_i x_i'

bound the Hessian of the changed problem. Let T be the largest eigenvalue of H_lo^-1/2 (sum_R C_i lo_i x_i x_i') H_lo^-1/2. Then
H_lo' >= (1 - T) H_lo, hence |x|_{H_lo'^-1} <= |x|_{H_lo^-1} / sqrt(1 - T), and

    reach' = sqrt(1 - T) min(reach, min_{i in A} e_i / q_i)

is a reach of the changed problem. w, u, H_lo', H_hi' and reach' are all that was known of the first problem, so that further rows can
be removed and added. The level with the smallest steps whose reach is enough gives the enclosure; if there is none, the ball remains.

**What a removed row has in the matrices** is not kept. Its lo_i is at most, and its hi_i at least, the secant of either end of the step.
A margin that is computed again may differ by 2 d_i, and a step by a relative ``STEP_CHANGE``, by which such a secant changes by at most
b (4 d_i / e_i + 2 ``STEP_CHANGE``), b the largest l''. If the loss has at most one corner, lo_i is also at most what ``secants``
gives for a step that is shorter by that much.

**Rounding.** Sums of matrices are rounded outward as in ``enclosure.hessian``, and differences by 4 p u times the diagonals.

References: Sherman and Morrison, Annals of Mathematical Statistics 21, 1950; removing rows by a Newton step, without a bound of what
it leaves: Guo, Goldstein, Hannun and van der Maaten, ICML 2020. The bounds are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.passes.enclosure import UNIT
from streamsvm.errors import DataError
from streamsvm.proofs.enclosure import (
    TILE,
    Enclosure,
    EvaluatedPoint,
    MarginRows,
    Metric,
    PassSums,
    PointWithHessian,
    add_pulls,
    ball_of_gradient,
    enclose_between,
    errors_of_pulls,
    invert,
    lengths_of,
    pad_gram,
    pulls_of,
    secants,
    size_of_gradient,
    slopes_of,
    square_of_margin_errors,
    weighted_gram,
)
from streamsvm.proofs.enclosure import hessian as add_identity
from streamsvm.rows import Float64
from streamsvm.type_aliases import Array, JsonObject
from streamsvm.types import Loss


class LevelSizes(NamedTuple):
    """How many sizes of steps there are, and the least and the largest, in units of the largest |a_i| q_i of any row."""

    levels: int
    least: float
    largest: float


ONE_ROW = LevelSizes(10, 6e-4, 6.0)
"""Sizes for leaving out one row."""
MANY_ROWS = LevelSizes(8, 0.25, 256.0)
"""Sizes for removing and adding many rows."""
ADD_MATRICES = (2, 3)
"""Passes that are closed before those in which ``StepLevels`` adds up matrices."""
STEP_CHANGE = 1e-5
"""A bound of the relative difference of two computations of a step; matrices whose inverses are less exact than a quarter of it are not used."""
NEARLY_ALL = 0.999
"""The share T of the Hessian that may be removed from a level, at most."""


@dataclass(frozen=True, slots=True)
class StepLevels:
    """Bounds of the Hessian for steps of several sizes, from passes over all rows.

    After the first pass four more find the largest |a_i| q_i; H_lo of every level, for a better guess of q_j; H_lo and H_hi; and the reaches.
    """

    first: PointWithHessian
    loss: Loss
    sizes: LevelSizes
    largest: float = 0.0
    """The largest |a_i| |x_i|_{H(w)^-1}, after the second pass."""
    lows: tuple[Metric | None, ...] = ()
    """Those of H_lo for each level, after the third."""
    highs: tuple[Metric | None, ...] = ()
    reaches: tuple[float, ...] = ()
    """min_j e_j / q_j of each level, after the fifth."""
    guides: tuple[Metric | None, ...] = ()
    """Those of a first H_lo for each level: q'_j is the larger of |x_j|_{H(w)^-1} and |x_j|_{H_lo^-1}, so that rows in rare columns get longer steps."""
    passes: int = 1
    """Passes that were closed."""

    @property
    def is_complete(self) -> bool:
        """Whether the last pass was closed."""
        return bool(self.reaches)

    @property
    def steps(self) -> Float64:
        """The size of steps of each level, in units of |x_j|_{H(w)^-1}."""
        start = self.first.start
        unit = self.largest + start
        least, largest = self.sizes.least * unit, self.sizes.largest * unit
        return np.geomspace(max(least, 2.0 * start), max(largest, 4.0 * start), self.sizes.levels)

    def empty(self) -> PassSums:
        """Return empty sums of the pass that comes next."""
        p = len(self.first.point.weights)
        if self.passes in ADD_MATRICES:
            return PassSums([np.zeros((p, p)) for _ in range(2 * self.sizes.levels)])
        return PassSums([np.zeros(self.sizes.levels)])

    def _steps_of(self, k: int, X: Float64, sizes: Float64) -> Float64:
        """Return e_j (n,) of level k for rows (n, p) with |x_j|_{H(w)^-1} = ``sizes`` (n,)."""
        guide = self.guides[k] if self.guides else None
        return float(self.steps[k]) * (sizes if guide is None else np.maximum(sizes, guide.norms(X)))

    def add(self, sums: PassSums, rows: MarginRows) -> None:
        """Add rows to the sums of this pass."""
        sums.tiles += 1 + -(-len(rows.m) // TILE)
        if self.first.metric is None:
            return
        sizes = self.first.metric.norms(rows.X)
        if self.passes < ADD_MATRICES[0]:
            pulls, _ = pulls_of(rows, self.loss)
            sums.values[0][0] = max(sums.values[0][0], float((np.abs(pulls) * sizes).max(initial=0.0)))
            return
        for k in range(self.sizes.levels):
            steps = self._steps_of(k, rows.X, sizes)
            if self.passes in ADD_MATRICES:
                low, high = secants(self.loss, rows.m, steps + rows.errors)
                sums.values[2 * k] += weighted_gram(rows.X, rows.C * low)
                sums.values[2 * k + 1] += weighted_gram(rows.X, rows.C * high)
                continue
            metric, used = self.lows[k], (sizes > 0.0) & (rows.C > 0.0)
            if metric is not None and used.any():
                ratios = metric.norms(rows.X[used]) / steps[used]
                sums.values[0][k] = max(sums.values[0][k], float(ratios.max()))

    def close(self, sums: PassSums) -> StepLevels:
        """Return the state after a pass."""
        after = replace(self, passes=self.passes + 1)
        if self.passes < ADD_MATRICES[0]:
            return replace(after, largest=float(sums.values[0][0]))
        if self.passes in ADD_MATRICES:
            lows = tuple(invert(add_identity(low, sums.tiles, -1.0)) for low in sums.values[::2])
            if self.passes == ADD_MATRICES[0]:
                return replace(after, guides=lows)
            highs = tuple(invert(add_identity(high, sums.tiles, 1.0)) for high in sums.values[1::2])
            return replace(after, lows=lows, highs=highs)
        return replace(
            after, reaches=tuple(1.0 / ratio if ratio > 0.0 else np.inf for ratio in sums.values[0].tolist())
        )

    def bounds_without_row(self, rows: MarginRows, signs: Float64) -> tuple[Float64, Float64, Array]:
        """Return the least and the largest margin (n,) of each row at the optimum without it, and whether a level was enough (n,)."""
        pulls, errors = pulls_of(rows, self.loss)
        low, high = self._ball_bounds(rows, signs, pulls, errors)
        settled = np.zeros(len(rows.m), np.bool_)
        if self.first.metric is None:
            return low, high, settled
        sizes = self.first.metric.norms(rows.X)
        for k, (metric, above, reach) in enumerate(zip(self.lows, self.highs, self.reaches, strict=True)):
            left = np.flatnonzero(~settled)
            if metric is None or above is None or not len(left):
                continue
            steps = self._steps_of(k, rows.X[left], sizes[left])
            least, largest = secants(self.loss, rows.m[left], steps + rows.errors[left])
            least, largest = rows.C[left] * least * (1.0 - 1e-9), rows.C[left] * largest * (1.0 + 1e-9)
            q, size = metric.norms(rows.X[left]), size_of_gradient(metric, self.first.point)
            a = np.abs(pulls[left]) + errors[left]
            own = (1.0 - self._largest_low(rows, left, steps, largest) * q * q) * (1.0 - 1e-12) - 1e-15
            with np.errstate(all="ignore"):
                enough = (own > 0.0) & ((a * q + size) / own < reach * (1.0 - 1e-9))
            here, q, own = left[enough], q[enough], own[enough]
            if not len(here):
                continue
            p = above.norms_below(rows.X[here])
            most, fewest = q * q / own, p * p / (1.0 - np.minimum(least[enough] * p * p, 1.0 - 1e-9))
            ends = np.array([(pulls[here] + sign * errors[here]) * k for sign in (-1.0, 1.0) for k in (fewest, most)])
            other = q * size / own + rows.errors[here]
            other = (other + 16 * UNIT * (np.abs(rows.m[here]) + np.abs(ends).max(axis=0))) * (1.0 + 1e-9)
            low[here] = np.maximum(low[here], rows.m[here] - ends.max(axis=0) - other)
            high[here] = np.minimum(high[here], rows.m[here] - ends.min(axis=0) + other)
            settled[here] = True
        return low, high, settled

    def _largest_low(self, rows: MarginRows, chosen: Array, steps: Float64, largest: Float64) -> Float64:
        """Return upper bounds (n,) of the C_i lo_i of some rows that are in H_lo, whose margins may differ there by rounding.

        With at most one corner lo is a falling function of the reach, and by a change d of the margin it changes by no more than b d / e; else
        C_i hi_i (n,), ``largest``, stands for it.
        """
        if len(self.loss.corners()) > 1:  # type: ignore[attr-defined]
            return largest
        errors, C = rows.errors[chosen], rows.C[chosen]
        low, _ = secants(self.loss, rows.m[chosen], 0.999 * steps + errors)
        sizes = np.abs(rows.m[chosen]) + steps + 1.0
        moved = (4.0 * errors + 64.0 * UNIT * sizes) / np.maximum(steps, 1e-300) / self.loss.curvature(1.0)
        return np.minimum(largest, C * (low * (1.0 + 1e-9) + moved))

    def _ball_bounds(
        self, rows: MarginRows, signs: Float64, pulls: Float64, errors: Float64
    ) -> tuple[Float64, Float64]:
        """Return the bounds of the balls (n,), which hold for every row."""
        point, g = self.first.point, self.first.point.gradient
        lengths, along = lengths_of(rows.X), signs * (rows.X @ g)
        p, scale = rows.X.shape[1], float(np.linalg.norm(g)) + np.abs(pulls) * lengths
        squares = float(g @ g) + 2.0 * pulls * along + np.square(pulls * lengths)
        whole = np.sqrt(np.maximum(squares, 0.0) + 4 * (p + 16) * UNIT * np.square(scale))
        off = point.margins + float(np.linalg.norm(point.errors)) + errors * lengths
        half = (0.5 * whole + off + (p + 32) * UNIT * scale) * lengths + rows.errors + 4 * UNIT * np.abs(rows.m)
        middle = rows.m - 0.5 * (pulls * np.square(lengths) + along)
        return middle - half, middle + half

    def keep(self, C: float, class_weights: dict[str, float], *, weighted: bool) -> ChangeableProblem:
        """Return what is needed to remove and add rows, after the last pass. ``class_weights``: factors of C by class; empty: all are 1."""
        metric, levels = self.first.metric, list[Level]()
        known = (
            zip(self.steps.tolist(), self.guides, self.lows, self.highs, self.reaches, strict=True) if metric else ()
        )
        for size, guide, low, high, reach in known:
            if guide is not None and low is not None and high is not None and np.isfinite(reach):
                levels.append(Level(size, guide.matrix, low.matrix, high.matrix, reach))
        p = len(self.first.point.weights)
        hessian = np.eye(p) if metric is None else metric.matrix
        return ChangeableProblem(self.first.point, hessian, tuple(levels), C, class_weights, weighted)


class Level(NamedTuple):
    """Bounds of the Hessian for steps of one size: e_j = size max(|x_j|_{H(w)^-1}, |x_j|_{guide^-1})."""

    size: float
    guide: Float64
    """(p, p)."""
    low: Float64
    """(p, p) H_lo."""
    high: Float64
    """(p, p) H_hi."""
    reach: float


@dataclass(frozen=True, slots=True, eq=False)
class ChangeableProblem:
    """What is known of a problem at weights w: enough to remove rows that it has, to add rows, and to enclose its optimum."""

    point: EvaluatedPoint
    hessian: Float64
    """(p, p) the Hessian at w when all rows were read; it is only a guess."""
    levels: tuple[Level, ...]
    C: float
    class_weights: dict[str, float]
    """Factors of C by class; empty: all are 1."""
    weighted: bool
    """Whether every row has a weight of its own."""

    def enclose(self) -> Enclosure:
        """Return the enclosure of the optimum by the smallest steps that are large enough; a ball if there are none."""
        for level in self.levels:
            low = invert(level.low)
            if low is None or size_of_gradient(low, self.point) >= level.reach * (1.0 - 1e-9):
                continue
            return enclose_between(self.point, low, invert(level.high))
        return ball_of_gradient(self.point)

    def header(self) -> JsonObject:
        """Return the numbers as plain JSON."""
        levels = [{"size": level.size, "reach": level.reach} for level in self.levels]
        return {
            "margins": self.point.margins,
            "C": self.C,
            "class_weights": self.class_weights,
            "weighted": self.weighted,
            "levels": levels,
        }

    def tensors(self) -> dict[str, Array]:
        """Return the arrays, by name; of matrices the lower triangles, one after the other."""
        rows = np.tril_indices(len(self.hessian))
        matrices = [self.hessian, *(matrix for level in self.levels for matrix in (level.guide, level.low, level.high))]
        vectors = np.array([self.point.weights, self.point.gradient, self.point.errors])
        return {"vectors": vectors, "matrices": np.array([matrix[rows] for matrix in matrices])}

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices."""
        return (1 + 3 * len(self.levels)) * self.hessian.nbytes


def decode_changeable(header: Any, tensors: dict[str, Array], columns: int) -> ChangeableProblem:
    """Return what ``header`` and ``tensors`` describe. Raises DataError, KeyError, TypeError, ValueError for what is none."""
    p, levels = columns + 1, header["levels"]
    vectors, packed = tensors["vectors"], tensors["matrices"]
    shape = (1 + 3 * len(levels), p * (p + 1) // 2)
    weights = {str(name): float(weight) for name, weight in header["class_weights"].items()}
    numbers = [float(header["margins"]), float(header["C"]), *weights.values()]
    numbers += [float(level[name]) for level in levels for name in ("size", "reach")]
    is_usable = vectors.dtype == packed.dtype == np.float64 and vectors.shape == (3, p) and packed.shape == shape
    if not is_usable or not np.isfinite(vectors).all() or not np.isfinite(packed).all() or not min(numbers) >= 0.0:
        raise DataError("what is kept for changes of rows is not usable")
    weights_at, gradient, errors = vectors
    hessian, *others = (_unpack(one, p) for one in packed)
    found = [
        Level(float(level["size"]), others[3 * k], others[3 * k + 1], others[3 * k + 2], float(level["reach"]))
        for k, level in enumerate(levels)
    ]
    point = EvaluatedPoint(weights_at, gradient, errors, numbers[0])
    return ChangeableProblem(point, hessian, tuple(found), numbers[1], weights, bool(header["weighted"]))


def _unpack(packed: Float64, p: int) -> Float64:
    matrix = np.zeros((p, p))
    matrix[np.tril_indices(p)] = packed
    return matrix + np.tril(matrix, -1).T


class RowChange:
    """Removes rows from a problem, or adds rows to it: ``add`` takes some rows at a time, ``close`` returns the changed problem."""

    def __init__(self, problem: ChangeableProblem, loss: Loss, *, are_added: bool) -> None:
        p = len(problem.hessian)
        self.problem, self.loss, self.are_added = problem, loss, are_added
        self.metric = _invert_exactly(problem.hessian)
        self.levels = [
            _LevelSums(level, guide, low)
            for level in problem.levels
            if (guide := _invert_exactly(level.guide)) is not None and (low := _invert_exactly(level.low)) is not None
        ]
        self.sums = np.zeros((3, p))
        """Those of ``add_pulls``."""
        self.margins, self.tiles = 0.0, 2

    def add(self, rows: MarginRows, signs: Float64) -> None:
        """Count rows, with their margins at w, and with their signs z_i (n,)."""
        self.tiles += 2 + -(-len(rows.m) // TILE)
        add_pulls(self.sums, rows, signs, self.loss)
        if self.are_added:
            self.margins += square_of_margin_errors(rows, self.loss)
        if self.metric is not None:
            lengths = self.metric.norms(rows.X)
            for one in self.levels:
                one.add(rows, lengths, self.loss, are_added=self.are_added)

    def close(self) -> ChangeableProblem:
        """Return the changed problem."""
        before, change = self.problem.point, -self.sums[0] if self.are_added else self.sums[0]
        errors = errors_of_pulls(self.sums, self.tiles)
        errors += before.errors + 4 * UNIT * (np.abs(before.gradient) + np.abs(change))
        point = before._replace(
            gradient=before.gradient + change,
            errors=errors * (1.0 + 1e-9),
            margins=float(np.sqrt(before.margins**2 + self.margins)) * (1.0 + 1e-9),
        )
        levels = [one.close(self.tiles) for one in self.levels] if self.metric is not None else []
        return replace(self.problem, point=point, levels=tuple(level for level in levels if level is not None))


def _invert_exactly(H: Float64) -> Metric | None:
    """Return the metric of a matrix whose steps can be computed again; None if its inverse is not exact enough."""
    metric = invert(H)
    return metric if metric is not None and metric.error <= STEP_CHANGE / 4 else None


class _LevelSums:
    """Sums over the rows that are removed or added, at one level."""

    def __init__(self, level: Level, guide: Metric, low: Metric) -> None:
        p = len(level.low)
        self.level, self.guide, self.low = level, guide, low
        self.least, self.largest = np.zeros((p, p)), np.zeros((p, p))
        self.reach = level.reach
        self.are_added = False

    def add(self, rows: MarginRows, lengths: Float64, loss: Loss, *, are_added: bool) -> None:
        """Add rows; ``lengths``: |x_i|_{H(w)^-1} (n,)."""
        self.are_added = are_added
        steps = self.level.size * np.maximum(lengths, self.guide.norms(rows.X))
        if are_added:
            low, high = secants(loss, rows.m, steps + rows.errors)
            least, largest = rows.C * low, rows.C * high
            used = (steps > 0.0) & (rows.C > 0.0)
            ratio = float((self.low.norms(rows.X[used]) / steps[used]).max(initial=0.0))
            self.reach = min(self.reach, 1.0 / ratio if ratio > 0.0 else np.inf)
        else:
            largest, least = bounds_of_counted(rows, steps, loss)
        self.least += weighted_gram(rows.X, least)
        self.largest += weighted_gram(rows.X, largest)

    def close(self, tiles: int) -> Level | None:
        """Return the level of the changed problem; None if it is of no use."""
        level, p = self.level, len(self.least)
        least, largest = pad_gram(self.least, tiles, -1.0), pad_gram(self.largest, tiles, 1.0)
        share = 0.0 if self.are_added else _largest_share(self.low, largest)
        if share >= NEARLY_ALL:
            return None
        low, high = (
            (level.low + least, level.high + largest) if self.are_added else (level.low - largest, level.high - least)
        )
        rounding = 4 * p * UNIT * (np.diag(level.high) + np.diag(largest))
        diagonal = np.diag_indices(p)
        low[diagonal] -= rounding
        high[diagonal] += rounding
        reach = self.reach * float(np.sqrt(1.0 - share)) * (1.0 - 1e-12)
        return level._replace(low=low, high=high, reach=reach)


def bounds_of_counted(rows: MarginRows, steps: Float64, loss: Loss) -> tuple[Float64, Float64]:
    """Return an upper bound of the C_i lo_i, and a lower bound of the C_i hi_i (n,), that rows have in matrices that were made before."""
    corners, most = loss.corners(), 1.0 / loss.curvature(1.0)  # type: ignore[attr-defined]
    ends = np.array(
        [
            (slopes_of(rows.m, loss) - slopes_of(rows.m + step, loss)) / np.maximum(steps, 1e-300)
            for step in (steps, -steps)
        ]
    )
    ends[1] *= -1.0
    sizes = np.abs(rows.m) + steps + max(map(abs, corners), default=0.0) + 1.0
    moved = most * (4.0 * rows.errors + 64.0 * UNIT * sizes) / np.maximum(steps, 1e-300)
    pad = moved + 4.0 * STEP_CHANGE * most
    largest = np.clip(ends.min(axis=0) + pad, 0.0, most)
    if len(corners) <= 1:
        shorter, _ = secants(loss, rows.m, steps * (1.0 - STEP_CHANGE))
        largest = np.minimum(largest, shorter * (1.0 + 1e-9) + moved)
    return rows.C * largest * (1.0 + 1e-9), rows.C * np.clip(ends.max(axis=0) - pad, 0.0, most) * (1.0 - 1e-9)


def _largest_share(metric: Metric, part: Float64) -> float:
    """Return an upper bound of the largest eigenvalue of H^-1/2 ``part`` H^-1/2, from the metric of H^-1."""
    W, p = metric.W, len(part)
    product = W @ part @ W.T
    size = np.linalg.norm(np.abs(W) @ np.abs(part) @ np.abs(W.T))
    error = (2 * p + 16) * UNIT * float(size) + 8 * p * UNIT * float(np.linalg.norm(product))
    largest = float(np.linalg.eigvalsh(0.5 * (product + product.T))[-1])
    return max((largest + error) * (1.0 + 1e-12) / (1.0 - metric.error), 0.0)
