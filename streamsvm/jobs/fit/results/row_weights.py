"""What the bounds on rounding know of the weights of rows."""

from __future__ import annotations

import numpy as np

from streamsvm.engine.training import Run
from streamsvm.features.scaling import Standardized
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.solvers.rounding import RowWeights
from streamsvm.types import Certificate, Store


def row_weights(plan: Plan, store: Store) -> RowWeights | None:
    """What is known of the weights of rows; of the problem whose classes weigh most, if there are several.

    If rows have weights of their own these are counted in a reading where the target is a number, or columns are scaled in float32:
    what that does to a loss without corners goes with the largest weight, and is felt.
    """
    if plan.layout.weighted and not (plan.layout.numeric or isinstance(plan.features, Standardized)):
        return None
    counts = np.array(plan.layout.counts, np.float64)
    factors = [np.array(problem.weights or np.ones(len(counts))) for problem in plan.problems]
    if plan.layout.weighted:
        total, squares, largest = _counted_weights(store)
        most = max(float(f.max(initial=0.0)) for f in factors)
        return RowWeights(most * total, most * most * squares, most * largest)
    found = [RowWeights(float(counts @ f), float(counts @ (f * f)), float(f.max())) for f in factors]
    return RowWeights(*(max(values) for values in zip(*found, strict=True)))


def _counted_weights(store: Store) -> RowWeights:
    """The weights of all rows, which are read."""
    total, squares, largest = 0.0, 0.0, 0.0
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False)) as stream:
        for loaded in stream:
            weight = loaded.chunk.weight
            assert weight is not None  # the layout says so
            s = weight.astype(np.float64)
            total, squares, largest = total + float(s.sum()), squares + float(s @ s), max(largest, float(s.max()))
    return RowWeights(total, squares, largest)


def weights_of_rows(run: Run, known: RowWeights | None) -> RowWeights | None:
    """What is known of the weights of the rows of a problem: of one class with a free offset, what was summed up."""
    if run.problem.nu is None:
        return known
    facts = certificate_of(run).facts
    return RowWeights(facts["weight"], facts["squared_weights"], facts["largest_weight"])


def certificate_of(run: Run) -> Certificate:
    """The certificate of a run: there is one after a pass."""
    assert run.certificate is not None
    return run.certificate
