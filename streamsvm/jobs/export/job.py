"""export: a model in, the same decision function in another program's format out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from streamsvm import durable
from streamsvm import model as models
from streamsvm.jobs import JobResult
from streamsvm.jobs.export.onnx import write_onnx
from streamsvm.jobs.export.sql import write_sql
from streamsvm.jobs.options import LIBLINEAR, LIBSVM, ONNX, SQL, ExportJob
from streamsvm.model import Model
from streamsvm.model.liblinear_libsvm import explain_text, write_liblinear, write_libsvm
from streamsvm.outputs import (
    LIBLINEAR_MODEL,
    LIBSVM_MODEL,
    MODEL,
    ONNX_MODEL,
    SQL_MODEL,
    Kind,
    Output,
    claim,
    output_path,
)
from streamsvm.types import Report, silent


class Format(NamedTuple):
    """A format that other programs read."""

    kind: Kind
    """What a file of it is."""
    write: Callable[[Model], Iterator[bytes]]
    """Yields the bytes of a model. Raises UsageError for a model it cannot hold."""


FORMATS = {
    LIBLINEAR: Format(LIBLINEAR_MODEL, write_liblinear),
    LIBSVM: Format(LIBSVM_MODEL, write_libsvm),
    ONNX: Format(ONNX_MODEL, write_onnx),
    SQL: Format(SQL_MODEL, write_sql),
}
TEXTS = (LIBLINEAR, LIBSVM)
"""Formats whose column numbers and limits people have to know to apply them to their files."""


@dataclass(frozen=True, slots=True, repr=False)
class ExportResult(JobResult):
    """A model in another format, and how large it is."""

    out: Path
    """Where it lies."""
    kind: str
    """'linear' or 'kernel'."""
    bytes: int
    """Its size."""


def export(job: ExportJob, _report: Report = silent) -> ExportResult:
    """Write a model in a format. Raises MissingError, DataError, UsageError for what it cannot hold, ExistsError,
    StorageError.
    """
    out, other = output_path(job.out), FORMATS.get(job.format)
    claim([Output(out, MODEL if other is None else other.kind)], [job.model], overwrite=job.overwrite)
    model = models.load(Path(job.model))
    if other is None:
        model.save(out)
    else:
        durable.write_stream(out, other.write(model.decide_at_zero() if job.format in TEXTS else model))
    return ExportResult(out, model.kind, out.stat().st_size, notices=_notices(job, model))


def _notices(job: ExportJob, model: Model) -> tuple[str, ...]:
    """Return what people have to know of the file."""
    return explain_text(model) if job.format in TEXTS else ()
