"""The functions that the trials of a cell found, weights of features or of points of a kernel, and how often they are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.row_selection import bytes_per_row
from streamsvm.engine.training import Run
from streamsvm.features.expansion import Expansion, working_bytes
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.apply.metrics.error_counts import BalancedCounts, ErrorCounts
from streamsvm.jobs.fit.planning.kernel_machine import machine_of
from streamsvm.jobs.fit.planning.one_class import margin_of
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.jobs.tune.folds import Trial
from streamsvm.rows import Float64, Rows, row_count
from streamsvm.schedule.plan import epoch_visits
from streamsvm.schedule.stream import Stream
from streamsvm.types import EVERY_ROW, FeatureMap, Kernel, Layout, LinearSolution, Problem, Store, SupportSolution


class Functions(Protocol):
    """What came of several trials."""

    def values(self, X: Rows, trials: Sequence[int]) -> Float64:
        """Return the decision values of stored rows, (n, those of these trials side by side)."""
        ...


@dataclass(frozen=True, slots=True)
class FeatureFunctions:
    """Functions that are linear in the features of a map."""

    features: FeatureMap
    """The map."""
    weights: tuple[Float64, ...]
    """(columns + 1, decision values) of each trial."""

    def values(self, X: Rows, trials: Sequence[int]) -> Float64:
        """See ``Functions``."""
        W = np.concatenate([self.weights[k] for k in trials], axis=1)
        return np.concatenate([operators.margins(part.X, W) for part in self.features.parts(X)])


@dataclass(slots=True)
class KernelFunctions:
    """Kernel machines. Those that are asked for together share their points; the next ones asked for take their place."""

    kernel: Kernel
    """The kernel."""
    columns: int
    """Columns of a stored row."""
    inner: Raw | Standardized
    """From stored rows to what the kernel sees."""
    solutions: tuple[tuple[SupportSolution, ...], ...]
    """Those of each trial."""
    _trials: tuple[int, ...] = ()
    _machine: tuple[Float64, Expansion] | None = field(default=None, repr=False)

    def values(self, X: Rows, trials: Sequence[int]) -> Float64:
        """See ``Functions``."""
        if self._machine is None or self._trials != tuple(trials):
            self._machine = None  # the memory of one machine is there, not that of two
            chosen = [solution for k in trials for solution in self.solutions[k]]
            self._machine, self._trials = machine_of(self.kernel, self.columns, self.inner, chosen), tuple(trials)
        weights, expansion = self._machine
        out = np.empty((row_count(X), len(weights)))
        expansion.decision(X, weights, out)
        return out


def functions_of(plan: Plan, trials: Sequence[Sequence[Run]]) -> Functions:
    """Return what came of the trials; each is the runs of its problems."""
    kernel, inner = plan.problems[0].kernel, plan.features
    if kernel is None:
        return FeatureFunctions(
            inner, tuple(np.concatenate([_weights(plan, run) for run in runs]).T for runs in trials)
        )
    found = [tuple(plan.solver.solution(run.state) for run in runs) for runs in trials]
    supports = tuple(tuple(one for one in mine if isinstance(one, SupportSolution)) for mine in found)
    assert isinstance(inner, Raw | Standardized)  # nothing else goes with an exact kernel
    return KernelFunctions(kernel, plan.layout.columns, inner, supports)


def _weights(plan: Plan, run: Run) -> Float64:
    """The weights a problem has come to, (decision values, columns + 1)."""
    solution = plan.solver.solution(run.state)
    assert isinstance(solution, LinearSolution)  # solvers without a kernel have no other
    return run.problem.decision_weights(solution.w)


def function_bytes(problems: Sequence[Problem], layout: Layout) -> int:
    """Return what the functions of these problems hold beside the solvers' states, and their values on a chunk."""
    values = 8 * sum(len(one.positives) for one in problems) * layout.largest_chunk
    if problems[0].kernel is None:
        return values + 8 * sum(one.components for one in problems)
    points = layout.rows * (2 * bytes_per_row(layout.columns, layout.rows, layout.nonzeros) + 8 * len(problems))
    return values + points + working_bytes(layout.columns)


def errors(store: Store, found: Functions, trials: Sequence[Trial], **reading: Any) -> list[float]:
    """Return the error (``measure_of``) of each trial on the fold it did not see, in one reading of the store.

    ``found``: what came of the trials, in their order. ``reading``: how to read, as for the stream.
    """
    first = trials[0].problems[0]
    counts = BalancedCounts(len(trials)) if first.positive == EVERY_ROW else ErrorCounts(len(trials))
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False), **reading) as stream:
        for loaded in stream:
            mine = [k for k, trial in enumerate(trials) if loaded.visit.chunk in trial.chunks]
            if not mine:
                continue
            ends = np.cumsum([trials[k].values for k in mine])[:-1]
            values = found.values(loaded.chunk.X, mine)
            for k, f in zip(mine, np.split(values, ends, axis=1), strict=True):
                counts.add(k, f - margin_of(first), trials[k].outcomes(loaded.chunk.codes))
    return counts.shares
