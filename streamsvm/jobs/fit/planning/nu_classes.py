"""Fits of two classes whose C is found by ``--nu``: what goes with it, and by which solvers.

Several classes are one against the rest each, or pairs, with the same nu. What is solved: ``solvers.nu``.
"""

from __future__ import annotations

from streamsvm.errors import UsageError
from streamsvm.jobs.embed import kernel_request
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.options import CRAMMER_SINGER
from streamsvm.solvers import SOLVERS
from streamsvm.types import AnySolver, Layout, Loss


def by_nu(job: FitJob) -> bool:
    """Whether C is found by nu, of classes."""
    return job.nu is not None and not job.one_class


def loss_by_nu(job: FitJob, loss: Loss) -> Loss:
    """Return the loss of a fit: the hinge where C is found by nu, else the one that was asked for."""
    if not by_nu(job):
        return loss
    from streamsvm.solvers.nu import MARGIN

    return MARGIN


def check_nu(job: FitJob, layout: Layout) -> None:
    """Raise UsageError where a fit of classes by nu asks for something that does not go with it."""
    if not by_nu(job):
        return
    if layout.numeric:
        raise UsageError("--nu is for classes, and the store holds numbers to predict", hint="leave it out")
    if job.kernel != "linear" and not kernel_request.wanted(job):
        hint = "--landmarks 1000, or --C"
        raise UsageError("--nu of two classes is for linear functions and landmarks, not for exact kernels", hint=hint)
    if job.multi_class == CRAMMER_SINGER:
        raise UsageError("--nu is of two classes", hint="--multi-class ovr or ovo, or --C in place of --nu")


def for_two_classes(solver: AnySolver, name: str) -> AnySolver:
    """Return the solver of the problem by nu. Raises UsageError where there is none."""
    other_problem = solver.for_two_classes()
    if other_problem is not None:
        return other_problem
    able = ", ".join(other for other, kind in SOLVERS.items() if kind().for_two_classes() is not None)
    raise UsageError(f"solver '{name}' does not find C by nu", hint=f"--C in place of --nu, or solvers that do: {able}")
