"""evaluate: a model and labelled rows in, how good it is on them out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from threadpoolctl import threadpool_limits

from streamsvm import model as models
from streamsvm.errors import DataError
from streamsvm.jobs.metrics import Evaluation, Tally
from streamsvm.jobs.portions import portions
from streamsvm.store.sources import SourceOptions
from streamsvm.types import Report, silent

REPORT_SECONDS = 0.2
BYTES_A_ROW = 100
"""Of a block: decision values, codes, keys of the ranking."""


@dataclass(frozen=True, slots=True)
class EvaluateJob:
    """What ``streamsvm evaluate`` is asked for; the keys of a job file are these fields."""

    model: str
    data: tuple[str, ...]
    """A store, or labelled files like those the model's store was made of."""
    label: str | None = None
    """Which column of the files is the label; None: as recorded in the model."""
    format: str = "auto"
    """Of the files, where the model does not record it."""
    allow_no_final_newline: bool = False
    """Take a last line without a line feed."""
    memory: int | None = None
    """Bytes of anonymous memory the process may use."""


@dataclass(frozen=True, slots=True)
class EvaluateResult:
    """The figures, how long it took, and what is worth knowing beside them."""

    evaluation: Evaluation
    seconds: float
    notices: tuple[str, ...]


def evaluate(job: EvaluateJob, report: Report = silent) -> EvaluateResult:
    """Apply the model to every row and compare. Raises DataError E-LABEL for rows without labels."""
    model = models.load(Path(job.model))
    asked = SourceOptions(format=job.format, label=job.label, allow_no_final_newline=job.allow_no_final_newline)
    rows = portions(model, job.data, asked)
    rows.check_memory(job.memory, BYTES_A_ROW + 8 * len(model.weights))
    tally = Tally(model.classes)
    tally.truths = rows.truths
    began, told, done = time.perf_counter(), 0.0, 0
    with threadpool_limits(1):
        for portion in rows:
            if portion.truth is None:
                hint = "say where they are: --label COLUMN"
                raise DataError("there are no labels to compare with", code="E-LABEL", hint=hint)
            decision = model.decision(portion.X)
            tally.add(portion.truth, model.codes(decision), decision)
            done += len(decision)
            seconds = time.perf_counter() - began
            if seconds - told >= REPORT_SECONDS:
                told = seconds
                report({"event": "evaluate", "rows": done, "of": rows.total, "seconds": seconds})
    seconds = time.perf_counter() - began
    report({"event": "evaluate", "rows": done, "of": rows.total, "seconds": seconds, "done": True})
    return EvaluateResult(tally.result(), seconds, tuple(rows.notices))
