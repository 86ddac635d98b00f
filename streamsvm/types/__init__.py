"""The vocabulary: what a row, a block, a store, a problem, a solver and a certificate are.

Three kinds of class hold data: *records* (``NamedTuple``: they cross into compiled passes), *values* (frozen
dataclasses) and *state* (mutable dataclasses of arrays and numbers, so that a checkpoint is those fields and nothing
hidden). ``Solver`` is a base class; ``Loss``, ``Kernel``, ``Store`` and ``FeatureMap`` are protocols.
"""

from streamsvm.types.data import Batch, Buffers, Chunk, Layout, Statistics, Store, StoredFiles, Visit
from streamsvm.types.problem import SQUARED_NORM, Block, Kernel, Kind, Loss, Problem, Regularizer
from streamsvm.types.solver import (
    DUAL,
    AnySolver,
    Certificate,
    Cost,
    FeatureMap,
    FeaturePart,
    KernelSolution,
    LinearSolution,
    LossRequirement,
    Report,
    RowState,
    S,
    Solver,
    State,
    Status,
    Stop,
    SupportSolution,
    Term,
    silent,
)

__all__ = [
    "DUAL",
    "SQUARED_NORM",
    "AnySolver",
    "Batch",
    "Block",
    "Buffers",
    "Certificate",
    "Chunk",
    "Cost",
    "FeatureMap",
    "FeaturePart",
    "Kernel",
    "KernelSolution",
    "Kind",
    "Layout",
    "LinearSolution",
    "Loss",
    "LossRequirement",
    "Problem",
    "Regularizer",
    "Report",
    "RowState",
    "S",
    "Solver",
    "State",
    "Statistics",
    "Status",
    "Stop",
    "Store",
    "StoredFiles",
    "SupportSolution",
    "Term",
    "Visit",
    "silent",
]
