"""How many rows a sample has, which ones they are and with what probability, against all keys sorted at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.compute.passes.newton import keys_pass
from streamsvm.losses import SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.newton.row_sample import (
    PrioritySampler,
    Sample,
    is_wide,
    join_alike,
    least_rows,
    row_bytes,
    sample_rows,
    sampled_bytes,
    usual_rows,
)
from streamsvm.types import Block, Problem


def of(rows: int, columns: int, entries: int | None = None) -> Problem:
    """A problem of so many rows and columns, with so many entries a row where they are sparse."""
    nonzeros = None if entries is None else entries * rows
    return Problem(SquaredHinge(), 1.0, rows, columns, 0, nonzeros=nonzeros)


# -- how many ----------------------------------------------------------------------------------------------------------


def test_columns_are_many_where_the_hessian_of_all_is_no_matrix() -> None:
    """More than 8,000 components of dense rows, more than 1,500 of sparse ones; the constant is one of them."""
    assert [is_wide(of(10, columns)) for columns in (7_999, 8_000)] == [False, True]
    assert [is_wide(of(10, columns, 5)) for columns in (1_499, 1_500)] == [False, True]


def test_a_row_takes_four_bytes_a_component_or_eight_an_entry() -> None:
    """The constant is no entry of a sparse row, but where the next row begins is eight bytes more."""
    assert row_bytes(of(10, 99)) == 400
    assert row_bytes(of(10, 99, 7)) == 64
    assert row_bytes(Problem(SquaredHinge(), 1.0, 10, 99, 0, nonzeros=71)) == 8 * (1 + 8)  # 7.1 entries are 8


@pytest.mark.parametrize(
    ("rows", "columns", "entries", "least"),
    [
        (10**6, 49, None, 2_000),
        (10**6, 199, None, 4_000),  # twenty a component
        (500, 199, None, 4_000),
        (10**6, 3_999, None, (64 << 20) // 16_000),  # no more than 64 MiB
        (10**6, 7_999, None, (64 << 20) // 32_000),
        (10**6, 199, 500_000, 2_000),  # nor, of long rows, fewer than 2,000
        (10**6, 8_000, None, 10_000),  # a hundredth of the rows where columns are many
        (10**5, 8_000, None, 2_000),
        (500, 8_000, None, 500),
        (10**6, 1_500, 5, 10_000),
    ],
)
def test_a_sample_of_fewer_rows_is_of_no_use(rows: int, columns: int, entries: int | None, least: int) -> None:
    assert least_rows(of(rows, columns, entries)) == least


@pytest.mark.parametrize(
    ("columns", "entries", "usual"),
    [
        (9, None, 50_000),
        (499, 5, 50_000),
        (699, 5, 70_000),  # a hundred a component
        (399, None, (64 << 20) // 1_600),  # no more than 64 MiB ...
        (3_999, None, 20_000),  # ... but 20,000
        (3_999, 2, 400_000),
    ],
)
def test_usual_are_fifty_thousand_rows_or_a_hundred_a_component_in_64_mebibytes(
    columns: int, entries: int | None, usual: int
) -> None:
    assert usual_rows(of(10**7, columns, entries)) == usual


@pytest.mark.parametrize(
    ("rows", "columns", "entries", "asked", "sampled"),
    [
        (150_000, 20, None, None, 150_000),  # three times as many as are usual are taken whole
        (150_001, 20, None, None, 50_000),
        (30_000, 8_946, None, None, 30_000),  # in a GiB at most, of dense rows
        (30_000, 8_947, None, None, 20_000),
        (32_768, 8_191, None, None, 32_768),  # just a GiB
        (300_000, 999, 5_000, None, 300_000),  # of sparse ones 300 a component, whatever they take
        (300_001, 999, 5_000, None, 20_000),
        (150_000, 99, 5, None, 150_000),
        (150_001, 99, 5, None, 50_000),
        (150_001, 699, 5, None, 150_001),
        (1_000, 20, None, 100, 100),
        (1_000, 20, None, 2_000, 1_000),
    ],
)
def test_all_rows_are_taken_where_they_are_not_many_more_than_are_usual(
    rows: int, columns: int, entries: int | None, asked: int | None, sampled: int
) -> None:
    assert sample_rows(asked, of(rows, columns, entries)) == sampled


def test_rows_of_a_wide_sample_take_what_gathering_or_solving_does() -> None:
    """One and a quarter times the row and 56 bytes, and 100 while they are joined; or row, 56 and 220."""
    assert sampled_bytes(of(10, 9_000, 3)) == 32 + 56 + 220
    assert sampled_bytes(of(10, 9_000, 300)) == int(1.25 * (8 * 301 + 56)) + 100


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


@pytest.mark.parametrize("pieces", PIECES, ids=len)
@pytest.mark.parametrize("limit", [1, 30, 170, 500])
@pytest.mark.parametrize("spare", [1.0, 2.0])
def test_a_sample_has_the_rows_of_the_smallest_keys(pieces: Any, limit: int, spare: float) -> None:
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
def test_no_more_rows_are_held_than_so_many_times_the_limit(spare: float) -> None:
    scores, limit = np.ones(N), 40
    sampler, most = PrioritySampler(limit, 3, spare=spare), 0
    for start in range(0, N, 5):
        offered(sampler, scores, [(start, start + 5)])
        assert sampler.held == sum(len(part.keys) for part in sampler.parts)
        most = max(most, sampler.held)
    assert most == spare * limit
    assert sampler.threshold < np.inf


def test_as_long_as_there_is_room_no_key_is_out() -> None:
    """And then none from the first that has no place any more, however many rows there may be later."""
    sampler, scores = PrioritySampler(40, 3), np.ones(N)
    offered(sampler, scores, [(0, 40)])
    assert sampler.bound() == np.inf
    offered(sampler, scores, [(40, 41)])
    assert sampler.bound() == np.sort(keys_of(scores, 3)[:41])[40]
    assert sampler.held == 40


def test_every_pass_draws_anew_and_from_nothing() -> None:
    sampler, scores = offered(PrioritySampler(40, 3), np.ones(N), [(0, N)]), np.ones(N)
    first = set(keys_of(scores, 3).argsort()[:40].tolist())
    assert set(np.concatenate([part.row for part in sampler.parts]).tolist()) >= first
    sampler.clear()
    assert (sampler.salt, sampler.threshold, sampler.held, sampler.parts) == (4, np.inf, 0, [])
    found = offered(sampler, scores, [(0, N)]).sample()
    assert found is not None
    assert set(found.row.tolist()) == set(keys_of(scores, 4).argsort()[:40].tolist()) != first


@pytest.mark.parametrize("cut", [0, 5, 100, N])
@pytest.mark.parametrize("bounded", [0, 1, 2])
def test_samples_of_two_workers_make_that_of_one(cut: int, bounded: int) -> None:
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


def test_rows_that_came_in_one_part_are_not_copied_again() -> None:
    sampler = offered(PrioritySampler(N), np.ones(N), [(0, N)])
    rows = sampler.parts[0].X
    found = sampler.sample()
    assert found is not None
    assert found.X is rows


def test_samplers_of_the_same_rows_share_one_copy_and_others_wait() -> None:
    """What they share is joined at once; one alone joins its parts at the end of the pass, and of no rows there is nothing to join."""
    X, ones = Dense(np.arange(2.0 * N, dtype=np.float32).reshape(N, 2), 1.0), np.ones(N, np.float32)
    samplers = [PrioritySampler(N) for _ in range(5)]
    for start in (100, 0):
        part, order = slice(start, start + 100), np.arange(100, dtype=np.int32)
        block = Block(Dense(X.values[part], 1.0), ones[part], ones[part], 0, start, order, 0, copies={})
        for sampler, score in zip(samplers, (1.0, 2.0, None, 0.0, 0.0), strict=True):
            scores = np.full(100, score) if score is not None else np.arange(100.0)
            sampler.add(block, np.zeros(100), scores)
    join_alike(samplers)
    first, second, alone, *nothing = samplers
    assert first.parts[0].X is second.parts[0].X
    assert [len(sampler.parts) for sampler in samplers] == [1, 1, 2, 0, 0]
    np.testing.assert_array_equal(first.parts[0].X.values, X.values)
    np.testing.assert_array_equal(alone.parts[0].row, np.arange(1, 100))
    assert [sampler.sample() for sampler in nothing] == [None, None]


def test_of_no_row_with_a_score_there_is_no_sample() -> None:
    assert offered(PrioritySampler(40, 3), np.zeros(N), [(0, N)]).sample() is None


def test_rows_in_memory_are_met_again_by_number() -> None:
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
    again = sample.seen_again([(20, np.arange(20.0, 40.0)), (0, np.arange(0.0, 10.0)), (10, np.arange(10.0, 20.0))])
    np.testing.assert_array_equal(again.f, rows)
    some = again.every(2)
    np.testing.assert_array_equal(some.row, [3, 11, 30])
    np.testing.assert_array_equal(some.f, [3, 11, 30])
    np.testing.assert_array_equal(some.X.values[:, 0], [0.0, 4.0, 8.0])
    np.testing.assert_array_equal(some.probability, np.full(3, 0.25))
    assert not some.complete
