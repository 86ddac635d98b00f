"""Calibrators as steps of an ONNX graph: decision values (n, k) in, probabilities of all classes (n, classes) out, in float64.

What each one computes is said where it is (``streamsvm.calibration``). An isotonic function is a table of bends; the last bend that
is not beyond f is found by halving, which takes as many steps as the number of bends has bits, and memory for the rows alone.
"""

from __future__ import annotations

import numpy as np

from streamsvm.calibration.isotonic import Isotonic
from streamsvm.calibration.protocol import Calibrator
from streamsvm.calibration.sigmoid import PlattSigmoid
from streamsvm.calibration.temperature import Temperature
from streamsvm.errors import UsageError
from streamsvm.model.onnx.builder import GraphBuilder
from streamsvm.rows import Float64

INT64 = 7
"""The number of the type in the format (``onnx.TensorProto.INT64``)."""


def probabilities(graph: GraphBuilder, calibrator: Calibrator, decision: str, problems: int) -> str:
    """Add the steps of a calibrator for so many decision values, and return the name of the probabilities.

    Raises UsageError for a calibrator that has no steps here.
    """
    if isinstance(calibrator, PlattSigmoid):
        sloped = graph.add("Mul", decision, graph.constant(calibrator.slopes))
        moved = graph.add("Add", sloped, graph.constant(calibrator.offsets))
        return _normalized(graph, _sigma(graph, moved), problems)
    if isinstance(calibrator, Isotonic):
        return _normalized(graph, _interpolated(graph, calibrator, decision), problems)
    if isinstance(calibrator, Temperature):
        scaled = graph.add("Mul", decision, graph.constant(np.array(calibrator.inverse)))
        if problems == 1:
            return _normalized(graph, _sigma(graph, scaled), problems)
        return graph.add("Softmax", scaled, axis=1)
    raise UsageError(f"the calibration '{calibrator.method}' has no operators in ONNX", hint="keep the model as it is")


def _normalized(graph: GraphBuilder, values: str, problems: int) -> str:
    """Probabilities of all classes of those of each against the rest: see ``calibration.protocol.normalized``."""
    one, nothing = graph.constant(np.array(1.0)), graph.constant(np.array(0.0))
    if problems == 1:
        return graph.add("Concat", graph.add("Sub", one, values), values, axis=1)
    sums = graph.add("ReduceSum", values, graph.constant(np.array([1])), keepdims=1)
    known, each = graph.add("Greater", sums, nothing), graph.constant(np.array(float(problems)))
    return graph.add("Div", graph.add("Where", known, values, one), graph.add("Where", known, sums, each))


def _sigma(graph: GraphBuilder, z: str) -> str:
    """1 / (1 + e^-z), exact in both tails: see ``calibration.protocol.sigma``."""
    one, below = graph.constant(np.array(1.0)), graph.add("Less", z, graph.constant(np.array(0.0)))
    tail = graph.add("Exp", graph.add("Neg", graph.add("Abs", z)))
    return graph.add("Div", graph.add("Where", below, tail, one), graph.add("Add", one, tail))


def _interpolated(graph: GraphBuilder, calibrator: Isotonic, decision: str) -> str:
    """g_k(f_k) (n, k): the value at the last bend not beyond f, and the slope from there times what f is beyond it."""
    bits = max(len(at) for at, _ in calibrator.steps).bit_length()
    tables = [_padded(at, values, 1 << bits) for at, values in calibrator.steps]
    at, values, slopes = (graph.constant(np.concatenate(parts)) for parts in zip(*tables, strict=True))
    f = graph.add("Max", decision, graph.constant(np.array([first[0] for first, _ in calibrator.steps])))
    starts = graph.constant(np.arange(len(tables), dtype=np.int64) << bits)
    place = graph.add("Add", graph.add("Cast", graph.add("Mul", f, graph.constant(np.array(0.0))), to=INT64), starts)
    for bit in reversed(range(bits)):
        further = graph.add("Add", place, graph.constant(np.array(1 << bit)))
        reached = graph.add("GreaterOrEqual", f, graph.add("Gather", at, further))
        place = graph.add("Where", reached, further, place)
    beyond = graph.add("Sub", f, graph.add("Gather", at, place))
    return graph.add(
        "Add", graph.add("Gather", values, place), graph.add("Mul", graph.add("Gather", slopes, place), beyond)
    )


def _padded(at: Float64, values: Float64, size: int) -> tuple[Float64, Float64, Float64]:
    """The bends of one function, the values there and the slopes behind them, each of this many: no f comes to those added."""
    widths, rises = np.diff(at), np.diff(values)
    slopes = np.divide(rises, widths, out=np.zeros(len(widths)), where=widths > 0)
    more = size - len(at)
    return (
        np.append(at, np.full(more, np.inf)),
        np.append(values, np.full(more, values[-1])),
        np.append(slopes, np.zeros(more + 1)),
    )
