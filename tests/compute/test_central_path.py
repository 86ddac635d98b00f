"""Where a row is on the central path: the root of its equation, whatever the curvature of its loss."""

from __future__ import annotations

import itertools

import pytest

from streamsvm.compute.passes.in_memory.central_path import _small_root


@pytest.mark.parametrize("curvature", [0.0, 0.5, 1.0, 2.0])
def test_the_small_root_solves_its_equation(curvature: float) -> None:
    """The equation: z - curvature a + t / a - t / (bound - a) = 0 with a in (0, bound / 2], compiled and as Python."""
    for t, bound, slope in itertools.product([1e-6, 0.1, 3.0], [0.5, 1.0, 4.0], [-5.0, -0.3, 0.0, 0.4, 1.0]):
        z = min(slope, 0.5 * curvature * bound)
        for root in (_small_root, _small_root.py_func):
            a = root(z, t, bound, curvature)
            assert 0.0 < a <= 0.5 * bound * (1.0 + 1e-12)
            terms = [z, -curvature * a, t / a, -t / (bound - a)]
            assert abs(sum(terms)) <= 1e-8 * sum(map(abs, terms))
