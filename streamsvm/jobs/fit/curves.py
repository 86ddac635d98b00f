"""Curves of a fit (--curves): which columns have them, the memory that they need, and the reading that chooses knots.

One reading of the training rows counts the values of each column, before the first pass. Only numbers are counted, not
labels, so that folds and probabilities are not affected.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace

import numpy as np

from streamsvm.aliases import JsonObject
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
from streamsvm.jobs.fit.options import FitJob
from streamsvm.rows import Float64, Int64
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.solvers.newton.preconditioner import max_explicit_components
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

    def layout_of_features(self, layout: Layout) -> Layout:
        """Return the layout of the rows that the solver sees: sparse, with two entries a curve.

        It has at most as many components and entries, as columns with few values have fewer knots or no curve.
        """
        q = len(self.columns)
        if layout.nonzeros is None:
            nonzeros = tuple(math.ceil(rows * (2 * q + self.linear_entries)) for rows in layout.chunks)
        else:
            nonzeros = tuple(2 * q * rows + stored for rows, stored in zip(layout.chunks, layout.nonzeros, strict=True))
        components = q * min(self.knots, max(2, layout.rows)) + len(self.linear)
        return replace(layout, columns=components, nonzeros=nonzeros, dtype="float32")

    def cost(self, solver: AnySolver, problem: Problem, seen: Layout) -> Cost:
        """Return upper bounds of the memory that the solver needs, whether or not columns have so few values that it
        forms its matrix explicitly. ``seen``: ``layout_of_features``.
        """
        components = max_explicit_components(dense=False) - 1
        costs = [solver.cost(problem, seen)]
        if len(self.linear) < components < problem.columns:
            costs.append(solver.cost(replace(problem, columns=components), replace(seen, columns=components)))
        return Cost(*(max(values) for values in zip(*map(astuple, costs), strict=True)))

    def terms(self, layout: Layout, solver_bytes: int, readers: int) -> list[Term]:
        """Return the memory of the curves. ``solver_bytes``: memory that the solver takes only after the knots are known."""
        q, linear = len(self.columns), len(self.linear)
        counting = max(0, q * (HISTOGRAM_BYTES + 8) + 2 * HISTOGRAM_BYTES - solver_bytes)
        knots = min(self.knots, max(2, layout.rows))
        matrices = 0 if self.smooth == NONE else 8 * q * knots * knots + 32 * knots * knots
        rows = min(part_rows(q), layout.largest_chunk)
        entries = rows * (2 * q + linear) if layout.nonzeros is None else 2 * q * rows + max(layout.nonzeros)
        return [
            Term("histograms", counting, f"of {q} columns, to choose knots; less what the solver takes later"),
            Term(
                "curves", matrices + 16 * q * knots + 8 * layout.columns, f"{q} columns, {knots} knots, {self.smooth}"
            ),
            Term(
                "rows of hats", readers * 3 * (8 * entries + 16 * rows), f"{readers} x {mib(8 * entries)}, with copies"
            ),
        ]

    def describe(self) -> JsonObject:
        """Return the request as plain JSON."""
        return {"columns": len(self.columns), "knots": self.knots, "smooth": self.smooth}


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
    request = CurveRequest(columns, np.flatnonzero(is_linear), deviations, entries, knots, job.smooth or D2, job.bias)
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
    """Read the rows once and return the map to curves. Raises UsageError if no column has a curve, DataError,
    StorageError.
    """
    histograms = ColumnHistograms(request.columns)
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False), depth=depth) as stream:
        for loaded in stream:
            histograms.add(loaded.chunk.X)
    hats = histograms.hats(store.layout.columns, request.linear, request.deviations, request.knots)
    if not len(hats.curved):
        raise _no_curves_error(store)
    report({"event": "curves", **request.describe(), "curves": len(hats.curved), "all_knots": len(hats.knots)})
    return Curves(hats, make_basis(hats.starts, request.smooth), request.bias)


def _no_curves_error(store: Store) -> UsageError:
    return UsageError(
        f"--curves: no column of '{store.name}' has numbers other than 0 and 1",
        hint="leave out --curves: a function of categories, words and marks is linear in their columns",
    )
