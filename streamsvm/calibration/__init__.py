"""From decision values to probabilities: sigmoid, isotonic or temperature, found from scores of rows a model did not see.

A calibrator is made of a ``ScoreTable`` (``scores.py``) and lives in the model it belongs to. Weights of rows count as copies.
"""

from __future__ import annotations

from streamsvm.registry import Registry

CALIBRATIONS = Registry(
    "calibration",
    {
        "sigmoid": "streamsvm.calibration.sigmoid:PlattSigmoid",
        "isotonic": "streamsvm.calibration.isotonic:Isotonic",
        "temperature": "streamsvm.calibration.temperature:Temperature",
    },
)
