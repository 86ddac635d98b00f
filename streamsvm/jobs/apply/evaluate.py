"""evaluate: a model and labeled rows in, how good it is on them out."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from streamsvm import model as models
from streamsvm.aliases import JsonObject
from streamsvm.compute import threading
from streamsvm.engine.executors.executor import Executor, executor_for, task_limit
from streamsvm.engine.progress import Stopwatch
from streamsvm.jobs import JobResult
from streamsvm.jobs.apply.distributed import counted, slices_of, work_of
from streamsvm.jobs.apply.metrics.accumulate import Evaluation
from streamsvm.jobs.apply.metrics.thresholds import ThresholdFigures
from streamsvm.jobs.apply.on_threads import accumulated
from streamsvm.jobs.apply.opening import located, request_of, row_batches
from streamsvm.jobs.apply.options import EvaluateJob
from streamsvm.jobs.report.evaluation import record_evaluation
from streamsvm.jobs.without_effect import other_formats, without_effect
from streamsvm.schedule.cores import wanted_threads
from streamsvm.store.sources.input import standard_input
from streamsvm.types import Report, silent

BYTES_A_ROW = 100
"""Bytes for each row of a block: decision values, codes, keys of the ranking."""


@dataclass(frozen=True, slots=True)
class EvaluateResult(JobResult):
    """The figures, how long they took, and what is worth knowing beside them."""

    evaluation: Evaluation
    """The figures."""
    seconds: float
    """How long it took."""
    stated: ThresholdFigures | None = None
    """The figures at the threshold that was asked for."""
    best: ThresholdFigures | None = None
    """The figures at the threshold that is best by the measure that was asked for."""

    def facts(self) -> JsonObject:
        """Return the figures by name, those at a threshold as tables of their own."""
        thresholds = {"threshold": self.stated, "best_threshold": self.best}
        return {
            **self.evaluation._asdict(),
            "seconds": self.seconds,
            "notices": list(self.notices),
            **{name: found._asdict() for name, found in thresholds.items() if found is not None},
        }


def evaluate(job: EvaluateJob, report: Report = silent, executor: Executor | None = None) -> EvaluateResult:
    """Apply the model to every row and compare. Raises MissingError, BudgetError, DataError (E-LABEL for rows without
    labels).
    """
    with ExitStack() as stack:
        found = stack.enter_context(executor_for(job, executor))
        stack.enter_context(threadpool_limits(1))
        data = stack.enter_context(standard_input(job.data, Path("evaluation"), cluster=found is not None))
        return _evaluated(replace(job, data=located(data)), report, found)


def _evaluated(job: EvaluateJob, report: Report, executor: Executor | None) -> EvaluateResult:
    model, stopwatch = models.load(Path(job.model)), Stopwatch()
    memory = job.memory if executor is None else task_limit(executor, job.memory)
    per_row = BYTES_A_ROW + 8 * len(model.weights)
    request = request_of(job, memory, per_row)
    rows = row_batches(model, job.data, request)
    plan = rows.fitted(memory, per_row, wanted_threads(job.threads) if executor is None else 1)

    def on_progress(counted_rows: int, **more: object) -> None:
        report({"event": "evaluate", "rows": counted_rows, "of": rows.total, "seconds": stopwatch.seconds, **more})

    if executor is None:
        with threading.using(plan.threads):
            accumulator = accumulated(model, rows, job.threshold, plan.threads, on_progress)
    else:
        found = counted(work_of(job, request), slices_of(job.data), executor, plan.total)
        accumulator, rows.notices = found.accumulator, found.notices
    rows.notices += without_effect(job, other_formats(job, rows.form))
    if rows.rejects.count:
        rows.notices.append(rows.rejects.summary())
    on_progress(accumulator.rows, done=True)
    record_evaluation(Path(job.model), model, job.data, accumulator)
    stated, best = accumulator.at_thresholds(job.best_threshold, (job.cost[0], job.cost[1]))
    return EvaluateResult(accumulator.result(), stopwatch.seconds, stated, best, notices=tuple(rows.notices))
