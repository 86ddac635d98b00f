"""How an estimator chooses C: its rows become a store, and ``tune`` says what every value is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.model_selection import check_cv

from streamsvm.aliases import Array
from streamsvm.api.commands import ingest
from streamsvm.api.given import stored
from streamsvm.api.running import reported
from streamsvm.api.values import by_field
from streamsvm.config.job_file import make_job
from streamsvm.errors import UsageError
from streamsvm.jobs.tune.in_memory import tune_in_memory
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.results import best_of
from streamsvm.rows import Float64, Int32
from streamsvm.sklearn.fitting import OURS, check_own, class_weights, coded
from streamsvm.sklearn.rows import as_value_errors, row_weights, seed_of, store_of, threads_of
from streamsvm.sklearn.stream_rows import StreamRows
from streamsvm.store import open_store
from streamsvm.types import Store

Found = tuple[float, Float64]
"""The best C, and the errors (folds, values of C)."""


def best_of_arrays(estimator: Any, X: Any, y: Array, sample_weight: Any) -> Found:
    """Return the best C for rows in memory that scikit-learn has looked at. Raises ValueError, BudgetError."""
    classes, codes = coded(y)
    weights = row_weights(sample_weight, len(codes))
    factors = class_weights(estimator, classes, codes, weights)
    fold = None if isinstance(estimator.cv, int) else folds_of(estimator.cv, X, y)
    ends: list[int] = []
    if fold is not None:  # rows of a fold side by side, and those that do not count left out
        order = np.argsort(fold, kind="stable")
        order = order if weights is None else order[weights[order] > 0]
        X, codes, fold = X[order], codes[order], fold[order]
        weights = None if weights is None else weights[order]
        ends = (np.flatnonzero(np.diff(fold)) + 1).tolist()
    with as_value_errors():
        store = store_of(X, codes, weights, len(classes), ends=ends)
        starts = np.cumsum((0, *store.layout.chunks[:-1]))
        return _searched(estimator, store, factors, None if fold is None else fold[starts])


def folds_of(cv: Any, X: Any, y: Array) -> Int32:
    """Return the fold of each row (n,) of a splitter of scikit-learn, or of pairs (train, test).

    Raises ValueError unless every row is judged by exactly once, by models of all others.
    """
    fold = np.full(len(y), -1, np.int32)
    for number, (train, test) in enumerate(check_cv(cv, y, classifier=True).split(X, y)):
        if (fold[test] >= 0).any() or len(train) + len(test) != len(y):
            raise ValueError("cv must judge every row once, by a model of all others, as StratifiedKFold does")
        fold[test] = number
    if (fold < 0).any():
        raise ValueError("cv must judge every row once: some are in no test set")
    return fold


def best_of_store(estimator: Any, X: StreamRows, y: Any, sample_weight: Any) -> Found:
    """Return the best C for rows of a store. Raises ValueError, BudgetError."""
    check_own(X, y, sample_weight)
    with as_value_errors():
        return _searched(estimator, X.store(), estimator.class_weight, None)


@contextmanager
def best_of_elsewhere(estimator: Any, X: Any, y: Any, sample_weight: Any) -> Iterator[tuple[Found, Path]]:
    """Give the best C for rows of any kind, and the store they are in, which is removed at the end unless ``X`` names it."""
    with TemporaryDirectory(prefix="streamsvm-") as folder:
        with as_value_errors():
            place = stored(ingest, X, y, sample_weight, Path(folder))
            found = _searched(estimator, open_store(place), estimator.class_weight, None)
        yield found, place


def _searched(
    estimator: Any, store: Store, class_weight: Mapping[Any, float] | str | None, fold: Int32 | None
) -> Found:
    """``tune`` on a store, with ``fold`` (chunks,) the fold of each chunk where they are not dealt at random."""
    if fold is None and not isinstance(estimator.cv, int):
        raise UsageError("cv must be a number of folds for rows that lie in chunks", hint="cv=5")
    name = type(estimator).__name__
    asked = {key: value for key, value in estimator.get_params(deep=False).items() if key not in OURS}
    folds = estimator.cv if fold is None else int(fold.max()) + 1
    chosen = {"C": tuple(float(C) for C in estimator.Cs), "folds": folds, "class_weight": class_weight}
    seed: dict[str, Any] = {"store": "", "out": "", "seed": seed_of(estimator.random_state)}
    seed["threads"] = threads_of(estimator.n_jobs)
    job: TuneJob = make_job("tune", by_field("tune", asked | chosen | seed, name), name)
    with reported(progress=estimator.verbose, on_event=None) as report:
        scores = tune_in_memory(job, store, report, fold)
    return best_of(scores).C, np.array([score.errors for score in scores]).T
