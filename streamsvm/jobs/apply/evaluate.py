"""Compute the measures of a model on labeled rows of a store or of files.

Threads or the workers of a cluster evaluate the rows of a store, by groups of chunks; rows of files are evaluated in
order.
Sums do not depend on the number of threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from streamsvm import model as models
from streamsvm.compute import threading
from streamsvm.config.units import percent
from streamsvm.engine.executor import Executor, Joins, Task, executor_for, ignore_progress, local_executor
from streamsvm.engine.partition import Group
from streamsvm.engine.progress import Stopwatch
from streamsvm.errors import UsageError, quote
from streamsvm.jobs import JobResult, format_value
from streamsvm.jobs.apply.leave_one_out import (
    LeaveOneOutFigures,
    bound_leave_one_out,
    describe_leave_one_out,
    find_problems,
    leave_one_out_term,
)
from streamsvm.jobs.apply.measures import (
    Accumulator,
    ClassAccumulator,
    ComparisonCounts,
    ComparisonFigures,
    Decided,
    Evaluation,
    ModelEvaluation,
    ProvedCounts,
    ProvedFigures,
    RegressionEvaluation,
    ThresholdFigures,
    accumulate,
    count_proved,
    count_rows,
    make_accumulator,
    merge_accumulators,
    wilson_interval,
)
from streamsvm.jobs.apply.options import EvaluateJob
from streamsvm.jobs.apply.row_samples import RowSamples
from streamsvm.jobs.apply.rows import (
    ApplyWork,
    RowBatch,
    RowBatches,
    Slice,
    build_file_request,
    compute_decisions,
    cut_slices,
    describe_work,
    locate_data,
    open_rows,
    open_slice,
)
from streamsvm.jobs.run_record import evaluation_folder, record_evaluation
from streamsvm.jobs.without_effect import notices_on_unused_options, other_formats
from streamsvm.model import Model
from streamsvm.model.measures import BETTER_COLUMNS, UNBALANCED_SHARE
from streamsvm.rows import Float64
from streamsvm.schedule import budget
from streamsvm.schedule.machine import count_wanted_threads, limit_blas_threads
from streamsvm.store.sources.byte_stream import standard_input
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Report, silent

HIDDEN_MEASURES = ("AUC_error", "hinge", "squared_hinge")
"""Measures that are not shown in a summary."""
BYTES_A_ROW = 100
"""Bytes per row of a block: decision values, codes, keys of the ranking."""


@dataclass(frozen=True, slots=True, repr=False)
class EvaluateResult(JobResult):
    """The result of an evaluation."""

    evaluation: Evaluation
    """The measures."""
    seconds: float
    """The duration in seconds."""
    stated: ThresholdFigures | None = None
    """The measures at the threshold given by the user (--threshold)."""
    best: ThresholdFigures | None = None
    """The measures at the threshold that is best by the measure of --best-threshold."""
    proved: ProvedFigures | None = None
    """What is proved of the exact optimum on these rows (--certify)."""
    against: ComparisonFigures | None = None
    """How another model differs on these rows (--against)."""
    leave_one_out: LeaveOneOutFigures | None = None
    """Bounds of the leave-one-out measures: each row is predicted by the exact optimum of the other rows (--leave-one-out)."""

    @property
    def measures(self) -> dict[str, float]:
        """The measures that are one number, by name: accuracy, AUC, log_loss, ...; in regression R2, MAE, RMSE, ..."""
        figures = self.evaluation._asdict().items()
        return {name: value for name, value in figures if isinstance(value, int | float)}

    def summary(self) -> dict[str, str]:
        """Return the measures that are one number as short texts, the accuracy with its 95 % confidence interval."""
        texts = {name: format_value(value) for name, value in self.measures.items() if name not in HIDDEN_MEASURES}
        if isinstance(self.evaluation, ModelEvaluation) and self.evaluation.rows:
            low, high = wilson_interval(self.evaluation.accuracy, self.evaluation.rows)
            texts["accuracy"] += f" (95 % interval {low:.4g} to {high:.4g})"
        if self.proved is not None:
            texts["proved"] = "; ".join(describe_proved(self.proved))
        if self.against is not None:
            texts["against the other model"] = "; ".join(describe_comparison(self.against))
        if self.leave_one_out is not None:
            texts["leave-one-out"] = "; ".join(describe_leave_one_out(self.leave_one_out))
        return texts

    def facts(self) -> JsonObject:
        """Return the measures by name as plain JSON; those at thresholds are tables of their own."""
        thresholds = {"threshold": self.stated, "best_threshold": self.best}
        return {
            **self.evaluation._asdict(),
            "seconds": self.seconds,
            "notices": list(self.notices),
            **{name: figures._asdict() for name, figures in thresholds.items() if figures is not None},
            **({} if self.proved is None else {"proved": self.proved._asdict()}),
            **({} if self.against is None else {"against": self.against._asdict()}),
            **({} if self.leave_one_out is None else {"leave_one_out": self.leave_one_out._asdict()}),
        }


def evaluate(job: EvaluateJob, report: Report = silent, executor: Executor | None = None) -> EvaluateResult:
    """Apply the model to all rows and compare its predictions with the labels.

    Raises MissingError, BudgetError, DataError (E-LABEL for rows without labels).
    """
    with ExitStack() as stack:
        connected = stack.enter_context(executor_for(job, executor))
        stack.enter_context(limit_blas_threads())
        data = stack.enter_context(standard_input(job.data, Path("evaluation"), cluster=connected is not None))
        return _run_evaluation(replace(job, data=locate_data(data)), report, connected)


def _run_evaluation(job: EvaluateJob, report: Report, executor: Executor | None) -> EvaluateResult:
    model, stopwatch = models.load(Path(job.model)), Stopwatch()
    if job.certify:
        model.check_enclosures()
    other = None if job.against is None else load_other(model, job)
    memory = job.memory if executor is None else budget.memory_limit(executor.memory_limit(job.memory))
    per_row = (BYTES_A_ROW + 8 * len(model.weights)) * (1 if other is None else 2)
    request = build_file_request(job, memory, per_row)
    rows = open_rows(model, job.data, request)
    training_problems = find_problems(model, job.data) if job.leave_one_out else None
    if training_problems is not None:
        rows.terms.append(leave_one_out_term(model, count_wanted_threads(job.threads)))
    plan = rows.plan_within(memory, per_row, count_wanted_threads(job.threads) if executor is None else 1)

    def on_progress(counted_rows: int, **more: object) -> None:
        report({"event": "evaluate", "rows": counted_rows, "of": rows.total, "seconds": stopwatch.seconds, **more})

    if executor is None:
        with threading.use_threads(plan.threads):
            empty = partial(_empty_accumulator, model, rows, job, other)
            accumulator = accumulate_rows(model, rows, empty, plan.threads, on_progress)
            left_out = None if training_problems is None else bound_leave_one_out(training_problems, model.threshold)
    else:
        evaluation = evaluate_slices(describe_work(job, request), cut_slices(job.data), executor, plan.total)
        accumulator, rows.notices, left_out = evaluation.accumulator, evaluation.notices, None
    rows.notices += notices_on_unused_options(job, other_formats(job, rows.form))
    if rows.rejects.count:
        rows.notices.append(rows.rejects.summary())
    on_progress(accumulator.rows, done=True)
    if not model.threshold:  # another threshold than 0 was chosen for another measure, or for a cost
        rows.notices += _useless_model_notice(accumulator)
    if accumulator.samples is not None:
        _name_worst_rows(accumulator.samples, rows)
    record_evaluation(Path(job.model), model, job.data, accumulator)
    stated, best = accumulator.at_thresholds(job.best_threshold, (job.cost[0], job.cost[1]))
    proved = None if accumulator.proved is None else accumulator.proved.result(numeric=model.numeric)
    compared = None if accumulator.compared is None else accumulator.compared.result()
    return EvaluateResult(
        accumulator.result(),
        stopwatch.seconds,
        stated,
        best,
        proved,
        compared,
        left_out,
        notices=tuple(rows.notices),
    )


def load_other(model: Model, job: EvaluateJob) -> Model:
    """Return the model of --against. Raises UsageError unless it is of the same classes and reads rows in the same way."""
    assert job.against is not None
    other = models.load(Path(job.against))
    encodings = [one.provenance.get("encoding") or {} for one in (model, other)]
    reasons = {
        "only predicted classes are right or wrong, and a model predicts numbers": model.numeric or other.numeric,
        "it has other classes": set(model.classes) != set(other.classes),
        "it has another number of columns": model.columns != other.columns,
        "its columns are encoded in another way": encodings[0] != encodings[1],
    }
    for what, is_so in reasons.items():
        if is_so:
            raise UsageError(
                f"{job.against} cannot be compared with {job.model} row by row: {what}",
                hint="train both on the same store, or on stores that were ingested in the same way",
            )
    if job.certify:
        try:
            other.check_enclosures()
        except UsageError as error:
            raise UsageError(f"{job.against}: {error.message}", hint=error.hint) from error
    return other


def _empty_accumulator(model: Model, rows: RowBatches, job: EvaluateJob, other: Model | None) -> Accumulator:
    """Return an empty accumulator; it also samples rows if the evaluation will be recorded for the HTML report."""
    accumulator = make_accumulator(model, rows, job.threshold, job.positive)
    accumulator.samples = RowSamples() if evaluation_folder(Path(job.model)) is not None else None
    accumulator.proved = ProvedCounts() if job.certify else None
    if isinstance(accumulator, ClassAccumulator) and other is not None:
        codes = [other.classes.index(name) for name in model.classes]
        accumulator.compared = ComparisonCounts(other, codes, certified=job.certify)
    return accumulator


class _BatchResult(NamedTuple):
    """What the thread that evaluates a batch computes besides the decision values."""

    samples: RowSamples | None
    bounds: tuple[Float64, Float64] | None
    """The least and the largest decision values (n, k) of the exact optima."""
    other: Decided | None
    """What the other model says of them."""


def _look_at_batch(model: Model, accumulator: Accumulator, decision: Float64, batch: RowBatch) -> _BatchResult:
    """Return the samples of the rows of a batch, whose rows are numbered from 0, the bounds of their decision values, and what the other model says.

    ``accumulator``: what is counted; it does not change.
    """
    samples = None if accumulator.samples is None else RowSamples()
    if samples is not None and batch.truth is not None:
        samples.add(model, batch.X, decision, batch.truth, 0, batch.ids)
    return _BatchResult(
        samples,
        None if accumulator.proved is None else model.intervals(batch.X),
        None if accumulator.compared is None else accumulator.compared.compare(batch.X),
    )


def describe_proved(figures: ProvedFigures) -> Iterator[str]:
    """Yield in words what is proved of the exact optimum on some rows."""
    if figures.error is None:
        for name, bounds in (("MAE", figures.MAE), ("RMSE", figures.RMSE)):
            if bounds is not None:
                yield f"{name} of the exact optimum: {bounds[0]:.6g} to {bounds[1]:.6g}"
        return
    low, high = figures.error
    ends = percent(low, 4) if low == high else f"between {percent(low, 4)} and {percent(high, 4)}"
    yield f"error of the exact optimum: {ends}"
    labels = f"{figures.proved} of {figures.rows} labels are proved to be those of the exact optimum"
    others = [f"{figures.open} open"] if figures.open else []
    others += [f"{figures.differs} proved to differ"] if figures.differs else []
    yield f"{labels}, {', '.join(others)}" if others else labels
    if figures.AUC is not None:
        yield f"its AUC: {figures.AUC[0]:.6g} to {figures.AUC[1]:.6g}"


def describe_comparison(figures: ComparisonFigures) -> Iterator[str]:
    """Yield in words how two models differ row by row."""
    both = (figures.only_this, figures.only_other)
    yield f"error less that of the other: {percent(figures.difference, 3)}; {_count_discordant(both, both, figures.rows)}"
    ends, this, other = figures.proved_difference, figures.proved_only_this, figures.proved_only_other
    if ends is not None and this is not None and other is not None:
        low, high = (percent(end, 3) for end in ends)
        difference = low if ends[0] == ends[1] else f"between {low} and {high}"
        least, most = zip(this, other, strict=True)
        yield f"of the exact optima: {difference}; {_count_discordant(least, most, figures.rows)}"


def _count_discordant(least: tuple[int, ...], most: tuple[int, ...], rows: int) -> str:
    """Return in words how many rows only this model, and only the other one, predicts correctly."""
    texts = [f"{low}" if low == high else f"{low} to {high}" for low, high in zip(least, most, strict=True)]
    return f"of {rows} rows {texts[0]} are right only here, {texts[1]} only there"


def _name_worst_rows(samples: RowSamples, rows: RowBatches) -> None:
    """Set the ids of the worst rows, if the store has ids."""
    if rows.id_reader is None:
        return
    reader, names = rows.id_reader(), {}
    for row in sorted(one.row for one in samples.worst):
        names[row] = reader.read(row, row + 1)[0]
    samples.worst = [one._replace(id=names[one.row]) for one in samples.worst]


def _useless_model_notice(accumulator: Accumulator) -> list[str]:
    """Return a notice if the model is no better than always predicting the most frequent class, or the mean."""
    figures = accumulator.result() if accumulator.rows else None
    if isinstance(figures, RegressionEvaluation) and figures.R2 is not None and figures.R2 <= 0.0:
        return [
            f"the model is no better than one without columns, which predicts the mean of all rows. {BETTER_COLUMNS}"
        ]
    if not isinstance(accumulator, ClassAccumulator) or not accumulator.rows:
        return []
    actual, right = accumulator.confusion.sum(axis=1), int(accumulator.confusion.trace())
    most = int(actual.argmax())
    if (actual > 0).sum() < 2 or right > actual[most]:
        return []
    share = int(actual[most]) / accumulator.rows
    always = f"always predicting {quote(accumulator.truths[most])} is right about {percent(share, 4)} of the rows"
    if share < UNBALANCED_SHARE:
        return [f"the model is no better than one without columns: {always}. {BETTER_COLUMNS}"]
    advice = "Look at the figures of the rare class, and choose C by its measures: fit --validation 0.2 --score average_precision"
    return [f"the accuracy says nothing here: {always}. {advice}"]


def accumulate_rows(
    model: Model,
    rows: RowBatches,
    empty: Callable[[], Accumulator],
    threads: int,
    on_progress: Callable[[int], None],
) -> Accumulator:
    """Return the accumulator of all rows: by groups of chunks for a store, in order for files.

    ``empty`` returns an empty accumulator. ``on_progress`` is called with the number of rows counted so far. Raises
    DataError E-LABEL for rows without labels.
    """
    stopwatch = Stopwatch()
    if (groups := rows.groups()) is None:
        accumulator = empty()
        look = partial(_look_at_batch, model, accumulator)
        for one in compute_decisions(model, rows, threads, look):
            count_rows(model, accumulator, one.decision, one.truth)
            if accumulator.samples is not None:
                accumulator.samples.count_in(one.prepared.samples)
            if one.truth is not None:
                decided = Decided(one.decision, one.prepared.bounds)
                count_proved(model, accumulator, one.truth, decided, one.prepared.other)
            if stopwatch.due():
                on_progress(accumulator.rows)
        return accumulator
    before = [0, *itertools.accumulate(group.rows for group in groups)]

    def report_groups(done: int) -> None:
        if stopwatch.due():
            on_progress(before[done])

    task, joins = Task("evaluate", count_group), Joins(_merge_into)
    all_rows: Accumulator = local_executor(threads).reduce(task, groups, joins, (model, rows, empty), report_groups)
    return all_rows


def count_group(group: Group, model: Model, rows: RowBatches, empty: Callable[[], Accumulator]) -> Accumulator:
    """Return the accumulator of the rows of a group of chunks."""
    with closing(rows.read(iter(group.chunks))) as batches:
        return accumulate(model, batches, empty())


def _merge_into(one: Accumulator, other: Accumulator) -> Accumulator:
    one.count_in(cast(Any, other))
    return one


class SliceEvaluation(NamedTuple):
    """The evaluation of a slice."""

    accumulator: Accumulator
    """The accumulator of its rows."""
    rows: int
    """The number of rows."""
    notices: list[str]
    """Notices for the user."""


def evaluate_slices(work: ApplyWork, parts: Sequence[Slice], executor: Executor, needs: int) -> SliceEvaluation:
    """Return the merged evaluation of all slices. Raises ClusterError and the errors of tasks."""
    task = Task("evaluate", evaluate_slice, needs)
    evaluation: SliceEvaluation = executor.reduce(
        task, parts, Joins(_merge_slices), (executor.share(work),), ignore_progress
    )
    return evaluation


def evaluate_slice(part: Slice, work: ApplyWork) -> SliceEvaluation:
    """Return the evaluation of a slice; the task of ``evaluate_slices``. Raises DataError E-LABEL without labels."""
    model, rows = open_slice(part, work)
    assert isinstance(work.job, EvaluateJob)
    other = None if work.job.against is None else load_other(model, work.job)
    accumulator = accumulate(model, rows, _empty_accumulator(model, rows, work.job, other))
    return SliceEvaluation(accumulator, accumulator.rows, rows.notices)


def _merge_slices(one: SliceEvaluation, other: SliceEvaluation) -> SliceEvaluation:
    notices = [*one.notices, *(n for n in other.notices if n not in one.notices)]
    return SliceEvaluation(merge_accumulators(one.accumulator, other.accumulator), one.rows + other.rows, notices)
