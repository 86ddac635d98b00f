"""The vocabulary: what a row, a block, a store, a problem, a solver and a certificate are.

Three kinds of class and no other: *records* (``NamedTuple``: they cross into compiled passes), *values* (frozen
dataclasses) and *state* (mutable dataclasses of arrays and numbers, so that a checkpoint is those fields and nothing
hidden). Everything with a choice of implementation is a ``Protocol``. Nothing here imports more than numpy.
"""

from streamsvm.types.data import Batch, Buffers, Chunk, Layout, Statistics, Store
from streamsvm.types.problem import Block, Certificate, Loss, Problem
from streamsvm.types.run import Report, Status, Stop, Term, Visit, silent
from streamsvm.types.solver import (
    Cost,
    FeatureMap,
    KernelSolution,
    LinearSolution,
    Part,
    RowState,
    S,
    Selective,
    Sharing,
    Solver,
    SupportSolution,
    Timely,
)

__all__ = [
    "Batch",
    "Block",
    "Buffers",
    "Certificate",
    "Chunk",
    "Cost",
    "FeatureMap",
    "KernelSolution",
    "Layout",
    "LinearSolution",
    "Loss",
    "Part",
    "Problem",
    "Report",
    "RowState",
    "S",
    "Selective",
    "Sharing",
    "Solver",
    "Statistics",
    "Status",
    "Stop",
    "Store",
    "SupportSolution",
    "Term",
    "Timely",
    "Visit",
    "silent",
]
