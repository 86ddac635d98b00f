"""Iterations between two readings are counted, and end where the gap is small enough or there are no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.solvers.l1_ball import work as works
from streamsvm.solvers.l1_ball.vertices import SampledVertices
from streamsvm.solvers.l1_ball.work import Allowed, BallWork, advance, agreements_after


class Falling:
    """A method whose gap is halved by every iteration."""

    f = 10.0

    def __init__(self) -> None:
        self.made = 0

    def gap(self) -> float:
        return float(0.5**self.made)

    def advance(self) -> None:
        self.made += 1


class Drawn(SampledVertices):
    """The same from samples, of four vertices."""

    f = 10.0

    def __init__(self) -> None:
        self.count, self.asked = 0, []  # type: ignore[var-annotated]
        self.vertices: Any = type("Vertices", (), {"diagonal": np.ones(4)})

    def find_vertices(self, drawn: Any, draw: np.random.Generator) -> float:
        self.asked.append(drawn)
        return float(0.5**self.count)

    def advance(self) -> None:
        self.count += 1


@pytest.mark.parametrize(("epsilon", "relative", "made"), [(0.3, 0.0, 2), (0.0, 0.02, 3), (0.0, 0.0, 9)])
def test_as_many_are_made_as_there_may_be_unless_the_gap_is_small_enough(
    epsilon: float, relative: float, made: int
) -> None:
    method: Any = Falling()
    work = BallWork(method, Allowed(epsilon, relative), left=9)
    assert advance(work, 0) == (made < 9)
    assert (method.made, work.left) == (made, 9 - made)


def test_no_more_are_made_at_once_than_a_look_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "ITERATIONS_IN_STEP", 4)
    method: Any = Falling()
    work, lefts = BallWork(method, Allowed(0.0, 0.0), left=9), []
    while work.left:
        assert not advance(work, 0)
        lefts.append(work.left)
    assert lefts == [5, 1, 0]


@pytest.mark.parametrize(("agreements", "samples"), [(1, 3), (2, 4), (5, 7)])
def test_so_many_samples_have_to_agree_and_nothing_is_moved_while_they_do(agreements: int, samples: int) -> None:
    method = Drawn()
    work = BallWork(method, Allowed(0.3, 0.0), left=20, sample=2, agreements=agreements)
    assert advance(work, 0)
    assert (method.count, len(method.asked), work.left) == (2, samples, 20 - samples)
    assert {len(drawn) for drawn in method.asked} == {2}
    assert {int(k) for drawn in method.asked for k in drawn} <= set(range(4))


def test_an_end_that_came_too_soon_asks_for_twice_as_many() -> None:
    assert [agreements_after(begun) for begun in range(5)] == [2, 2, 4, 8, 16]
    assert agreements_after(100) == 2 << works.MOST_DOUBLINGS
