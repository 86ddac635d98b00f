"""A model as an ONNX graph: raw columns in, labels, decision values and probabilities out, all that lies between folded into it.

    X -> less its offsets -> missing values filled -> rounded to float32, as rows are stored -> (x - shift) scale
      -> kernel values of the points -> f = W k + b -> label, probabilities

Input ``X`` (n, columns) float64, NaN where a value is missing and the model knows what stands for it. Outputs ``label`` (n,), int64
where all classes are whole numbers, else text, and ``decision`` (n, k) float64, as ``Model.decision_function`` has it, k = 1 for two
classes; and ``probabilities`` (n, classes) float64 where the model has them. A model of numbers has ``prediction`` (n,) float64 in the place of
``label``. Operators are those of opset 17 (https://onnx.ai/onnx/operators),
numbers float64 wherever rows are not rounded; no operator is of another domain.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from streamsvm.aliases import Array
from streamsvm.errors import UsageError
from streamsvm.features.expansion import Expansion
from streamsvm.model import Model
from streamsvm.model.onnx.builder import GraphBuilder, value_info
from streamsvm.model.onnx.probabilities import probabilities
from streamsvm.model.text import WHOLE, check_columns
from streamsvm.rows import CSR, Float64

OPSET, FORMAT = 17, 8
"""Versions of the operators and of the file, which with the name of the program is how files of ours begin (``outputs.kinds``)."""


def write(model: Model) -> Iterator[bytes]:
    """Yield the bytes of the graph. Raises UsageError without ``onnx``, for a table whose columns are not numbers, and where pairs vote."""
    model.check_one_each()
    try:
        from onnx import checker, helper
    except ModuleNotFoundError as error:
        raise UsageError("onnx is not installed", hint="pip install 'streamsvm[onnx]'") from error
    graph = GraphBuilder()
    rows, columns = _rows(model, graph)
    decision = _decision(model, graph, rows)
    answer = _numbers(graph, decision) if model.numeric else _labels(model, graph, decision)
    outputs = [answer, value_info("decision", np.float64, len(model.weights))]
    graph.add("Identity", decision, out="decision")
    if model.calibration is not None:
        found = probabilities(graph, model.calibration.calibrator, decision, len(model.weights))
        graph.add("Identity", found, out="probabilities")
        outputs.append(value_info("probabilities", np.float64, len(model.classes)))
    if model.names:
        graph.names = ", ".join(model.names)
    inputs = [value_info("X", np.float64, columns)]
    body = helper.make_graph(graph.nodes, "streamsvm", inputs, outputs, graph.constants)
    made = helper.make_model(
        body, producer_name="streamsvm", ir_version=FORMAT, opset_imports=[helper.make_opsetid("", OPSET)]
    )
    helper.set_model_props(made, {"classes": ", ".join(model.classes), "columns": graph.names})
    checker.check_model(made, full_check=True)
    yield made.SerializeToString(deterministic=True)


def _rows(model: Model, graph: GraphBuilder) -> tuple[str, int]:
    """The rows as they are stored, in float64, and how many columns their source has."""
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


def _decision(model: Model, graph: GraphBuilder, rows: str) -> str:
    """The decision values (n, k)."""
    if model.expansion is not None:
        rows = _kernel_values(model.expansion, graph, rows)
    product = graph.add("MatMul", rows, graph.constant(model.weights[:, :-1].T))
    return graph.add("Add", product, graph.constant(model.weights[:, -1]))


def _kernel_values(expansion: Expansion, graph: GraphBuilder, rows: str) -> str:
    """The kernel values (n, m) of rows and points."""
    if expansion.scale is not None and expansion.shift is not None:
        shifted = graph.add("Sub", rows, graph.constant(expansion.shift.astype(np.float64)))
        rows = graph.add("Mul", shifted, graph.constant(expansion.scale.astype(np.float64)))
    points, known = _points(expansion), expansion.parameters
    if expansion.kernel == "rbf":
        midst = points.mean(axis=0)
        rows, points = graph.add("Sub", rows, graph.constant(midst)), points - midst
    if expansion.kernel == "laplacian":
        apart = graph.add("Sub", graph.add("Unsqueeze", rows, graph.constant(np.array([1]))), graph.constant(points))
        length = graph.add("ReduceSum", graph.add("Abs", apart), graph.constant(np.array([2])), keepdims=0)
        return graph.add("Exp", graph.add("Mul", length, graph.constant(np.array(-known["gamma"]))))
    product = graph.add("MatMul", rows, graph.constant(points.T))
    if expansion.kernel == "rbf":
        return _rbf(graph, rows, points, product, known["gamma"])
    if expansion.kernel == "linear":
        return graph.add("Mul", product, graph.constant(np.array(known["scale"])))
    scaled = graph.add("Mul", product, graph.constant(np.array(known["gamma"])))
    moved = graph.add("Add", scaled, graph.constant(np.array(known["coef0"])))
    if expansion.kernel == "sigmoid":
        return graph.add("Tanh", moved)
    if expansion.kernel == "polynomial":
        return graph.add("Pow", moved, graph.constant(np.array(known["degree"])))
    raise UsageError(f"the kernel '{expansion.kernel}' has no operators in ONNX", hint="keep the model as it is")


def _rbf(graph: GraphBuilder, rows: str, points: Float64, product: str, gamma: float) -> str:
    """exp(-gamma max(0, |x|^2 + |z|^2 - 2 x.z)) (n, m), of rows and points less the midst of the points: nothing cancels then."""
    squares = graph.add("ReduceSum", graph.add("Mul", rows, rows), graph.constant(np.array([1])), keepdims=1)
    doubled = graph.add("Mul", product, graph.constant(np.array(2.0)))
    sums = graph.add("Add", squares, graph.constant(np.square(points).sum(axis=1)))
    apart = graph.add("Max", graph.add("Sub", sums, doubled), graph.constant(np.array(0.0)))
    return graph.add("Exp", graph.add("Mul", apart, graph.constant(np.array(-gamma))))


def _points(expansion: Expansion) -> Float64:
    """The points as a matrix (m, d) float64."""
    points = expansion.points
    if isinstance(points, CSR):
        shape = (len(points.indptr) - 1, expansion.columns)
        found: Array = scipy.sparse.csr_array((points.data, points.indices, points.indptr), shape).toarray()
        return found.astype(np.float64)
    return points.values.astype(np.float64)


def _numbers(graph: GraphBuilder, decision: str) -> Any:
    """Add the predicted numbers, and return what they are declared as."""
    graph.add("Squeeze", decision, graph.constant(np.array([1])), out="prediction")
    return value_info("prediction", np.float64)


def _labels(model: Model, graph: GraphBuilder, decision: str) -> Any:
    """Add the labels, and return what they are declared as."""
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
