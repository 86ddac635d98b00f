"""Solvers: a file a method, each with its state and how a pass is begun, visited and closed. They see blocks, never files.

Linear problems, out of core:

- ``dcd``: dual coordinate descent, also for all classes in one problem; shrinking; CoCoA+; the margin perceptron (MPU)
- ``stochastic``: SGD, Pegasos and ASSG, and what they can prove; ``sgd_qn``: SGD with a diagonal matrix
- ``newton``: Newton's method; the package's own map says how it goes from point to point
- ``cutting_plane``: bundle method (OCAS, BMRM)
- ``interior_point_out_of_core``: an interior point on the rows nearest to the corner (``nearest_rows``)
- ``interior_point_multinomial``: an interior point for all classes in one problem, in memory
- ``active_set``: rows in memory, exact; ``active_set_qp``: its method, exchanging rows
- ``elastic_net``: proximal Newton's method, screening of columns; ``l1_ball``: Frank-Wolfe over the l1 ball
- ``one_class``: a free offset; ``nu``: two classes whose C is found by nu

Kernel machines: ``kernel``.

What problems are: ``problem_kinds`` (one against rest, pairs, regression, one class, all classes, each with the solvers
that take it), ``regularizers`` (the l1 ball, the elastic net).

What methods share: ``evaluation`` (P, D and gradient at a point), ``line_search``, ``stalling`` (when a method has
stalled), ``cholesky`` (factors, and their updates by a row), ``column_pool``, ``gathered_rows`` (all rows in memory),
``rounding`` (bounds of the error of P and D), ``leave_one_out`` (scores as if a row had been held out).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsvm.losses import LOSSES
from streamsvm.registry import Registry

if TYPE_CHECKING:
    from streamsvm.types import AnySolver


SOLVERS = Registry(
    "solver",
    {
        "dcd": "streamsvm.solvers.dcd:DCD",
        "mpu": "streamsvm.solvers.dcd:MPU",
        "assg": "streamsvm.solvers.stochastic:ASSG",
        "pegasos": "streamsvm.solvers.stochastic:Pegasos",
        "sgd": "streamsvm.solvers.stochastic:SGD",
        "sgd_qn": "streamsvm.solvers.sgd_qn:SGDQN",
        "active_set": "streamsvm.solvers.active_set:ActiveSet",
        "interior_point": "streamsvm.solvers.interior_point_out_of_core:InteriorPoint",
        "cutting_plane": "streamsvm.solvers.cutting_plane:CuttingPlane",
        "newton": "streamsvm.solvers.newton.solver:Newton",
        "decomposition": "streamsvm.solvers.kernel.decomposition:Decomposition",
        "kernel_active_set": "streamsvm.solvers.kernel.active_set:KernelActiveSet",
        "blended": "streamsvm.solvers.kernel.blended:Blended",
        "fw": "streamsvm.solvers.kernel.frank_wolfe:FrankWolfe",
        "mfw": "streamsvm.solvers.kernel.frank_wolfe:ModifiedFrankWolfe",
        "swap": "streamsvm.solvers.kernel.frank_wolfe:Swap",
        "partan": "streamsvm.solvers.kernel.frank_wolfe:Partan",
    },
)


def check_solver(solver: AnySolver, name: str) -> AnySolver:
    """Return a solver of anybody's making. Raises TypeError unless it inherits from ``types.Solver``.

    Python refuses to make one without the methods that are required.
    """
    from streamsvm.types import Solver

    if not isinstance(solver, Solver):
        kind = type(solver)
        raise TypeError(
            f"solver '{name}' ({kind.__module__}.{kind.__qualname__}) must inherit from streamsvm.types.Solver"
        )
    return solver


def losses_of(name: str) -> list[str]:
    """Return the names of the registered losses that a solver takes, with the settings both have by themselves."""
    solver: AnySolver = SOLVERS[name]()
    return [loss for loss, kind in LOSSES.items() if solver.losses.refusal(kind()) is None]
