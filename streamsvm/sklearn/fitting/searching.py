"""How an estimator chooses C: its rows become a store, and ``tune`` says what every value is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.model_selection import check_cv

from streamsvm.aliases import Array, ByName
from streamsvm.api.commands import ingest
from streamsvm.api.given import stored
from streamsvm.api.running import reported
from streamsvm.errors import UsageError
from streamsvm.jobs.tune.results import best_of
from streamsvm.jobs.tune.run import tune_in_memory
from streamsvm.rows import Float64, Int32
from streamsvm.sklearn.fitting.classes import class_weights, coded
from streamsvm.sklearn.parameters import FitParameters, job_of
from streamsvm.sklearn.rows.checked import as_value_errors, row_weights, store_of
from streamsvm.sklearn.rows.stream_rows import StreamRows, check_own
from streamsvm.store import open_store
from streamsvm.types import Store

Found = tuple[float, Float64]
"""The best C, and the errors (folds, values of C)."""
Factors = Mapping[Any, float] | str | None
"""Factors of C by class."""


@dataclass(frozen=True, slots=True)
class CostSearch:
    """A search for the best of several C, on rows of any kind."""

    asked: FitParameters
    """The estimator that is to be fitted with it."""
    Cs: Sequence[float]
    """The values to try."""
    cv: Any
    """The number of folds, or what splits rows into them."""
    class_weight: Factors
    """Factors of C by class."""
    ingested: ByName
    """The options rows are ingested with that are not in a store yet."""

    def of_arrays(self, X: Any, y: Array, sample_weight: Any) -> Found:
        """Return the best C for rows in memory that scikit-learn has looked at. Raises ValueError, BudgetError."""
        classes, codes = coded(y)
        weights = row_weights(sample_weight, len(codes))
        factors = class_weights(self.class_weight, classes, codes, weights)
        fold = None if isinstance(self.cv, int) else folds_of(self.cv, X, y)
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
            return self._found(store, factors, None if fold is None else fold[starts])

    def of_rows(self, X: StreamRows, y: Any, sample_weight: Any) -> Found:
        """Return the best C for rows of a store. Raises ValueError, BudgetError."""
        check_own(X, y, sample_weight)
        with as_value_errors():
            return self._found(X.store(), self.class_weight, None)

    @contextmanager
    def of_elsewhere(self, X: Any, y: Any, sample_weight: Any) -> Iterator[tuple[Found, Path]]:
        """Give the best C for rows of any kind, and the store they are in, which is removed at the end unless ``X`` names it."""
        with TemporaryDirectory(prefix="streamsvm-") as folder:
            with as_value_errors():
                place = stored(partial(ingest, **self.ingested), X, y, sample_weight, Path(folder))
                found = self._found(open_store(place), self.class_weight, None)
            yield found, place

    def _found(self, store: Store, factors: Factors, fold: Int32 | None) -> Found:
        """``tune`` on a store, with ``fold`` (chunks,) the fold of each chunk where they are not dealt at random."""
        if fold is None and not isinstance(self.cv, int):
            raise UsageError("cv must be a number of folds for rows that lie in chunks", hint="cv=5")
        folds = self.cv if fold is None else int(fold.max()) + 1
        grid = {"C": tuple(float(C) for C in self.Cs), "folds": folds, "class_weight": factors}
        job = job_of("tune", self.asked, {"store": "", "out": ""} | grid)
        with reported(progress=self.asked.verbose, on_event=None) as report:
            scores = tune_in_memory(job, store, report, fold)
        return best_of(scores).loss_weight, np.array([score.errors for score in scores]).T


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
