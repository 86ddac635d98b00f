"""The fit loop on a cluster: workers visit groups with serialized states, and the worker that makes the last join
closes the pass.

The state fields that only ``finish`` reads (``Solver.driver_fields``) stay on disk, from where that worker reads them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from streamsvm.engine.block_visitor import BlockVisitor
from streamsvm.engine.checkpoint import Checkpointer
from streamsvm.engine.executor import Executor, Joins, OnProgress
from streamsvm.engine.fit_state import Training, make_pending_steps
from streamsvm.engine.group_tasks import Join, PartialResult, PassInput, Work, sum_costs
from streamsvm.engine.loop import GroupFit, GroupTrainer
from streamsvm.engine.row_state import GroupRows, GroupStateFiles, Versions
from streamsvm.engine.state_transfer import clone, serialize
from streamsvm.errors import ClusterError, DataError
from streamsvm.schedule.machine import anonymous_bytes
from streamsvm.types import AnySolver, Certificate, Problem, Report, State


class PassResult(NamedTuple):
    """The result of a pass. The lists have the order of ``PassInput.states``."""

    states: list[State]
    """The states, serialized, without the fields that stay on disk."""
    certificates: list[Certificate]
    """The new certificate of each problem."""
    witnesses: list[State | None]
    """The serialized dual witness (``Work.witnesses``) of each problem that takes part in no further pass; else
    None."""
    costs: PartialResult
    """The costs of all groups; its list of states is empty."""
    seconds: float = 0.0
    """Seconds that closing the pass took, in-memory steps included."""

    def with_peak(self, peak: int) -> PassResult:
        """Return the result with its peak raised to ``peak``, that of the process that closed the pass."""
        return self._replace(costs=self.costs.with_peak(peak))


def close_pass(joined: PartialResult, work: Work, pass_input: PassInput) -> PassResult:
    """Close the pass of every problem on a worker. Raises DataError, StorageError."""
    began, numbers = time.perf_counter(), [k for k, _ in pass_input.states]
    states = dict(zip(numbers, clone(joined.states), strict=True))  # all at once, so that shared arrays stay shared
    if work.driver_state is not None:
        work.driver_state.load(pass_input.version, states)
    visitor = BlockVisitor(work.solver, work.features)
    deadline = time.perf_counter() + (pass_input.deadline - time.time())
    visitor.share_between_problems(list(states.values()))
    certificates = [visitor.finish(state, deadline) for state in states.values()]
    for (k, state), certificate in zip(states.items(), certificates, strict=True):
        if certificate.ends(work.problems[k]):  # no further pass needs the steps
            continue
        for _ in make_pending_steps(work.solver, state, deadline):  # no checkpoint is made within a pass on a cluster
            pass
    sent, witnesses = list(states.values()), _serialize_witnesses(states, certificates, work, pass_input)
    if work.driver_state is not None:
        work.driver_state.save(pass_input.version + 1, states, pass_input.drop)
        sent = [work.driver_state.remove_fields(state) for state in sent]
    costs = joined._replace(states=[], peak=max(joined.peak, anonymous_bytes()))
    return PassResult([serialize(state) for state in sent], certificates, witnesses, costs, time.perf_counter() - began)


def _serialize_witnesses(
    states: dict[int, State], certificates: list[Certificate], work: Work, pass_input: PassInput
) -> list[State | None]:
    """Return the serialized witness of each problem that takes part in no further pass, else None.

    A witness is made here because only this worker has complete states.
    """
    solver = work.solver
    if not (work.witnesses and solver.has_dual_witness):
        return [None] * len(states)
    return [
        serialize(solver.witness(state)) if pass_input.ending or certificate.ends(work.problems[k]) else None
        for (k, state), certificate in zip(states.items(), certificates, strict=True)
    ]


class DistributedTrainer(GroupTrainer):
    """The fit loop that runs on the executor of a cluster.

    Tasks work on copies, because a worker may fail at any time. Therefore the per-row state, and the state fields that
    only ``finish`` reads, are in files with one version for each pass, and nothing on the driver changes before a pass
    is closed.
    """

    def __init__(self, fit: GroupFit, executor: Executor, report: Report) -> None:
        super().__init__(fit, executor, report)
        work = fit.work
        self._shared = executor.share(work)
        self._versions = Versions()
        state_files = [files for files in work.state_files if isinstance(files, GroupStateFiles)]
        rows = {
            files.state.name: GroupRows(files, fit.layout, fit.groups, fit.directory, self._versions)
            for files in state_files
        }
        self.training.row_states = {**rows, **({"home": self._versions} if work.driver_state else {})}

    def with_solver(self, solver: AnySolver, problems: list[Problem], previous: Training) -> DistributedTrainer:
        """Return a loop over the same groups for another solver. Its counts of passes and costs start from those of
        ``previous``.
        """
        work = replace(
            self._fit.work, solver=solver, problems=tuple(problems), state_files=(), driver_state=None, witnesses=False
        )
        other = DistributedTrainer(replace(self._fit, work=work), self._executor, self._report)
        other.training.continue_counts_from(previous)
        return other

    def continue_pass(self) -> None:
        """Prepare to repeat an interrupted pass from its start.

        If the checkpoint was made by one process, write the state fields that only ``finish`` reads to a file. Raises
        StorageError, and DataError if the interrupted pass has already changed per-row state.
        """
        training, driver_state, versions = self.training, self._fit.work.driver_state, self._versions
        if training.chunks_visited and (self._solver.row_state or not training.partials):
            pass_number = training.passes + 1
            raise DataError(
                f"the checkpoint was made in pass {pass_number}, and the per-row state of that pass is incomplete",
                code="E-CHECKPOINT",
                hint="go on without --cluster, or start again with --overwrite in place of --resume",
            )
        training.chunks_visited, training.partials = 0, []
        if driver_state is not None and versions.must_write_files:
            active = {problem.number: problem.state for problem in training.active()}
            driver_state.save(versions.version, active, ())
            for number, state in active.items():
                training.runs[number].state = driver_state.remove_fields(state)
            versions.must_write_files = False

    def run_pass(self, checkpointer: Checkpointer) -> None:
        """Make one pass on the cluster. Raises ClusterError, after a checkpoint of the last closed pass was saved."""
        training, driver_state = self.training, self._fit.work.driver_state
        active = training.active()
        states = tuple(
            (problem.number, serialize(driver_state.remove_fields(problem.state) if driver_state else problem.state))
            for problem in active
        )
        deadline = time.time() + (self._work_deadline() - time.perf_counter())
        version, drop = self._versions.version, self._versions.drop()
        pass_input = PassInput(
            training.passes, states, version, drop, {}, deadline, ending=training.is_last_pass, serialized=True
        )
        with self.saving_on_cluster_failure(checkpointer):
            result = self._visit_and_close(pass_input, self._make_progress_callback(checkpointer))
        self._in_memory_seconds += result.seconds
        self._versions.advance()
        training.passes += 1
        training.bytes_read += self._fit.layout.bytes_per_pass
        self._count_costs(result.costs)
        training.reads_repeated += result.costs.reads_repeated
        results = zip(active, result.states, result.certificates, result.witnesses, strict=True)
        for position, (problem, state, certificate, witness) in enumerate(results, 1):
            self._progress.report_problem(position, len(active))
            run = training.runs[problem.number]
            run.state, run.dual_witness = clone(state), clone(witness)
            run.record_certificate(certificate)
            self._progress.report_certificate(problem.number, run)

    @contextmanager
    def saving_on_cluster_failure(self, checkpointer: Checkpointer) -> Iterator[None]:
        """Save a checkpoint if the cluster fails inside the context, and add to the error's hint how to resume."""
        try:
            yield
        except ClusterError as error:
            checkpointer.save(self.training)
            hint = f"{error.hint}; then run the same command with --resume: it goes on after the last complete pass"
            raise ClusterError(error.message, hint=hint, code=error.code) from error

    def _visit_and_close(self, pass_input: PassInput, on_progress: OnProgress) -> PassResult:
        """Visit all groups and close the pass, on workers; nothing on the driver changes, even in case of an error."""
        work, shared = self._fit.work, (self._shared, self._executor.share(pass_input))
        if not work.solver.shuffled:
            joins = Joins(Join(work.solver), close_pass)
            result: PassResult = self._executor.reduce(self._task, self._fit.groups, joins, shared, on_progress)
            return result
        parts = list(self._executor.map(self._task, self._fit.groups, shared, on_progress))
        joined = [work.solver.merge(list(copies)) for copies in zip(*(part.states for part in parts), strict=True)]
        return close_pass(sum_costs(parts, joined), work, pass_input)
