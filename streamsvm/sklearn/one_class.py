"""Outlier detection: one-class support vector machines with linear models, Nystrom features and exact kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from streamsvm.engine.signals import allow_interrupt
from streamsvm.jobs.fit.driver import fit_in_memory
from streamsvm.jobs.fit.options import FitJob
from streamsvm.kinds_of_rows import DASK, Shaped, kind_of
from streamsvm.model import Model
from streamsvm.rows import Float64, Int64
from streamsvm.sklearn.base import StreamEstimator, estimator, keep_fit
from streamsvm.sklearn.rows import (
    StreamRows,
    check_own_labels,
    check_rows,
    check_weights,
    count_rows,
    make_store,
)
from streamsvm.type_aliases import Array, ValuesByName

OUTCOMES = ("-1", "1")
"""Class names of a model for outliers and inliers."""
BORDER_TOLERANCE = 1e-10
"""Relative difference from the offset up to which a score counts as on the border, where exact solutions have rows."""


@estimator
class StreamOneClassSVM(OutlierMixin, StreamEstimator):
    """Outlier detection like ``OneClassSVM``, with a proved bound on the distance from the optimum.

    Minimizes 1/2 ||w||^2 - nu S rho + sum_i s_i max(0, rho - w.phi(x_i)), S = sum_i s_i; rows with w.phi(x) < rho are outliers.

    Parameters
    ----------
    nu : float, default 0.5
        Upper bound of the fraction of outliers, and lower bound of the fraction of support vectors, by weight of rows; in (0, 1].
    kernel : str, default 'linear'
        As for ``StreamSVC``; the default of ``OneClassSVM`` is 'rbf'. A linear model separates rows from the origin, so that ``standardize``
        only scales columns and does not shift them.
    standardize, kernel_options, gamma, landmarks, sampling, solver, options, tolerance, max_passes, memory, missing, \
    random_state, verbose, n_jobs, on_pass
        As for ``StreamSVC``. Solvers: 'interior_point' for linear models and landmarks, 'decomposition' for exact kernels.
    bias : float
        No effect: the offset rho is not regularized.

    Attributes
    ----------
    offset_ : float
        rho; ``decision_function`` is ``score_samples`` minus this.
    coef_, intercept_, gap_, primal_, dual_, n_passes_, peak_memory_, passes_, model_, rows_seen_, n_features_in_
        As for ``StreamSVC``.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.sklearn import StreamOneClassSVM
    >>> X = np.array([[0.0], [0.1], [-0.1], [0.2], [8.0]])
    >>> StreamOneClassSVM(nu=0.3, kernel="rbf", gamma=1.0).fit(X).predict([[0.05], [5.0]])
    array([ 1, -1])
    """

    nu: float = 0.5

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows X of any kind that ``StreamSVC.fit`` accepts; ``y`` is ignored. Rows of a store have the weights in the store.

        ``sample_weight`` (n_samples,): weights of rows, also for ``nu``. Raises ValueError, BudgetError. Issues ConvergenceWarning if the
        tolerance was not reached.
        """
        return super().fit(X, y, sample_weight)

    def _job(self, chosen: ValuesByName) -> FitJob:
        return super()._job({"one_class": True} | chosen)

    def _check_arrays(self, X: Any, y: Any) -> tuple[Any, Any]:
        return check_rows(self, X), None

    def _fit_arrays(self, X: Any, y: Array, sample_weight: Any, chosen: ValuesByName) -> None:
        rows = X.shape[0]
        weights = check_weights(sample_weight, rows)
        store = make_store(X, np.zeros(rows, np.int32), weights, 1, least=1)
        job = self._job(chosen)
        with self._report_passes() as report:
            result = fit_in_memory(job, store, report)
        columns = vars(self).get("feature_names_in_")
        provenance = {} if columns is None else {"names": [str(name) for name in columns]}
        model = replace(result.model, classes=OUTCOMES, provenance=result.model.provenance | provenance)
        keep_fit(self, result, model, count_rows(weights, rows))

    def _fit_rows(self, X: StreamRows, y: Any, sample_weight: Any, chosen: ValuesByName) -> None:
        check_own_labels(X, y, sample_weight)
        job = self._job(chosen)
        with self._report_passes() as report, allow_interrupt():
            store = X.store()
            result = fit_in_memory(job, store, report)
        self.n_features_in_ = store.layout.columns
        keep_fit(self, result, result.model, store.layout.rows)

    def _fit_ingested(self, X: Any, y: Any, sample_weight: Any, chosen: ValuesByName) -> None:
        """Fit to ingested rows. A store needs at least two labels, so that rows without labels get arbitrary ones, which are ignored.

        This requires the number of rows: a stream must have labels.
        """
        if y is None and kind_of(X) in DASK:
            from streamsvm.store.sources.data_frames import dask_blocks_of

            y = np.arange(sum(block.shape[0] for block in dask_blocks_of(X))) % 2
        elif y is None and isinstance(X, Shaped):
            y = np.arange(X.shape[0]) % 2
        super()._fit_ingested(X, y, sample_weight, chosen)

    def _set_classes(self, model: Model, y: Any) -> None:
        """Set nothing: the outcomes are 1 and -1, whatever the labels of the store are."""

    @property
    def offset_(self) -> float:
        """The offset rho of the last fit."""
        check_is_fitted(self)
        return -float(self.model_.intercept[0])

    def decision_function(self, X: Any) -> Float64:
        """Return float64 (n_samples,), ``score_samples`` minus ``offset_``, exactly: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def score_samples(self, X: Any) -> Float64:
        """Return w.phi(x), float64 (n_samples,); the larger it is, the more a row resembles the training rows.

        The score of a row on the border is the offset exactly, so that rounding cannot make it an outlier.
        """
        check_is_fitted(self)
        values, border = self._decisions(self.model_, X), BORDER_TOLERANCE * abs(float(self.model_.weights[0, -1]))
        return np.where(np.abs(values) <= border, 0.0, values) + self.offset_

    def predict(self, X: Any) -> Int64:
        """Return 1 for inliers and -1 for outliers, (n_samples,)."""
        return np.where(self.decision_function(X) >= 0.0, 1, -1).astype(np.int64)
