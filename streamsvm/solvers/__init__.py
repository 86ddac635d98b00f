"""DRIVE: a folder for each family of methods. Solvers see blocks, never files."""

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
        "interior_point": "streamsvm.solvers.interior_point:InteriorPoint",
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
