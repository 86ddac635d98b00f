"""What Newton's method holds in memory: rows, of which problems that take all of them share one copy, vectors, a matrix."""

from __future__ import annotations

from streamsvm.solvers.newton.exact_steps import are_worth_it
from streamsvm.solvers.newton.explicit import matrix_bytes, most_explicit
from streamsvm.solvers.newton.in_memory.linear_systems.preconditioner import block_bytes, block_size
from streamsvm.solvers.newton.in_memory.proximal_metric import most_full
from streamsvm.solvers.newton.row_sample import SPARE, STORED_ARRAYS, is_wide, row_bytes, sample_rows, sampled_bytes
from streamsvm.types import Cost, Layout, Problem
from streamsvm.types.problem import has_box

PART_VECTORS = 3
"""Of length p that a part of a pass has: v, what rounding took from it, in the first pass the squares."""
MATRICES = 8
"""Of p by p numbers, where second derivatives of all rows are summed up."""
VECTORS = 32
"""Of length p: states, directions, residuals and what the products make."""
SINGLE_BYTES = 4
"""Of an entry in float32."""
SAMPLE_ARRAYS = 48
"""Bytes a row of a sample: sign, weight, key, score, margin and number, rounded up."""
ROW_ARRAYS = 188
"""Bytes a row: sign, weight, number, margins, and the float64 arrays of an interior point ..."""
DESCENT_ARRAYS, FULL_BYTES = 140, 4
"""... or those of proximal descent, which holds so many bytes for each full column beside them."""


def cost_of(problem: Problem, layout: Layout, sample: int | None) -> Cost:
    """Return what a problem asks for, of which the rows a model is made of are as many as ``sample`` says, or are usual."""
    p, rows, entry = problem.columns + 1, sample_rows(sample, problem), layout.entry_bytes
    entries = p if layout.dense else 2 * sum(layout.nonzeros or ()) // max(1, layout.rows) + 4
    most = most_explicit(dense=layout.dense)
    # of kernel features there can be fewer than columns are announced, and then few enough for a matrix
    q = min(p, most) if layout.dense or p <= most else 0
    # the sample a model is made of, while the next pass gathers up to twice as many rows and throws some out; where
    # features are formed when the pass is over, the next one's beside it
    held = layout.kept_bytes
    sampled = rows * (2 * (entry * entries + SAMPLE_ARRAYS) if held else 4 * (entry * entries + SAMPLE_ARRAYS))
    if is_wide(problem):  # it is needed between two passes only
        sampled = rows * sampled_bytes(problem)
    sampled = sampled if rows < problem.rows else 0
    # sparse rows are given up while they are joined; of dense ones two copies were seen
    copies = 1 if problem.nonzeros else 2
    # never all rows, as otherwise in the end; nor where those in memory are not those that are visited (``NewtonState.factored``)
    fewer = (bool(sample) or (held > 0 and entry == SINGLE_BYTES)) and rows < problem.rows
    row = held + entry * entries if held else copies * entry * row_bytes(problem) // 4
    whole = problem.rows * row
    once = rows == problem.rows  # who takes all rows from the first pass on has them with all others that do
    own = sampled if fewer else max(sampled, (0 if once else whole) + problem.rows * _arrays(problem))
    # rows of a part that may yet be in the sample
    gathered = int(SPARE * rows) * (held + STORED_ARRAYS) if held and rows < problem.rows else 0
    summed = 8 * p * p if are_worth_it(problem) else 0
    block = block_size(problem.columns, problem.nonzeros or problem.rows * p, dense=layout.dense)
    return Cost(
        fixed=VECTORS * 8 * p + MATRICES * summed + own,
        per_block_row=48,
        per_part=PART_VECTORS * 8 * p + summed + gathered,
        shared=max(matrix_bytes(q, entry), block_bytes(block, entry)) + (whole if once else 0),
    )


def _arrays(problem: Problem) -> int:
    """Bytes of the arrays that go with a row."""
    if not problem.nonzeros or not has_box(problem.loss):
        return ROW_ARRAYS
    return max(ROW_ARRAYS, DESCENT_ARRAYS + FULL_BYTES * most_full(problem.nonzeros, problem.rows))
