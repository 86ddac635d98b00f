"""Prove that no C of a range has a better cross-validated error (``tune --regret``).

The fits of all folds for some C, brought near their optima by Newton steps, enclose the optima of all C around them
(``streamsvm.proofs.cost_range``). Between two neighboring C the range is cut into ``CELLS`` cells with equal ratios; a row whose
whole interval lies on the wrong side, in the enclosures of either fit, is an error of every optimum of the cell. So the error of each
cell lies between two numbers. Where the lower one is less than the best error of any fit minus the regret, another fit is put in the middle, until
no cell is left or ``MOST_FITS`` values of C were fitted.

The scores are those of the points near the optima. All folds and all new values of C share their passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from streamsvm.aliases import JsonObject
from streamsvm.config.units import percent
from streamsvm.errors import UsageError
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs import folds as folding
from streamsvm.jobs.common_options import LossWeight
from streamsvm.jobs.fit.enclose import AllRows, Scaling
from streamsvm.jobs.fit.plan import Plan
from streamsvm.jobs.folds import Trial
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.results import Score
from streamsvm.model.model import count_possible_errors, possible_classes, predict_codes
from streamsvm.proofs.cost_range import SIZES, CostFit, CostRange, start_levels
from streamsvm.proofs.enclosure import has_enclosure, work_bytes
from streamsvm.rows import Float64, Int32, row_count
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.types import Problem, Store, Term

CELLS = 4
"""Cells between two neighboring values of C."""
MOST_FITS = 40
"""Values of C that are fitted, at most."""
LEAST_RATIO = 1.0005
"""Two values of C with a smaller ratio have no fit between them."""
MOST_COLUMNS = 400
"""Columns, at most: two matrices of them are kept for each level, fold and C."""


class ErrorBounds(NamedTuple):
    """Between which numbers the cross-validated error of the exact optima of all C of a cell lies."""

    C_from: float
    C_to: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RegretFigures:
    """What is proved of all C between the least and the largest one that were given."""

    regret: float
    """By how much a C may be better, at most, as it was asked for."""
    lower_bound: float
    """No C between has an error below this."""
    is_proved: bool
    """Whether no C between is better than the best one by more than the regret."""
    fits: int
    """The number of values of C that were fitted."""
    band: tuple[ErrorBounds, ...]
    """Of each cell, ascending."""

    def facts(self) -> JsonObject:
        """Return the figures as plain JSON."""
        band = [one._asdict() for one in self.band]
        return {
            "regret": self.regret,
            "lower_bound": self.lower_bound,
            "is_proved": self.is_proved,
            "fits": self.fits,
            "band": band,
        }


def describe_regret(found: RegretFigures, best: Score) -> str:
    """Return in words what is proved of all C."""
    ends = f"between {found.band[0].C_from:g} and {found.band[-1].C_to:g}"
    fits = f"({found.fits} fits)"
    if not found.is_proved:
        return f"C {ends}: none has an error below {percent(found.lower_bound, 4)}; that is not within the regret, and {fits} are the most"
    if found.lower_bound >= best.score:
        return f"proved: no C {ends} has an error below {percent(best.score, 4)} {fits}"
    gain = percent(best.score - found.lower_bound, 2)
    return f"proved: no C {ends} is better by more than {gain} {fits}"


def check_regret(job: TuneJob, problem: Problem) -> None:
    """Raise UsageError for a search in which nothing is proved of the values of C between those that are tried."""
    reasons = {
        "a kernel or landmarks": job.kernel != "linear" or bool(job.landmarks),
        "a loss with a kink (squared_hinge and huber have none)": not has_enclosure(problem.loss),
        "numbers to predict": problem.loss.numeric(),
        "--free-bias": bool(job.free_bias),
        "--l1 and --l1-ball": not problem.regularizer.is_squared_norm,
        f"--multi-class {job.multi_class}": problem.kind.classes > 0,
        f"more than {MOST_COLUMNS} columns": problem.columns > MOST_COLUMNS,
    }
    for what, is_so in reasons.items():
        if is_so:
            raise UsageError(
                f"--regret is not for {what}", hint="leave it out: the values of C are then compared without a proof"
            )


def regret_terms(job: TuneJob, problems: Sequence[Problem]) -> list[Term]:
    """Return the memory of the proof."""
    if job.regret is None:
        return []
    p, count = problems[0].components, len({problem.kind for problem in problems}) * job.folds
    kept = (MOST_FITS + 8) * count * 2 * SIZES.levels * 8 * p * p
    ranges = 2 * CELLS * MOST_FITS * count * 6 * 8 * p * p
    return [Term("proof over C", kept + ranges + work_bytes(p), "matrices of each fold and C")]


class Solved(NamedTuple):
    """The training of a trial."""

    weights: tuple[Float64, ...]
    """(p,) of each problem."""
    passes: int
    gap: float


@dataclass(slots=True, eq=False)
class RegretSearch:
    """Fits values of C and bounds the error of those between, until the regret is proved."""

    job: TuneJob
    store: Store
    """The rows, in chunks that belong to one fold each."""
    plan: Plan
    fold: Int32
    """The fold of each chunk."""
    solve: Callable[[list[Trial]], list[Solved]]
    """Trains trials, those of one fold after the other."""
    regret: float

    def run(self) -> tuple[list[Score], RegretFigures]:
        """Return the scores of all values of C, ascending, and what is proved. Raises the errors of training."""
        fits: dict[float, list[list[CostFit]]] = {}
        scores: dict[float, Score] = {}
        cells: dict[tuple[float, float], list[ErrorBounds]] = {}
        new = sorted(weight.value for weight in self.job.loss_weights)
        while new:
            fitted, solved = self._fit(new)
            fits |= fitted
            order = sorted(fits)
            pairs = [pair for pair in pairwise(order) if pair not in cells]
            wrong, bounds = self._count(new, pairs, fits)
            for C, errors in zip(new, wrong, strict=True):
                scores[C] = self._score(C, errors, solved[C])
            cells |= dict(zip(pairs, bounds, strict=True))
            target = min(score.score for score in scores.values()) - self.regret
            is_open = [pair for pair in pairwise(order) if min(cell.low for cell in cells[pair]) < target]
            room = MOST_FITS - len(order)
            new = [float(np.sqrt(a * b)) for a, b in is_open if b / a > LEAST_RATIO][: max(room, 0)]
        band = tuple(cell for pair in pairwise(sorted(fits)) for cell in cells[pair])
        lower_bound = min(cell.low for cell in band)
        found = RegretFigures(self.regret, lower_bound, not is_open, len(fits), band)
        return [scores[C] for C in sorted(scores)], found

    def _trials(self, values: Sequence[float]) -> list[Trial]:
        """Return the trials of some C, fold by fold."""
        layout, problems = self.store.layout, self.plan.problems
        return [
            folding.build_trial(problems, LossWeight(C), layout, self.fold, k)
            for k in range(self.job.folds)
            for C in values
        ]

    def _fit(self, values: Sequence[float]) -> tuple[dict[float, list[list[CostFit]]], dict[float, list[Solved]]]:
        """Return for each C and fold the fit of each problem near its optimum, and the trainings."""
        trials = self._trials(values)
        solved = self.solve(trials)
        problems = [problem for trial in trials for problem in trial.problems]
        weights = [w for one in solved for w in one.weights]
        rows = AllRows(self.store, self._scaling(), problems, weights)
        states = rows.complete_levels(
            [start_levels(first, problem.loss) for first, problem in zip(rows.approach(), problems, strict=True)]
        )
        kept, each = [CostFit.of(state) for state in states], len(self.plan.problems)
        by_trial = [kept[k : k + each] for k in range(0, len(kept), each)]
        count = len(values)
        return {C: by_trial[k::count] for k, C in enumerate(values)}, {
            C: solved[k::count] for k, C in enumerate(values)
        }

    def _scaling(self) -> Scaling:
        features = self.plan.features
        assert isinstance(features, Raw | Standardized)  # ``check_regret`` refuses kernels
        return Scaling.of(features, self.plan.problems[0])

    def _count(
        self, values: Sequence[float], pairs: Sequence[tuple[float, float]], fits: dict[float, list[list[CostFit]]]
    ) -> tuple[list[Float64], list[list[ErrorBounds]]]:
        """Return the errors (folds,) of each C of ``values``, and the bounds of the cells between each pair, from one pass."""
        edges = [np.geomspace(*pair, CELLS + 1).tolist() for pair in pairs]
        ends = [
            (pair, least, largest) for pair, cuts in zip(pairs, edges, strict=True) for least, largest in pairwise(cuts)
        ]
        ranges = [
            [[_enclose(one, other, pair, least, largest) for one, other in zip(fits[pair[0]][k], fits[pair[1]][k], strict=True)]
             for pair, least, largest in ends]
            for k in range(self.job.folds)
        ]  # fmt: skip
        folds = self.job.folds
        rows, wrong = np.zeros(folds), np.zeros((len(values), folds))
        surely, perhaps = np.zeros((len(ends), folds)), np.zeros((len(ends), folds))
        trials, scaling = self._trials(values[:1]), self._scaling()
        visits = epoch_visits(self.store.layout, 0, 0, shuffled=False)
        with Stream(self.store, visits, depth=self.job.prefetch) as stream:
            for loaded in stream:
                k = int(self.fold[loaded.visit.chunk])
                truth = trials[k].outcomes(loaded.chunk.codes)
                X = scaling.apply(loaded.chunk.X)
                rows[k] += row_count(loaded.chunk.X)
                for number, C in enumerate(values):
                    decision = np.array([X @ fit.point.weights for fit in fits[C][k]]).T
                    wrong[number, k] += int((predict_codes(decision) != truth).sum())
                for number, problems in enumerate(ranges[k]):
                    low, high = (
                        np.array(side).T for side in zip(*(_intersect(both, X) for both in problems), strict=True)
                    )
                    least, most = count_possible_errors(possible_classes(low, high), truth)
                    surely[number, k] += least
                    perhaps[number, k] += most
        bounds = [
            ErrorBounds(least, largest, float(np.mean(low / rows)), float(np.mean(high / rows)))
            for (_, least, largest), low, high in zip(ends, surely, perhaps, strict=True)
        ]
        return [row / rows for row in wrong], [bounds[k : k + CELLS] for k in range(0, len(bounds), CELLS)]

    def _score(self, C: float, errors: Float64, solved: list[Solved]) -> Score:
        passes, gap = max(one.passes for one in solved), max(one.gap for one in solved)
        return Score(None, None, C, tuple(errors.tolist()), self.plan.problems[0].columns, passes, gap)


def _enclose(
    one: CostFit, other: CostFit, pair: tuple[float, float], least: float, largest: float
) -> tuple[CostRange, CostRange]:
    """Return what the fits at both ends of a pair say of the C between ``least`` and ``largest``."""
    return one.enclose(max(1.0, least / pair[0] * (1.0 - 1e-15)), largest / pair[0] * (1.0 + 1e-15)), other.enclose(
        least / pair[1] * (1.0 - 1e-15), min(1.0, largest / pair[1] * (1.0 + 1e-15))
    )


def _intersect(both: tuple[CostRange, CostRange], X: Float64) -> tuple[Float64, Float64]:
    """Return the bounds of decision values (n,) of rows that both enclosures give."""
    (low, high), (other_low, other_high) = (one.interval(X) for one in both)
    return np.maximum(low, other_low), np.minimum(high, other_high)
