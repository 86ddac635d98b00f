"""Whether an estimator has probabilities, and what to do where it has none.

Before a fit it is a matter of parameters, and an AttributeError, as scikit-learn's own estimators have it: its tools ask ``hasattr``, and go on
with decision values. After one it is a matter of how that was made.
"""

from __future__ import annotations

from streamsvm.errors import UsageError
from streamsvm.jobs.fit.job import NO_CALIBRATION
from streamsvm.jobs.partial_fit import PORTIONS
from streamsvm.model import Model

AROUND = "CalibratedClassifierCV"
"""The tool of scikit-learn that learns probabilities of whatever has decision values."""


def check_calibrated(calibration: str | None, loss: str) -> bool:
    """Return True where a fit gives probabilities. Raises AttributeError, which says what would, where it does not."""
    if calibration in {None, NO_CALIBRATION} and loss != "logistic":
        raise AttributeError(
            "decision values alone are learned: fit with calibration='sigmoid' (or 'isotonic', 'temperature'), or loss='logistic'"
        )
    return True


def check_probabilities(model: Model) -> None:
    """Raise UsageError where the model of a fitted estimator has no probabilities."""
    if model.pairs:
        hint = f"fit again with multi_class='ovr', or through {AROUND}"
        raise UsageError("this estimator was fitted for pairs of classes, which have no probabilities", hint=hint)
    if PORTIONS in model.provenance:
        raise UsageError(
            "this estimator was last fitted by partial_fit, which learns no probabilities: the rows of earlier portions are gone",
            hint=f"fit all rows with fit, or learn them from rows kept back: {AROUND}(FrozenEstimator(estimator))",
        )
    model.check_probabilities()
