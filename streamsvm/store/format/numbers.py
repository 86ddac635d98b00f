"""Labels that are numbers to predict: checked, and counted for what there is to say of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array, JsonObject
from streamsvm.errors import DataError, quote
from streamsvm.rows import Float64

TARGET = "target"
"""The name by which the facts of a store have those of its numbers."""


@dataclass(slots=True)
class Numbers:
    """Labels that are numbers to predict: what a coder calls codes are the numbers themselves, float64."""

    rows: int = 0
    """Rows so far."""
    mean: float = 0.0
    """Of the numbers so far."""
    M2: float = 0.0
    """The sum of squared differences from the mean."""
    least: float = float("inf")
    """The smallest number so far."""
    most: float = float("-inf")
    """The largest one."""

    def codes(self, labels: Array) -> Float64:
        """Return the numbers (n,) float64. Raises DataError E-LABEL, naming the first row that has none."""
        if labels.dtype.kind == "U":
            labels = self._parsed(labels)
        found = labels.astype(np.float64)
        self._check(~np.isnan(found), labels, "the label is missing or NaN", "remove the rows without a label")
        self._check(np.isfinite(found), labels, "the label is infinite", "correct or remove such rows")
        self._count(found)
        return found

    def table(self) -> tuple[str, ...]:
        """Return no classes."""
        return ()

    def facts(self) -> JsonObject:
        """Return what the numbers are like, as plain JSON; spread: their standard deviation."""
        spread = float(np.sqrt(self.M2 / max(1, self.rows)))
        return {"mean": self.mean, "spread": spread, "least": self.least, "most": self.most}

    def _parsed(self, labels: Array) -> Float64:
        found = np.full(len(labels), np.nan)
        for k, text in enumerate(labels.tolist()):
            try:
                found[k] = float(text)
            except ValueError:
                said = f"the label {quote(text)} is no number" if text.strip() else "the label is empty"
                self._check(np.arange(len(labels)) != k, labels, said, "correct the row, or check --label")
        return found

    def _check(self, right: NDArray[np.bool_], labels: Array, said: str, hint: str) -> None:
        if not right.all():
            row = self.rows + int(np.argmin(right)) + 1
            raise DataError(f"row {row} of all rows read: {said}", code="E-LABEL", hint=hint)

    def _count(self, found: Float64) -> None:
        """Merge the moments of a batch (Chan, Golub and LeVeque)."""
        if not len(found):
            return
        n, mean = len(found), float(found.mean())
        delta, total = mean - self.mean, self.rows + n
        self.M2 += float(np.square(found - mean).sum()) + delta * delta * self.rows * n / total
        self.mean += delta * n / total
        self.rows = total
        self.least, self.most = min(self.least, float(found.min())), max(self.most, float(found.max()))
