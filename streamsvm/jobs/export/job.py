"""export: write the decision function of a model in the format of another program."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from streamsvm import durable
from streamsvm import model as models
from streamsvm.errors import StreamSVMWarning, UsageError
from streamsvm.jobs import JobResult
from streamsvm.jobs.common_options import LIBLINEAR, LIBSVM, ONNX, RATING_TABLE, SKLEARN, SQL, ExportJob
from streamsvm.jobs.export.onnx import write_onnx
from streamsvm.jobs.export.rating_table import write_rating_table
from streamsvm.jobs.export.sql import write_sql
from streamsvm.model import Model
from streamsvm.model.liblinear_libsvm import explain_text, write_liblinear, write_libsvm
from streamsvm.outputs import (
    LIBLINEAR_MODEL,
    LIBSVM_MODEL,
    MODEL,
    ONNX_MODEL,
    PICKLE,
    RATING_TABLE_FILE,
    SKOPS,
    SQL_MODEL,
    Kind,
    Output,
    check_writable,
    output_path,
)
from streamsvm.registry import load
from streamsvm.types import Report, silent


class Format(NamedTuple):
    """A format of other programs."""

    kind: Kind
    """The kind of output, for the check whether a file may be replaced."""
    write: Callable[[Model], Iterator[bytes]]
    """Yields the bytes of a model. Raises UsageError for a model that the format cannot represent."""


def write_pickle(model: Model) -> Iterator[bytes]:
    """Yield the pickle of ``model.to_sklearn()``. Raises the errors of ``to_sklearn``."""
    yield pickle.dumps(_make_estimator(model))


def write_skops(model: Model) -> Iterator[bytes]:
    """Yield ``model.to_sklearn()`` in the format of skops. Raises UsageError without skops, and the errors of
    ``to_sklearn``.
    """
    try:
        import skops.io
    except ModuleNotFoundError as error:
        raise UsageError(
            "skops is not installed", hint="pip install skops, or name a file that ends with .pkl"
        ) from error
    yield skops.io.dumps(_make_estimator(model))


def _make_estimator(model: Model) -> object:
    try:
        return load("streamsvm.sklearn.convert:convert_model")(model)
    except ModuleNotFoundError as error:
        raise UsageError("scikit-learn is not installed", hint="pip install 'streamsvm[sklearn]'") from error


FORMATS = {
    LIBLINEAR: Format(LIBLINEAR_MODEL, write_liblinear),
    LIBSVM: Format(LIBSVM_MODEL, write_libsvm),
    ONNX: Format(ONNX_MODEL, write_onnx),
    SQL: Format(SQL_MODEL, write_sql),
    RATING_TABLE: Format(RATING_TABLE_FILE, write_rating_table),
    SKLEARN: Format(PICKLE, write_pickle),
}
SKOPS_ENDING, SKOPS_FORMAT = ".skops", Format(SKOPS, write_skops)
"""The suffix of files that are written with skops; estimators are pickled into files with other suffixes."""
TEXT_FORMATS = (LIBLINEAR, LIBSVM)
"""Text formats, for which the result explains the column numbers and the limits of the format."""


@dataclass(frozen=True, slots=True, repr=False)
class ExportResult(JobResult):
    """The result of an export."""

    out: Path | str
    """Path of the file; a text for a URL."""
    kind: str
    """'linear' or 'kernel'."""
    bytes: int
    """Size of the file."""


def export(job: ExportJob, _report: Report = silent) -> ExportResult:
    """Write a model in another format. Raises MissingError, DataError, ExistsError, StorageError, and UsageError if the
    format cannot represent the model.
    """
    out, other = output_path(job.out), FORMATS.get(job.format)
    if job.format == SKLEARN and out.suffix == SKOPS_ENDING:
        other = SKOPS_FORMAT
    inputs = [job.model] if job.values_from is None else [job.model, job.values_from]
    check_writable([Output(out, MODEL if other is None else other.kind)], inputs, overwrite=job.overwrite)
    model = models.load(Path(job.model))
    if other is None:
        model.save(out)
        return ExportResult(out, model.kind, out.stat().st_size)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StreamSVMWarning)
        if job.values_from is not None:
            content = write_sql(model, job.values_from)
        else:
            content = other.write(model.decide_at_zero() if job.format in TEXT_FORMATS else model)
        durable.write_stream(out, content)
    notices = [*explain_text(model)] if job.format in TEXT_FORMATS else []
    notices += [str(warning.message) for warning in caught if issubclass(warning.category, StreamSVMWarning)]
    return ExportResult(out, model.kind, out.stat().st_size, notices=tuple(notices))
