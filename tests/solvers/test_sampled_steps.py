"""Steps from samples against a plain program with the whole matrix: each iteration of each variant goes where its definition says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.compute.kernel_values.rounding import DOUBLE
from streamsvm.kernels import RBF
from streamsvm.rows import Dense
from streamsvm.solvers.kernel.cache import KernelCache
from streamsvm.solvers.kernel.frank_wolfe import SampledIterations
from streamsvm.solvers.kernel.frank_wolfe_steps import Iterations
from streamsvm.solvers.kernel.pool import Form, Pool
from streamsvm.solvers.kernel.reduced_set import evaluate_reduced_set
from streamsvm.solvers.kernel.working_set import recompute_gradient
from streamsvm.types import Block
from tests.solvers.kernel_problems import gram64, noisy_rows

GAMMA, RIDGE, ROWS = 0.5, 0.25, 120
FORM = Form(RBF(GAMMA), 4, 1.0, DOUBLE)


def pool_of(n: int = ROWS, *, support: int = 3) -> tuple[Pool, Any]:
    """Weight on the first rows; the matrix in float64."""
    X, y = noisy_rows(n)
    z, zero = y.astype(np.float64), np.zeros(n)
    pool = Pool(Dense(X), np.arange(n), z, zero + RIDGE, zero, zero + 1.0, zero.copy(), zero.copy(), zero.copy())
    weights = np.arange(1.0, support + 1.0)  # no two of them alike, so that no two gradients are
    pool.x[:support] = weights / weights.sum()
    recompute_gradient(pool, FORM)
    return pool, np.outer(z, z) * (gram64(X, X, GAMMA) + 1.0) + RIDGE * np.eye(n)


def vertex(i: int) -> Any:
    e = np.zeros(ROWS)
    e[i] = 1.0
    return e


def best_on_line(K: Any, a: Any, d: Any, low: float, high: float) -> tuple[float, float]:
    """The step in an interval from a along d with the least f, and by how much f falls."""
    slope, bend = float(d @ K @ a), float(d @ K @ d)
    step = min(max(-slope / max(bend, 1e-15), low), high)
    return step, -(step * slope + 0.5 * step * step * bend)


class Plain:
    """The variants by their definitions (module ``compute.passes.frank_wolfe``)."""

    def __init__(self, K: Any, a: Any, variant: str, *, open_step: bool) -> None:
        self.K, self.a, self.variant, self.open_step = K, a.copy(), variant, open_step
        self.before: Any = None
        self.count = 0

    def advance(self, i: int, v: int | None) -> None:
        """One iteration toward vertex i; v is the worst of those with weight that are known."""
        self.count += 1
        a, K, g = self.a, self.K, self.K @ self.a
        toward, fall = best_on_line(K, a, vertex(i) - a, 0.0, 1.0)
        if self.open_step:
            toward = 2.0 / (self.count + 1.0)
        stepped = a + toward * (vertex(i) - a)
        if v is not None and a[v] > 0.0 and self.variant == "mfw" and g[v] - a @ g > a @ g - g[i]:
            away, _ = best_on_line(K, a, a - vertex(v), 0.0, a[v] / (1.0 - a[v]))
            stepped = a + away * (a - vertex(v))
        if v is not None and a[v] > 0.0 and self.variant == "swap" and i != v:
            swap, more = best_on_line(K, a, vertex(i) - vertex(v), 0.0, a[v])
            stepped = a + swap * (vertex(i) - vertex(v)) if more > fall else stepped
        if self.variant == "partan":
            if self.before is not None:
                d = stepped - self.before
                shrinking = d < 0.0
                room = float((stepped[shrinking] / -d[shrinking]).min()) if shrinking.any() else np.inf
                along, _ = best_on_line(K, stepped, d, -1.0, room)
                stepped = stepped + along * d
            self.before = a.copy()
        self.a = np.maximum(stepped, 0.0)


VARIANTS = ["fw", "mfw", "swap", "partan"]


@pytest.mark.parametrize(("variant", "open_step"), [*((name, False) for name in VARIANTS), ("fw", True)])
def test_frank_wolfe_steps_from_samples_are_those_of_the_definition(variant: str, open_step: bool) -> None:
    pool, K = pool_of()
    found, plain = SampledIterations(pool, FORM, variant, open_step), Plain(K, pool.x, variant, open_step=open_step)
    draw = np.random.default_rng(1)
    for _ in range(60):
        sample, state = draw.integers(0, ROWS, 15), draw.bit_generator.state
        gap = found.find_vertices(sample, draw)
        again = np.random.default_rng()
        again.bit_generator.state = state
        g = K @ plain.a
        i, v = int(sample[np.argmin(g[sample])]), None
        assert gap == pytest.approx(plain.a @ g - g[i], rel=1e-6, abs=1e-9)
        if variant in ("mfw", "swap"):
            members = np.array(found.members)[again.integers(0, found.size, 15)]
            heavy = members[plain.a[members] > 0.0]
            v = int(heavy[np.argmax(g[heavy])]) if len(heavy) else None
        found.advance()
        plain.advance(i, v)
        a = np.zeros(ROWS)
        a[found.members] = found.a[: found.size]
        np.testing.assert_allclose(a, plain.a, rtol=1e-6, atol=1e-9)
        assert found.f == pytest.approx(0.5 * plain.a @ K @ plain.a, rel=1e-9)
        assert found.support == np.count_nonzero(a)
        plain.a = a
    assert found.count == 60


@pytest.mark.parametrize(("variant", "open_step"), [*((name, False) for name in VARIANTS), ("fw", True)])
def test_frank_wolfe_steps_with_all_gradients_are_those_of_the_definition(variant: str, open_step: bool) -> None:
    pool, K = pool_of()
    found = Iterations(pool.x.copy(), -pool.v, KernelCache(pool, FORM, 10), variant, open_step)
    plain = Plain(K, pool.x, variant, open_step=open_step)
    for _ in range(60):
        g = K @ plain.a
        i, v = int(np.argmin(g)), int(np.argmax(np.where(plain.a > 0.0, g, -np.inf)))
        assert found.gap() == pytest.approx(plain.a @ g - g[i], rel=1e-6, abs=1e-9)
        found.advance()
        plain.advance(i, v)
        np.testing.assert_allclose(found.a, plain.a, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found.g, K @ plain.a, rtol=1e-6, atol=1e-9)
        assert found.f == pytest.approx(0.5 * plain.a @ K @ plain.a, rel=1e-9)
        assert found.support == np.count_nonzero(found.a)
        plain.a = found.a.copy()


def test_frank_wolfe_weights_that_are_given_back_sum_to_one() -> None:
    pool, _ = pool_of()
    found = SampledIterations(pool, FORM, "fw")
    found.a[:3] = 0.5, 0.25, 0.5
    found.write(pool)
    assert pool.x[:4].tolist() == [0.4, 0.2, 0.4, 0.0]


@pytest.mark.parametrize("constant", [0.0, 0.75])
def test_frank_wolfe_short_machine_says_its_values_and_its_norm(constant: float) -> None:
    """Of each block the part that its own rows have."""
    X, y = noisy_rows(50)
    kept, c = np.array([3, 17, 30, 44]), np.array([1.0, -2.0, 0.5, 0.25])
    zero = np.zeros(4)
    reduced = Pool(Dense(X[kept]), kept, zero + 1.0, zero, zero, zero, zero, c, zero)
    K, norm, form = gram64(X, X, GAMMA) + constant, 0.0, Form(RBF(GAMMA), 4, constant, DOUBLE)
    for start, stop in ((0, 20), (20, 50)):
        order = np.arange(stop - start, dtype=np.int32)
        block = Block(Dense(X[start:stop]), y[start:stop], np.ones(stop - start, np.float32), 0, start, order, 0)
        f, part = evaluate_reduced_set(reduced, form, block)
        np.testing.assert_allclose(f, K[start:stop][:, kept] @ c, rtol=1e-9, atol=1e-12)
        norm += part
    assert norm == pytest.approx(c @ K[np.ix_(kept, kept)] @ c, rel=1e-9)
