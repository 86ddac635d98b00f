"""Build the nodes and constants of an ONNX graph."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

FLOAT, DOUBLE, INT64, UINT64 = 1, 11, 7, 13
"""The numbers of these types in ``onnx.TensorProto``, known without importing onnx."""
ML_DOMAIN, RUNTIME_DOMAIN = "ai.onnx.ml", "com.microsoft"
"""The domains of ``LabelEncoder`` and of operators that only onnxruntime has."""


class GraphBuilder:
    """Collects the nodes and constants of a graph. Each method adds a node or constant and returns the name of its
    value.

    The names begin with ``prefix`` and differ from those in ``taken``.
    """

    def __init__(self, taken: Iterable[str] = (), prefix: str = "") -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.domains: set[str] = set()
        """The domains of the operators, without the standard one."""
        self.declared: list[Any] = []
        """The declarations of values whose type onnx cannot infer."""
        self._prefix = prefix
        while any(re.fullmatch(f"{self._prefix}[cv][0-9]+", name) for name in taken):
            self._prefix += "_"

    def add(self, operator: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        from onnx import helper

        out = out or f"{self._prefix}v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [out], **attributes))
        self.domains |= {attributes["domain"]} if "domain" in attributes else set()
        return out

    def constant(self, values: Any) -> str:
        """Add an array of one dimension or more as a constant and return its name; a number becomes an array (1,)."""
        return self.scalar(np.ascontiguousarray(values))

    def scalar(self, values: Any) -> str:
        """Add a number as a constant without dimensions and return its name."""
        from onnx import numpy_helper

        name = f"{self._prefix}c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def encode(self, values: str, codes: Mapping[Any, int], default: int) -> str:
        """Add the code of each value (text or int64); ``default`` for values without a code."""
        keys = list(codes)
        kind = "keys_int64s" if keys and isinstance(keys[0], int) else "keys_strings"
        attributes: dict[str, Any] = {kind: keys, "values_int64s": list(codes.values()), "default_int64": default}
        return self.add("LabelEncoder", values, **attributes, domain=ML_DOMAIN)

    def flatten(self, values: str) -> str:
        """Add a reshape of values (n, 1) to (n,)."""
        return self.add("Squeeze", values, self.constant(np.array([1])))
