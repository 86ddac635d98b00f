"""Pairs of columns of a fit of curves (--pairs): which columns can form pairs, and the choice of pairs by a test.

Named pairs are taken as they are. Otherwise curves are fitted first, without pairs, and one more pass over the rows sums the
slopes of that fit in the cells of all pairs (``features.pair_statistic``). The pairs that pass the test and gain most are then
fitted together with the curves, beginning at the curves fitted before. One more pass counts the rows in the cells of the
chosen pairs, for the page and the model. The certificate is that of the last fit, given the pairs.

**Size.** The test takes TABLE_BYTES_PER_CELL for each cell of each pair. If there are too many pairs, their cells are merged, first
those of categories. Of many variables, those are tried whose own effect on the decision value is largest. If there are many rows for the
number of pairs, every second row is used, or every third, ...: all these rules depend on the table alone.

Everything is summed by one thread in the order of the rows, so that the choice does not depend on threads or workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from streamsvm.compute.blocks.column_pairs import add_to_tables, find_cells, table_starts
from streamsvm.compute.blocks.curves import lower_bounds
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.newton import slopes_pass
from streamsvm.engine.block_visitor import targets_and_weights
from streamsvm.errors import UsageError, quote
from streamsvm.features.column_pairs import (
    CATEGORY_CELLS,
    NUMBER_CELLS,
    ColumnPairs,
    Variables,
    choose_edges,
    collect_variables,
    group_exclusive,
    make_pair_basis,
)
from streamsvm.features.curves import ColumnHistograms, Curves
from streamsvm.features.pair_statistic import MIN_Z, Moments, PairSums, measure_pair
from streamsvm.jobs.apply.column_names import SourceColumns, group_columns, name_variable
from streamsvm.jobs.common_options import OVO
from streamsvm.jobs.fit.options import AUTO_PAIRS, NO_PAIRS, FitJob
from streamsvm.losses import Logistic, round_corners
from streamsvm.registry import did_you_mean
from streamsvm.rows import Float32, Float64, Int32, Int64, Targets, row_slice
from streamsvm.schedule.stream import LoadedChunk, Stream, epoch_visits
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Layout, Problem, Store, Term

MAX_AUTO_PAIRS, PAIRS_PER_VARIABLE = 50, 3
"""--pairs auto takes at most so many pairs, and at most so many for each variable."""
MAX_VARIABLES = 128
"""Maximum number of variables whose pairs are tested."""
TABLE_BYTES_PER_CELL = 24
"""Bytes of the three sums of a cell in the test of one problem."""
MAX_TABLE_BYTES = 64 << 20
"""Maximum size of the sums of the test."""
MAX_CELLS = 1 << 18
"""Maximum number of cells of all tables of a fit; pairs that would exceed it are passed over."""
CELLS_OF_TEST = ((24, 258), (24, 64), (16, 32), (12, 16), (8, 8), (4, 4))
"""Largest numbers of cells of a number and of a category in the test: the first pair that fits into MAX_TABLE_BYTES."""
MAX_TEST_WORK = 1 << 30
"""Maximum number of rows times pairs in the test: some ten seconds. With more, only every k-th row is used."""
PART_ROWS = 4096
"""Number of rows that are visited at a time."""
MAX_NAMES = 8
"""Maximum number of names that an error message lists."""
KINK_WIDTH = 0.5
"""Half-width over which the kink of a loss is smoothed in the test, in units of the margin."""
ADDITIVE_TOLERANCE = 1e-3
"""The gap of the fit of curves whose slopes are tested. Main effects, in which it may lie, are removed by the test."""


@dataclass(frozen=True, slots=True, eq=False)
class PairRequest:
    """The pairs that a job asks for, before a row is read."""

    most: int
    """The largest number of pairs."""
    named: tuple[tuple[int, int], ...] | None
    """The named pairs, each by a stored column of either variable; None: pairs are chosen by a test."""
    scale: float
    """The factor s of all tables."""
    numbers: Int64
    """The numbers of the columns of numbers that can form pairs, ascending."""
    categories: tuple[tuple[Int64, Float64], ...]
    """The columns of each category, and the fractions of the rows in which they are not 0."""
    marks: Int64
    """The columns of 0 and 1 that are not of a category, ascending."""
    mark_shares: Float64
    """The fractions of the rows in which these are 1."""

    @property
    def is_chosen_by_test(self) -> bool:
        """Whether the pairs are chosen by a test."""
        return self.named is None

    @property
    def max_variables(self) -> int:
        """An upper bound of the number of variables."""
        return len(self.numbers) + len(self.categories) + len(self.marks)

    def max_cells(self, rows: int) -> int:
        """Return an upper bound of the number of cells of all tables in a fit of so many rows."""
        number = min(NUMBER_CELLS, max(2, rows))
        sizes = [min(len(columns), CATEGORY_CELLS + 1) + 1 for columns, _ in self.categories]
        sizes += [number] * len(self.numbers) + (
            [min(len(self.marks), CATEGORY_CELLS + 1) + 1] if len(self.marks) else []
        )
        sizes += [2] * max(0, len(self.marks) - 1)
        largest = np.sort(np.array(sizes, np.int64))[::-1]
        # the pairs of the k largest variables are at least as large as any other pairs
        k = min(len(largest), int(np.sqrt(2.0 * self.most)) + 2)
        products = np.sort(np.outer(largest[:k], largest[:k])[np.triu_indices(k, 1)])[::-1]
        bound = int(products[: self.most].sum()) + max(0, self.most - len(products)) * int(products[-1:].sum())
        return min(MAX_CELLS, bound)

    def terms(self, layout: Layout, problems: int, solver_bytes: int) -> list[Term]:
        """Return the memory of pairs. ``problems``: the number of problems; ``solver_bytes``: memory that the solver takes only
        after pairs are chosen.
        """
        variables = min(MAX_VARIABLES, self.max_variables)
        test = 0
        if self.is_chosen_by_test:
            cells = variables * (variables - 1) // 2 * CELLS_OF_TEST[0][1] ** 2
            test = min(TABLE_BYTES_PER_CELL * problems * cells, MAX_TABLE_BYTES)
        largest = max([NUMBER_CELLS, *(min(len(c), CATEGORY_CELLS + 1) + 1 for c, _ in self.categories)])
        counting = 16 * self.max_cells(layout.rows) + 8 * len(self.marks) ** 2
        # the matrices of variables, and the eigenvectors of both variables of each pair in the preconditioner
        matrices = 8 * (2 * min(variables, 2 * self.most) + 2 * self.most) * largest * largest
        return [
            Term(
                "choice of pairs",
                max(0, test + counting - solver_bytes),
                f"{variables} columns; less what the solver takes later",
            ),
            Term(
                "pairs", matrices + 32 * self.max_cells(layout.rows), f"at most {self.most}, with their preconditioner"
            ),
        ]

    def describe(self) -> JsonObject:
        """Return the request as plain JSON."""
        return {"most": self.most, "chosen": "by a test" if self.is_chosen_by_test else "named", "scale": self.scale}


def request_pairs(job: FitJob, store: Store, numbers: Int64, marks: Int64) -> PairRequest | None:
    """Return the pairs that a job asks for; None without --pairs. Raises UsageError.

    ``numbers``: the columns that may have curves; ``marks``: the columns of 0 and 1.
    """
    asked = job.pairs
    if asked in {None, NO_PAIRS, 0}:
        return None
    statistics, d = store.statistics(), store.layout.columns
    sources = group_columns(store.facts.get("names"), store.facts.get("encoding"), d)
    is_vector = np.array([sources.kind_of(group) == "vector" for group in sources.group.tolist()], np.bool_)
    is_encoded = np.zeros(d, np.bool_)
    indicators: list[list[int]] = store.facts.get("indicators") or []
    for start, stop in indicators:
        is_encoded[start:stop] = True
    numbers, marks = numbers[~is_vector[numbers]], marks[~is_encoded[marks]]
    categories = [np.arange(start, stop) for start, stop in sources.one_hot]
    scale = 1.0 if job.pair_scale is None else job.pair_scale
    shares = tuple((columns, statistics.mean[columns]) for columns in categories)
    request = PairRequest(0, None, scale, numbers, shares, marks, statistics.mean[marks])
    if isinstance(asked, str) and asked != AUTO_PAIRS:
        named = _resolve_names(asked, sources, [*([j] for j in numbers), *categories, *([j] for j in marks)], numbers)
        return replace(request, most=len(named), named=named)
    if job.multi_class == OVO:
        raise UsageError(
            f"--pairs {asked} cannot be combined with --multi-class {OVO}: the test sums slopes of all rows",
            hint="--multi-class ovr, or name the pairs: --pairs A*B",
        )
    variables = min(MAX_VARIABLES, request.max_variables)
    if variables < 2:
        raise UsageError(
            f"--pairs: '{store.name}' has fewer than two columns that can form a pair",
            hint="leave out --pairs; text, hashed columns and vectors have no cells",
        )
    limit = min(MAX_AUTO_PAIRS, PAIRS_PER_VARIABLE * variables) if asked == AUTO_PAIRS else int(asked or 0)
    return replace(request, most=min(limit, variables * (variables - 1) // 2))


def _resolve_names(
    text: str, sources: SourceColumns, candidates: Sequence[Sequence[int] | Int64], numbers: Int64
) -> tuple[tuple[int, int], ...]:
    """Return the first stored columns of the variables of each named pair. Raises UsageError."""
    is_number = set(numbers.tolist())
    first = {
        name_variable(
            sources, [int(j) for j in columns], number=len(columns) == 1 and int(columns[0]) in is_number
        ): int(columns[0])
        for columns in candidates
    }
    pairs: list[tuple[int, int]] = []
    for pair in text.split(","):
        names = [name.strip() for name in pair.split("*")]
        if len(names) != 2 or names[0] == names[1]:
            raise UsageError(
                f"--pairs: {quote(pair)} is not a pair of two columns",
                hint="auto, none, a number, or pairs such as age*income,city*year",
            )
        for name in names:
            if name not in first:
                raise UsageError(
                    f"--pairs: there is no column {quote(name)} that can form a pair{did_you_mean(name, first)}",
                    hint=f"text, hashed columns and vectors cannot; these can: {', '.join(list(first)[:MAX_NAMES])}"
                    + (", ..." if len(first) > MAX_NAMES else ""),
                )
        a, b = sorted(first[name] for name in names)
        if (a, b) not in pairs:
            pairs.append((a, b))
    return tuple(pairs)


# -- the variables


def find_variables(request: PairRequest, histograms: ColumnHistograms, together: Int64) -> Variables:
    """Return the variables that can form pairs, from the histograms of numbers and ``together`` (m, m), the numbers of rows in
    which two columns of 0 and 1 are both 1.
    """
    cell_bounds = lower_bounds()
    is_wanted = set(request.numbers.tolist())
    numbers = []
    for j, column in enumerate(histograms.columns.tolist()):
        occupied = np.flatnonzero(histograms.counts[j])
        if column in is_wanted and len(occupied) > 1:
            edges, rows = choose_edges(cell_bounds[occupied], histograms.counts[j, occupied])
            numbers.append((column, edges, rows))
    share = dict(zip(request.marks.tolist(), request.mark_shares.tolist(), strict=True))
    groups = group_exclusive(request.marks, together)
    marks = [(group, np.array([share[j] for j in group.tolist()])) for group in groups]
    return collect_variables(numbers, [*request.categories, *marks])


# -- the choice


class ChosenPairs(NamedTuple):
    """The result of a test."""

    pairs: list[tuple[int, int]]
    """The variables of the pairs that are to be fitted, the largest gain first."""
    tested: int
    passed: int
    """The numbers of pairs tested, and of those that pass."""


def choose_pairs(  # noqa: PLR0917
    request: PairRequest, curves: Curves, store: Store, problems: Sequence[Problem], weights: Float64, depth: int
) -> ChosenPairs:
    """Return the pairs that pass the test, at most ``request.most``, after one pass over the rows.

    ``problems``: those of one C, with the fitted curves ``weights`` (problems, features + 1), the intercept last.
    """
    variables = curves.variables
    assert variables is not None  # the map was made for pairs
    strongest = _strongest_variables(variables, curves, weights)
    chosen = variables.select(strongest)
    v = len(chosen)
    pairs = np.array([(a, b) for a in range(v) for b in range(a + 1, v)], np.int32).reshape(-1, 2)
    merging = _merge_cells(chosen, pairs, len(problems))
    sums = _sum_slopes(store, curves, chosen, merging, pairs, problems, weights, depth)
    moments = [_measure(sums, merging, pair, number) for number, pair in enumerate(pairs.tolist())]
    passing = [number for number, one in enumerate(moments) if one.z > MIN_Z]
    taken: list[tuple[int, int]] = []
    cells = 0
    for number in sorted(passing, key=lambda number: -moments[number].gain):
        a, b = pairs[number].tolist()
        size = int(chosen.counts[a]) * int(chosen.counts[b])
        if len(taken) < request.most and cells + size <= MAX_CELLS:
            taken.append((int(strongest[a]), int(strongest[b])))
            cells += size
    return ChosenPairs(taken, len(pairs), len(passing))


def _strongest_variables(variables: Variables, curves: Curves, weights: Float64) -> Int64:
    """Return the numbers of the MAX_VARIABLES variables with the largest effects in the fit without pairs, ascending."""
    hats, effect = curves.hats, np.zeros((len(weights), len(variables)))
    if len(variables) <= MAX_VARIABLES:
        return np.arange(len(variables))
    for k, row in enumerate(weights):
        linear, _ = hats.split_weights(row[:-1])
        for shape in hats.shapes(row[:-1]):
            number = variables.variable_of(shape.column)
            if number is not None:
                effect[k, number] = shape.deviation
        for number in np.flatnonzero(~variables.cells.is_number).tolist():
            mine = variables.cells.variables == number
            shares, values = variables.shares_of(number), np.zeros(variables.counts[number])
            values[variables.cells.levels[mine]] = linear[variables.cells.columns[mine]]
            effect[k, number] = np.sqrt(max(0.0, float(shares @ values**2 - (shares @ values) ** 2)))
    size = np.square(effect).sum(axis=0)
    return np.sort(np.argsort(-size, kind="stable")[:MAX_VARIABLES])


class _Merging(NamedTuple):
    """How cells are merged for the test."""

    cell: Int32
    """The merged cell of each cell of all variables."""
    starts: Int64
    """(v,) The place of the first cell of each variable in ``cell``."""
    counts: Int32
    """(v,) The number of merged cells of each variable."""
    tables: Int64
    """(P + 1,) The place of the first merged cell of each pair."""


def _merge_cells(variables: Variables, pairs: Int32, problems: int) -> _Merging:
    """Return the finest merging of cells whose sums fit into MAX_TABLE_BYTES, or else the coarsest one."""
    is_number = variables.cells.is_number
    for most_of_number, most_of_category in CELLS_OF_TEST:
        own = [
            _merge_number(len(shares), most_of_number) if is_number[v] else _merge_category(shares, most_of_category)
            for v, shares in enumerate(variables.shares_of(v) for v in range(len(variables)))
        ]
        counts = np.array([int(one.max()) + 1 for one in own], np.int32)
        merging = _Merging(
            np.concatenate(own).astype(np.int32), variables.starts[:-1], counts, table_starts(counts, pairs)
        )
        if problems * TABLE_BYTES_PER_CELL * int(merging.tables[-1]) <= MAX_TABLE_BYTES:
            break
    return merging


def _merge_number(cells: int, most: int) -> Int64:
    return np.arange(cells) * min(cells, most) // cells


def _merge_category(shares: Float64, most: int) -> Int64:
    """Keep the cells with the most rows, and join all others."""
    if len(shares) <= most:
        return np.arange(len(shares))
    merged = np.full(len(shares), most - 1)
    merged[np.sort(np.argsort(-shares, kind="stable")[: most - 1])] = np.arange(most - 1)
    return merged


class _SlopeSums(NamedTuple):
    """The sums of a test."""

    tables: Float64
    """(problems, cells of all tables, 3): G, Q and V."""
    ratios: Float64
    """(problems,) r of each problem."""


def _sum_slopes(  # noqa: PLR0913, PLR0917
    store: Store,
    curves: Curves,
    variables: Variables,
    merging: _Merging,
    pairs: Int32,
    problems: Sequence[Problem],
    weights: Float64,
    depth: int,
) -> _SlopeSums:
    """Sum slopes, their squares and the information of rows in the cells of all pairs."""
    tables = np.zeros((len(problems), int(merging.tables[-1]), 3))
    totals = np.zeros((len(problems), 4))
    """Sums of the weights, of rows with a weight, of Q and of V."""
    every = max(1, -(-store.layout.rows * len(pairs) * len(problems) // MAX_TEST_WORK))
    for loaded, span in _iterate_parts(store, depth):
        start = store.layout.starts[loaded.visit.chunk] + span.start
        chosen = np.arange(span.start + (-start) % every, span.stop, every)
        X = take_rows(loaded.chunk.X, chosen) if every > 1 else row_slice(loaded.chunk.X, span.start, span.stop)
        codes = loaded.chunk.codes[chosen]
        weight = None if loaded.chunk.weight is None else loaded.chunk.weight[chosen]
        cells = merging.cell[merging.starts + find_cells(X, variables.cells)]
        f = np.empty((len(codes), len(weights)))
        curves.hats.decision(X, weights, f)
        for k, problem in enumerate(problems):
            y, s = targets_and_weights(problem, codes, weight)
            values = measure_slopes(problem, y, s, np.ascontiguousarray(f[:, k]))
            totals[k] += (float(s.sum()), np.count_nonzero(s), *values.sum(axis=0)[1:])
            add_to_tables(cells, pairs, merging.counts, merging.tables, values, tables[k])
    for k, (weight_sum, rows, squares, information) in enumerate(totals.tolist()):
        unit = weight_sum / max(1.0, rows)  # so that a weight of 1 is that of a typical row
        tables[k] /= np.array([unit, unit * unit, unit * unit])
        totals[k, 0] = squares / information if information > 0.0 else 1.0
    return _SlopeSums(tables, totals[:, 0].copy())


def measure_slopes(problem: Problem, y: Targets, s: Float32 | Float64, f: Float64) -> Float64:
    """Return g, g^2 and v (n, 3) of rows with these targets, weights and decision values."""
    slopes, second = np.empty(len(f)), np.empty(len(f))
    cost = RowLoss(1.0, problem.loss, round_corners(problem.loss, KINK_WIDTH))
    slopes_pass(y, s, f, cost, slopes, second)
    weight = s.astype(np.float64)
    information = weight * second if isinstance(problem.loss, Logistic) else weight * weight
    return np.column_stack([slopes, slopes * slopes, information])


def _measure(sums: _SlopeSums, merging: _Merging, pair: Sequence[int], number: int) -> Moments:
    """Return the statistic of a pair, summed over all problems."""
    a, b = pair
    part = slice(merging.tables[number], merging.tables[number + 1])
    total = Moments(0.0, 0.0, 0.0)
    for table, ratio in zip(sums.tables, sums.ratios.tolist(), strict=True):
        arrays = (table[part, k].reshape(merging.counts[a], merging.counts[b]) for k in range(3))
        total = total.add(measure_pair(PairSums(*arrays), ratio))
    return total


def _iterate_parts(store: Store, depth: int) -> Iterator[tuple[LoadedChunk, slice]]:
    """Yield the chunks of a store in order, in parts of at most PART_ROWS rows."""
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False), depth=depth) as stream:
        for loaded in stream:
            rows = len(loaded.chunk.codes)
            for start in range(0, rows, PART_ROWS):
                yield loaded, slice(start, min(start + PART_ROWS, rows))


# -- the map with pairs


def find_named_pairs(request: PairRequest, variables: Variables) -> list[tuple[int, int]]:
    """Return the variables of the named pairs. Raises UsageError if both columns of a pair are one variable."""
    pairs: list[tuple[int, int]] = []
    for columns in request.named or ():
        a, b = (variables.variable_of(column) for column in columns)
        if a is None or b is None or a == b:
            raise UsageError(
                "--pairs: a named pair has no two variables: one of its columns has a single value, or both are columns of 0 and "
                "1 of which at most one is 1 in each row",
                hint="leave out the pair",
            )
        pair = min(a, b), max(a, b)
        if pair not in pairs:
            pairs.append(pair)
    cells = sum(int(variables.counts[a]) * int(variables.counts[b]) for a, b in pairs)
    if cells > MAX_CELLS:
        raise UsageError(
            f"--pairs: the named pairs have {cells} cells, and at most {MAX_CELLS} are possible",
            hint="name fewer pairs, or ingest categories with fewer values (--min-count)",
        )
    return pairs


def with_pairs(curves: Curves, pairs: Sequence[tuple[int, int]], store: Store, scale: float, depth: int) -> Curves:
    """Return the map with tables of these pairs of variables, after a pass that counts the rows in their cells."""
    variables = curves.variables
    assert variables is not None  # the map was made for pairs
    used = np.unique(np.array(pairs, np.int64))
    chosen = variables.select(used)
    numbers = np.searchsorted(used, np.array(pairs, np.int64)).astype(np.int32)
    starts = table_starts(chosen.counts, numbers)
    rows = np.zeros((int(starts[-1]), 1))
    for loaded, span in _iterate_parts(store, depth):
        cells = find_cells(row_slice(loaded.chunk.X, span.start, span.stop), chosen.cells)
        add_to_tables(cells, numbers, chosen.counts, starts, np.ones((len(cells), 1)), rows)
    tables = ColumnPairs(chosen.cells, chosen.counts, numbers, rows[:, 0] / store.layout.rows)
    basis, first = curves.basis, curves.hats.additive_features
    if basis is not None:
        basis = basis._replace(pairs=make_pair_basis(chosen, numbers, first, scale))
    return replace(curves, hats=replace(curves.hats, pairs=tables), basis=basis)
