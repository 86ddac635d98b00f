"""From decision values to probabilities, learned from scores of rows that a model was not trained on.

calibrators  sigmoid, isotonic and temperature
scores       decision values counted in bins
reliability  log loss, Brier score, calibration error
"""

from streamsvm.registry import Registry

CALIBRATIONS = Registry(
    "calibration",
    {
        "sigmoid": "streamsvm.calibration.calibrators:PlattSigmoid",
        "isotonic": "streamsvm.calibration.calibrators:Isotonic",
        "temperature": "streamsvm.calibration.calibrators:Temperature",
    },
)
