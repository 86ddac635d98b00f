"""What some solvers can do beside what ``Solver`` requires: one protocol an ability, asked for by ``isinstance``.

A caller never asks a solver for a member that is declared neither in ``Solver`` nor here. A solver need not name the
protocols it satisfies: having the members is what declares it, and ``tests/contract`` holds it to what they promise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Protocol, Self, TypeVar, runtime_checkable

from streamsvm.aliases import RowRecord
from streamsvm.rows import Float64, Rows
from streamsvm.types.problem import Block, Problem
from streamsvm.types.solver import AnySolver, FeaturePart

S = TypeVar("S")
"""The state of a solver, as ``Solver`` has it."""
S_contra = TypeVar("S_contra", contravariant=True)
B = TypeVar("B")
"""What a solver says of the rows it has not seen: made and read by that solver alone."""


@runtime_checkable
class Mergeable(Protocol[S]):
    """A solver whose pass can be shared out: copies of one state, each on its own chunks, joined again."""

    def merge(self, states: list[S]) -> S:
        """Join what several workers did with copies of one state, each on its own chunks, in one pass.

        The state that is returned is closed with ``finish``. A list of one comes back as it is. May change the states.
        """
        ...


@runtime_checkable
class LeanParts(Protocol[S]):
    """A solver whose state is large beside what a pass sums up: parts of a pass share what their visits only read."""

    def part(self, state: S) -> S:
        """Return the state as a part of a pass begins with it: sums of nothing, and of all else what it has, not copied.

        Visits of the part change nothing that ``state`` has. What ``finish`` alone looks at may be missing where it is one of
        the ``driver_fields``.
        """
        ...


@runtime_checkable
class Partitioned(Protocol):
    """A solver that must know into how many groups the rows are dealt: its row state depends on it (CoCoA+)."""

    def in_parts(self, parts: int) -> Self:
        """Return the same solver for ``parts`` copies of the state, each of which visits the same rows in every pass."""
        ...


@runtime_checkable
class Multinomial(Protocol):
    """A solver that can also tell all classes apart in one problem (``Problem.classes``)."""

    def of_classes(self, classes: int) -> AnySolver:
        """Return the solver of such a problem of so many classes, with the same settings."""
        ...


@runtime_checkable
class BallConstrained(Protocol):
    """A solver that also minimizes the sum of squares over an l1 ball (``Problem.l1_ball``)."""

    def in_l1_ball(self) -> AnySolver:
        """Return the solver of such a problem, with the same settings."""
        ...


@runtime_checkable
class ElasticNetSolver(Protocol):
    """A solver that also minimizes with a multiple of ||w||_1 beside ||w||^2 / 2 (``Problem.l1``)."""

    def with_l1(self) -> AnySolver:
        """Return the solver of such a problem, with the same settings."""
        ...


@runtime_checkable
class SharedRows(Protocol[S]):
    """A solver for which several problems at the same rows have work in common."""

    def prepare_shared(self, states: list[S], X: RowRecord) -> None:
        """Take in rows before the problems visit them one after the other. Changes the states."""
        ...


@runtime_checkable
class SharedGathering(Protocol[S]):
    """A solver that keeps rows of a pass: several problems that kept the same rows have one copy of them."""

    def join_gathered(self, states: list[S]) -> None:
        """Put together the rows that several of these states have kept alike, before the states are finished one after the other.

        What ``finish`` comes to is the same without, to the last bit. Changes the states.
        """
        ...


@runtime_checkable
class Prunable(Protocol[S_contra, B]):
    """A solver that keeps a choice of the rows of a pass: rows of one group show that some of another cannot be in it.

    What is known of other groups saves work and never changes what the joined pass comes to.
    """

    def sample_bound(self, state: S_contra) -> B:
        """Return what the rows visited so far say about all others of this pass."""
        ...

    def set_bound(self, state: S_contra, bound: B) -> None:
        """Begin a pass over some rows knowing the ``bound`` of others. Changes the state."""
        ...


@runtime_checkable
class Deadline(Protocol[S_contra]):
    """A solver whose work between two passes may take long, and can come to its end before its time."""

    def set_deadline(self, state: S_contra, moment: float) -> None:
        """Say before ``finish``, and before the steps after it, that no work is to go on after ``moment``.

        ``moment`` is one of ``time.perf_counter``. Changes the state.
        """
        ...


@runtime_checkable
class StepsBetweenPasses(Protocol[S_contra]):
    """A solver that works in memory between two passes, in steps: a run can be saved, and stopped, between any two.

    ``finish`` says what the pass has shown; then come the steps, until none is pending; then the next pass. All that a step
    needs is in the state: from one that was saved the same steps lead to the same bits.
    """

    def pending(self, state: S_contra) -> bool:
        """Whether there is a step to be made before the next pass."""
        ...

    def proceed(self, state: S_contra) -> None:
        """Make the next step, a matter of seconds at most. Changes the state."""
        ...


@runtime_checkable
class SplitState(Protocol):
    """A solver of whose state a part is looked at only when a pass ends: it is not sent to those who visit blocks."""

    @property
    def driver_fields(self) -> tuple[str, ...]:
        """The names of those fields of the state; each may be None while blocks are visited."""
        ...


@runtime_checkable
class CandidateWeights(Protocol[S_contra]):
    """A linear solver whose weights can be tried on held-out rows after any pass."""

    def candidate(self, state: S_contra) -> Float64:
        """Return a copy of the weights (columns + 1,) it would go with now; they need not be certified."""
        ...


@runtime_checkable
class WarmStart(Protocol):
    """A linear solver that starts at ``Problem.warm``: its first pass evaluates those weights, or goes on from them.

    A solver says so by inheriting from this class, which has all there is to do; its ``start`` keeps the promise. A fit that
    is to start from a model is refused with any other solver, which would ignore the model.
    """

    __slots__ = ()

    def starting_at(self, problem: Problem, weights: Float64) -> Problem:
        """Return the problem with the weights (columns + 1,) to start from, as the solver sees them."""
        return replace(problem, warm=weights)


@runtime_checkable
class DualWitness(Protocol[S]):
    """A solver without dual variables as row state that can still say what those behind its bound are."""

    def keeping_dual_point(self) -> Self:
        """Return the same solver, set to bound the optimum only by dual points it can say the variables of."""
        ...

    def witness(self, state: S) -> S:
        """Return the least of a state that ``dual_values`` answers from alike: what a worker that closes the last pass sends.

        Shares arrays with ``state``, which does not change.
        """
        ...

    def dual_values(self, state: S, block: Block) -> Float64 | None:
        """Return the dual variables a_i >= 0 (n,) of a block's rows at the dual point of the last certificate.

        Of a solver that was not asked to keep it, those of the best point that it knows in this way; None where it knows none.
        """
        ...


@runtime_checkable
class FreeOffset(Protocol):
    """A solver of one class with a free offset too: of problems with ``Problem.nu`` (``solvers.one_class``)."""

    @property
    def free_offset(self) -> bool:
        """Return True; what declares the ability."""
        ...


@runtime_checkable
class NuSolver(Protocol):
    """A solver that also finds the C of two classes by the share ``Problem.nu`` (nu-SVM)."""

    def for_two_classes(self) -> AnySolver:
        """Return the solver of such a problem, with the same settings."""
        ...


@runtime_checkable
class SimplexCriterion(Protocol):
    """A solver that may also end at an absolute gap on the simplex, the criterion of the Frank-Wolfe papers."""

    @property
    def epsilon(self) -> float:
        """The gap ``max_v grad f(x)'(x - v)`` at which it may end; 0 where only the relative gap counts."""
        ...


@runtime_checkable
class FactoredBlocks(Protocol):
    """A solver that sees a block through margins, adjoint and Gram matrix only, and so takes a factored pair for it."""

    def expected(self, problem: Problem) -> tuple[int, int]:
        """Return the passes a fit is expected to take, and the rows whose features it asks for in all of them."""
        ...


@runtime_checkable
class UnformedBlocks(Protocol[S_contra]):
    """A solver that does without features in some passes, as at w = 0, where all decision values are 0."""

    def needs_features(self, state: S_contra) -> bool:
        """Return whether it looks at features in this pass; else it takes rows whose features can still be made in their place."""
        ...


@runtime_checkable
class UnformedFeatures(Protocol):
    """A feature map that can leave features to those who need them."""

    def unformed_parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Yield the parts of ``FeatureMap.parts`` as rows whose features can still be made, where these may be kept as such."""
        ...


@runtime_checkable
class ShrinkableMemory(Protocol):
    """A solver that can do with less memory than it would like, at the cost of more passes."""

    def smaller(self, problem: Problem, asked: Collection[str]) -> Self | None:
        """Return the same solver with less in memory; None at the least that is of use.

        ``asked``: names of the settings the user gave, which a solver may insist on.
        """
        ...

    def memory_settings(self) -> dict[str, int | None]:
        """Return the settings that ``smaller`` changes, by name. Handed to another fit they give the same solver."""
        ...


@runtime_checkable
class KernelSolver(Protocol):
    """A solver that evaluates ``Problem.kernel`` on the rows themselves, and answers with support rows."""

    @property
    def free_bias(self) -> bool:
        """Whether the intercept is free of regularization (False: a regularized constant, or none)."""
        ...

    @property
    def max_support(self) -> int:
        """The most rows the model may have; 0: any number."""
        ...

    def sized(self, rows: int, asked: Collection[str]) -> Self:
        """Return the same solver with as many rows in memory as serve it on data of so many.

        ``asked``: names of the settings the user gave, which stay as they are.
        """
        ...


@runtime_checkable
class IdleSettings(Protocol):
    """A solver some of whose settings nothing looks at where others, or the problem, leave them nothing to do."""

    def idle(self, problem: Problem) -> dict[str, tuple[str, ...]]:
        """Return the names of these settings by the reason, which ends a sentence; no names where there is no reason."""
        ...
