"""A calibrator as a model keeps it: with the scores it was made of named, in the model's header and among its arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.aliases import Array, JsonMapping, JsonObject
from streamsvm.calibration import CALIBRATIONS
from streamsvm.calibration.protocol import Calibrator
from streamsvm.calibration.sigmoid import PlattSigmoid
from streamsvm.errors import DataError, StreamSVMError
from streamsvm.rows import Float64

PREFIX = "calibration."
"""Of the names of its arrays among those of a model."""
BY_LOSS = "logistic loss"
"""Where probabilities come from that nothing was learned for."""


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """How a model's decision values become probabilities, and what that was learned from."""

    calibrator: Calibrator
    """The function."""
    scores: str
    """Whose scores it was made of: 'leave-one-out', '5 folds', or 'logistic loss' where none were needed."""
    rows: int
    """The rows there were scores of."""

    @property
    def method(self) -> str:
        """'sigmoid', 'isotonic' or 'temperature'."""
        return self.calibrator.method

    def header(self) -> JsonObject:
        """Return what is not an array, as plain JSON."""
        facts = self.calibrator.facts()
        return {"method": self.method, "scores": self.scores, "rows": self.rows, "parameters": facts}

    def tensors(self) -> dict[str, Array]:
        """Return the arrays by name."""
        return {PREFIX + name: np.ascontiguousarray(array) for name, array in self.calibrator.arrays().items()}


def read(header: JsonMapping, tensors: dict[str, Array], problems: int) -> Calibration:
    """Return the calibration of a model of so many decision values. Raises DataError for what is none."""
    arrays = {name.removeprefix(PREFIX): array for name, array in tensors.items() if name.startswith(PREFIX)}
    try:
        calibrator: Calibrator = CALIBRATIONS[str(header["method"])].read(header["parameters"], arrays)
        found = Calibration(calibrator, str(header["scores"]), int(header["rows"]))
    except (StreamSVMError, KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError) as error:
        raise DataError("the calibration is not usable") from error
    if calibrator.problems not in {0, problems}:
        raise DataError(f"the calibration is of {calibrator.problems} decision values, the model of {problems}")
    return found


def of_logistic_loss(sharpness: float, ratios: Float64, rows: int) -> Calibration:
    """Return the probabilities that a fit of the logistic loss means: p = 1 / (1 + e^-(k f - log r)).

    ``sharpness`` k: that of the loss log(1 + e^-k m) / k. ``ratios`` r (problems,): the weight of the positive class over that of
    the others, where classes have weights. At the optimum over all functions f the loss of a row of either class is in balance,
    c+ p sigma(-k f) = c- (1 - p) sigma(k f), that is k f = log(p / (1 - p)) + log(c+ / c-): C and weights of rows, which are copies,
    do not appear, those of classes are taken back.
    """
    return Calibration(PlattSigmoid(np.full(len(ratios), float(sharpness)), -np.log(ratios)), BY_LOSS, rows)
