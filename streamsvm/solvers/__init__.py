"""DRIVE: one file a family. Solvers see blocks, never files."""

from __future__ import annotations

from streamsvm.registry import Registry

SOLVERS = Registry(
    "solver",
    {
        "dcd": "streamsvm.solvers.dcd:DCD",
        "assg": "streamsvm.solvers.assg:ASSG",
        "pegasos": "streamsvm.solvers.pegasos:Pegasos",
        "sgd": "streamsvm.solvers.sgd:SGD",
        "newton": "streamsvm.solvers.newton:Newton",
        "decomposition": "streamsvm.solvers.decomposition:Decomposition",
        "blended": "streamsvm.solvers.blended:Blended",
        "fw": "streamsvm.solvers.frank_wolfe:FrankWolfe",
        "mfw": "streamsvm.solvers.frank_wolfe:ModifiedFrankWolfe",
        "swap": "streamsvm.solvers.frank_wolfe:Swap",
        "partan": "streamsvm.solvers.frank_wolfe:Partan",
    },
)
