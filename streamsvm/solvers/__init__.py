"""DRIVE: one file a family. Solvers see blocks, never files."""

from __future__ import annotations

from streamsvm.registry import Registry

SOLVERS = Registry(
    "solver",
    {
        "dcd": "streamsvm.solvers.dcd.solver:DCD",
        "assg": "streamsvm.solvers.stochastic.assg:ASSG",
        "pegasos": "streamsvm.solvers.stochastic.pegasos:Pegasos",
        "sgd": "streamsvm.solvers.stochastic.sgd:SGD",
        "newton": "streamsvm.solvers.newton.solver:Newton",
        "decomposition": "streamsvm.solvers.kernel.decomposition:Decomposition",
        "blended": "streamsvm.solvers.kernel.blended:Blended",
        "fw": "streamsvm.solvers.kernel.frank_wolfe:FrankWolfe",
        "mfw": "streamsvm.solvers.kernel.frank_wolfe:ModifiedFrankWolfe",
        "swap": "streamsvm.solvers.kernel.frank_wolfe:Swap",
        "partan": "streamsvm.solvers.kernel.frank_wolfe:Partan",
    },
)
