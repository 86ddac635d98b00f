"""The vocabulary: what a row, a block, a store, a problem, a solver and a certificate are.

Three kinds of class and no other: *records* (``NamedTuple``: they cross into compiled passes), *values* (frozen
dataclasses) and *state* (mutable dataclasses of arrays and numbers, so that a checkpoint is those fields and nothing
hidden). Everything with a choice of implementation is a ``Protocol``. Nothing here imports more than numpy.
"""

from streamsvm.types.capabilities import (
    CandidateWeights,
    Deadline,
    DualWitness,
    FactoredBlocks,
    KernelSolver,
    Mergeable,
    Partitioned,
    Prunable,
    SharedRows,
    ShrinkableMemory,
    SimplexCriterion,
    SplitState,
    StepsBetweenPasses,
    WarmStart,
)
from streamsvm.types.data import Batch, Buffers, Chunk, Layout, Statistics, Store, StoredFiles
from streamsvm.types.problem import Block, Certificate, Kernel, Loss, LossRequirement, Problem
from streamsvm.types.run import Report, Status, Stop, Term, Visit, silent
from streamsvm.types.solver import (
    DUAL,
    AnySolver,
    Cost,
    FeatureMap,
    FeaturePart,
    KernelSolution,
    LinearSolution,
    RowState,
    S,
    Solver,
    State,
    SupportSolution,
)

__all__ = [
    "DUAL",
    "AnySolver",
    "Batch",
    "Block",
    "Buffers",
    "CandidateWeights",
    "Certificate",
    "Chunk",
    "Cost",
    "Deadline",
    "DualWitness",
    "FactoredBlocks",
    "FeatureMap",
    "FeaturePart",
    "Kernel",
    "KernelSolution",
    "KernelSolver",
    "Layout",
    "LinearSolution",
    "Loss",
    "LossRequirement",
    "Mergeable",
    "Partitioned",
    "Problem",
    "Prunable",
    "Report",
    "RowState",
    "S",
    "SharedRows",
    "ShrinkableMemory",
    "SimplexCriterion",
    "Solver",
    "SplitState",
    "State",
    "Statistics",
    "Status",
    "StepsBetweenPasses",
    "Stop",
    "Store",
    "StoredFiles",
    "SupportSolution",
    "Term",
    "Visit",
    "WarmStart",
    "silent",
]
