"""Solvers: one module for each method, with its state and its passes. Solvers see blocks of rows, never files.

Linear problems, out of core:

- ``dcd``: dual coordinate descent, also for multinomial problems; shrinking; CoCoA+; the margin perceptron (MPU)
- ``stochastic``: SGD, Pegasos and ASSG, and their certificates; ``sgd_qn``: SGD with a diagonal matrix
- ``newton``: Newton's method; its ``__init__`` lists the modules of the package
- ``lbfgs``: L-BFGS for many classes and many C, by matrix products
- ``cutting_plane``: the cutting-plane method (OCAS, BMRM)
- ``interior_point_out_of_core``: an interior-point method on the rows nearest to the kink
- ``interior_point_multinomial``: an interior-point method for multinomial problems in memory
- ``active_set``: the active-set method, exact, in memory; ``active_set_qp``: its exchange of rows
- ``elastic_net``: a proximal Newton method with screening of columns; ``l1_ball``: Frank-Wolfe methods over the l1 ball
- ``one_class``: one-class problems with a free offset; ``nu``: nu-SVM for two classes

Kernel machines: ``kernel``.

Kinds of problems: ``softmax`` (softmax regression), ``problem_kinds`` (one-vs-rest, one-vs-one, regression, one-class, multinomial, each with its
solvers), ``regularizers`` (the l1 ball, the elastic net), ``free_bias`` (a bias that is not regularized).

Shared by several methods: ``evaluation`` (P, D and gradient at a point), ``line_search``, ``stalling`` (the stall
rule), ``cholesky`` (factors and their row updates), ``column_pool``, ``gathered_rows`` (rows that a pass keeps in memory), ``small_problems`` (records of problems without passes),
``linear_rounding`` (bounds of the rounding errors of P and D), ``leave_one_out`` (leave-one-out scores).
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
        "lbfgs": "streamsvm.solvers.lbfgs:LBFGS",
    },
)


def check_solver(solver: AnySolver, name: str) -> AnySolver:
    """Return a solver, which may come from outside the package. Raises TypeError unless it inherits from
    ``types.Solver``.

    Python raises TypeError for an instance without the required methods.
    """
    from streamsvm.types import Solver

    if not isinstance(solver, Solver):
        kind = type(solver)
        raise TypeError(
            f"solver '{name}' ({kind.__module__}.{kind.__qualname__}) must inherit from streamsvm.types.Solver"
        )
    return solver


def losses_of(name: str) -> list[str]:
    """Return the names of the registered losses that a solver supports, with the default settings of both."""
    solver: AnySolver = SOLVERS[name]()
    return [loss for loss, kind in LOSSES.items() if solver.losses.refusal(kind()) is None]
