"""From decision values to probabilities, learned from scores of rows that a model was not trained on."""

from streamsvm.registry import Registry

CALIBRATIONS = Registry(
    "calibration",
    {
        "sigmoid": "streamsvm.calibration.calibrators:PlattSigmoid",
        "isotonic": "streamsvm.calibration.calibrators:Isotonic",
        "temperature": "streamsvm.calibration.calibrators:Temperature",
    },
)
