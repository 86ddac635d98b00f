"""Curves of a fit (--curves): which columns have them, the memory that they need, and the reading that chooses knots.

One reading of the training rows counts the values of each column, before the first pass. Only numbers are counted, not
labels, so that folds and probabilities are not affected. With --jumps auto another reading sums the labels of frequent values
(``jobs.fit.jumps``).
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace

import numpy as np

from streamsvm.compute.blocks.column_pairs import count_marks_together
from streamsvm.compute.blocks.frequent_values import SLOTS
from streamsvm.config.units import mib
from streamsvm.errors import UsageError
from streamsvm.features.curves import (
    D2,
    HISTOGRAM_BYTES,
    KNOTS,
    NONE,
    ColumnHistograms,
    Curves,
    are_zero_or_one,
    make_basis,
    part_rows,
)
from streamsvm.features.jumps import MAX_JUMPS
from streamsvm.jobs.fit.column_pairs import PairRequest, find_variables, request_pairs
from streamsvm.jobs.fit.jumps import (
    MAX_TARGETS,
    TABLE_BYTES,
    FrequentValues,
    find_jumping_values,
    request_jumps,
    select_weighted,
    take_values,
)
from streamsvm.jobs.fit.options import AUTO_JUMPS, FitJob
from streamsvm.rows import Float64, Int64
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.solvers.newton.preconditioner import max_explicit_components
from streamsvm.type_aliases import JsonObject
from streamsvm.types import AnySolver, Cost, Layout, Problem, Report, Store, Term


@dataclass(frozen=True, slots=True, eq=False)
class CurveRequest:
    """The curves that a job asks for, before a row is read."""

    columns: Int64
    """The numbers of the columns that may have curves, ascending."""
    linear: Int64
    """The numbers of the columns that have weights, ascending: category values, words, 0 and 1."""
    deviations: Float64
    """The standard deviations of these columns."""
    linear_entries: float
    """The mean number of nonzero entries of a row in these columns."""
    knots: int
    """The largest number of knots of a curve."""
    smooth: str
    """The penalty, one of ``features.curves.SMOOTHING``."""
    bias: float
    """The value of the constant feature."""
    pairs: PairRequest | None = None
    """The pairs of columns; None: no pairs."""
    jumps: str | tuple[tuple[int, float], ...] | None = None
    """AUTO_JUMPS: jumps are found by a test; or given ones, each as column and stored value; None: no jumps."""

    @property
    def jump_entries(self) -> int:
        """The largest number of entries of a row for jumps."""
        if isinstance(self.jumps, tuple):
            return len({column for column, _ in self.jumps})
        return 0 if self.jumps is None else len(self.columns)

    @property
    def max_jumps(self) -> int:
        """An upper bound of the number of jumps."""
        if isinstance(self.jumps, tuple):
            return len(self.jumps)
        return 0 if self.jumps is None else MAX_JUMPS * len(self.columns)

    def layout_of_features(self, layout: Layout) -> Layout:
        """Return the layout of the rows that the solver sees: sparse, with two entries a curve and one a pair.

        It has at most as many components and entries, as columns with few values have fewer knots or no curve.
        """
        always = self.entries_per_row
        if layout.nonzeros is None:
            nonzeros = tuple(math.ceil(rows * (always + self.linear_entries)) for rows in layout.chunks)
        else:
            nonzeros = tuple(
                always * rows + stored for rows, stored in zip(layout.chunks, layout.nonzeros, strict=True)
            )
        components = len(self.columns) * min(self.knots, max(2, layout.rows)) + len(self.linear)
        components += self.max_jumps + (0 if self.pairs is None else self.pairs.max_cells(layout.rows))
        return replace(layout, columns=components, nonzeros=nonzeros, dtype="float32")

    @property
    def entries_per_row(self) -> int:
        """The number of entries of a row for curves, jumps and pairs."""
        return 2 * len(self.columns) + self.jump_entries + (0 if self.pairs is None else self.pairs.most)

    def cost(self, solver: AnySolver, problem: Problem, seen: Layout) -> Cost:
        """Return upper bounds of the memory that the solver needs, whether or not columns have so few values that it
        forms its matrix explicitly. ``seen``: ``layout_of_features``.
        """
        components = max_explicit_components(dense=False) - 1
        costs = [solver.cost(problem, seen)]
        if len(self.linear) < components < problem.columns:
            costs.append(solver.cost(replace(problem, columns=components), replace(seen, columns=components)))
        return Cost(*(max(values) for values in zip(*map(astuple, costs), strict=True)))

    def terms(self, layout: Layout, solver_bytes: int, readers: int, problems: int) -> list[Term]:
        """Return the memory of the curves. ``solver_bytes``: memory that the solver takes only after the knots are known;
        ``problems``: the number of problems.
        """
        q, linear = len(self.columns), len(self.linear)
        each = HISTOGRAM_BYTES + 8
        if self.jumps == AUTO_JUMPS:
            targets = min(MAX_TARGETS, max(1, len(layout.classes) - 1)) if layout.classes else 2
            each += max(TABLE_BYTES, (1 + targets) * (HISTOGRAM_BYTES + 8 * SLOTS)) + 4 * SLOTS
        counting = max(0, q * each + 2 * HISTOGRAM_BYTES - solver_bytes)
        knots = min(self.knots, max(2, layout.rows))
        matrices = 0 if self.smooth == NONE else 8 * q * knots * knots + 32 * knots * knots
        rows, always = min(part_rows(q), layout.largest_chunk), self.entries_per_row
        entries = rows * (always + linear) if layout.nonzeros is None else always * rows + max(layout.nonzeros)
        pairs = [] if self.pairs is None else self.pairs.terms(layout, problems, solver_bytes)
        cells = 0 if self.pairs is None else 4 * rows * self.pairs.max_variables
        return [
            Term("histograms", counting, f"of {q} columns, to choose knots; less what the solver takes later"),
            Term(
                "curves", matrices + 16 * q * knots + 8 * layout.columns, f"{q} columns, {knots} knots, {self.smooth}"
            ),
            Term(
                "rows of hats",
                readers * (3 * (8 * entries + 16 * rows) + cells),
                f"{readers} x {mib(8 * entries)}, with copies",
            ),
            *pairs,
        ]

    def describe(self) -> JsonObject:
        """Return the request as plain JSON."""
        curves = {"columns": len(self.columns), "knots": self.knots, "smooth": self.smooth}
        curves |= {} if self.jumps is None else {"jumps": "by a test" if self.jumps == AUTO_JUMPS else len(self.jumps)}
        return curves if self.pairs is None else curves | {"pairs": self.pairs.describe()}


def request_curves(job: FitJob, store: Store, problems: list[Problem]) -> tuple[CurveRequest | None, list[Problem]]:
    """Return the curves that a job asks for, and the problems with the number of components and entries that the solver
    sees; None and the problems themselves without --curves. Raises UsageError.
    """
    if not job.curves:
        return None, problems
    if store.facts.get("map") is not None:
        raise UsageError(
            f"--curves needs columns of numbers, and store '{store.name}' has kernel features",
            hint="leave out --curves, or name the store of the rows from which the features were made",
        )
    statistics = store.statistics()
    is_mark = are_zero_or_one(statistics, store.layout.rows)
    is_linear = is_mark.copy()
    indicators: list[list[int]] = store.facts.get("indicators") or []
    for start, stop in indicators:
        is_linear[start:stop] = True
    columns = np.flatnonzero(~is_linear & (statistics.minimum < statistics.maximum))
    if not len(columns):
        raise _no_curves_error(store)
    knots = KNOTS if job.knots is None else job.knots
    entries = float(np.where(is_mark, statistics.mean, 1.0)[is_linear].sum())
    deviations = np.sqrt(statistics.M2 / store.layout.rows)[is_linear]
    pairs = request_pairs(job, store, columns, np.flatnonzero(is_mark))
    linear = np.flatnonzero(is_linear)
    request = CurveRequest(
        columns,
        linear,
        deviations,
        entries,
        knots,
        job.smooth or D2,
        job.bias,
        pairs,
        request_jumps(job, store, columns),
    )
    seen = request.layout_of_features(store.layout)
    per_row = -(-sum(seen.nonzeros or ()) // max(1, seen.rows))
    return request, [replace(one, columns=seen.columns, nonzeros=per_row * one.rows) for one in problems]


def check_solver_for_curves(solver: AnySolver, name: str, problem: Problem, request: CurveRequest | None) -> None:
    """Raise UsageError if the solver needs the entries of rows, which smooth curves do not have."""
    if request is not None and request.smooth != NONE and solver.estimate_work(problem) is None:
        raise UsageError(
            f"solver '{name}' visits the entries of rows one by one, and --smooth {request.smooth} leaves rows of curves in "
            "the form of a product",
            hint="--solver newton, or --smooth none",
        )


def make_curves(request: CurveRequest, store: Store, report: Report, depth: int) -> Curves:
    """Read the rows once and return the map to curves, with the variables that can form pairs; once more if jumps are found by a
    test. Rows of weight 0 do not count. Raises UsageError if no column has a curve, DataError, StorageError.
    """
    histograms, pairs = ColumnHistograms(request.columns), request.pairs
    marks = np.empty(0, np.int64) if pairs is None else pairs.marks
    together = np.zeros((len(marks), len(marks)), np.int64)
    frequent = FrequentValues(request.columns) if request.jumps == AUTO_JUMPS else None
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False), depth=depth) as stream:
        for loaded in stream:
            X = select_weighted(loaded.chunk).X
            histograms.add(X)
            if frequent is not None:
                frequent.add(X)
            if len(marks):
                count_marks_together(X, marks, together)
    hats = histograms.hats(store.layout.columns, request.linear, request.deviations, request.knots)
    if not len(hats.curved):
        raise _no_curves_error(store)
    if frequent is not None:
        jumps = find_jumping_values(frequent, hats, histograms, request.knots, store, depth)
    else:
        jumps = take_values(request.jumps or (), hats)
    found = {} if jumps is None else {"found_jumps": len(jumps.values)}
    report({"event": "curves", **request.describe(), "curves": len(hats.curved), "all_knots": len(hats.knots), **found})
    variables = None if pairs is None else find_variables(pairs, histograms, together)
    return Curves(replace(hats, jumps=jumps), make_basis(hats.starts, request.smooth), request.bias, variables)


def _no_curves_error(store: Store) -> UsageError:
    return UsageError(
        f"--curves: no column of '{store.name}' has numbers other than 0 and 1",
        hint="leave out --curves: a function of categories, words and marks is linear in their columns",
    )
