"""One class against the rest: problems whose supports overlap, their decision values from one evaluation of the kernel."""

from __future__ import annotations

import numpy as np

from streamsvm.compute.expansion import expand_all
from streamsvm.compute.subset import take
from streamsvm.rows import Dense, Float64, Rows, row_count, row_stack
from streamsvm.solvers.pool import Form, Pool

WEIGHING = 16
"""What picking a value out and adding it up costs, in entries of the product that makes one."""


def worthwhile(supports: list[Pool], X: Rows) -> bool:
    """Whether one evaluation for all is less work than one each: rows are wide enough, or supports overlap enough."""
    entries = X.values.shape[1] if isinstance(X, Dense) else len(X.data) / max(row_count(X), 1)
    each = sum(s.size for s in supports)
    return len(np.unique(np.concatenate([s.index for s in supports]))) * entries + each * WEIGHING < each * entries


def values_of(supports: list[Pool], form: Form, X: Rows) -> Float64:
    """F of every problem at the rows X, without the constant, (problems, n): each support row is evaluated once."""
    index = np.unique(np.concatenate([s.index for s in supports]))
    coefficients = np.zeros((len(supports), len(index)))
    fresh, known = [], np.empty(0, np.int64)
    for k, s in enumerate(supports):
        coefficients[k, np.searchsorted(index, s.index)] = s.sign * s.x
        new = ~np.isin(s.index, known)
        fresh.append(take(s.X, np.flatnonzero(new)))
        known = np.concatenate([known, s.index[new]])
    return expand_all(X, take(row_stack(fresh), np.argsort(known)), coefficients, form.kernel, form.columns)
