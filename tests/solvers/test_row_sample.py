"""How many rows a sample has, which ones they are and with what probability, against all keys sorted at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.compute.passes.newton import keys_pass
from streamsvm.losses import SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.newton.sample import PrioritySampler, Sample
from streamsvm.types import Block, Problem
from tests.axes import each_value


def of(rows: int, columns: int, entries: int | None = None) -> Problem:
    """A problem of so many rows and columns, with so many entries a row where they are sparse."""
    nonzeros = None if entries is None else entries * rows
    return Problem(SquaredHinge(), 1.0, rows, columns, 0, nonzeros=nonzeros)


# -- how many ----------------------------------------------------------------------------------------------------------


# -- which ones --------------------------------------------------------------------------------------------------------

N = 200


def offered(sampler: PrioritySampler, scores: Any, pieces: list[tuple[int, int]]) -> PrioritySampler:
    """Offer rows (2 i, 2 i + 1) whose decision value is N - i + 1/2, and weight N - i."""
    values = np.arange(2.0 * N, dtype=np.float32).reshape(N, 2)
    for start, stop in pieces:
        ones, order = np.ones(stop - start, np.float32), np.arange(stop - start, dtype=np.int32)
        falling = N - np.arange(start, stop, dtype=np.float64)
        block = Block(Dense(values[start:stop], 1.0), ones, falling.astype(np.float32), 0, start, order, 0)
        sampler.add(block, falling + 0.5, scores[start:stop])
    return sampler


def keys_of(scores: Any, salt: int) -> Any:
    keys = np.empty(N)
    keys_pass(scores, 0, salt, keys)
    return keys


def scores_of() -> Any:
    rng = np.random.default_rng(1)
    return np.where(rng.random(N) < 0.1, 0.0, rng.random(N) ** 3 + np.where(rng.random(N) < 0.1, 50.0, 0.0))


PIECES = [[(0, N)], [(150, 200), (0, 80), (80, 150)], [(k, k + 20) for k in range(0, N, 20)]]


@each_value(("pieces", PIECES), ("limit", [1, 30, 170, 500]), ("spare", [1.0, 2.0]))
def test_row_sample_has_the_rows_of_the_smallest_keys(pieces: Any, limit: int, spare: float) -> None:
    """Each found with min(1, score times the next key); of all rows that have a score, all are certain."""
    scores = scores_of()
    keys = np.sort(keys_of(scores, 3))
    found = offered(PrioritySampler(limit, 3, spare=spare), scores, pieces).sample()
    assert found is not None
    complete = limit == 500
    beyond = np.inf if complete else keys[limit]
    rows = np.flatnonzero(keys_of(scores, 3) < beyond)
    np.testing.assert_array_equal(found.row, rows)
    np.testing.assert_array_equal(found.f, N - rows + 0.5)
    np.testing.assert_array_equal(found.s, N - rows)
    np.testing.assert_array_equal(found.X.values[:, 1], 2.0 * rows + 1.0)
    assert found.complete == complete
    expected = np.ones(len(rows)) if complete else np.minimum(1.0, scores[rows] * beyond)
    np.testing.assert_array_equal(found.probability, expected)
    assert (scores[found.row] > 0.0).all()


@pytest.mark.parametrize("spare", [1.25, 2.0])
def test_row_sample_holds_a_bounded_number_of_rows(spare: float) -> None:
    scores, limit = np.ones(N), 40
    sampler, most = PrioritySampler(limit, 3, spare=spare), 0
    for start in range(0, N, 5):
        offered(sampler, scores, [(start, start + 5)])
        assert sampler.held == sum(len(part.keys) for part in sampler.parts)
        most = max(most, sampler.held)
    assert most == spare * limit
    assert sampler.threshold < np.inf


def test_row_sample_is_drawn_anew_in_every_pass() -> None:
    sampler, scores = offered(PrioritySampler(40, 3), np.ones(N), [(0, N)]), np.ones(N)
    first = set(keys_of(scores, 3).argsort()[:40].tolist())
    assert set(np.concatenate([part.row for part in sampler.parts]).tolist()) >= first
    sampler.clear()
    assert (sampler.salt, sampler.threshold, sampler.held, sampler.parts) == (4, np.inf, 0, [])
    found = offered(sampler, scores, [(0, N)]).sample()
    assert found is not None
    assert set(found.row.tolist()) == set(keys_of(scores, 4).argsort()[:40].tolist()) != first


@each_value(("cut", [0, 5, 100, N]), ("bounded", [0, 1, 2]))
def test_row_sample_of_two_workers_is_that_of_one(cut: int, bounded: int) -> None:
    """Also where one of them has thrown rows out, or has met none: a bound of one is a bound of both."""
    scores = scores_of()
    one = offered(PrioritySampler(40, 3), scores, [(0, N)]).sample()
    left, right = (offered(PrioritySampler(40, 3), scores, [part]) for part in ((0, cut), (cut, N)))
    for sampler in (left, right)[:bounded]:
        sampler.bound()
    left.merge(right)
    assert left.held == sum(len(part.keys) for part in left.parts) == 40
    joined = left.sample()
    assert one is not None
    assert joined is not None
    np.testing.assert_array_equal(joined.row, one.row)
    np.testing.assert_array_equal(joined.probability, one.probability)


def test_row_sample_keeps_row_numbers() -> None:
    rows = np.array([3, 4, 11, 12, 30])
    n = len(rows)
    sample = Sample(
        Dense(np.arange(2.0 * n, dtype=np.float32).reshape(n, 2), 1.0),
        np.ones(n, np.float32),
        np.ones(n, np.float32),
        np.full(n, 0.25),
        np.zeros(n),
        rows,
        complete=True,
    )
    again = sample.with_margins([(20, np.arange(20.0, 40.0)), (0, np.arange(0.0, 10.0)), (10, np.arange(10.0, 20.0))])
    np.testing.assert_array_equal(again.f, rows)
    some = again.every(2)
    np.testing.assert_array_equal(some.row, [3, 11, 30])
    np.testing.assert_array_equal(some.f, [3, 11, 30])
    np.testing.assert_array_equal(some.X.values[:, 0], [0.0, 4.0, 8.0])
    np.testing.assert_array_equal(some.probability, np.full(3, 0.25))
    assert not some.complete
