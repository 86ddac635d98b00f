"""The parts of an ONNX graph while it is made: steps, arrays, and what its inputs and outputs are declared as."""

from __future__ import annotations

from typing import Any

import numpy as np


class GraphBuilder:
    """Nodes and constants under way; what a step returns is the name of its value."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.names = ""

    def add(self, operator: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """Add a step and return the name of what it gives."""
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


def value_info(name: str, kind: Any, *shape: int) -> Any:
    """An input or output: rows of any number, of so many columns each."""
    from onnx import TensorProto, helper

    kinds = {np.float64: TensorProto.DOUBLE, np.int64: TensorProto.INT64, str: TensorProto.STRING}
    return helper.make_tensor_value_info(name, kinds[kind], ["n", *shape])
