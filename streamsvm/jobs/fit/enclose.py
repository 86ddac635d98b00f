"""Enclose the optima of a finished fit, so that its model can prove answers (--certify).

The mathematics is in ``streamsvm.proofs.enclosure``. **labels**: the gradient comes from the last evaluation of the fit, and H_lo
from a sample of rows, for which a few chunks are read again. If that sample proves too little, because it is a small part
of very many rows, a larger sample takes its place. If the solver does not know the gradient (dual coordinate descent, a
loss with a kink), the enclosure is the ball of the gap. **full**: the gradient, H_lo and H_hi of all rows come from three
passes. If w is too far from the optimum for the lemma, they are repeated after a Newton step, at most
``MOST_ATTEMPTS`` times in all; then a ball remains. **updates**: four passes more, after Newton steps to the optimum, add up
matrices for larger steps, by which ``forget`` and ``learn`` enclose the optimum of other rows.

The chunks of the sample, their rows, and the order of sums are decided by the layout of the store alone, so that threads and
workers change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from streamsvm.compute.blocks.selection import take_rows
from streamsvm.engine.block_visitor import targets_and_weights
from streamsvm.engine.evaluation import ProblemBlock, RowsInGroups, Summation, sum_groups
from streamsvm.errors import UsageError
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.fit.options import ALL_ROWS_METHODS, UPDATES, FitJob
from streamsvm.proofs.enclosure import (
    MOST_COMPONENTS,
    Enclosure,
    EvaluatedPoint,
    MarginRows,
    PassSums,
    PointWithHessian,
    TwoSidedPasses,
    add_first_pass,
    ball_of_gap,
    ball_of_gradient,
    bytes_of_sums,
    close_first_pass,
    enclose_by_rows,
    has_enclosure,
    margins_of,
    start_first_pass,
    work_bytes,
)
from streamsvm.proofs.kept import Enclosures, exact_features, limit_bytes
from streamsvm.proofs.row_changes import MANY_ROWS, ChangeableProblem, StepLevels
from streamsvm.rows import Float64, Rows, Targets, row_slice
from streamsvm.schedule.stream import Stream
from streamsvm.type_aliases import Array
from streamsvm.types import AnySolver, Block, FeatureMap, Problem, Store, Term, Visit

SAMPLE_CHUNKS, SAMPLE_ROWS = 4, 10_000
"""Maximum numbers of chunks that are read again for a sample of rows, and of its rows."""
ENOUGH_PROVED = 0.995
"""If the sample proves less than this fraction of its own labels, a larger sample takes its place."""
CHUNKS_A_SAMPLE = 16
"""The larger sample has rows of one chunk in so many."""
SAMPLE_BYTES = 48 << 20
"""Bytes of the rows of a sample, at most."""
MOST_ATTEMPTS = 3
"""Attempts to enclose the optimum by all rows: the second and third after a Newton step, if w was too far from the optimum."""
MOST_STEPS, NEAR = 5, 1e-7
"""Newton steps to the optimum, at most, and the length of the gradient in the metric of the Hessian that ends them."""
MOST_UPDATE_BYTES = 64 << 20
"""Bytes, at most, of what a problem keeps for changes of rows."""
TILE_BYTES = 16 << 20
"""Bytes, at most, of the rows that are converted to float64 at a time."""


class Scaling(NamedTuple):
    """How a linear problem sees stored rows."""

    columns: int
    bias: float
    shift: Array | None = None
    scale: Array | None = None

    @classmethod
    def of(cls, features: FeatureMap, problem: Problem) -> Scaling:
        """Return that of a feature map of columns."""
        if isinstance(features, Standardized):
            return cls(problem.columns, features.bias, features.shift, features.scale)
        return cls(problem.columns, problem.bias)

    def apply(self, X: Rows) -> Float64:
        """Return rows in float64 (n, columns + 1)."""
        return exact_features(X, *self)


def check_enclosure(job: FitJob, store: Store, solver: AnySolver, problem: Problem) -> None:
    """Raise UsageError for a fit whose optimum is not enclosed."""
    if job.certify is None:
        return
    if job.certify == UPDATES:
        _check_updates(job, store, problem)
    reasons = {
        "kernels": job.kernel != "linear" or solver.exact_kernel,
        "kernel features of a store": store.facts.get("map") is not None,
        "--one-class": problem.kind.one_class,
        "--nu": not problem.regularizer.has_scale,
        "--free-bias": bool(job.free_bias),
        "--l1 and --l1-ball": not problem.regularizer.is_squared_norm,
        f"--multi-class {job.multi_class}": problem.kind.classes > 0,
    }
    for what, is_given in reasons.items():
        if is_given:
            hint = (
                "leave out --certify; it is for linear models with the penalty ||w||^2 / 2, one-vs-rest or one-vs-one"
            )
            raise UsageError(
                f"--certify cannot be combined with {what}: nothing is proved of these answers yet", hint=hint
            )


def _check_updates(job: FitJob, store: Store, problem: Problem) -> None:
    """Raise UsageError for a fit after which rows cannot be removed or added by proof."""
    layout, factors = store.layout, dict(zip(store.layout.classes, problem.weights, strict=False))
    others = {factor for name, factor in factors.items() if name != job.positive}
    reasons = {
        "a loss with a kink (squared_hinge and huber have none)": not has_enclosure(problem.loss),
        f"more than {MOST_COMPONENTS - 1} columns": problem.components > MOST_COMPONENTS,
        f"matrices of more than {MOST_UPDATE_BYTES >> 20} MiB, for so many classes or values of C": _update_bytes(
            problem
        )
        > MOST_UPDATE_BYTES,
        "--multi-class ovo": problem.kind.votes,
        f"a store of {layout.dtype}, whose numbers are not those of files": layout.dtype != "float32",
        "--positive of several classes with several weights": job.positive is not None and len(others) > 1,
    }
    for what, is_so in reasons.items():
        if is_so:
            raise UsageError(
                f"--certify {UPDATES} is not for {what}", hint="--certify full proves answers, without changes of rows"
            )


def _update_bytes(problem: Problem) -> int:
    return (1 + 3 * MANY_ROWS.levels) * 4 * problem.components**2


def uses_matrices(problem: Problem) -> bool:
    """Return whether an enclosure is more than a ball: the loss has no kink, and there are few components."""
    return has_enclosure(problem.loss) and problem.components <= MOST_COMPONENTS


def enclosure_terms(job: FitJob, problems: list[Problem], readers: int) -> list[Term]:
    """Return the memory of enclosing the optima."""
    if job.certify is None:
        return []
    p, count = problems[0].components, len(problems)
    nbytes, why = 8 * 8 * p * count, "centers"
    if uses_matrices(problems[0]):
        nbytes += work_bytes(p) + SAMPLE_BYTES + 3 * count * 8 * p * p
        why = "rows of a sample, matrices"
        if job.certify in ALL_ROWS_METHODS:
            # sums at work and waiting to be joined, and tiles of rows, by each thread
            sums = bytes_of_sums(p) if job.certify != UPDATES else bytes_of_sums(p, MANY_ROWS.levels)
            nbytes += (2 * readers + 2) * (count * sums + 3 * TILE_BYTES)
            why = "matrices of each problem, by each thread"
        if job.certify == UPDATES:
            nbytes += 4 * count * _update_bytes(problems[0])
    return [Term("enclosure", nbytes, why)]


def enclose(  # noqa: PLR0917
    features: FeatureMap,
    problems: list[Problem],
    weights: list[Float64],
    gaps_and_points: list[tuple[float, EvaluatedPoint | None]],
    store: Store,
    certify: str,
) -> Enclosures:
    """Return the enclosures of all problems. ``certify``: what is kept in the model.

    ``weights``: of each problem (p,). ``gaps_and_points``: an upper bound of P - min P, and the point where the gradient is known.
    """
    scaling = Scaling.of(features, problems[0])
    points = [point for _, point in gaps_and_points]
    enclosures = [
        _smaller_ball(ball_of_gap(w, gap), point) for w, (gap, point) in zip(weights, gaps_and_points, strict=True)
    ]
    changes: tuple[ChangeableProblem, ...] = ()
    if certify == UPDATES:
        changes = add_up_levels(store, scaling, problems, weights)
        enclosures = [one.enclose() for one in changes]
    elif certify in ALL_ROWS_METHODS and uses_matrices(problems[0]):
        enclosures = enclose_by_all_rows(store, scaling, problems, weights)
    elif uses_matrices(problems[0]) and any(point is not None for point in points):
        count, before = len(store.layout.chunks), 0
        sizes = [
            (min(SAMPLE_CHUNKS, count), SAMPLE_ROWS),
            (max(SAMPLE_CHUNKS, count // CHUNKS_A_SAMPLE), store.layout.rows),
        ]
        for chunks, most in sizes if count >= SAMPLE_CHUNKS * CHUNKS_A_SAMPLE else sizes[:1]:
            sample = read_sample(store, scaling, problems, chunks, most)
            enclosures = [
                known
                if point is None
                else _enclose_by_sample(point, rows, problem, known, before / max(len(rows.y), 1))
                for known, point, rows, problem in zip(enclosures, points, sample, problems, strict=True)
            ]
            before = len(sample[0].y)
            if most == store.layout.rows or all(
                _proves_enough(one, rows, problem)
                for one, rows, problem in zip(enclosures, sample, problems, strict=True)
            ):
                break
    return Enclosures(tuple(limit_bytes(enclosures)), scaling.bias, scaling.shift, scaling.scale, changes)


def _smaller_ball(ball: Enclosure, point: EvaluatedPoint | None) -> Enclosure:
    return ball if point is None else min(ball, ball_of_gradient(point), key=lambda one: one.slack)


def _enclose_by_sample(
    point: EvaluatedPoint, rows: SampleRows, problem: Problem, known: Enclosure, share: float
) -> Enclosure:
    """Return the enclosure by a sample of rows, which is never wider than the ball of the gradient; ``known`` if there is none.

    ``known``: the ball, or an enclosure by fewer rows, whose number is the ``share`` of these.
    """
    at_point, before = rows.at(point, problem), (known, share) if known.root is not None else None
    found = enclose_by_rows(point, at_point, problem.loss, before)
    return known if found.root is None else found


class SampleRows(NamedTuple):
    """Rows of a problem in memory."""

    X: Float64
    y: Targets
    C: Float64

    def at(self, point: EvaluatedPoint, problem: Problem) -> MarginRows:
        """Return the rows with their margins at a point."""
        return margins_of(self.X, self.y, self.C, point.weights, numeric=problem.loss.numeric())


def _proves_enough(one: Enclosure, rows: SampleRows, problem: Problem) -> bool:
    """Return whether nearly all signs of decision values of some rows are proved. In regression there are none to prove."""
    if problem.loss.numeric() or not len(rows.y):
        return True
    low, high = one.interval(rows.X)
    return float(np.mean((low > 0.0) | (high <= 0.0))) >= ENOUGH_PROVED


def read_sample(
    store: Store, scaling: Scaling, problems: list[Problem], count: int, most_rows: int
) -> list[SampleRows]:
    """Return a sample of at most ``most_rows`` rows for each problem, from ``count`` chunks that are spread over the store."""
    layout = store.layout
    chunks = layout.spread_chunks(count)
    most = min(most_rows, SAMPLE_BYTES // (8 * (scaling.columns + 1)))
    each = -(-most // len(chunks))
    visits = (Visit(0, chunk, 0, shuffled=False, last=False) for chunk in chunks)
    parts, all_codes, weights = [], [], []
    with Stream(store, visits, depth=1) as stream:
        for loaded in stream:
            count = len(loaded.chunk.codes)
            chosen = np.arange(count) if count <= each else np.linspace(0, count - 1, each).astype(np.int64)
            parts.append(scaling.apply(take_rows(loaded.chunk.X, chosen)))
            all_codes.append(loaded.chunk.codes[chosen])
            weights += [] if loaded.chunk.weight is None else [loaded.chunk.weight[chosen]]
    rows, codes, weight = np.concatenate(parts), np.concatenate(all_codes), np.concatenate(weights) if weights else None
    samples = []
    for problem in problems:
        chosen_rows = problem.kind.select(codes)
        own = slice(None) if chosen_rows is None else np.flatnonzero(chosen_rows)
        y, s = targets_and_weights(problem, codes[own], None if weight is None else weight[own])
        samples.append(SampleRows(rows[own], y, problem.C * s.astype(np.float64)))
    return samples


def enclose_by_all_rows(
    store: Store, scaling: Scaling, problems: list[Problem], weights: list[Float64]
) -> list[Enclosure]:
    """Return the enclosure of each problem by all rows, from three passes. ``weights``: of each problem (p,).

    Where the lemma does not apply, it is tried again after a Newton step, with three passes more.
    """
    rows = AllRows(store, scaling, problems, weights)
    firsts, enclosures = rows.pass_for_hessian(), list[Enclosure]()
    for number in range(MOST_ATTEMPTS):
        states = [TwoSidedPasses(first, problem.loss) for first, problem in zip(firsts, problems, strict=True)]
        sums = rows.pass_for_states(states)
        states = [state.close(one) for state, one in zip(states, sums, strict=True)]
        sums = rows.pass_for_states(states)
        enclosures = [state.enclose(one) for state, one in zip(states, sums, strict=True)]
        if number == MOST_ATTEMPTS - 1 or all(one.root is not None for one in enclosures):
            break
        firsts, is_nearer = rows.step(firsts)
        if not is_nearer:
            break
    return enclosures


def add_up_levels(
    store: Store, scaling: Scaling, problems: list[Problem], weights: list[Float64]
) -> tuple[ChangeableProblem, ...]:
    """Return what removing and adding rows needs, of each problem. ``weights``: of each problem (p,)."""
    rows = AllRows(store, scaling, problems, weights)
    states = rows.complete_levels(
        [StepLevels(first, problem.loss, MANY_ROWS) for first, problem in zip(rows.approach(), problems, strict=True)]
    )
    classes, weighted = store.layout.classes, store.layout.weighted
    return tuple(
        state.keep(
            problem.C, dict(zip(classes, problem.weights, strict=True)) if problem.weights else {}, weighted=weighted
        )
        for state, problem in zip(states, problems, strict=True)
    )


@dataclass(slots=True)
class AllRows:
    """Reads all rows of some problems with their margins at given weights."""

    store: Store
    scaling: Scaling
    problems: list[Problem]
    weights: list[Float64]
    """(p,) of each problem."""

    def pass_for_hessian(self) -> list[PointWithHessian]:
        """Return the gradient and the Hessian of each problem, from one pass."""

        def add(k: int, sums: PassSums, rows: MarginRows, signs: Float64) -> None:
            add_first_pass(sums, rows, signs, self.problems[k].loss)

        starts = [partial(start_first_pass, len(w)) for w in self.weights]
        return [close_first_pass(one, w) for one, w in zip(self.read(starts, add), self.weights, strict=True)]

    def step(self, firsts: list[PointWithHessian]) -> tuple[list[PointWithHessian], bool]:
        """Make a Newton step for each problem whose gradient becomes smaller by it. Return gradients and Hessians at
        the new ``weights``, and whether there was any step.
        """
        self.weights = [first.newton_point() for first in firsts]
        better = [
            after if after.is_better_than(first) else first
            for after, first in zip(self.pass_for_hessian(), firsts, strict=True)
        ]
        self.weights = [first.point.weights for first in better]
        return better, any(new is not old for new, old in zip(better, firsts, strict=True))

    def approach(self) -> list[PointWithHessian]:
        """Return gradients and Hessians near the optimum, after at most ``MOST_STEPS`` Newton steps."""
        firsts, is_nearer = self.pass_for_hessian(), True
        for _ in range(MOST_STEPS):
            if not is_nearer or all(first.metric is None or first.start <= NEAR for first in firsts):
                break
            firsts, is_nearer = self.step(firsts)
        return firsts

    def complete_levels(self, states: list[StepLevels]) -> list[StepLevels]:
        """Make the remaining passes, and return the states after them. All states must be at the same pass."""
        while not all(state.is_complete for state in states):
            states = [state.close(one) for state, one in zip(states, self.pass_for_states(states), strict=True)]
        return states

    def pass_for_states(self, states: Sequence[TwoSidedPasses | StepLevels]) -> list[PassSums]:
        """Return the sums of the pass that comes next in the states of all problems."""

        def add(k: int, sums: PassSums, rows: MarginRows, _: Float64) -> None:
            states[k].add(sums, rows)

        return self.read([state.empty for state in states], add)

    def read(
        self,
        starts: Sequence[Callable[[], PassSums]],
        add: Callable[[int, PassSums, MarginRows, Float64], None],
    ) -> list[PassSums]:
        """Return the sums of a pass. ``starts``: empty sums of each problem; ``add(k, sums, rows, signs)`` adds rows to those of problem k."""

        def add_block(sums: list[PassSums], problem_block: ProblemBlock) -> None:
            k, block, _ = problem_block
            for rows, signs in self.iterate_rows(k, block):
                add(k, sums[k], rows, signs)

        nbytes = sum(value.nbytes for start in starts for value in start().values)
        summation = Summation(lambda: [start() for start in starts], add_block, _merge_sums, nbytes)
        return sum_groups(self.rows(), summation)

    def rows(self) -> RowsInGroups:
        """Return the rows as blocks of the problems."""
        return RowsInGroups(self.store, Raw(0.0), self.problems, working=3 * TILE_BYTES)

    def iterate_rows(self, k: int, block: Block) -> Iterator[tuple[MarginRows, Float64]]:
        """Yield the rows of a block of problem k in float64, some at a time, with their signs z (n,)."""
        problem, count = self.problems[k], len(block.y)
        step = max(1, TILE_BYTES // (8 * (self.scaling.columns + 1)))
        for first in range(0, count, step):
            part = slice(first, min(count, first + step))
            X, y = self.scaling.apply(row_slice(block.X, part.start, part.stop)), block.y[part]
            C = problem.C * block.s[part].astype(np.float64)
            yield margins_of(X, y, C, self.weights[k], numeric=problem.loss.numeric()), problem.kind.signs(y)


def _merge_sums(left: list[PassSums], right: list[PassSums]) -> list[PassSums]:
    return [one.merge(other) for one, other in zip(left, right, strict=True)]
