"""What the bounds on rounding know of the weights of rows."""

from __future__ import annotations

import numpy as np

from streamsvm.engine.training import Run
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.schedule.plan import epoch_visits
from streamsvm.schedule.stream import Stream
from streamsvm.solvers.linear_rounding import RowWeights
from streamsvm.types import Certificate, Store


def row_weights(plan: Plan, store: Store) -> RowWeights | None:
    """What is known of the weights of rows; of the problem whose classes weigh most, if there are several.

    Where the target is a number they are counted in a reading, if rows have weights of their own.
    """
    if plan.layout.weighted:
        return _counted_weights(store) if plan.layout.numeric else None
    counts = np.array(plan.layout.counts, np.float64)
    factors = [np.array(problem.weights or np.ones(len(counts))) for problem in plan.problems]
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
