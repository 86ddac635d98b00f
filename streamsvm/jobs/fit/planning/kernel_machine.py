"""Fits that evaluate the kernel on the rows themselves: which solver, how many rows it holds, the model that comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamsvm.aliases import ByName
from streamsvm.errors import DataError, UsageError
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.embed import kernel_request
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.one_class import constant_of, share_of
from streamsvm.kernels import KERNELS
from streamsvm.rows import Float64, row_stack
from streamsvm.solvers import SOLVERS
from streamsvm.store.format.labels import TARGET
from streamsvm.types import AnySolver, Kernel, Store, SupportSolution

if TYPE_CHECKING:
    from streamsvm.features.expansion import Expansion


def chosen(job: FitJob) -> bool:
    """Whether a job asks for a kernel and no landmarks."""
    return job.kernel != "linear" and not kernel_request.wanted(job)


def solver_for(job: FitJob) -> tuple[str, str]:
    """The solver for a kernel without landmarks, and why.

    A gap on the simplex, or a bias that is regularized because it may not be free, is blended's. To a small relative gap
    decomposition is far quicker for the squared hinge too: its pairs leave the bias alone, those on the simplex do not.
    """
    if share_of(job) is not None:
        return "decomposition", "exact kernel, one class with a free offset"
    if job.loss == "squared_hinge" and ("epsilon" in job.options or constant_of(job) == 0.0):
        return "blended", "exact kernel, squared hinge on the simplex"
    return "decomposition", f"exact kernel, {job.loss}"


def kernel_of(job: FitJob, solver: AnySolver, store: Store, inner: Raw | Standardized) -> Kernel | None:
    """The kernel's record for a solver that wants one, else None. Raises UsageError when the two do not go together."""
    if not solver.exact_kernel:
        if chosen(job):
            able = [name for name, kind in SOLVERS.items() if kind().exact_kernel]
            hint = f"give --landmarks, or choose from {', '.join(able)}"
            raise UsageError(f"solver '{job.solver}' knows no kernel of its own", hint=hint)
        return None
    if kernel_request.wanted(job):
        raise UsageError(f"solver '{job.solver}' evaluates the kernel exactly", hint="leave out the landmarks")
    if solver.free_bias and constant_of(job) == 0.0:
        hint = "leave out the bias, or use the squared hinge"
        raise UsageError("this fit has a free bias, and cannot do without one", hint=hint)
    return kernel_request.kernel_record(job.kernel, job.kernel_options, str(job.gamma), store, inner)


def center_of(solver: AnySolver, store: Store) -> float:
    """What is taken from targets: the mean of numbers, where the intercept is free and the store knows it; else 0."""
    return float(store.facts[TARGET]["mean"]) if solver.free_bias and TARGET in store.facts else 0.0


def options_of(job: FitJob) -> ByName:
    """The solver's settings, what has an option of its own among them."""
    return job.options if job.max_support is None else {**job.options, "max_support": job.max_support}


def remedy(solver: AnySolver) -> str:
    """What would help a solver with a kernel that does not fit."""
    return ", or a shorter model, --max-support 1000" if solver.exact_kernel and not solver.max_support else ""


def machine_of(
    kernel: Kernel, columns: int, inner: Raw | Standardized, solutions: list[SupportSolution]
) -> tuple[Float64, Expansion]:
    """Weights (problems, points + 1) and the points all problems share: each support row once."""
    from streamsvm.compute.blocks.selection import take_rows
    from streamsvm.features.expansion import Expansion

    index = np.unique(np.concatenate([s.numbers for s in solutions]))
    if not len(index):  # of some problems alone, such as that of a class without weight, a constant is an answer
        raise DataError(
            "the best function is the same for every row: no row has a coefficient",
            hint="a class may have no weight at all, all numbers be within epsilon of one, or C be too small for float64: "
            "check the weights, lower epsilon, raise C",
        )
    weights = np.zeros((len(solutions), len(index) + 1))
    rows, known = [], np.empty(0, np.int64)
    for k, s in enumerate(solutions):
        weights[k, np.searchsorted(index, s.numbers)] = s.coefficients
        weights[k, -1] = s.intercept
        fresh = np.flatnonzero(~np.isin(s.numbers, known))
        rows.append(take_rows(s.points, fresh) if len(fresh) < len(s.numbers) else s.points)
        known = np.concatenate([known, s.numbers[fresh]])
    points = take_rows(row_stack(rows), np.argsort(known)) if len(rows) > 1 else rows[0]
    shift, scale = (inner.shift, inner.scale) if isinstance(inner, Standardized) else (None, None)
    points = points._replace(bias=0.0)
    return weights, Expansion(name_of(kernel), kernel_request.parameters_of(kernel), points, columns, shift, scale)


def name_of(kernel: Kernel) -> str:
    """The kernel's name in the registry."""
    return next(name for name in KERNELS if KERNELS[name] is type(kernel))
