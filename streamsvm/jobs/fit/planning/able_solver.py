"""The solver of a fit with its settings, refused where it cannot do what is asked: a loss, all classes, an offset, a start."""

from __future__ import annotations

from streamsvm.config.checks import build
from streamsvm.errors import UsageError
from streamsvm.jobs.embed.kernel_request import NystromRequest
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning import kernel_machine
from streamsvm.jobs.fit.planning.elastic_net import with_l1
from streamsvm.jobs.fit.planning.l1_ball import in_ball
from streamsvm.jobs.fit.planning.nu_classes import by_nu, for_two_classes
from streamsvm.jobs.fit.planning.one_class import share_of
from streamsvm.solvers import SOLVERS, check_solver
from streamsvm.types import (
    DUAL,
    AnySolver,
    Loss,
)


def _of_classes(solver: AnySolver, name: str, classes: int) -> AnySolver:
    """The solver of one problem for all classes. Raises UsageError where there is none."""
    together = solver.of_classes(classes)
    if together is not None:
        return together
    able = ", ".join(other for other, kind in SOLVERS.items() if kind().of_classes(classes) is not None)
    raise UsageError(f"solver '{name}' does not solve for all classes together", hint=f"solvers that do: {able}")


def solver_of(job: FitJob, name: str, loss: Loss, classes: int = 0) -> AnySolver:
    """The solver with the settings asked for. Raises UsageError."""
    solver = check_solver(build(SOLVERS[name], kernel_machine.options_of(job), f"solver '{name}'"), name)
    if classes:
        solver = _of_classes(solver, name, classes)
    if job.l1_ball is not None:
        solver = in_ball(solver, name)
    if job.l1 is not None:
        solver = with_l1(solver, name)
    if by_nu(job):
        solver = for_two_classes(solver, name)
    elif share_of(job) is not None:
        check_offset(solver, name)
    else:
        _check_loss(solver, name, job, loss)
    return proving(solver, name) if job.dual else solver


def proving(solver: AnySolver, name: str) -> AnySolver:
    """The solver, set to keep the dual variables it proves its bound with. Raises UsageError where it has none."""
    if any(state.name == DUAL for state in solver.row_state):
        return solver
    if solver.has_dual_witness:
        return solver.keeping_dual_point()
    hint = "--dual goes with --solver dcd, newton or interior_point"
    raise UsageError(f"solver '{name}' has no dual variables to write", hint=hint)


def able_to_start(solver: AnySolver, name: str, request: NystromRequest | None) -> AnySolver:
    """Return the solver if it can start from the weights of a model. Raises UsageError where it, or the fit, cannot."""
    if request is not None:  # its weights are of landmarks that this fit has yet to choose
        raise UsageError("a fit of kernel features does not start from a model", hint="leave out --warm-start")
    if not solver.warm_start:
        able = [other for other, kind in SOLVERS.items() if kind().warm_start]
        hint = f"leave out --warm-start; solvers that start from a linear model: {', '.join(able)}"
        raise UsageError(f"solver '{name}' does not start from a model", hint=hint)
    return solver


def check_offset(solver: AnySolver, name: str) -> None:
    """Raise UsageError when the solver takes no problem with a free offset."""
    if not solver.free_offset:
        able = [other for other, kind in SOLVERS.items() if kind().free_offset]
        hint = f"--solver {' or '.join(able)}, or --C in place of --nu, which every solver takes"
        raise UsageError(f"solver '{name}' has no free offset, which one class with nu asks for", hint=hint)


def _check_loss(solver: AnySolver, name: str, job: FitJob, loss: Loss) -> None:
    """Raise UsageError when the solver cannot solve for this loss."""
    refusal = solver.losses.refusal(loss)
    if refusal is not None:
        able = [other for other, kind in SOLVERS.items() if kind().losses.refusal(loss) is None]
        hint = f"solvers that do: {', '.join(able) or 'none'}"
        raise UsageError(f"solver '{name}' does not solve for the loss '{job.loss}': it {refusal}", hint=hint)
