"""What all estimators do alike that ``streamsvm fit`` is behind: rows of any kind, a certificate, decision values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamsvm.aliases import Array, ByName, JsonObject
from streamsvm.api.passes import told
from streamsvm.api.running import reported
from streamsvm.engine.signals import interruptible
from streamsvm.jobs.apply.rows import moved_from
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.job import FitJob
from streamsvm.kinds_of_rows import is_frame
from streamsvm.model import Model
from streamsvm.rows import Float64
from streamsvm.sklearn.fitting.callbacks import CallbackSupportMixin, FitTasks, with_callbacks
from streamsvm.sklearn.fitting.results import take
from streamsvm.sklearn.parameters import NO_MISSING, FitParameters, Fitted, job_of
from streamsvm.sklearn.rows.checked import as_value_errors, checked
from streamsvm.sklearn.rows.elsewhere import is_elsewhere, located
from streamsvm.sklearn.rows.stream_rows import StreamRows
from streamsvm.types import Report


class StreamEstimator(CallbackSupportMixin, Fitted, FitParameters, ABC):
    """An estimator of one model. A task is what ``_fit_arrays``, ``_fit_rows`` and ``_named`` make of y, and what ``predict`` says.

    ``_fit_arrays`` makes a store of rows in memory, ``_fit_rows`` takes one as it is; both have it solved by ``fit_in_memory`` while
    ``_watched``, set what their task has of its own, and end with ``take``. Rows of other kinds go through the job of the command.
    """

    _tasks: FitTasks
    """Of the fit under way; there is none before and after it."""

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows X (n_samples, n_features), dense or sparse, and labels y (n_samples,).

        X may also be the path of a store, which has its labels, or of a file; a data frame with words, categories, dates; a
        lazy frame, a data set or reader of Arrow, a relation of DuckDB; an array of h5py, Zarr or dask; an AnnData; or some
        rows of a store (``StreamRows``), whose labels y may then be. None of
        these is pulled into memory; y is then one label a row or the name of the column that has them, and the model is that
        of the command line. ``sample_weight`` (n_samples,): how often each row counts. Raises ValueError for data and parameters that cannot be
        used, BudgetError (a StreamSVMError) for what does not fit the memory. Warns (ConvergenceWarning) where the
        tolerance was not reached.
        """
        self._tasks = tasks = FitTasks.of(self, X, y, sample_weight)
        try:
            self._fit(X, y, sample_weight)
        finally:
            del self._tasks
        tasks.ended()
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, **chosen: Any) -> None:
        """Fit with options ``chosen`` that are not the estimator's parameters."""
        if isinstance(X, StreamRows):
            self.__dict__.pop("feature_names_in_", None)
            self._fit_rows(X, y, sample_weight, chosen)
        elif self._is_ingested(X):
            self.__dict__.pop("feature_names_in_", None)
            self._fit_elsewhere(X, y, sample_weight, chosen)
        else:
            X, y = self._checked(X, y)
            self._fit_arrays(X, y, sample_weight, chosen)

    @contextmanager
    def _watched(self) -> Iterator[Report]:
        """Give the report of a fit, which keeps what every pass has come to, and tells ``on_pass`` and callbacks of it: each may end it."""
        passes: list[JsonObject] = []

        def passed(record: JsonObject) -> bool:
            passes.append(record)
            wish = self.on_pass is not None and self.on_pass(record) is True
            return self._tasks.passed() or wish

        with reported(progress=self.verbose, on_event=None) as report:
            yield told(report, passed)
        self.passes_ = passes

    def _checked(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return rows in memory and their labels as scikit-learn checks them. Raises ValueError."""
        X, y = checked(self, X, y)
        return X, y

    def _job(self, chosen: ByName) -> FitJob:
        """What is asked of a fit. Raises UsageError, ConfigError, ValueError."""
        job: FitJob = job_of("fit", self, {"store": "", "model": ""} | chosen)
        return job

    @abstractmethod
    def _fit_arrays(self, X: Any, y: Array, sample_weight: Any, chosen: ByName) -> None:
        """Fit to rows in memory that scikit-learn has looked at: X (n, d), y (n,). Raises ValueError, BudgetError."""

    @abstractmethod
    def _fit_rows(self, X: StreamRows, y: Any, sample_weight: Any, chosen: ByName) -> None:
        """Fit to rows of a store where they lie; ``y`` may only be their labels. Raises ValueError, BudgetError."""

    @abstractmethod
    def _named(self, model: Model, y: Any) -> None:
        """Take the classes of a model, which are text, as attributes of the task; ``y``: the labels that were given."""

    def _ingested(self) -> ByName:
        """Return the options rows are ingested with that are not in a store yet."""
        return {"missing": self.missing}

    def _is_ingested(self, X: Any) -> bool:
        """Return whether rows are read as those of a file are: what is not numbers in memory, or has holes."""
        return is_elsewhere(X) or self.missing != NO_MISSING

    def _fit_elsewhere(self, X: Any, y: Any, sample_weight: Any, chosen: ByName) -> None:
        """Fit as the command line does, in a folder that is removed at the end. Raises ValueError, BudgetError."""
        asked = located(self._job(chosen), X, y, sample_weight, self._ingested())
        with as_value_errors(), asked as job, self._watched() as report, interruptible():
            result = fit(job, report)
        model = result.model
        self.n_features_in_ = model.columns
        if model.names is not None:
            self.feature_names_in_ = np.array(model.names, dtype=object)
        self._named(model, y)
        take(self, result, model, result.plan.layout.rows)

    @property
    def history_(self) -> Any:
        """What each pass of the last fit has come to, one row a pass: a data frame of pandas, or without it a list of dicts."""
        check_is_fitted(self)
        return as_frame(self.passes_)

    def _decisions(self, model: Model, X: Any) -> Float64:
        """Return what a model says of rows of any kind: (n,) for two classes, else (n, classes)."""
        if isinstance(X, StreamRows):
            return of_rows(model, X)
        encoded = "schema" in (model.provenance.get("encoding") or {})
        if not self._is_ingested(X) and not (encoded and is_frame(X)):
            X = checked(self, X, reset=False)
        with as_value_errors():
            return model.decision_function(X)


def of_rows(model: Model, X: StreamRows) -> Float64:
    """Return what a model says of rows of a store, in their order: (n,) for two classes, else (n, classes)."""
    values = np.empty((len(X), len(model.weights)))
    moved = moved_from(model, X.store().facts)
    for rows, places in X.blocks():
        values[places] = model.decision(moved.apply(rows))
    return values[:, 0] if values.shape[1] == 1 else values


def as_frame(passes: list[JsonObject]) -> Any:
    """Return records of passes as a data frame of pandas, or as they are where that is not installed."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        return passes
    return pd.DataFrame(passes)
