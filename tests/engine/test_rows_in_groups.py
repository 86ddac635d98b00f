"""Sums over all rows after a training: shared out among threads, with the bits of one, and the dual variables of the right rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.compute import threading as cores
from streamsvm.engine import partition
from streamsvm.engine.evaluation import (
    ProblemBlock,
    RowsInGroups,
    Summation,
    evaluate_problems,
    sum_groups,
    sum_weights_of_rows_with_loss,
)
from streamsvm.engine.row_state import RowStates
from streamsvm.features.scaling import Raw
from streamsvm.jobs.common_options import SynthJob
from streamsvm.jobs.synth import synth
from streamsvm.losses import Hinge, SquaredHinge
from streamsvm.solvers.problem_kinds import Multinomial, OneAgainstRest
from streamsvm.store import open_store
from streamsvm.types import Problem, RowState, Store

ROWS = 700


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(partition, "PASS_GROUP_BYTES", 1)
    synth(SynthJob("susy", str(tmp_path / "s.zarr"), rows=ROWS, chunk_bytes=6_000))
    return open_store(tmp_path / "s.zarr")


def problems(store: Store) -> list[Problem]:
    columns = store.layout.columns
    return [
        Problem(Hinge(), 1.0, ROWS, columns, OneAgainstRest(1)),
        Problem(SquaredHinge(), 0.3, ROWS, columns, OneAgainstRest(1), held_out=(2,)),
    ]


def dual_of(store: Store, count: int) -> RowStates:
    """The number of each row, in chunks of another length."""
    layout = replace(store.layout, chunks=(300, 250, 150))
    states = RowStates(RowState("dual", "float64"), layout, count)
    for chunk, start in enumerate((0, 300, 550)):
        values = states.load(chunk)
        values[:] = np.arange(start, start + values.shape[1]) / ROWS
        states.save(chunk, values)
    return states


def sums_of(store: Store, threads: int) -> list[Any]:
    given, rng = problems(store), np.random.default_rng(0)
    weights = [rng.normal(size=store.layout.columns + 1) for _ in given]
    with cores.use_threads(threads):
        found = evaluate_problems(store, Raw(1.0), given, weights, dual_of(store, len(given)))
        costs = sum_weights_of_rows_with_loss(store, Raw(1.0), given, weights, [0.1, 0.2])
    return [[(*one.values(), one.own.vector().tobytes()) for one in found], costs]


def test_sums_are_those_of_one_thread(store: Store) -> None:
    assert len(partition.pass_groups(store.layout)) > 4
    expected = sums_of(store, 1)
    for threads in (2, 3, 7):
        assert sums_of(store, threads) == expected


def test_final_sums_every_row_has_its_own_dual_variable(store: Store) -> None:
    given = problems(store)
    rows = RowsInGroups(store, Raw(1.0), given, dual_of(store, len(given)))

    def add(found: list[tuple[int, int, float]], one: ProblemBlock) -> None:
        assert one.alpha is not None
        numbers = one.block.start + np.arange(len(one.block.y))
        found += [(one.problem, row, a * ROWS) for row, a in zip(numbers.tolist(), one.alpha.tolist(), strict=True)]

    with cores.use_threads(3):
        found = sum_groups(rows, Summation(list, add, lambda one, other: one + other))
    starts = np.cumsum([0, *store.layout.chunks])
    left_out = set(range(starts[2], starts[3]))
    assert [(k, row) for k, row, _ in sorted(found)] == [
        (k, row) for k in (0, 1) for row in range(ROWS) if k == 0 or row not in left_out
    ]
    assert all(round(a) == row for _, row, a in found)


def test_final_sums_rows_that_cost_something_are_those_short_of_their_margin(store: Store) -> None:
    """Of two classes y f; of a problem of all classes how far the row's own is ahead. By as much more as margins are off."""
    columns, rng = store.layout.columns, np.random.default_rng(3)
    given = [
        Problem(Hinge(), 0.5, ROWS, columns, OneAgainstRest(1)),
        Problem(Hinge(), 2.0, ROWS, columns, Multinomial(2, 1)),
        Problem(Hinge(), 2.0, ROWS, columns, Multinomial(2, 1)),
    ]
    weights = [rng.normal(size=columns + 1), rng.normal(size=(2, columns + 1)), rng.normal(size=(2, columns + 1))]
    X, codes = np.zeros((ROWS, columns + 1)), np.zeros(ROWS, int)
    for one in RowsInGroups(store, Raw(1.0), given[:1]).blocks():
        rows = slice(one.block.start, one.block.start + len(one.block.y))
        X[rows, :-1], X[rows, -1], codes[rows] = one.block.X.values, 1.0, one.block.y > 0.0
    margins = [np.where(codes == 1, 1.0, -1.0) * (X @ weights[0])]
    for w in weights[1:]:
        f = X @ w.T
        margins.append(f[np.arange(ROWS), codes] - f[np.arange(ROWS), 1 - codes])
    off = [0.1, 0.0, 1.5]
    expected = [one.C * int((m < 1.0 + o).sum()) for one, m, o in zip(given, margins, off, strict=True)]
    assert expected[1] != expected[2]
    assert sum_weights_of_rows_with_loss(store, Raw(1.0), given, weights, off) == expected
