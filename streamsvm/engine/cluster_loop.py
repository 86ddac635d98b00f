"""The fit loop on a cluster: states travel packed, workers visit groups, and the worker of the last join closes the pass.

Parts of a state that only the end of a pass looks at (``Solver.driver_fields``) stay on disk, where that worker reads them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from streamsvm.engine.block import BlockVisitor
from streamsvm.engine.checkpoint import Checkpointer
from streamsvm.engine.executor import Executor, Joins, OnProgress
from streamsvm.engine.fit_state import Training, steps_between
from streamsvm.engine.groups import GroupFit, GroupTrainer, Join, PartialResult, PassInput, Work, sum_costs
from streamsvm.engine.row_state import GroupRows, GroupStateFiles, Versions
from streamsvm.engine.state_transfer import clone, serialize
from streamsvm.errors import ClusterError, DataError
from streamsvm.schedule.machine import anonymous_bytes
from streamsvm.types import AnySolver, Certificate, Problem, Report, State


class PassResult(NamedTuple):
    """A round that is over; states and certificates in the order of the problems it was pass_input with."""

    states: list[State]
    """Serialized, without what stays on disk."""
    certificates: list[Certificate]
    """What is now known of each problem."""
    witnesses: list[State | None]
    """Of each problem that takes part in no further pass, serialized, where that is wanted: see ``Work.witnesses``."""
    spent: PartialResult
    """What all groups took; its states are gone."""
    seconds: float = 0.0
    """How long it took to close the pass, steps in memory included."""

    def with_peak(self, peak: int) -> PassResult:
        """The same, closed by a process that had as many bytes in use."""
        return self._replace(spent=self.spent.with_peak(peak))


def close_pass(found: PartialResult, work: Work, pass_input: PassInput) -> PassResult:
    """Close the pass of every problem. Raises DataError, StorageError."""
    began, numbers = time.perf_counter(), [k for k, _ in pass_input.states]
    states = dict(zip(numbers, clone(found.states), strict=True))  # in one go: what they share stays shared
    if work.driver_state is not None:
        work.driver_state.load(pass_input.version, states)
    visitor = BlockVisitor(work.solver, work.features)
    deadline = time.perf_counter() + (pass_input.deadline - time.time())
    visitor.join_gathered(list(states.values()))
    certificates = [visitor.finish(state, deadline) for state in states.values()]
    for (k, state), certificate in zip(states.items(), certificates, strict=True):
        if certificate.ends(work.problems[k]):  # no further pass looks at what steps would come to
            continue
        for _ in steps_between(work.solver, state, deadline):  # nobody saves a round before it is over
            pass
    left, witnesses = list(states.values()), _witnesses(states, certificates, work, pass_input)
    if work.driver_state is not None:
        work.driver_state.save(pass_input.version + 1, states, pass_input.drop)
        left = [work.driver_state.without(state) for state in left]
    spent = found._replace(states=[], peak=max(found.peak, anonymous_bytes()))
    return PassResult([serialize(state) for state in left], certificates, witnesses, spent, time.perf_counter() - began)


def _witnesses(
    states: dict[int, State], certificates: list[Certificate], work: Work, pass_input: PassInput
) -> list[State | None]:
    """What is sent of whole states, which are here alone, because the dual variables are read off it."""
    solver = work.solver
    if not (work.witnesses and solver.has_dual_witness):
        return [None] * len(states)
    return [
        serialize(solver.witness(state)) if pass_input.ending or found.ends(work.problems[k]) else None
        for (k, state), found in zip(states.items(), certificates, strict=True)
    ]


class DistributedTrainer(GroupTrainer):
    """The fit loop through the executor of a cluster.

    Tasks are copies: a worker may be lost with what it had. So per-row state, and what only the end of a pass looks at,
    is in files of one version for each round, and nothing on the driver changes before a round is closed.
    """

    def __init__(self, fit: GroupFit, executor: Executor, report: Report) -> None:
        super().__init__(fit, executor, report)
        work = fit.work
        self._shared = executor.share(work)
        self._versions = Versions()
        files = [one for one in work.state_files if isinstance(one, GroupStateFiles)]
        rows = {one.state.name: GroupRows(one, fit.layout, fit.groups, self._versions) for one in files}
        self.training.row_states = {**rows, **({"home": self._versions} if work.driver_state else {})}

    def with_solver(self, solver: AnySolver, problems: list[Problem], before: Training) -> DistributedTrainer:
        """Return a loop for another solver over the same groups."""
        work = replace(
            self._fit.work, solver=solver, problems=tuple(problems), state_files=(), driver_state=None, witnesses=False
        )
        other = DistributedTrainer(replace(self._fit, work=work), self._executor, self._report)
        other.training.continue_counts_from(before)
        return other

    def continue_pass(self) -> None:
        """Go on from what one process has saved: its pass begins anew, what only the end of a pass looks at goes to a file.

        Raises DataError for a pass that has changed what belongs to rows, StorageError.
        """
        training, driver_state, versions = self.training, self._fit.work.driver_state, self._versions
        if training.chunks_visited and (self._solver.row_state or not training.partials):
            found = f"the checkpoint was made in pass {training.passes + 1}, and the per-row state of that pass is incomplete"
            raise DataError(
                found,
                code="E-CHECKPOINT",
                hint="go on without --cluster, or start again with --overwrite in place of --resume",
            )
        training.chunks_visited, training.partials = 0, []
        if driver_state is not None and versions.to_write:
            active = {one.number: one.state for one in training.active()}
            driver_state.save(versions.version, active, ())
            for number, state in active.items():
                training.runs[number].state = driver_state.without(state)
            versions.to_write = False

    def run_pass(self, checkpointer: Checkpointer) -> None:
        """Make a round and take in what it came to. Raises ClusterError, with all that was known saved."""
        training, driver_state = self.training, self._fit.work.driver_state
        active = training.active()
        states = tuple(
            (one.number, serialize(driver_state.without(one.state) if driver_state else one.state)) for one in active
        )
        deadline = time.time() + (self._work_deadline() - time.perf_counter())
        on_disk = self._versions.version, self._versions.drop()
        pass_input = PassInput(training.passes, states, *on_disk, {}, deadline, ending=training.ending)
        with self.saving_on_cluster_failure(checkpointer):
            closed = self._close_pass(pass_input, self._meanwhile(checkpointer))
        self._own_seconds += closed.seconds
        self._versions.advance()
        training.passes += 1
        training.bytes_read += self._fit.layout.bytes_per_pass
        self._count_costs(closed.spent)
        training.reads_repeated += closed.spent.reads_repeated
        ended = zip(active, closed.states, closed.certificates, closed.witnesses, strict=True)
        for number, (one, state, certificate, witness) in enumerate(ended, 1):
            self._progress.closing(number, len(active))
            run = training.runs[one.number]
            run.state, run.witness = clone(state), clone(witness)
            run.take_certificate(certificate)
            self._progress.certificate(one.number, run)

    @contextmanager
    def saving_on_cluster_failure(self, checkpointer: Checkpointer) -> Iterator[None]:
        """Save what there is when the cluster is lost, and say what a user of a fit can do besides."""
        try:
            yield
        except ClusterError as error:
            checkpointer.save(self.training)
            hint = f"{error.hint}; then run the same command with --resume: it goes on after the last complete pass"
            raise ClusterError(error.message, hint=hint, code=error.code) from error

    def _close_pass(self, pass_input: PassInput, on_progress: OnProgress) -> PassResult:
        """One pass over all groups. Nothing on the driver has changed if it fails."""
        work, shared = self._fit.work, (self._shared, self._executor.share(pass_input))
        if not work.solver.shuffled:
            joins = Joins(Join(work.solver), close_pass)
            found: PassResult = self._executor.reduce(self._task, self._fit.groups, joins, shared, on_progress)
            return found
        parts = list(self._executor.map(self._task, self._fit.groups, shared, on_progress))
        joined = [work.solver.merge(list(copies)) for copies in zip(*(part.states for part in parts), strict=True)]
        return close_pass(sum_costs(parts, joined), work, pass_input)
