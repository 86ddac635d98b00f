"""Apply a model to dask collections, lazily: nothing is computed until it is asked for.

Each block is a task, on whatever computes the rest of the graph; the model is one value of the graph that all tasks share.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import delayed
from threadpoolctl import threadpool_limits

from streamsvm.aliases import Array
from streamsvm.cluster.dask_ingest import (
    Collection,
    DelayedFrame,
    array_blocks,
    column_beside,
    frame_blocks,
    frame_names,
    is_frame,
)
from streamsvm.engine.join_tree import tree_reduce
from streamsvm.errors import UsageError
from streamsvm.jobs.apply.metrics import Accumulator, accumulate, accumulator_for, empty_accumulator, merge_accumulators
from streamsvm.jobs.apply.rows import FileRequest, RowBatches, rows_of_source, source_options
from streamsvm.jobs.ingest.frames_and_arrays import BESIDE
from streamsvm.model import Model, find_model, load
from streamsvm.store.sources.dask_blocks import array_source, write_arrays, write_frames
from streamsvm.store.sources.data_frames import frame_source

LABEL, DECISION = "label", "decision"


def predict_dask(model: Any, X: Collection, *, output: str = LABEL) -> Collection:
    """Return predictions for a dask.array (n, d) or a dask.dataframe, as a lazy dask.array in the order of the rows.

    ``output``: 'label', as ``Model.predict`` returns it (n,), or 'decision', float64 (n,) for two classes and (n, classes) for more. Columns of a data
    frame are found by name and read as those the model was trained on. Raises UsageError, and MissingError or DataError for
    the model; rows are looked at when they are computed.
    """
    if output not in (LABEL, DECISION):
        raise UsageError(f"output cannot be '{output}'", hint=f"choose from {LABEL}, {DECISION}")
    found = _model(model)
    width = () if output == LABEL or len(found.weights) == 1 else (len(found.weights),)
    empty = np.empty((0, *width), found.labels.dtype if output == LABEL else np.float64)
    shared, blocks = delayed(found), _blocks(X)
    lengths = (np.nan,) * len(blocks) if isinstance(X, DelayedFrame) else X.chunks[0]
    parts = [
        da.from_delayed(delayed(_predict_block)(shared, k, block, output), (rows, *width), meta=empty)
        for k, (block, rows) in enumerate(zip(blocks, lengths, strict=True))
    ]
    return da.concatenate(parts)


def evaluate_dask(model: Any, X: Collection, y: Collection = None, *, label: str | None = None) -> Collection:
    """Evaluate a model on labeled rows, as a lazy value: ``.compute()`` gives a ``ModelEvaluation``.

    Labels ``y`` (n,) stand beside the rows, as of ``ingest_dask``, or are a column of a data frame: ``label``, or the one the model was trained
    with. Raises as ``predict_dask`` does.
    """
    beside = [] if y is None else [column_beside(X, y, lambda tasks: list(dask.compute(*tasks)))]
    if beside and isinstance(X, DelayedFrame):
        label = BESIDE["label"]
    shared, blocks = delayed(_model(model)), _blocks(X, *beside)
    counted = (delayed(_evaluate_block)(shared, k, block, label) for k, block in enumerate(blocks))
    return delayed(_result)(tree_reduce(counted, len(blocks), delayed(merge_accumulators)))


def _model(model: Any) -> Model:
    """Return the model of an object, also of the result of a fit or of a fitted estimator, or of a file."""
    found = find_model(model)
    return load(Path(model)) if found is None else found


def _blocks(X: Collection, *beside: Collection) -> list[tuple[Collection, ...]]:
    """Return blocks of rows and labels. Raises UsageError."""
    if isinstance(X, DelayedFrame):
        if beside and BESIDE["label"] in frame_names(X):
            hint = f"pass label={BESIDE['label']!r}, or rename the column"
            raise UsageError(f"the data frame has a column {BESIDE['label']!r} and labels beside it", hint=hint)
        return frame_blocks(X, *beside)
    return array_blocks(X, *beside)


def _predict_block(model: Model, number: int, block: tuple[Collection, ...], output: str) -> Array:
    """Predict a block: the task of ``predict_dask``. Raises DataError naming block and row."""
    decisions = [np.empty((0, len(model.weights)))]
    with _rows(model, number, block, {"unlabeled": True}) as rows, threadpool_limits(1):
        decisions += [model.decision(batch.X) for batch in rows or ()]
    decision = np.concatenate(decisions)
    if output == LABEL and not model.numeric:
        return model.labels[model.codes(decision)]
    return decision[:, 0] if len(model.weights) == 1 else decision


def _evaluate_block(model: Model, number: int, block: tuple[Collection, ...], label: str | None) -> Accumulator:
    """Evaluate a block: the task of ``evaluate_dask``. Raises DataError naming block and row, E-LABEL for rows without labels."""
    with _rows(model, number, block, {} if label is None else {"label": label}) as rows, threadpool_limits(1):
        if rows is None:
            return empty_accumulator(model)
        return accumulate(model, rows, accumulator_for(model, rows))


def _result(found: Accumulator) -> Any:
    return found.result()


@contextmanager
def _rows(
    model: Model, number: int, block: tuple[Collection, ...], stated: dict[str, Any]
) -> Iterator[RowBatches | None]:
    """Provide the rows of a block, read as those the model was trained on; None where it has none."""
    options = source_options(model, FileRequest(stated))
    with tempfile.TemporaryDirectory(prefix="streamsvm-block-") as place:
        frame = is_frame(block[0])
        names = (BESIDE["label"],)[: len(block) - 1]
        write = (
            partial(write_frames, beside=names) if frame else partial(write_arrays, missing=options.missing != "error")
        )
        part = write(Path(place), 0, number, [block])
        if sum(part.rows):
            source = (frame_source if frame else array_source)([part], options)
            yield rows_of_source(model, source, f"{'partition' if frame else 'block'} {number}", options.rejects)
        else:
            yield None
