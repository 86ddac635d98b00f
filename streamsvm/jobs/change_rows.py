"""Remove rows from a linear model, or add rows to it, without its training data (``forget`` and ``learn``).

A fit with ``--certify updates`` keeps matrices from which the optimum of other rows can be enclosed (``streamsvm.proofs.row_changes``).
The new weights are the middle of the enclosure of the optimum that a training on the remaining rows, or on these rows too, would have; and
the new model keeps the enclosure and the changed matrices, so that it proves its answers and can be changed again. Nothing but the
rows that come or go is read.

What a training would choose by looking at all rows is held fixed: the scaling of columns, fill values and categories, C, weights of
classes, calibration and threshold. Whether a row that is removed was a row of the training cannot be checked without the training data.

**Rows without influence.** If l' is 0 at both ends of the interval of a row's margin at the exact optimum of all rows, the row adds nothing to
the gradient there: w* is also the optimum without all rows of this kind. They are listed in the receipt.
"""

from __future__ import annotations

import csv
import io
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import durable
from streamsvm import model as models
from streamsvm.compute.passes.enclosure import UNIT
from streamsvm.config.options import build_from_settings
from streamsvm.engine.progress import Stopwatch
from streamsvm.errors import DataError, UsageError, quote
from streamsvm.jobs import JobResult
from streamsvm.jobs.apply.options import ForgetJob, LearnJob
from streamsvm.jobs.apply.rows import RowBatch, RowBatches, build_file_request, locate_data, open_rows
from streamsvm.jobs.without_effect import notices_on_unused_options, other_formats
from streamsvm.locks import hold_lock
from streamsvm.losses import LOSSES
from streamsvm.model import Model
from streamsvm.outputs import MODEL, RECEIPT, RECEIPT_HEADER, Output, check_writable
from streamsvm.proofs.enclosure import margins_of, slopes_of, work_bytes
from streamsvm.proofs.kept import Enclosures, limit_bytes
from streamsvm.proofs.row_changes import ChangeableProblem, RowChange
from streamsvm.rows import Float64, row_count, row_slice
from streamsvm.schedule.machine import limit_blas_threads
from streamsvm.store.sources.byte_stream import standard_input
from streamsvm.type_aliases import Array, JsonObject
from streamsvm.types import Loss, Report, Term, silent

ROWS_AT_A_TIME = 4096
"""Rows that are converted to float64 at a time."""
BYTES_A_ROW = 100
"""Bytes of results for each row of a batch."""
COMMANDS = ("forget", "learn")
HELD_FIXED = "scaling, fill values, C, weights of classes, calibration and threshold stay as they were"


@dataclass(frozen=True, slots=True, repr=False)
class ChangeResult(JobResult):
    """The result of removing or adding rows."""

    command: str
    """'forget' or 'learn'."""
    out: Path | str
    """The path of the new model; a text for a URL."""
    rows: int
    """The number of rows that were removed or added."""
    without_influence: int
    """How many of them are proved to have had no influence on the exact optimum."""
    is_proved: bool
    """Whether the optimum is enclosed by matrices, and not by a ball alone, in every problem."""
    seconds: float
    """The duration in seconds."""
    model: Model | None = None
    """The new model."""


def forget(job: ForgetJob, report: Report = silent) -> ChangeResult:
    """Remove rows from a model. Raises MissingError, BudgetError, DataError, UsageError for a model that does not keep what it takes, and the
    errors of writing.
    """
    return _run(job, report, are_added=False)


def learn(job: LearnJob, report: Report = silent) -> ChangeResult:
    """Add rows to a model. Raises the errors of ``forget``."""
    return _run(job, report, are_added=True)


def _run(job: ForgetJob | LearnJob, report: Report, *, are_added: bool) -> ChangeResult:
    out, receipt, stopwatch = Path(job.out), getattr(job, "receipt", None), Stopwatch()
    with ExitStack() as stack:
        outputs = [Output(out, MODEL), *([Output(Path(receipt), RECEIPT)] if receipt else [])]
        check_writable(outputs, [job.model, *job.data], overwrite=job.overwrite)
        stack.enter_context(hold_lock(out))
        stack.enter_context(limit_blas_threads())
        data = stack.enter_context(standard_input(job.data, out, cluster=False))
        model = models.load(Path(job.model))
        kept = check_changeable(model)
        rows = open_rows(model, locate_data(data), build_file_request(job, job.memory, BYTES_A_ROW))
        nbytes = 3 * sum(one.nbytes for one in kept.changes) + work_bytes(model.columns + 1)
        rows.terms.append(Term("changes", nbytes, "matrices of the problems"))
        rows.plan_within(job.memory, BYTES_A_ROW)
        counted = _ChangedRows(model, kept, rows, are_added=are_added)
        changed = counted.change()
        rows.notices += notices_on_unused_options(job, other_formats(job, rows.form))
        if rows.rejects.count:
            rows.notices.append(rows.rejects.summary())
        new = _with_changes(model, kept, changed, {"command": COMMANDS[are_added], "rows": counted.rows})
        if receipt:
            durable.write_file(Path(receipt), counted.receipt())
        new.save(out)
    report({"event": "change", "rows": counted.rows, "seconds": stopwatch.seconds, "done": True})
    is_proved = all(part.root is not None for part in new.check_enclosures().parts)
    notices = [*rows.notices, f"held fixed: {HELD_FIXED}"]
    if not is_proved:
        without = "with" if are_added else "without"
        why = "these rows weigh too much, or the matrices are too large for a model"
        notices.append(
            f"only a ball around the new optimum is proved, and intervals are wide: {why}; fit again {without} them"
        )
    free = sum(counted.without_influence)
    return ChangeResult(
        COMMANDS[are_added], out, counted.rows, free, is_proved, stopwatch.seconds, new, notices=tuple(notices)
    )


def check_changeable(model: Model) -> Enclosures:
    """Return what the model keeps for changes of rows. Raises UsageError if that is nothing."""
    kept = model.enclosures
    if kept is None or not kept.changes:
        raise UsageError(
            "this model does not keep what removing and adding rows needs",
            hint="fit it again with --certify updates: a linear model with a loss without kinks",
        )
    return kept


def _with_changes(model: Model, kept: Enclosures, changed: tuple[ChangeableProblem, ...], change: JsonObject) -> Model:
    """Return the model of the changed problems: its weights are the middles of the enclosures."""
    parts = tuple(limit_bytes([one.enclose() for one in changed]))
    enclosures = replace(kept, parts=parts, changes=changed)
    changes = [*model.provenance.get("changes", []), change]
    provenance: JsonObject = {**model.provenance, "certificates": [], "changes": changes}
    return replace(model, weights=_to_model_weights(enclosures), provenance=provenance, enclosures=enclosures)


def _to_model_weights(enclosures: Enclosures) -> Float64:
    """Return the middles of enclosures as weights of stored columns, with the intercept last."""
    weights = np.array([part.center for part in enclosures.parts])
    weights[:, -1] *= enclosures.bias
    if enclosures.scale is not None and enclosures.shift is not None:
        weights[:, :-1] *= enclosures.scale
        weights[:, -1] -= weights[:, :-1] @ enclosures.shift.astype(np.float64)
    return weights


class _ChangedRows:
    """Reads the rows that are removed or added, and counts them in all problems."""

    def __init__(self, model: Model, kept: Enclosures, batches: RowBatches, *, are_added: bool) -> None:
        self.model, self.kept, self.batches, self.are_added = model, kept, batches, are_added
        settings = model.provenance["settings"]
        self.loss: Loss = build_from_settings(
            LOSSES[settings["loss"]], settings["loss_options"], "the loss of the model"
        )
        self.rows = 0
        self.ids: list[Any] = []
        self.without_influence: list[bool] = []

    def change(self) -> tuple[ChangeableProblem, ...]:
        """Read all rows and return the changed problems. Raises DataError, UsageError."""
        changes = [RowChange(one, self.loss, are_added=self.are_added) for one in self.kept.changes]
        for batch in self.batches:
            self._check(batch)
            count = row_count(batch.X)
            self.ids += range(self.rows, self.rows + count) if batch.ids is None else batch.ids.tolist()
            for start in range(0, count, ROWS_AT_A_TIME):
                self._add(batch, slice(start, min(start + ROWS_AT_A_TIME, count)), changes)
            self.rows += count
        if not self.rows:
            raise DataError("there are no rows", code="E-ROWS", hint="name a file or a store with rows")
        return tuple(one.close() for one in changes)

    def _add(self, batch: RowBatch, part: slice, changes: list[RowChange]) -> None:
        """Add some rows of a batch to the changes of all problems."""
        assert batch.truth is not None
        stored, truth = row_slice(batch.X, part.start, part.stop), batch.truth[part]
        X, (low, high) = self.kept.features(stored), self.kept.intervals(stored)
        weight = None if batch.weight is None else batch.weight[part]
        free = np.ones(len(truth), np.bool_)
        for k, (one, change) in enumerate(zip(self.kept.changes, changes, strict=True)):
            signs, y = self._targets(k, truth)
            C = one.C * self._factors(one, truth, weight)
            change.add(margins_of(X, y, C, one.point.weights, numeric=self.model.numeric), signs)
            free &= (C == 0.0) | self._has_no_slope(low[:, k], high[:, k], signs, y)
        self.without_influence += free.tolist()

    def _targets(self, k: int, truth: Array) -> tuple[Float64, Array]:
        """Return the signs z_i and the targets (n,) of rows in problem k."""
        if self.model.numeric:
            return np.ones(len(truth)), truth
        positive = 1 if len(self.model.weights) == 1 else k
        signs = np.where(truth == positive, 1.0, -1.0)
        return signs, signs

    def _factors(self, problem: ChangeableProblem, truth: Array, weight: Array | None) -> Float64:
        """Return the factors of C (n,) of rows: weights of their classes times their own."""
        known = problem.class_weights
        if self.model.numeric or not known:
            return np.ones(len(truth)) if weight is None else weight.astype(np.float64)
        others = next((factor for name, factor in known.items() if name not in self.model.classes), 1.0)
        factors = np.array([known.get(name, others) for name in self.model.classes])[truth]
        return factors if weight is None else factors * weight

    def _has_no_slope(self, low: Float64, high: Float64, signs: Float64, y: Array) -> Array:
        """Return whether l' is 0 (n,) for all decision values between low and high (n,)."""
        if self.model.numeric:
            pad = 4 * UNIT * (np.abs(low) + np.abs(high) + np.abs(y))
            low, high = low - y - pad, high - y + pad
        ends = np.array([slopes_of(signs * end, self.loss) for end in (low, high)])
        return np.asarray((ends == 0.0).all(axis=0))

    def _check(self, batch: RowBatch) -> None:
        """Raise DataError for rows without labels or weights where the training had them, and for labels that the model does not know."""
        if batch.truth is None:
            raise DataError("these rows have no labels", code="E-LABEL", hint="rows come and go with their labels")
        unknown = self.batches.truths[len(self.model.classes) :]
        if not self.model.numeric and unknown:
            raise DataError(f"the model does not know the label {quote(unknown[0])}", code="E-LABEL", hint="fit again")
        weighted = self.kept.changes[0].weighted
        if weighted and batch.weight is None:
            hint = "give the same column of weights as in the training"
            raise DataError("these rows have no weights, and the rows of the training have", code="E-SCHEMA", hint=hint)
        if batch.weight is not None and not weighted and not self.are_added:
            hint = "leave out their weights"
            raise DataError(
                "these rows have weights, and the rows of the training have none", code="E-SCHEMA", hint=hint
            )

    def receipt(self) -> bytes:
        """Return a CSV table that says of each row whether it is proved to have had no influence."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows(
            (id_, "none" if free else "some") for id_, free in zip(self.ids, self.without_influence, strict=True)
        )
        return RECEIPT_HEADER + text.getvalue().encode()
