"""The dual variables of a fit, in a file: with them anyone can recompute the bound (tools/audit.py).

Coordinate methods have them as state of their rows. A solver with ``has_dual_witness`` can say what they are of a block it is shown:
Newton's method knows a point whose slopes they are, and another reading of the store writes a_i = t C_i (-h'(m_i)).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from streamsvm import durable
from streamsvm.engine.block import block_of
from streamsvm.engine.training import RowNumbers, Run, Training
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.rows import Float64
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.types import DUAL, AnySolver, FeatureMap, Store


def save_dual(path: Path, store: Store, plan: Plan, training: Training) -> None:
    """Write the dual variables (problems, rows) float64 as .npy, chunk by chunk. One problem: (rows,).

    Where classes are told apart together a row has one for each, a_ik of ``compute.passes.dcd.multinomial_sweep``: (problems, rows, classes).
    """
    problems, rows = len(training.runs), store.layout.rows
    shape = (rows, classes) if (classes := plan.problems[0].classes) else (rows,)
    with closing(part for k in range(problems) for part in _parts(store, plan, training, k)) as parts:
        durable.write_npy(path, shape if problems == 1 else (problems, *shape), parts)


def _parts(store: Store, plan: Plan, training: Training, k: int) -> Iterator[Float64]:
    """Those of problem k, chunk by chunk."""
    if DUAL in training.row_states:
        states = training.row_states[DUAL]
        assert isinstance(states, RowNumbers)
        return (states.load(chunk)[k] for chunk in range(len(states.layout.chunks)))
    return _of_witness(store, plan.features, training.runs[k], plan.solver)


def _of_witness(store: Store, features: FeatureMap, run: Run, solver: AnySolver) -> Iterator[Float64]:
    """The dual variables of every row, by another reading; 0 for held-out rows, and those of other classes than a pair's."""
    layout, problem = store.layout, run.problem
    starts = np.concatenate([[0], np.cumsum(layout.chunks)]).tolist()
    with Stream(store, epoch_visits(layout, 0, 0, shuffled=False)) as stream:
        for loaded in stream:
            chunk = loaded.visit.chunk
            if chunk in problem.held_out:
                yield np.zeros(len(loaded.chunk.codes))
                continue
            for part in features.parts(loaded.chunk.X):
                seen = block_of(problem, loaded, part, starts[chunk], reused=True)
                all_rows = np.zeros(part.stop - part.start)
                if seen is not None:
                    found = solver.dual_values(run.witnessed(), seen)
                    assert found is not None  # ``able_solver.proving`` has had it kept
                    all_rows[slice(None) if seen.places is None else seen.places] = found
                yield all_rows
