"""The quadratic model of an elastic net in memory: steps on faces, rounds and deadlines, against linear systems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.solvers.elastic_net import model as models
from streamsvm.solvers.elastic_net.model import QuadraticModel, above_minimum, minimum

L1 = 0.5


def drawn(center: Any = None) -> tuple[QuadraticModel, Any, Any]:
    rng = np.random.default_rng(4)
    A, v = rng.normal(size=(12, 4)), np.array([3.0, -2.5, 0.1, 1.5])
    c = np.zeros(4) if center is None else center
    G = A.T @ A
    return QuadraticModel(G.copy(), v, c, L1), G, v


def on_the_face(G: Any, v: Any, w: Any) -> Any:
    """Where the rest of the model is least with the signs of w fixed, its zeros among them."""
    free = np.flatnonzero(w)
    found = np.zeros(4)
    found[free] = np.linalg.solve((np.eye(4) + G)[np.ix_(free, free)], v[free] - L1 * np.sign(w[free]))
    return found


def test_a_step_on_a_face_solves_for_it_where_no_sign_changes() -> None:
    model, G, v = drawn()
    best = minimum(model, 1e-14, np.inf)
    start = 3.0 * best
    assert np.count_nonzero(best) in {2, 3, 4}
    found = models._on_faces(model, start, G @ start - v)
    np.testing.assert_allclose(found, on_the_face(G, v, start), rtol=1e-9)
    np.testing.assert_allclose(found, best, rtol=1e-5, atol=1e-7)


def test_a_step_ends_where_the_first_coordinate_comes_to_0_which_then_stays_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(models, "FACE_STEPS", 1)
    model, G, v = drawn()
    best = minimum(model, 1e-14, np.inf)
    start = 3.0 * best
    start[[0, 1]] *= -1.0, -0.5  # their signs are to change, that of the second first
    toward = on_the_face(G, v, start) - start
    falling = start * toward < 0.0
    crossing = np.full(4, np.inf)
    crossing[falling] = -start[falling] / toward[falling]
    first = int(crossing.argmin())
    found = models._on_faces(model, start, G @ start - v)
    expected = start + crossing[first] * toward
    expected[first] = 0.0
    assert crossing[first] < 1.0
    assert found[first] == 0.0
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_on_the_face_of_nothing_there_is_no_step() -> None:
    model, _, v = drawn()
    assert not models._on_faces(model, np.zeros(4), -v).any()
    one = models._on_faces(model, np.array([0.0, 0.0, 0.0, 9.0]), model.gram[:, 3] * 9.0 - v)
    np.testing.assert_allclose(one, on_the_face(model.gram, v, np.eye(4)[3]), rtol=1e-9)


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of how many coordinates each sweep was."""
    seen: list[int] = []
    plain = models.soft_threshold_sweep
    monkeypatch.setattr(
        models,
        "soft_threshold_sweep",
        lambda gram, l1, some, w, g: (seen.append(len(some)), plain(gram, l1, some, w, g))[1],
    )
    return seen


def test_a_round_is_a_sweep_of_all_and_nine_of_those_in_use_and_a_deadline_ends_it(sweeps: list[int]) -> None:
    model, G, v = drawn()
    found = minimum(model, -1.0, 0.0)  # nothing is near enough
    assert len(sweeps) == 10
    assert sweeps[0] == 4
    g = G @ found - v
    sweeps.clear()
    assert above_minimum(found, -g, L1) > 0.0 or found.any()
    whole = minimum(drawn()[0], 1e9, np.inf)  # anything is
    assert len(sweeps) == 10
    np.testing.assert_array_equal(whole, found)


def test_faces_end_in_the_round_that_has_found_them(sweeps: list[int]) -> None:
    """Of columns that are nearly alike sweeps alone would take thousands; the least value is that of a slow way."""
    rng = np.random.default_rng(5)
    A = rng.normal(size=(30, 1)) + 1e-3 * rng.normal(size=(30, 6))
    G, v, c = 1e4 * A.T @ A, 1e4 * A.T @ rng.normal(size=30), rng.normal(size=6)
    found = minimum(QuadraticModel(G.copy(), v, c, L1), 1e-9, np.inf)
    assert above_minimum(found, v - G @ (found - c), L1) <= 1e-9
    assert len(sweeps) <= 10 * 10


def test_who_begins_at_the_minimum_stays_and_looks_at_no_face(monkeypatch: pytest.MonkeyPatch) -> None:
    model, G, v = drawn()
    best = minimum(model, 1e-20, np.inf)
    monkeypatch.setattr(models, "_on_faces", lambda *given: pytest.fail("the minimum was known"))
    again = QuadraticModel(G, v - G @ best, best, L1)  # the same model around its minimum
    np.testing.assert_allclose(minimum(again, 1e-9, np.inf), best, rtol=1e-6, atol=1e-9)
