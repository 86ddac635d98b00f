"""One problem for each pair of classes, and a vote: what ``SVC`` does with several classes.

Each pair is a fit of the rows of its two classes, read through a view of the store; f > 0 speaks for the first. Votes, and how sure
they are, make one value a class as in scikit-learn: v_a + s_a / (3 (|s_a| + 1)), s_a the sum of the decision values for a.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit_in_memory import MemoryFitResult, fit_in_memory
from streamsvm.rows import Float64, Int32
from streamsvm.sklearn.fitting.classes import in_order
from streamsvm.store.views.selected import SelectedRows
from streamsvm.types import Report, Store


def fit_pairs(job: FitJob, store: Store, codes: Int32, report: Report) -> list[MemoryFitResult]:
    """Return a fit for each pair of classes, (0, 1), (0, 2), ..., (1, 2), ...; f > 0 stands for the first of both.

    ``codes`` (n,): the class code of every row; a store may have met the classes in any order. Raises what a fit raises.
    """
    names, results = store.layout.classes, []
    for first, second in combinations(in_order(store), 2):
        view = SelectedRows(store, (codes == first) | (codes == second), codes)
        found = fit_in_memory(replace(job, positive=names[first]), view, report)
        pair = replace(found.model, classes=(names[second], names[first]))
        results.append(replace(found, model=pair))
    return results


def votes(pairs: Float64, classes: int) -> Float64:
    """Return one value a class (n, classes) of the decision values of all pairs (n, classes (classes - 1) / 2)."""
    found, sums = np.zeros((len(pairs), classes)), np.zeros((len(pairs), classes))
    for k, (first, second) in enumerate(combinations(range(classes), 2)):
        sums[:, first] += pairs[:, k]
        sums[:, second] -= pairs[:, k]
        found[:, first] += pairs[:, k] > 0
        found[:, second] += pairs[:, k] <= 0
    return found + sums / (3.0 * (np.abs(sums) + 1.0))
