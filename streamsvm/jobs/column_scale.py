"""The scale of each column of an int8 embedding, fixed before the first chunk is written."""

from __future__ import annotations

import numpy as np

from streamsvm.compute.subset import take
from streamsvm.features.landmarks import uniform_rows
from streamsvm.features.nystrom import Nystrom, Projection, part_rows
from streamsvm.jobs.landmarks import chosen
from streamsvm.jobs.nystrom import NystromRequest
from streamsvm.rows import Float32, row_count
from streamsvm.types import Store

HEADROOM = 1.5
"""How far beyond the largest feature of a sample a column can go before it is clipped."""
SCALE_ROWS = 8192


def column_scale(projection: Projection, request: NystromRequest, store: Store) -> Float32:
    """127 stands for a bit more than the largest feature in a sample of rows, or in all of few.

    Not of the landmarks: their features along small eigenvalues are far smaller than those of other rows.
    """
    features, most = Nystrom(projection, 0.0, factored=True), part_rows(len(projection.W))
    values, largest = np.empty((most, projection.rank), np.float32), np.zeros(projection.rank, np.float32)
    for chunk, rows, _ in chosen(store, uniform_rows(store.layout.rows, SCALE_ROWS, request.seed + 1), request.inner):
        for start in range(0, len(rows), most):
            part = take(chunk.X, rows[start : start + most])
            found = values[: row_count(part)]
            features.into(part, found)
            np.maximum(largest, np.abs(found, out=found).max(axis=0), out=largest)
    return np.asarray(HEADROOM * np.maximum(largest, np.float32(1e-30)) / 127, np.float32)
