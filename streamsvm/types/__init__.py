"""The types that all packages share: chunks, blocks, stores, problems, solvers and certificates.

Three kinds of class hold data: *records* (``NamedTuple``, which can be passed to compiled functions), *values*
(frozen dataclasses) and *states* (mutable dataclasses of arrays and numbers; a checkpoint stores exactly these fields).
``Solver`` is a base class; ``Loss``, ``Kernel``, ``Store`` and ``FeatureMap`` are protocols.
"""

from streamsvm.types.certificate import Certificate
from streamsvm.types.data import Batch, Buffers, Chunk, Layout, Statistics, Store, StoredFiles, Visit
from streamsvm.types.problem import SQUARED_NORM, Block, Kernel, Kind, Loss, Problem, Regularizer
from streamsvm.types.solver import (
    DUAL,
    AnySolver,
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
