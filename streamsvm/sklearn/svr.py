"""Regression: support vector regression, quantiles and least squares, with linear models, Nystrom features and exact kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from streamsvm.api.functions import explain_synonyms
from streamsvm.jobs.fit.driver import fit_in_memory
from streamsvm.jobs.fit.options import FitJob
from streamsvm.losses import LOSSES
from streamsvm.model import Model
from streamsvm.rows import Float64
from streamsvm.sklearn.base import (
    CertifyName,
    ProvingEstimator,
    RegressionLossName,
    SmoothName,
    estimator,
    keep_fit,
    label_model,
    own_parameter,
)
from streamsvm.sklearn.rows import (
    StreamRows,
    check_rows,
    check_weights,
    count_rows,
    load_labels,
    make_store,
)
from streamsvm.tasks import REGRESSION
from streamsvm.type_aliases import Array, ValuesByName


@estimator
class StreamSVR(RegressorMixin, ProvingEstimator):
    """Support vector regression like ``LinearSVR``, or with a kernel like ``SVR``, with a proved bound on the distance from the optimum.

    Minimizes 1/2 ||w||^2 + C sum_i s_i l(w.x_i - y_i). The constant is the weight of a feature of value ``bias`` and is regularized: for targets
    far from 0, subtract their mean first, or use a large ``bias``. With an exact kernel the constant is not regularized, as in ``SVR``.

    Parameters
    ----------
    C : float, default 1.0
        Factor of the sum of losses.
    epsilon : float, default 0.1
        Residuals up to this size have no loss. No effect with the losses 'squared' and 'pinball'.
    loss : str, default 'squared_epsilon_insensitive'
        Also 'epsilon_insensitive'; 'squared' for ridge regression, 1/2 ||w||^2 + C ||Xw - y||^2; 'pinball' for quantiles.
    quantile : float, default 0.5
        With the loss 'pinball': the fraction of targets that should lie below the prediction.
    loss_options : dict, optional
        Settings of the loss by name: {'epsilon': 0.1} is the same as ``epsilon=0.1``.
    l1 : float, optional
        Elastic net: factor of ||w||_1, which is added to 1/2 ||w||^2. Weights of columns of little use become 0. Only linear models.
    l1_ball : float, optional
        With the loss 'squared', the lasso: minimize C ||Xw - y||^2 subject to ||w||_1 <= l1_ball, without 1/2 ||w||^2, by a Frank-Wolfe
        method. Only linear models.
    curves, knots, smooth, jumps, pairs, pair_scale
        As for ``StreamSVC``.
    certify : 'labels', 'full' or 'updates', optional
        Store with the model what its proofs need: ``decision_interval`` then bounds the predictions of the exact optimum. Only linear models.
    bias, standardize, kernel, kernel_options, gamma, landmarks, sampling, solver, options, tolerance, max_passes, memory, missing, \
    random_state, verbose, n_jobs, on_pass
        As for ``StreamSVC``; only solvers for regression losses.

    Attributes
    ----------
    coef_, intercept_, gap_, primal_, dual_, n_passes_, peak_memory_, passes_, model_, rows_seen_, n_features_in_
        As for ``StreamSVC``.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.sklearn import StreamSVR
    >>> X = np.linspace(-1.0, 1.0, 21)[:, np.newaxis]
    >>> StreamSVR(C=100.0, epsilon=0.0).fit(X, 3.0 * X[:, 0] + 1.0).predict([[0.5]]).round(2)
    array([2.5])
    """

    C: float = field(default=1.0, kw_only=False)
    epsilon: float = own_parameter(default=0.1)
    loss: RegressionLossName = "squared_epsilon_insensitive"
    quantile: float = own_parameter(default=0.5)
    loss_options: Mapping[str, float] | None = own_parameter(default=None)
    l1: float | None = None
    l1_ball: float | None = None
    curves: bool = False
    knots: int | None = None
    smooth: SmoothName | None = None
    jumps: str | None = None
    pairs: int | str | None = None
    pair_scale: float | None = None
    certify: CertifyName | None = None

    def _job(self, chosen: ValuesByName) -> FitJob:
        parameters, stated = {"epsilon": self.epsilon, "quantile": self.quantile}, dict(self.loss_options or {})
        for name, default in (("epsilon", 0.1), ("quantile", 0.5)):
            if parameters[name] not in {default, stated.get(name, parameters[name])}:
                raise ValueError(explain_synonyms(name, parameters[name], "loss_options", stated))
        loss_settings = {name: value for name, value in parameters.items() if name in LOSSES[self.loss]._fields}
        return super()._job({"loss_options": loss_settings | stated} | chosen)

    def _check_arrays(self, X: Any, y: Any) -> tuple[Any, Any]:
        X, y = check_rows(self, X, y, y_numeric=True)
        return X, y

    def _fit_arrays(self, X: Any, y: Array, sample_weight: Any, chosen: ValuesByName) -> None:
        weights = check_weights(sample_weight, len(y))
        store = make_store(X, y.astype(np.float64), weights, 0, least=1)
        job = self._job(chosen)
        with self._report_passes() as report:
            result = fit_in_memory(job, store, report)
        columns = vars(self).get("feature_names_in_")
        keep_fit(self, result, label_model(result.model, np.empty(0), columns), count_rows(weights, len(y)))

    def _fit_rows(self, X: StreamRows, y: Any, sample_weight: Any, chosen: ValuesByName) -> None:
        raise ValueError("StreamRows have classes for labels: fit the path of a store of numbers, or arrays")

    def _set_classes(self, model: Model, y: Any) -> None:
        """Set nothing: a regression has no classes."""

    def _ingest_options(self) -> ValuesByName:
        return super()._ingest_options() | {"task": REGRESSION}

    def predict(self, X: Any) -> Float64:
        """Return the predictions, float64 (n_samples,)."""
        check_is_fitted(self)
        return self._decisions(self.model_, X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R2, the coefficient of determination. ``y``: a target for each row, also a lazy column of dask or polars, or the name of a column of X."""
        r2: float = super().score(X, load_labels(X, y), sample_weight)
        return r2
