"""How often models are wrong about rows: counts, which may be added up in any order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.jobs.apply.row_batches import RowBatches
from streamsvm.model import Model


class Mistakes(NamedTuple):
    """``wrong`` (models,) of so many rows."""

    wrong: NDArray[np.int64]
    rows: int

    @property
    def shares(self) -> list[float]:
        """Of the rows, for each model."""
        return (self.wrong / max(self.rows, 1)).tolist()


def mistakes(rows: RowBatches, model: Model, models: int) -> Mistakes:
    """One reading for ``models`` models of the same classes, whose weights stand below each other in ``model``."""
    wrong, count = np.zeros(models, np.int64), 0
    for portion in rows:
        assert portion.truth is not None
        parts = np.split(model.decision(portion.X), models, axis=1)
        wrong += [np.count_nonzero(model.codes(part) != portion.truth) for part in parts]
        count += len(portion.truth)
    return Mistakes(wrong, count)
