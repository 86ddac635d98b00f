"""Solvers: what one asks for, does and answers with, what stands between it and the rows, and how a run of it ends: by a
certificate, which says how far a solution is from the optimum, proved by a feasible dual point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from streamsvm.aliases import Handle, JsonObject, RowRecord
from streamsvm.class_tags import saved_as
from streamsvm.errors import DefectError, UsageError
from streamsvm.rows import Float64, Int64, Rows
from streamsvm.types.data import Layout
from streamsvm.types.problem import Block, Loss, Problem, has_box
from streamsvm.types.state import begin_part, merge_states

CONTRADICTION = 1e-6
"""A relative gap below minus this, with rounding counted, is an error."""


@saved_as("certificate")
@dataclass(frozen=True, slots=True)
class Certificate:
    """How far a solution can be from the optimum: dual <= optimum <= primal."""

    primal: float
    """P of the solution, an upper bound of the optimum."""
    dual: float
    """D of a feasible dual point, a lower bound of the optimum."""
    exact: bool = True
    """False: the primal was summed while w was moving, an estimate that must not end a run."""
    final: bool = False
    """The solver has met a criterion of its own: the run ends, whatever the gap."""
    facts: JsonObject = field(default_factory=dict)
    """Further facts of the pass, as plain JSON, for the events of the run."""
    rounding: float = 0.0
    """How far rounding can have moved primal and dual: dual - rounding <= optimum <= primal + rounding."""

    @property
    def gap(self) -> float:
        """The relative gap of what is certain, (P - D) / |P| with rounding counted against both; 0 when all are 0."""
        primal, dual = self.primal + self.rounding, self.dual - self.rounding
        return (primal - dual) / abs(primal) if primal else abs(dual)

    def ends(self, problem: Problem) -> bool:
        """Whether it is the last one of its problem: exact, and small enough or final."""
        return self.exact and (self.gap <= problem.tolerance or self.final)

    def verify(self, problem: Problem) -> None:
        """Refuse an exact certificate that contradicts itself: a lower bound above the upper one by more than rounding.

        Raises UsageError where the kernel is to blame, which is no Mercer kernel, else DefectError.
        """
        if not self.exact or not self.gap < -CONTRADICTION:
            return
        message = f"the certificate contradicts itself: primal {self.primal:.9g}, dual {self.dual:.9g}"
        if problem.kernel is not None and not problem.kernel.positive_semidefinite():
            raise UsageError(
                f"{message}, because the kernel {problem.kernel} is not positive semidefinite on these rows",
                hint="choose another kernel (rbf, laplacian), or a coef0 of 0 or more for the polynomial one",
            )
        raise DefectError(
            f"{message}, for {problem.loss} with C = {problem.C:g}; no result was written",
            hint="this is a defect of streamsvm: please report it with this line",
        )


DUAL = "alpha"
"""The name of the per-row state that holds dual variables, for solvers that have them."""

S = TypeVar("S")


class RowState(NamedTuple):
    """A number per row, or several, that a solver keeps from pass to pass, in memory or in a file beside the run; 0 at first."""

    name: str
    """The key in ``Block.rows``; ``DUAL`` for dual variables."""
    dtype: str
    """As numpy writes it: "float64"."""
    width: int = 1
    """Numbers of each row; of several ``Block.rows`` has an array (rows, width)."""

    @property
    def nbytes(self) -> int:
        """Bytes of a row, for each problem."""
        return np.dtype(self.dtype).itemsize * self.width

    def shape(self, problems: int, rows: int) -> tuple[int, ...]:
        """Return the shape of the numbers of some rows, all problems together."""
        return (problems, rows) if self.width == 1 else (problems, rows, self.width)


@dataclass(frozen=True, slots=True)
class Cost:
    """Upper bounds of the bytes a solver holds."""

    fixed: int = 0
    """Whatever the data, for each problem: weights, and rows held in memory."""
    per_row: int = 0
    """Per-row state."""
    per_block_row: int = 0
    """Scratch while a block is visited."""
    per_part: int = 0
    """The sums of one part of a pass, where several are under way."""
    shared: int = 0
    """Once for all problems at the same rows: rows that all of them hold, and what one needs while it is finished."""


@dataclass(frozen=True, slots=True)
class LossRequirement:
    """What a solver needs a loss to be, by property; None: it does not matter."""

    smooth: bool | None = None
    """Whether l has no corner."""
    box: bool | None = None
    """Whether the dual variables have a finite upper bound."""
    quadratic: bool | None = None
    """Whether the conjugate is a parabola or a line."""
    numeric: bool | None = None
    """Whether the target is a number."""

    def refusal(self, loss: Loss) -> str | None:
        """Return why the loss will not do, as the end of a sentence that begins with the solver; None where it will."""
        asked = (
            (self.smooth, loss.smooth(), "without corners", "with a corner"),
            (self.box, has_box(loss), "whose slope is bounded", "whose slope is not bounded"),
            (self.quadratic, loss.quadratic(), "whose conjugate is a parabola", "whose conjugate is no parabola"),
            (self.numeric, loss.numeric(), "for regression", "for classification"),
        )
        for wanted, actual, yes, no in asked:
            if wanted is not None and wanted != actual:
                return f"needs a loss {yes if wanted else no}"
        return None


class LinearSolution(NamedTuple):
    """f(x) = w[:-1].x + bias * w[-1]."""

    w: Float64
    """(columns + 1,) weights, the one of the constant feature last; (classes, columns + 1) where classes are told apart together."""
    bias: float
    """The value of the constant feature."""


class KernelSolution(NamedTuple):
    """f(x) = sum_j coefficients_j k(x, z_j) + intercept, for points z_j that are known from elsewhere."""

    coefficients: Float64
    """(points,)."""
    intercept: float


class SupportSolution(NamedTuple):
    """f(x) = sum_j coefficients_j k(x, z_j) + intercept, for rows z_j of the data that the solver has kept."""

    points: Rows
    """The support rows z_j, (points, columns)."""
    numbers: Int64
    """Global row numbers of the points, rising."""
    coefficients: Float64
    """(points,), signs included."""
    intercept: float


class FeaturePart(NamedTuple):
    """Rows [start, stop) of a block as a feature map makes them; both counted from the first row of the block."""

    start: int
    stop: int
    X: RowRecord
    """The features: ``Dense``, ``CSR``, a factored pair (``compute.blocks.operators.Factored``), or rows whose features are not formed yet."""


class FeatureMap(Protocol):
    """From stored rows to what a solver sees, and from its solution to a function of stored rows."""

    @property
    def expansion(self) -> Any:
        """The basis a kernel solution is written in (``features.expansion.Expansion``); None for maps that are linear."""
        ...

    def parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Yield a block as features, in as many parts as memory makes necessary; each valid until the next is asked for.

        ``X`` may be changed in place: it is the reader's buffer.
        """
        ...

    def unformed_parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Yield the same parts as rows whose features can still be formed, where there are any to form; else ``parts``."""
        ...

    def to_input_space(self, solution: LinearSolution) -> LinearSolution | KernelSolution:
        """Return the same function in terms of stored rows: weights of columns, or coefficients of kernel points."""
        ...


class Solver(ABC, Generic[S]):
    """An algorithm as the fit loop sees it. Settings are fields of a frozen value; all that changes is in the state S.

    One pass is ``visit`` on every block, then ``finish``; what a pass does (train, certify, try step lengths) is the
    state's business. ``finish`` answers with a certificate; the loop goes on until one is exact and small enough. A state
    is a mutable dataclass of arrays, numbers and records with tags (``streamsvm.class_tags``): a checkpoint is its fields. Each
    field declares its role in a pass (``types.state``): what is summed up, what is only read, what only ``finish`` needs.

    A subclass implements ``cost``, ``start``, ``visit``, ``finish`` and ``solution``, and states its ``losses``. ``part``,
    ``merge`` and ``witness`` follow from the roles; a solver overrides one where joining is more than adding up. Everything
    else is an ability that a solver may lack: what is here by default says so. The flags (``exact_kernel``,
    ``warm_start``, ``has_candidates``, ``has_dual_witness``, ``stops_early``) belong to methods; ``tests/contract`` holds
    every registered solver to both.
    """

    __slots__ = ()

    # -- what it needs

    @property
    def row_state(self) -> tuple[RowState, ...]:
        """The numbers per row that travel with the data; ``Block.rows`` has them by name."""
        return ()

    @property
    def shuffled(self) -> bool:
        """Whether chunks and rows are visited in random order (False: as they lie, and any order does)."""
        return False

    @property
    def losses(self) -> LossRequirement:
        """What it needs a loss to be; others are refused before the first read."""
        return LossRequirement()

    @abstractmethod
    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes the solver will hold for one problem on data of this layout: an upper bound."""

    # -- a pass

    @abstractmethod
    def start(self, problem: Problem) -> S:
        """Return the state before the first pass, at ``problem.warm`` where that is given. Reads nothing."""

    @abstractmethod
    def visit(self, state: S, block: Block) -> None:
        """Meet the rows of one block. Changes the state and, in place, ``block.rows`` and ``block.order``.

        A block is visited once in a pass. ``block.X`` is valid until the visit returns: what is to stay is copied.
        """

    @abstractmethod
    def finish(self, state: S) -> Certificate:
        """Close a pass in which every block was visited, and return what is now known. Changes the state."""

    def certify(self, state: S) -> None:
        """Make the pass that is about to begin an exact evaluation, because it is the last one. Changes the state."""

    @abstractmethod
    def solution(self, state: S) -> LinearSolution | SupportSolution:
        """Return the function the last exact certificate is of; its arrays are copies. Raises StreamSVMError if none is."""

    # -- a pass in parts: each visits different chunks, and they are merged before the pass is finished

    def part(self, state: S) -> S:
        """Return the state as a part of a pass begins with it. Visits of the part change nothing that ``state`` has.

        Fields with the role ``DriverOnly`` are None.
        """
        return begin_part(state)

    def merge(self, states: list[S]) -> S:
        """Merge parts of one pass, each of which visited its own chunks.

        The state that is returned is closed with ``finish``. A list of one comes back as it is. May change the states.
        """
        return merge_states(states)

    def in_parts(self, parts: int) -> Self:
        """Return the same solver for ``parts`` copies of the state, each of which visits the same rows in every pass.

        For solvers whose row state depends on the number of parts (CoCoA+).
        """
        return self

    @property
    def driver_fields(self) -> tuple[str, ...]:
        """The fields of the state with the role ``DriverOnly`` (``types.state.find_driver_fields``): they are not sent to workers."""
        return ()

    def sampling_threshold(self, state: S) -> Handle | None:
        """Return what the rows visited so far say about all others of this pass, for ``set_sampling_threshold``; None: nothing.

        For solvers that keep a choice of the rows of a pass: what is known of other groups of rows saves work, and never
        changes what the joined pass comes to.
        """

    def set_sampling_threshold(self, state: S, bound: Handle) -> None:
        """Begin a pass over some rows knowing what ``sampling_threshold`` said of others. Changes the state."""

    # -- several problems at the same rows

    def prepare_shared(self, states: list[S], X: RowRecord) -> None:
        """Compute what problems have in common at some rows, before they visit them one after the other. Changes the states."""

    def join_gathered(self, states: list[S]) -> None:
        """Keep one copy of rows that several of these states have gathered alike, before the states are finished.

        What ``finish`` comes to is the same without, to the last bit. Changes the states.
        """

    def needs_features(self, state: S) -> bool:
        """Return whether this pass looks at features; else rows will do whose features can still be formed in their place."""
        return True

    def estimate_work(self, problem: Problem) -> tuple[int, int] | None:
        """Return the passes a fit is expected to take, and the rows whose features it asks for in all of them.

        For solvers that see a block through margins, adjoint and Gram matrix only, and so take a factored pair for it.
        None: it needs features as such.
        """

    # -- work between passes

    @property
    def stops_early(self) -> bool:
        """Whether its work between two passes ends at ``set_deadline``, and so takes no time that has to be reserved."""
        return False

    def set_deadline(self, state: S, moment: float) -> None:
        """Stop work at ``moment``, one of ``time.perf_counter``. Called before ``finish`` and the steps after it."""

    def has_pending_steps(self, state: S) -> bool:
        """Return whether there is a step to be made in memory before the next pass.

        ``finish`` says what the pass has shown; then come the steps, until none is pending; then the next pass. A run can be
        saved, and stopped, between any two: all that a step needs is in the state.
        """
        return False

    def make_step(self, state: S) -> None:
        """Make the next step, a matter of seconds at most. Changes the state."""

    # -- weights on the way, and to start from

    @property
    def has_candidates(self) -> bool:
        """Whether its weights can be tried on held-out rows after any pass (``candidate``)."""
        return False

    def candidate(self, state: S) -> Float64:
        """Return a copy of the weights (columns + 1,) it would answer with now; they need not be certified."""
        raise NotImplementedError

    @property
    def warm_start(self) -> bool:
        """Whether ``start`` begins at ``Problem.warm``: the first pass evaluates those weights, or goes on from them."""
        return False

    def with_start_weights(self, problem: Problem, weights: Float64) -> Problem:
        """Return the problem with the weights (columns + 1,) to start from, as the solver sees them."""
        return replace(problem, warm=weights)

    # -- the dual point behind the bound, of solvers that have no dual variables as row state

    @property
    def has_dual_witness(self) -> bool:
        """Whether it can say the dual variables behind its bound (``keep_dual_point``, ``witness``, ``dual_values``)."""
        return False

    def keep_dual_point(self) -> Self:
        """Return the same solver, set to bound the optimum only by dual points it can say the variables of."""
        return self

    def witness(self, state: S) -> S:
        """Return the part of a state that ``dual_values`` needs: what a worker that closes the last pass sends.

        Shares arrays with ``state``, which does not change.
        """
        return begin_part(state)

    def dual_values(self, state: S, block: Block) -> Float64 | None:
        """Return the dual variables a_i >= 0 (n,) of a block's rows at the dual point of the last certificate.

        Of a solver that was not asked to keep it, those of the best point that it knows in this way; None where it knows none.
        """

    # -- kernels

    @property
    def exact_kernel(self) -> bool:
        """Whether it evaluates ``Problem.kernel`` on the rows themselves, and answers with support rows."""
        return False

    @property
    def free_bias(self) -> bool:
        """Whether the intercept of a kernel machine is free of regularization (False: a regularized constant, or none)."""
        return False

    @property
    def max_support(self) -> int:
        """The most support rows its model may have; 0: any number."""
        return 0

    @property
    def epsilon(self) -> float:
        """The gap ``max_v grad f(x)'(x - v)`` on the simplex at which it may end, as in the Frank-Wolfe papers; 0: none."""
        return 0.0

    # -- settings

    def adapt_to_row_count(self, rows: int, asked: Collection[str]) -> Self:
        """Return the same solver with as many rows in memory as serve it on data of ``rows`` rows.

        ``asked``: names of the settings the user gave, which stay as they are.
        """
        return self

    def shrink_memory(self, problem: Problem, asked: Collection[str]) -> Self | None:
        """Return the same solver with less in memory, at the cost of more passes; None at the least that is of use.

        ``asked``: names of the settings the user gave, which a solver may insist on.
        """

    def memory_settings(self) -> dict[str, int | None]:
        """Return the settings that ``shrink_memory`` changes, by name. Handed to another fit they give the same solver."""
        return {}

    def ignored_settings(self, problem: Problem) -> dict[str, tuple[str, ...]]:
        """Return the names of settings that have no effect on this problem, by the reason, which ends a sentence."""
        return {}


AnySolver: TypeAlias = Solver[Any]
"""A solver to those who hand its states on and never look into them."""

State: TypeAlias = Any
"""A solver's state to those who hand it on: its type is the solver's own (the S of ``Solver``)."""


class Term(NamedTuple):
    """One line of a memory plan."""

    name: str
    """What the memory is for, in a word or two, as ``plan`` and the log print it."""
    nbytes: int
    """Bytes it takes at most."""
    why: str
    """What the bytes are made of, for a reader of the plan who wants fewer: counts, types, what each is."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Limits of a fit, which ends earlier when every gap is small enough."""

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
    """A callback asked for the end."""
    PATIENCE = "patience"
    """Early stopping: the error on held-out rows had not fallen for long."""
    STALLED = "stalled"
    """The solver ended by itself, short of the gap that was asked for."""
    SUPPORT = "support limit"
    """The model may not have more support rows; its gap includes what that costs."""


Report: TypeAlias = Callable[[JsonObject], None]
"""Receives the events of a job: a progress bar is one, a log file another."""


def silent(event: JsonObject) -> None:
    """Ignore an event."""
