"""Calibration: maps from decision values to probabilities, fitted to out-of-sample scores.

calibrators  sigmoid, isotonic and temperature
scores       tables of scores: histograms of decision values, and a sample of rows
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
