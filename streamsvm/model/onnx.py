"""A model as an ONNX graph: raw columns in; labels, decision values and probabilities out.

    X -> less its offsets -> missing values filled -> rounded to float32, as rows are stored -> (x - shift) scale
      -> kernel values of the points -> f = W k + b -> label, probabilities

Input ``X`` (n, columns) float64, NaN where a value is missing and the model knows what stands for it. Outputs ``label`` (n,), int64
where all classes are whole numbers, else text, and ``decision`` (n, k) float64, as ``Model.decision_function`` has it, k = 1 for two
classes; and ``probabilities`` (n, classes) float64 where the model has them. A regression model has ``prediction`` (n,) float64 instead
of ``label``. Operators are those of opset 17 (https://onnx.ai/onnx/operators), numbers float64 wherever rows are not rounded; no
operator is of another domain.

Calibrators become steps that compute what ``streamsvm.calibration.calibrators`` does. An isotonic function is a table of bends; the
last bend that is not beyond f is found by bisection, which takes as many steps as the number of bends has bits, and memory for the
rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from streamsvm.aliases import Array
from streamsvm.calibration.calibrators import Calibrator, Isotonic, PlattSigmoid, Temperature
from streamsvm.errors import UsageError
from streamsvm.features.expansion import Expansion
from streamsvm.model import Model
from streamsvm.model.liblinear_libsvm import WHOLE, check_columns
from streamsvm.rows import CSR, Float64

INT64 = 7
"""``onnx.TensorProto.INT64``."""
OPSET, FORMAT = 17, 8
"""Versions of the operators and of the file. The latter is how our files begin, with the name of the program (``outputs``)."""


def write_onnx(model: Model) -> Iterator[bytes]:
    """Yield the bytes of the graph. Raises UsageError without ``onnx``, for a table whose columns are not numbers, and where pairs vote."""
    model.check_one_each()
    try:
        from onnx import checker, helper
    except ModuleNotFoundError as error:
        raise UsageError("onnx is not installed", hint="pip install 'streamsvm[onnx]'") from error
    graph = GraphBuilder()
    rows, columns = _add_rows(model, graph)
    decision = _add_decision(model, graph, rows)
    answer = _add_prediction(graph, decision) if model.numeric else _add_labels(model, graph, decision)
    outputs = [answer, value_info("decision", np.float64, len(model.weights))]
    graph.add("Identity", decision, out="decision")
    if model.calibration is not None:
        found = _add_calibrator(graph, model.calibration.calibrator, decision, len(model.weights))
        graph.add("Identity", found, out="probabilities")
        outputs.append(value_info("probabilities", np.float64, len(model.classes)))
    if model.names:
        graph.names = ", ".join(model.names)
    inputs = [value_info("X", np.float64, columns)]
    body = helper.make_graph(graph.nodes, "streamsvm", inputs, outputs, graph.constants)
    proto = helper.make_model(
        body, producer_name="streamsvm", ir_version=FORMAT, opset_imports=[helper.make_opsetid("", OPSET)]
    )
    helper.set_model_props(proto, {"classes": ", ".join(model.classes), "columns": graph.names})
    checker.check_model(proto, full_check=True)
    yield proto.SerializeToString(deterministic=True)


def _add_rows(model: Model, graph: GraphBuilder) -> tuple[str, int]:
    """Add the rows as they are stored, in float64; also return how many columns their source has."""
    from onnx import TensorProto

    check_columns(model)
    filling = (model.provenance.get("encoding") or {}).get("missing")
    indicators = np.array([] if filling is None else filling["indicators"], np.int64)
    columns, rows = model.columns - len(indicators), "X"
    if model.offsets:
        offsets = np.zeros(columns)
        offsets[list(model.offsets)] = list(model.offsets.values())
        rows = graph.add("Sub", rows, graph.constant(offsets))
    if filling is not None:
        absent = graph.add("IsNaN", rows)
        rows = graph.add("Where", absent, graph.constant(np.array(filling["values"], np.float64)), rows)
        if len(indicators):
            marked = graph.add("Gather", absent, graph.constant(indicators), axis=1)
            rows = graph.add("Concat", rows, graph.add("Cast", marked, to=TensorProto.DOUBLE), axis=1)
    single = graph.add("Cast", rows, to=TensorProto.FLOAT)
    return graph.add("Cast", single, to=TensorProto.DOUBLE), columns


def _add_decision(model: Model, graph: GraphBuilder, rows: str) -> str:
    """Add the decision values (n, k)."""
    if model.expansion is not None:
        rows = _add_kernel_values(model.expansion, graph, rows)
    product = graph.add("MatMul", rows, graph.constant(model.weights[:, :-1].T))
    return graph.add("Add", product, graph.constant(model.weights[:, -1]))


def _add_kernel_values(expansion: Expansion, graph: GraphBuilder, rows: str) -> str:
    """Add the kernel values (n, m) of rows and points."""
    if expansion.scale is not None and expansion.shift is not None:
        shifted = graph.add("Sub", rows, graph.constant(expansion.shift.astype(np.float64)))
        rows = graph.add("Mul", shifted, graph.constant(expansion.scale.astype(np.float64)))
    points, known = _dense_points(expansion), expansion.parameters
    if expansion.kernel == "rbf":
        center = points.mean(axis=0)
        rows, points = graph.add("Sub", rows, graph.constant(center)), points - center
    if expansion.kernel == "laplacian":
        apart = graph.add("Sub", graph.add("Unsqueeze", rows, graph.constant(np.array([1]))), graph.constant(points))
        length = graph.add("ReduceSum", graph.add("Abs", apart), graph.constant(np.array([2])), keepdims=0)
        return graph.add("Exp", graph.add("Mul", length, graph.constant(np.array(-known["gamma"]))))
    product = graph.add("MatMul", rows, graph.constant(points.T))
    if expansion.kernel == "rbf":
        return _add_rbf(graph, rows, points, product, known["gamma"])
    if expansion.kernel == "linear":
        return graph.add("Mul", product, graph.constant(np.array(known["scale"])))
    scaled = graph.add("Mul", product, graph.constant(np.array(known["gamma"])))
    moved = graph.add("Add", scaled, graph.constant(np.array(known["coef0"])))
    if expansion.kernel == "sigmoid":
        return graph.add("Tanh", moved)
    if expansion.kernel == "polynomial":
        return graph.add("Pow", moved, graph.constant(np.array(known["degree"])))
    raise UsageError(f"the kernel '{expansion.kernel}' has no operators in ONNX", hint="keep the model as it is")


def _add_rbf(graph: GraphBuilder, rows: str, points: Float64, product: str, gamma: float) -> str:
    """Add exp(-gamma max(0, |x|^2 + |z|^2 - 2 x.z)) (n, m), for rows and points centered at the mean of the points against cancellation."""
    squares = graph.add("ReduceSum", graph.add("Mul", rows, rows), graph.constant(np.array([1])), keepdims=1)
    doubled = graph.add("Mul", product, graph.constant(np.array(2.0)))
    sums = graph.add("Add", squares, graph.constant(np.square(points).sum(axis=1)))
    apart = graph.add("Max", graph.add("Sub", sums, doubled), graph.constant(np.array(0.0)))
    return graph.add("Exp", graph.add("Mul", apart, graph.constant(np.array(-gamma))))


def _dense_points(expansion: Expansion) -> Float64:
    """Return the points as a matrix (m, d) float64."""
    points = expansion.points
    if isinstance(points, CSR):
        shape = (len(points.indptr) - 1, expansion.columns)
        dense: Array = scipy.sparse.csr_array((points.data, points.indices, points.indptr), shape).toarray()
        return dense.astype(np.float64)
    return points.values.astype(np.float64)


def _add_prediction(graph: GraphBuilder, decision: str) -> Any:
    """Add the predicted numbers and return their declaration."""
    graph.add("Squeeze", decision, graph.constant(np.array([1])), out="prediction")
    return value_info("prediction", np.float64)


def _add_labels(model: Model, graph: GraphBuilder, decision: str) -> Any:
    """Add the labels and return their declaration."""
    from onnx import TensorProto

    if len(model.weights) == 1:
        positive = graph.add("Greater", decision, graph.constant(np.array(0.0)))
        codes = graph.add("Squeeze", graph.add("Cast", positive, to=TensorProto.INT64), graph.constant(np.array([1])))
    else:
        codes = graph.add("ArgMax", decision, axis=1, keepdims=0)
    whole = all(WHOLE.fullmatch(name) for name in model.classes)
    names = np.array([int(name) for name in model.classes]) if whole else np.array(model.classes, np.object_)
    graph.add("Gather", graph.constant(names), codes, out="label", axis=0)
    return value_info("label", np.int64 if whole else str)


def _add_calibrator(graph: GraphBuilder, calibrator: Calibrator, decision: str, problems: int) -> str:
    """Add the nodes of a calibrator for so many decision values, and return the name of the probabilities.

    Raises UsageError for a calibrator that ONNX cannot express.
    """
    if isinstance(calibrator, PlattSigmoid):
        sloped = graph.add("Mul", decision, graph.constant(calibrator.slopes))
        moved = graph.add("Add", sloped, graph.constant(calibrator.offsets))
        return _add_normalize(graph, _add_sigma(graph, moved), problems)
    if isinstance(calibrator, Isotonic):
        return _add_normalize(graph, _add_interpolation(graph, calibrator, decision), problems)
    if isinstance(calibrator, Temperature):
        scaled = graph.add("Mul", decision, graph.constant(np.array(calibrator.inverse)))
        if problems == 1:
            return _add_normalize(graph, _add_sigma(graph, scaled), problems)
        return graph.add("Softmax", scaled, axis=1)
    raise UsageError(f"the calibration '{calibrator.method}' has no operators in ONNX", hint="keep the model as it is")


def _add_normalize(graph: GraphBuilder, values: str, problems: int) -> str:
    """Add ``calibrators.normalize``: probabilities of all classes from those of each against the rest."""
    one, nothing = graph.constant(np.array(1.0)), graph.constant(np.array(0.0))
    if problems == 1:
        return graph.add("Concat", graph.add("Sub", one, values), values, axis=1)
    sums = graph.add("ReduceSum", values, graph.constant(np.array([1])), keepdims=1)
    known, each = graph.add("Greater", sums, nothing), graph.constant(np.array(float(problems)))
    return graph.add("Div", graph.add("Where", known, values, one), graph.add("Where", known, sums, each))


def _add_sigma(graph: GraphBuilder, z: str) -> str:
    """Add ``calibrators.sigma``: 1 / (1 + e^-z), exact in both tails."""
    one, below = graph.constant(np.array(1.0)), graph.add("Less", z, graph.constant(np.array(0.0)))
    tail = graph.add("Exp", graph.add("Neg", graph.add("Abs", z)))
    return graph.add("Div", graph.add("Where", below, tail, one), graph.add("Add", one, tail))


def _add_interpolation(graph: GraphBuilder, calibrator: Isotonic, decision: str) -> str:
    """Add g_k(f_k) (n, k): the value at the last bend not beyond f, plus the slope from there times the distance."""
    bits = max(len(at) for at, _ in calibrator.steps).bit_length()
    tables = [_pad_bends(at, values, 1 << bits) for at, values in calibrator.steps]
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


def _pad_bends(at: Float64, values: Float64, size: int) -> tuple[Float64, Float64, Float64]:
    """Return the bends of one function, the values there and the slopes after them, padded to ``size``; no f reaches the padding."""
    widths, rises = np.diff(at), np.diff(values)
    slopes = np.divide(rises, widths, out=np.zeros(len(widths)), where=widths > 0)
    more = size - len(at)
    return (
        np.append(at, np.full(more, np.inf)),
        np.append(values, np.full(more, values[-1])),
        np.append(slopes, np.zeros(more + 1)),
    )


def value_info(name: str, kind: Any, *shape: int) -> Any:
    """Return the declaration of an input or output: any number of rows, of so many columns each."""
    from onnx import TensorProto, helper

    kinds = {np.float64: TensorProto.DOUBLE, np.int64: TensorProto.INT64, str: TensorProto.STRING}
    return helper.make_tensor_value_info(name, kinds[kind], ["n", *shape])


class GraphBuilder:
    """Nodes and constants of a graph under construction; adding one returns the name of its value."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.names = ""

    def add(self, operator: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        from onnx import helper

        out = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [out], **attributes))
        return out

    def constant(self, values: Any) -> str:
        """Add an array and return its name."""
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name
