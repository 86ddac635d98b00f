"""Solvers: their interface and solutions, the feature map between stored rows and a solver, and the ways training
ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from streamsvm.rows import Float64, Int64, Rows
from streamsvm.type_aliases import Handle, JsonObject, RowRecord
from streamsvm.types.certificate import Certificate
from streamsvm.types.data import Layout
from streamsvm.types.problem import Block, Loss, Problem, has_box
from streamsvm.types.state import begin_part, merge_states

DUAL = "alpha"
"""The name of the per-row state that holds the dual variables."""

S = TypeVar("S")


class RowState(NamedTuple):
    """One or several numbers per row that a solver keeps from pass to pass, in memory or in a file; initially 0."""

    name: str
    """The key in ``Block.rows``; ``DUAL`` for dual variables."""
    dtype: str
    """In numpy's notation: "float64"."""
    width: int = 1
    """How many numbers each row has; if more than one, the array in ``Block.rows`` has the shape (rows, width)."""

    @property
    def nbytes(self) -> int:
        """Bytes per row and problem."""
        return np.dtype(self.dtype).itemsize * self.width

    def shape(self, problems: int, rows: int) -> tuple[int, ...]:
        """Return the shape of the numbers of some rows for all problems."""
        return (problems, rows) if self.width == 1 else (problems, rows, self.width)


@dataclass(frozen=True, slots=True)
class Cost:
    """Upper bounds of the bytes of memory that a solver needs."""

    fixed: int = 0
    """Bytes for each problem: weights, and rows kept in memory."""
    per_row: int = 0
    """Bytes of per-row state for each row and problem."""
    per_block_row: int = 0
    """Temporary bytes for each row of a block while it is visited."""
    per_part: int = 0
    """Bytes of the sums of one part of a pass, if several parts are computed at the same time."""
    shared: int = 0
    """Bytes needed once for all problems: rows that all of them keep, and temporary memory while ``finish`` is called
    for one."""
    shared_per_part: int = 0
    """Bytes of the sums of one part of a pass that all problems share."""
    solved: int = 0
    """Bytes that remain of ``fixed`` when a problem is solved and later ones begin (``Solver.problems_per_batch``)."""


@dataclass(frozen=True, slots=True)
class LossRequirement:
    """The properties that a solver requires of a loss: True, False, or None if both are supported."""

    smooth: bool | None = None
    """Whether l has no kink."""
    box: bool | None = None
    """Whether the dual variables have a finite upper bound."""
    quadratic: bool | None = None
    """Whether the conjugate is quadratic or linear."""
    numeric: bool | None = None
    """Whether the target is a number."""

    def refusal(self, loss: Loss) -> str | None:
        """Return why a loss is not supported, as the end of a sentence that begins with the solver's name; None if it
        is supported.
        """
        asked = (
            (self.smooth, loss.smooth(), "without kinks", "with a kink"),
            (self.box, has_box(loss), "whose slope is bounded", "whose slope is not bounded"),
            (self.quadratic, loss.quadratic(), "whose conjugate is a parabola", "whose conjugate is no parabola"),
            (self.numeric, loss.numeric(), "for regression", "for classification"),
        )
        for required, actual, yes, no in asked:
            if required is not None and required != actual:
                return f"needs a loss {yes if required else no}"
        return None


class LinearSolution(NamedTuple):
    """f(x) = w[:-1].x + bias * w[-1]."""

    w: Float64
    """Weights (columns + 1,), that of the constant feature last; (classes, columns + 1) if one problem separates
    several classes."""
    bias: float
    """The value of the constant feature."""


class KernelSolution(NamedTuple):
    """f(x) = sum_j coefficients_j k(x, z_j) + intercept. The points z_j are those of the feature map
    (``FeatureMap.expansion``).
    """

    coefficients: Float64
    """(points,)."""
    intercept: float


class SupportSolution(NamedTuple):
    """f(x) = sum_j coefficients_j k(x, z_j) + intercept, where the z_j are rows of the data (support rows)."""

    points: Rows
    """The support rows z_j, (points, columns)."""
    numbers: Int64
    """The global numbers of the support rows, ascending."""
    coefficients: Float64
    """(points,), signs included."""
    intercept: float


class FeaturePart(NamedTuple):
    """Rows [start, stop) of a block after a feature map, counted from the first row of the block."""

    start: int
    stop: int
    X: RowRecord
    """The features: ``Dense``, ``CSR``, a factored pair (``compute.blocks.operators.Factored``), or rows whose features
    are not formed yet."""


class FeatureMap(Protocol):
    """Maps stored rows to the features that a solver sees, and its solution back to a function of stored rows."""

    @property
    def expansion(self) -> Any:
        """The points and the kernel of a ``KernelSolution`` (``features.expansion.Expansion``); None for linear
        maps.
        """
        ...

    def parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Yield the features of a block in as many parts as memory requires; each part is valid until the next is
        requested.

        May change ``X``, the reader's buffer, in place.
        """
        ...

    def lazy_parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Yield the same parts with rows from which features can be formed later; a map without such rows yields
        ``parts``.
        """
        ...

    def to_input_space(self, solution: LinearSolution) -> LinearSolution | KernelSolution:
        """Return the same function in terms of stored rows: weights of columns, or coefficients of kernel points."""
        ...


class Solver(ABC, Generic[S]):
    """A training algorithm. Its settings are fields of a frozen dataclass; everything that changes is in a state of
    type S.

    In a pass, the fit loop calls ``visit`` for every block, then ``finish``; the state determines what the pass is for
    (to train, to certify, to try step lengths). ``finish`` returns a certificate; the loop makes passes until the
    certificate is exact and its gap is at most the tolerance. A state is a mutable dataclass of arrays, numbers and
    records with tags (``streamsvm.class_tags``); a checkpoint stores its fields. Each field declares its role in a pass
    (``types.state``): whether it is summed, only read, or needed only by ``finish``.

    A subclass implements ``cost``, ``start``, ``visit``, ``finish`` and ``solution``, and states its ``losses``.
    ``part``, ``merge`` and ``witness`` are derived from the roles; a solver overrides one of them if merging is more
    than summing. All other methods are optional abilities; the defaults here are those of a solver without them. The
    flags ``exact_kernel``, ``warm_start``, ``has_current_weights``, ``has_dual_witness`` and ``stops_early`` announce
    such methods; ``tests/contract`` checks flags and methods of every registered solver.
    """

    __slots__ = ()

    # -- requirements

    @property
    def row_state(self) -> tuple[RowState, ...]:
        """The per-row numbers that the solver keeps from pass to pass; ``Block.rows`` has them by name."""
        return ()

    @property
    def shuffled(self) -> bool:
        """Whether chunks and rows are visited in random order. False: in stored order, and the result does not depend
        on the order.
        """
        return False

    @property
    def losses(self) -> LossRequirement:
        """The properties that a loss must have; other losses are refused before the first read."""
        return LossRequirement()

    @abstractmethod
    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return upper bounds of the memory that the solver needs for one problem on data of this layout."""

    # -- a pass

    @abstractmethod
    def start(self, problem: Problem) -> S:
        """Return the state before the first pass, at the weights ``problem.warm`` if they are given. Reads no data."""

    @abstractmethod
    def visit(self, state: S, block: Block) -> None:
        """Process the rows of one block. Changes the state and, in place, ``block.rows`` and ``block.order``.

        A block is visited once in a pass. ``block.X`` is valid until the visit returns, so that rows to keep must be
        copied.
        """

    @abstractmethod
    def finish(self, state: S) -> Certificate:
        """Close a pass in which every block was visited, and return the new certificate. Changes the state."""

    def certify(self, state: S) -> None:
        """Make the pass that is about to begin an exact evaluation, because it is the last one. Changes the state."""

    @abstractmethod
    def solution(self, state: S) -> LinearSolution | SupportSolution:
        """Return the solution to which the last exact certificate belongs; its arrays are copies.

        Raises StreamSVMError if there is no exact certificate.
        """

    def gradient(self, state: S) -> Float64 | None:
        """Return the gradient of P at the solution (components,), for a loss without kinks, if a pass has computed it with sums in
        twice the precision; None: it is not known.
        """
        return None

    # -- a pass in parts: each part visits other chunks, and the parts are merged before the pass is finished

    def part(self, state: S) -> S:
        """Return the state with which a part of a pass begins. Visits of the part do not change ``state``.

        Fields with the role ``DriverOnly`` are None.
        """
        return begin_part(state)

    def merge(self, states: list[S]) -> S:
        """Merge the states of some parts of one pass, each of which has visited other chunks.

        Returns the state for ``finish``; a single state is returned as it is. May change the states.
        """
        return merge_states(states)

    def in_parts(self, parts: int) -> Self:
        """Return the solver for passes in ``parts`` parts: each copy of the state visits a part of the rows, the same part
        in every pass.

        For solvers whose row state depends on the number of parts (CoCoA+).
        """
        return self

    @property
    def driver_fields(self) -> tuple[str, ...]:
        """The state fields with the role ``DriverOnly`` (``types.state.find_driver_fields``), which are not sent to
        workers.
        """
        return ()

    def sampling_threshold(self, state: S) -> Handle | None:
        """Return the sampling threshold after the rows visited so far, which other groups of the pass can use; None:
        there is none.

        For solvers that keep a sample of the rows of a pass: with the threshold of other groups they reject rows
        earlier. It never changes the result of the merged pass.
        """

    def set_sampling_threshold(self, state: S, threshold: Handle) -> None:
        """Begin a part of a pass with the sampling threshold of other groups. Changes the state."""

    # -- several problems on the same rows

    def prepare_shared(self, states: list[S], X: RowRecord) -> Any:
        """Compute what several problems need of the same rows, before each of them visits the rows; return what
        ``finish_shared`` gets. Changes the states.
        """

    def finish_shared(self, states: list[S], X: RowRecord, shared: Any) -> None:
        """Process the same rows for several problems, after each of them has visited the rows. Changes the states.

        ``shared``: what ``prepare_shared`` has returned.
        """

    def share_between_problems(self, states: list[S]) -> None:
        """Let the states of several problems share what they have computed or collected from the same rows, before
        ``finish`` is called for each. Changes the states.
        """

    def needs_features(self, state: S) -> bool:
        """Return whether this pass uses features; otherwise it accepts rows whose features are not formed yet."""
        return True

    def estimate_work(self, problem: Problem) -> tuple[int, int] | None:
        """Return the expected number of passes of a fit, and the number of rows whose features it uses in all of them
        together.

        For solvers that use a block only through margins, adjoint products and Gram matrices, and therefore accept a
        factored pair. None: the solver needs explicit features.
        """

    # -- problems one after the other, where memory is short

    @property
    def problems_per_batch(self) -> int:
        """The largest number of problems in the same passes; others follow when these are solved. 0: all of them."""
        return 0

    def with_problems_per_batch(self, count: int, user_set: Collection[str]) -> Self | None:
        """Return the solver with at most ``count`` problems in the same passes; None if their number is fixed.

        ``user_set``: names of the settings that the user gave.
        """

    def start_after(self, problems: Sequence[Problem], solved: Sequence[S]) -> list[S]:
        """Return the states before the first pass of some problems, after others with the states ``solved``. Reads no data."""
        return [self.start(problem) for problem in problems]

    def forget_steps(self, state: S) -> None:
        """Free the memory that a solved problem needs no longer. Changes the state."""

    # -- in-memory steps between passes

    @property
    def stops_early(self) -> bool:
        """Whether its in-memory work stops at the deadline (``set_deadline``), so that no time has to be reserved for
        it.
        """
        return False

    def set_deadline(self, state: S, moment: float) -> None:
        """Stop in-memory work at ``moment`` of ``time.perf_counter``. Called before ``finish`` and before the steps
        after it.
        """

    def has_pending_steps(self, state: S) -> bool:
        """Return whether the solver has an in-memory step to make before the next pass.

        The order is: ``finish``, then steps until none is pending, then the next pass. A checkpoint can be saved, and
        the process can be stopped, between any two steps, because everything that a step needs is in the state.
        """
        return False

    def make_step(self, state: S) -> None:
        """Make the next in-memory step, which takes a few seconds at most. Changes the state."""

    # -- intermediate weights, and weights for a warm start

    @property
    def has_current_weights(self) -> bool:
        """Whether its current weights can be scored on held-out rows after any pass (``current_weights``)."""
        return False

    def current_weights(self, state: S) -> Float64:
        """Return a copy of the current weights (columns + 1,), which need not be certified."""
        raise NotImplementedError

    @property
    def warm_start(self) -> bool:
        """Whether ``start`` uses ``Problem.warm``: the first pass evaluates those weights or continues from them."""
        return False

    def with_start_weights(self, problem: Problem, weights: Float64) -> Problem:
        """Return the problem with weights (columns + 1,) for a warm start, in terms of the features that the solver
        sees.
        """
        return replace(problem, warm=weights)

    # -- dual variables of solvers that do not keep them as row state

    @property
    def has_dual_witness(self) -> bool:
        """Whether it can compute the dual variables that attain its dual value (``keep_dual_point``, ``witness``,
        ``dual_values``).
        """
        return False

    def keep_dual_point(self) -> Self:
        """Return the solver, set to use only dual values whose dual variables it can compute afterwards."""
        return self

    def witness(self, state: S) -> S:
        """Return the dual witness: the part of a state from which ``dual_values`` computes the dual variables.

        A worker that closes the last pass sends it to the driver. It shares arrays with ``state``, which does not
        change.
        """
        return begin_part(state)

    def dual_values(self, state: S, block: Block) -> Float64 | None:
        """Return the dual variables a_i >= 0 (n,) of a block's rows at the dual point of the last certificate.

        Without ``keep_dual_point``: those of the best dual point whose variables are known; None if there is none.
        """

    # -- kernels

    @property
    def exact_kernel(self) -> bool:
        """Whether it evaluates ``Problem.kernel`` on the rows themselves and returns a ``SupportSolution``."""
        return False

    @property
    def free_bias(self) -> bool:
        """Whether the intercept of a kernel machine is not regularized. False: it is regularized, or there is none."""
        return False

    @property
    def max_support(self) -> int:
        """The largest number of support rows of its model; 0: no limit."""
        return 0

    @property
    def epsilon(self) -> float:
        """The Frank-Wolfe gap ``max_v grad f(x)'(x - v)`` on the simplex at which it stops; 0: this gap is not a
        criterion.
        """
        return 0.0

    # -- settings

    def adapt_to_data(self, rows: int, problems: Sequence[Problem], user_set: Collection[str]) -> Self:
        """Return the solver with a number of rows in memory that suits data of ``rows`` rows and the number of problems.

        ``user_set``: names of the settings that the user gave, which stay unchanged.
        """
        return self

    def shrink_memory(self, problem: Problem, user_set: Collection[str]) -> Self | None:
        """Return the solver with less memory, at the cost of more passes; None if less would be of no use.

        ``user_set``: names of the settings that the user gave, which the solver may leave unchanged.
        """

    def memory_settings(self) -> dict[str, int | None]:
        """Return the settings that ``shrink_memory`` changes, by name. Passed to another fit, they give the same
        solver.
        """
        return {}

    def settings_without_effect(self, problem: Problem) -> dict[str, tuple[str, ...]]:
        """Return the names of settings that have no effect on this problem. The key is the reason, as the end of a
        sentence.
        """
        return {}


AnySolver: TypeAlias = Solver[Any]
"""A solver, for code that passes its states on without using their fields."""

State: TypeAlias = Any
"""The state of a solver (the S of ``Solver``), for code that passes it on without using its fields."""


class Term(NamedTuple):
    """One line of a memory plan."""

    name: str
    """What the memory is for, in one or two words, as printed by ``plan`` and the log."""
    nbytes: int
    """Upper bound of the bytes."""
    why: str
    """How the bytes are computed (counts, types and what each is), for a user who wants to use less memory."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Limits of a fit, which ends before them if every gap is within its tolerance."""

    max_passes: int = 1000
    """Number of passes over the data, those that only evaluate included."""
    seconds: float = float("inf")
    """Wall-clock seconds of training since this process began or resumed it; inf: no limit."""


class Status(StrEnum):
    """How a training ended."""

    CONVERGED = "converged"
    PASSES = "max passes"
    TIME = "time limit"
    ASKED = "asked to end"
    """A callback asked for the end."""
    PATIENCE = "patience"
    """Early stopping: the score on held-out rows had not improved for too many passes."""
    STALLED = "stalled"
    """The solver could make no further progress before the gap reached the tolerance."""
    SUPPORT = "support limit"
    """The model has as many support rows as allowed; its gap includes the cost of the limit."""


Report: TypeAlias = Callable[[JsonObject], None]
"""Receives the events of a job, for example to update a progress bar or to write a log file."""


def silent(event: JsonObject) -> None:
    """Ignore an event."""
