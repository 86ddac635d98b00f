"""Memory and course of a run: what is planned, where it ends and what it tells of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from streamsvm.aliases import JsonObject


class Term(NamedTuple):
    """One line of a memory plan."""

    name: str
    """What the memory is for, in a word or two, as ``plan`` and the log print it."""
    nbytes: int
    """Bytes it takes at most."""
    why: str
    """What the bytes are made of, for a reader of the plan who wants fewer: counts, types, what each is."""


class Visit(NamedTuple):
    """One chunk in one epoch; a pure function of layout, seed and epoch."""

    epoch: int
    """The number of the epoch, from 0."""
    chunk: int
    """The number of the chunk in what is read: in the store, or in the part of it that a worker has."""
    seed: int
    """What the order of the chunk's rows, and further draws of the solver, are drawn from in this visit."""
    shuffled: bool
    """Whether rows are visited in an order drawn from ``seed``; else as they lie."""
    last: bool
    """Whether this visit ends its epoch."""


@dataclass(frozen=True, slots=True)
class Stop:
    """What a fit may cost at most; it ends earlier when every gap is small enough."""

    max_passes: int = 1000
    """Passes over the data, those that only evaluate included."""
    seconds: float = float("inf")
    """Wall-clock seconds of training, from where this run began or was resumed; inf: no limit."""


class Status(StrEnum):
    """How a run ended."""

    CONVERGED = "converged"
    PASSES = "max passes"
    TIME = "time limit"
    ASKED = "asked to end"
    """What was told of a pass asked for the end."""
    PATIENCE = "patience"
    """The error on held-out rows had not fallen for long."""
    STALLED = "stalled"
    """The solver ended by itself, short of the gap that was asked for."""
    SUPPORT = "support limit"
    """The model may not have more support rows; its gap includes what that costs."""


Report: TypeAlias = Callable[[JsonObject], None]
"""Takes the events of a job; a progress bar is one, a log file another."""


def silent(event: JsonObject) -> None:
    """The report nobody reads."""
