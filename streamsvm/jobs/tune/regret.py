"""Prove that no C of a range has a better cross-validated error (``tune --regret``).

The fits of all folds for some C, brought near their optima by Newton steps, enclose the optima of all C around them
(``streamsvm.proofs.cost_range``). Between two neighboring C the range is cut into ``CELLS`` cells with equal ratios; a row whose
whole interval lies on the wrong side, in the enclosures of either fit, is an error of every optimum of the cell. So the error of each
cell lies between two numbers. A cell is open as long as the lower one is less than the best error of any fit minus the regret.

An interval is wide for two reasons: the decision value moves from one end of the cell to the other, and the enclosure is wider the farther
C is from that of the fit. Halves of a cell mend the first at the price of one pass over the held-out rows. The second is mended by a second look (one pass over the
training rows, in which all open cells share; ``proofs.cost_range``), and only then by a fit. So an open cell gets a second look, is halved as long as that closes ``LEAST_GAIN`` of what
it lacks, and stays open otherwise. If the upper number of such a cell says that its C are better than every fit, one of them is fitted, since a
better best error closes other cells; else each pair of neighbors with open cells gets a fit in the middle of these, until no cell is open or
``MOST_FITS`` values of C were fitted.

The scores are those of the points near the optima. All folds and all new values of C share their passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

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
from streamsvm.proofs.cost_range import (
    SIZES,
    CostFit,
    CostLevel,
    CostRange,
    add_to_second_look,
    close_second_look,
    intersect,
    start_levels,
    start_second_look,
)
from streamsvm.proofs.enclosure import MarginRows, PassSums, has_enclosure, work_bytes
from streamsvm.rows import Float64, Int32, row_count
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Problem, Store, Term

CELLS = 4
"""Cells between two neighboring values of C, before open ones are halved."""
LEAST_GAIN = 0.3
"""The share of what a cell lacks by which halves of it must come nearer to the proof, to be halved again."""
MOST_LOOKED_AT = 24
"""Cells, at most, that get a second look in one pass."""
MOST_CELLS = 80
"""Cells, at most, whose rows are counted in one pass."""
MOST_FITS = 40
"""Values of C that are fitted, at most."""
LEAST_RATIO = 1.0005
"""Two values of C with a smaller ratio have no fit between them, and are no cell to be halved."""
MOST_COLUMNS = 400
"""Columns, at most: two matrices of them are kept for each level, fold and C."""


Pair: TypeAlias = tuple[float, float]
"""Two neighboring values of C that were fitted."""
Fits: TypeAlias = dict[float, list[list[CostFit]]]
"""The fits of each fold and problem, by C."""
SecondLook: TypeAlias = list[list[tuple[CostLevel, CostLevel]]]
"""Of each fold and problem, what a second look gives for the fits at both ends of a pair."""


class ErrorBounds(NamedTuple):
    """Between which numbers the cross-validated error of the exact optima of all C of a cell lies."""

    C_from: float
    C_to: float
    low: float
    high: float


class Cell(NamedTuple):
    """A range of C between two neighboring fits, with bounds of its error."""

    C_from: float
    C_to: float
    pair: Pair
    """The C of the fits."""
    low: float = 0.0
    high: float = 1.0
    low_before: float | None = None
    """``low`` of the cell of which this is a half; None: it is none."""
    closer: SecondLook | None = None
    """What a second look at the range gave; None: there was none."""

    @property
    def bounds(self) -> ErrorBounds:
        """Where the error lies."""
        return ErrorBounds(self.C_from, self.C_to, self.low, self.high)

    def is_worth_halving(self, target: float) -> bool:
        """Return whether halves can prove ``target``: the last halving came nearer to it."""
        if self.C_to / self.C_from < LEAST_RATIO:
            return False
        before = self.low_before
        return before is None or self.low - before >= LEAST_GAIN * (target - before)

    def halves(self) -> list[Cell]:
        """Return both halves, whose bounds are not known yet."""
        middle = float(np.sqrt(self.C_from * self.C_to))
        ends = ((self.C_from, middle), (middle, self.C_to))
        return [Cell(least, largest, self.pair, low_before=self.low, closer=self.closer) for least, largest in ends]


def _first_cells(pair: Pair) -> list[Cell]:
    """Return the cells between two neighboring fits."""
    return [Cell(least, largest, pair) for least, largest in pairwise(np.geomspace(*pair, CELLS + 1).tolist())]


def choose_next(cells: dict[Pair, list[Cell]], best: float, target: float, room: int) -> tuple[list[float], list[Cell]]:
    """Return the values of C to fit next, at most ``room``, and else the halves of open cells, which are taken out of ``cells``.

    ``best``: the best error of a fit. ``target``: the lower bound that each cell needs.
    """
    is_open = {pair: [cell for cell in known if cell.low < target] for pair, known in cells.items()}
    seen_once = [cell for known in is_open.values() for cell in known if cell.closer is None][:MOST_LOOKED_AT]
    if seen_once:
        for cell in seen_once:
            cells[cell.pair].remove(cell)
        return [], seen_once
    halved = [cell for known in is_open.values() for cell in known if cell.is_worth_halving(target)]
    if halved:
        for cell in halved:
            cells[cell.pair].remove(cell)
        return [], [half for cell in halved for half in cell.halves()]
    ends = {
        pair: (min(known).C_from, max(known, key=lambda cell: cell.C_to).C_to)
        for pair, known in is_open.items()
        if known and pair[1] / pair[0] > LEAST_RATIO
    }
    better = min((cell for pair in ends for cell in is_open[pair]), key=lambda cell: cell.high, default=None)
    if better is not None and better.high < best:
        ends = {better.pair: (better.C_from, better.C_to)}
    return [float(np.sqrt(a * b)) for a, b in ends.values()][: max(room, 0)], []


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
    ranges = MOST_CELLS * count * (2 * 6 + 4) * 8 * p * p + MOST_LOOKED_AT * count * 12 * 8 * p * p
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
        fits: Fits = {}
        scores: dict[float, Score] = {}
        cells: dict[Pair, list[Cell]] = {}
        new, wanted = sorted(weight.value for weight in self.job.loss_weights), list[Cell]()
        while new or wanted:
            solved: dict[float, list[Solved]] = {}
            if new:
                fitted, solved = self._fit(new)
                fits |= fitted
                cells = {pair: cells.get(pair, []) for pair in pairwise(sorted(fits))}
                wanted = [cell for pair, known in cells.items() if not known for cell in _first_cells(pair)]
            for start in range(0, max(len(wanted), 1), MOST_CELLS):
                part, to_score = wanted[start : start + MOST_CELLS], new if start == 0 else []
                if not new and part[0].closer is None:
                    part = self._look_again(part, fits)
                wrong, counted = self._count(to_score, part, fits)
                for C, errors in zip(to_score, wrong, strict=True):
                    scores[C] = self._score(C, errors, solved[C])
                for cell in counted:
                    cells[cell.pair].append(cell)
            best = min(score.score for score in scores.values())
            new, wanted = choose_next(cells, best, best - self.regret, MOST_FITS - len(fits))
        band = tuple(cell.bounds for pair in pairwise(sorted(fits)) for cell in sorted(cells[pair]))
        lower_bound = min(bounds.low for bounds in band)
        found = RegretFigures(self.regret, lower_bound, lower_bound >= best - self.regret, len(fits), band)
        return [scores[C] for C in sorted(scores)], found

    def _trials(self, values: Sequence[float]) -> list[Trial]:
        """Return the trials of some C, fold by fold."""
        layout, problems = self.store.layout, self.plan.problems
        return [
            folding.build_trial(problems, LossWeight(C), layout, self.fold, k)
            for k in range(self.job.folds)
            for C in values
        ]

    def _fit(self, values: Sequence[float]) -> tuple[Fits, dict[float, list[Solved]]]:
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

    def _count(self, values: Sequence[float], cells: Sequence[Cell], fits: Fits) -> tuple[list[Float64], list[Cell]]:
        """Return the errors (folds,) of each C of ``values``, and the cells with their bounds, from one pass."""
        folds = self.job.folds
        ranges = [[self._enclose(cell, fits, k) for cell in cells] for k in range(folds)]
        rows, wrong = np.zeros(folds), np.zeros((len(values), folds))
        surely, perhaps = np.zeros((len(cells), folds)), np.zeros((len(cells), folds))
        trials, scaling = self._trials([self.job.loss_weights[0].value]), self._scaling()
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
                        np.array(side).T for side in zip(*(intersect(both, X) for both in problems), strict=True)
                    )
                    least, most = count_possible_errors(possible_classes(low, high), truth)
                    surely[number, k] += least
                    perhaps[number, k] += most
        counted = [
            cell._replace(low=float(np.mean(low / rows)), high=float(np.mean(high / rows)))
            for cell, low, high in zip(cells, surely, perhaps, strict=True)
        ]
        return [row / rows for row in wrong], counted

    def _enclose(self, cell: Cell, fits: Fits, fold: int) -> list[tuple[CostRange, CostRange]]:
        """Return what the fits at both ends say of a cell, of each problem of a fold."""
        one, other = (fits[C][fold] for C in cell.pair)
        closer: Sequence[tuple[CostLevel | None, CostLevel | None]] = (
            [(None, None)] * len(one) if cell.closer is None else cell.closer[fold]
        )
        return [_enclose(first, last, cell, levels) for first, last, levels in zip(one, other, closer, strict=True)]

    def _look_again(self, cells: Sequence[Cell], fits: Fits) -> list[Cell]:
        """Return cells with the bounds of a second look, whose errors are not counted yet. One pass."""
        folds, each = range(self.job.folds), len(self.plan.problems)
        problems, weights, ranges = list[Problem](), list[Float64](), list[tuple[CostRange, CostRange]]()
        trials = {C: self._trials([C]) for C in {C for cell in cells for C in cell.pair}}
        for cell in cells:
            for k in folds:
                for number, both in enumerate(self._enclose(cell, fits, k)):
                    for C in cell.pair:
                        problems.append(trials[C][k].problems[number])
                        weights.append(fits[C][k][number].point.weights)
                        ranges.append(both)

        def add(k: int, sums: PassSums, rows: MarginRows, signs: Float64) -> None:
            add_to_second_look(sums, rows, signs, problems[k].loss, ranges[k])

        starts = [partial(start_second_look, len(w)) for w in weights]
        rows = AllRows(self.store, self._scaling(), problems, weights)
        levels = iter([close_second_look(one) for one in rows.read(starts, add)])
        return [
            cell._replace(closer=[[(next(levels), next(levels)) for _ in range(each)] for _ in folds], low_before=None)
            for cell in cells
        ]

    def _score(self, C: float, errors: Float64, solved: list[Solved]) -> Score:
        passes, gap = max(one.passes for one in solved), max(one.gap for one in solved)
        return Score(None, None, C, tuple(errors.tolist()), self.plan.problems[0].columns, passes, gap)


def _enclose(
    one: CostFit, other: CostFit, cell: Cell, closer: tuple[CostLevel | None, CostLevel | None] = (None, None)
) -> tuple[CostRange, CostRange]:
    """Return what the fits at both ends of a pair say of the C of a cell between them."""
    first, last = cell.pair
    return (
        one.enclose(max(1.0, cell.C_from / first * (1.0 - 1e-15)), cell.C_to / first * (1.0 + 1e-15), closer[0]),
        other.enclose(cell.C_from / last * (1.0 - 1e-15), min(1.0, cell.C_to / last * (1.0 + 1e-15)), closer[1]),
    )
