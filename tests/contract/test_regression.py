"""Losses of numbers: what is refused on a store of them, and figures of predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.apply.metrics import ErrorCounts
from streamsvm.jobs.apply.number_metrics import NumberAccumulator
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import make_plan
from streamsvm.losses import LOSSES
from streamsvm.rows import Dense
from streamsvm.store.format.numbers import Numbers
from streamsvm.store.views.memory import MemoryStore

ROWS, COLUMNS = 200, 4
NUMERIC = [name for name in LOSSES if LOSSES[name]().numeric()]


def data(weighted: bool) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    t = X @ rng.normal(size=COLUMNS) + 1.5 + 0.4 * rng.normal(size=ROWS)
    return X, t, rng.choice([0.0, 0.5, 1.0, 3.0], ROWS).astype(np.float32) if weighted else None


def store_of(weighted: bool) -> MemoryStore:
    X, t, weight = data(weighted)
    store = MemoryStore(chunk_bytes=800)
    store.append(Dense(X), t, weight)
    return store.commit((), COLUMNS)


@pytest.mark.parametrize("option", [{"positive": "1"}, {"class_weight": "balanced"}, {"calibrate": "sigmoid"}])
def test_what_needs_classes_is_refused_by_name(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="is for classes, and the store holds numbers"):
        make_plan(FitJob("memory", "model", loss="squared", **option), store_of(False))


def test_losses_of_classes_are_refused_for_numbers_and_the_other_way_round() -> None:
    classes = MemoryStore()
    classes.append(Dense(np.eye(4, dtype=np.float32)), np.array([0, 1, 0, 1], np.int32))
    classes.commit(("a", "b"), 4)
    for loss in set(LOSSES) - set(NUMERIC):
        with pytest.raises(UsageError, match="the store holds numbers to predict"):
            make_plan(FitJob("memory", "model", loss=loss), store_of(False))
    for loss in NUMERIC:
        with pytest.raises(UsageError, match="the store holds classes"):
            make_plan(FitJob("memory", "model", loss=loss), classes)


def test_figures_of_parts_are_those_of_the_whole_whatever_the_mean() -> None:
    rng = np.random.default_rng(1)
    truth, error = 1e8 + rng.normal(size=300), rng.normal(size=300)
    whole, parts, counts = NumberAccumulator(), NumberAccumulator(), ErrorCounts(1)
    whole.add(truth, (truth + error)[:, None])
    for rows in np.array_split(np.arange(300), 7):
        part = NumberAccumulator()
        part.add(truth[rows], (truth + error)[rows, None])
        parts = parts.joined(part)
        counts.add(0, (truth + error)[rows, None], truth[rows])
    assert parts.result() == pytest.approx(whole.result(), rel=1e-6)
    assert counts.shares[0] == pytest.approx(whole.result().RMSE, rel=1e-6)


@pytest.mark.parametrize(
    ("labels", "said"), [(["1", "x", "2"], "row 2 of all.*'x' is no number"), (["1", ""], "empty")]
)
def test_labels_that_are_no_numbers_name_their_row(labels: list[str], said: str) -> None:
    with pytest.raises(DataError, match=said):
        Numbers().codes(np.array(labels))
