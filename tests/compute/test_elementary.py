"""Elementary functions of compiled passes, compiled and as the Python they are made of, against those of the library."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numba import types

from streamsvm.compute.kernel_values import elementary
from streamsvm.compute.kernel_values.elementary import exp32, exp64

NEAR = np.linspace(-3.0, 3.0, 41)
"""On both sides of 0 and of several multiples of ln 2."""


@pytest.mark.parametrize("run", [exp32, exp32.py_func], ids=["compiled", "python"])
def test_elementary_exp_in_float32(run: Any) -> None:
    for x in (*NEAR.astype(np.float32), np.float32(-80.0), np.float32(80.0)):
        assert run(x) == pytest.approx(math.exp(x), rel=1.2e-7)
    assert run(np.float32(-1e9)) == pytest.approx(math.exp(-87.33), rel=1e-5)
    assert run(np.float32(1e9)) == pytest.approx(math.exp(88.37), rel=1e-5)
    with np.errstate(invalid="ignore"):
        assert math.isnan(run(np.float32(np.nan)))


@pytest.mark.parametrize("run", [exp64, exp64.py_func], ids=["compiled", "python"])
def test_elementary_exp_in_float64(run: Any) -> None:
    for x in (*NEAR, np.float64(-700.0), np.float64(700.0)):
        assert run(x) == pytest.approx(math.exp(x), rel=9e-16)
    assert run(np.float64(-1e9)) == pytest.approx(math.exp(-708.0), rel=1e-12)
    assert run(np.float64(1e9)) == pytest.approx(math.exp(709.0), rel=1e-12)
    assert math.isnan(run(np.float64(np.nan)))


SINGLE, DOUBLE = (types.float32, np.float32, 3e-7), (types.float64, np.float64, 1e-15)
each_type = pytest.mark.parametrize(("kind", "of", "error"), [SINGLE, DOUBLE], ids=["float32", "float64"])


@each_type
def test_elementary_what_stands_for_the_functions_of_kernels(kind: Any, of: Any, error: float) -> None:
    """The bodies that numba is handed, for each type its own."""
    exp, tanh, positive = (body(kind) for body in (elementary._exp, elementary._tanh, elementary._positive))
    for x in NEAR.astype(of):
        assert exp(x) == pytest.approx(math.exp(x), rel=error)
        assert tanh(x) == pytest.approx(math.tanh(x), abs=error)
        assert positive(x) == max(x, 0.0)
    assert math.isnan(positive(of(np.nan)))
    assert exp is not elementary._exp(types.float64 if kind == types.float32 else types.float32)


@pytest.mark.parametrize("degree", [0.0, 1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0])
def test_elementary_powers_are_products_where_they_are_usual_ones(degree: float) -> None:
    power = elementary._power(types.float64, types.float64)
    for x in (0.0, 0.3, 1.0, 1.7, *((-1.3,) if degree.is_integer() else ())):
        assert power(x, degree) == pytest.approx(x**degree, rel=1e-14)
