"""A model as estimators of scikit-learn alone: f_k(x) = w_k.x + b_k is a LinearSVC, a kernel model a pipeline that ends with one.

The parts are made as a fit would leave them: their public attributes are set, and nothing of streamsvm is in a pickle of them. All
types are estimators of scikit-learn and arrays, which ``skops`` loads without being asked to trust anything.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils import check_array

from streamsvm.errors import StreamSVMWarning
from streamsvm.features.expansion import Expansion
from streamsvm.model import Model
from streamsvm.model.liblinear_libsvm import check_columns
from streamsvm.rows import CSR, Float64

ARGUMENTS = {"polynomial": ("gamma", "coef0", "degree"), "sigmoid": ("gamma", "coef0"), "linear": ()}
"""Parameters by kernel that scikit-learn has under the same names; other kernels have only gamma."""


def convert_model(model: Model) -> LinearSVC | Pipeline:
    """Return a fitted estimator with the decision function of a model, less its threshold: ``Model.to_sklearn``."""
    check_columns(model)
    model.check_one_each()
    model = model.decide_at_zero()
    if model.calibration is not None:
        warnings.warn(
            "the estimator has the decision function alone, not the model's probabilities",
            StreamSVMWarning,
            stacklevel=3,
        )
    if model.expansion is None:
        return _make_linear(model, model.coef)
    expansion = model.expansion
    factor = expansion.parameters["scale"] if expansion.kernel == "linear" else 1.0
    kernel = _make_kernel(expansion, factor * model.weights[:, :-1])
    linear = _make_linear(model, np.eye(len(model.weights)))
    scaler = _make_scaler(model, expansion)
    steps = [("scale", scaler), ("kernel", kernel), ("linear", linear)]
    return Pipeline(steps if scaler == "passthrough" else [("float64", _make_widening(expansion.columns)), *steps])


def _make_linear(model: Model, weights: Float64) -> LinearSVC:
    """Return the linear classifier with these weights (k, d)."""
    found = LinearSVC()
    found.coef_, found.intercept_ = weights.copy(), np.array(model.intercept)
    found.classes_, found.n_features_in_, found.n_iter_ = model.labels, weights.shape[1], 0
    return found


def _make_widening(columns: int) -> FunctionTransformer:
    """Return a step that makes rows float64: a scaler would subtract from float32 rows in float32 and lose digits of columns far from 0."""
    found = FunctionTransformer(check_array, kw_args={"accept_sparse": True, "dtype": np.float64})
    found.n_features_in_ = columns
    return found


def _make_scaler(model: Model, expansion: Expansion) -> StandardScaler | str:
    """Return the step that subtracts shifts and offsets from columns and scales them; 'passthrough' where there are none.

    Sparse rows pass only where nothing is subtracted, as in scikit-learn.
    """
    mean = np.zeros(expansion.columns) if expansion.shift is None else expansion.shift.astype(np.float64)
    mean[list(model.offsets)] += list(model.offsets.values())
    if expansion.scale is None and not mean.any():
        return "passthrough"
    found = StandardScaler(with_mean=bool(mean.any()), with_std=expansion.scale is not None)
    scale = None if expansion.scale is None else 1.0 / expansion.scale.astype(np.float64)
    fitted = {"mean_": mean, "scale_": scale, "var_": None if scale is None else np.square(scale)}
    vars(found).update(fitted, n_features_in_=expansion.columns, n_samples_seen_=0)
    return found


def _make_kernel(expansion: Expansion, weights: Float64) -> Nystroem:
    """Return the step with the sums (n, k) over points of kernel values times weights (k, m): a Nystroem map whose matrix they are."""
    points = expansion.points
    if isinstance(points, CSR):
        shape = (len(points.indptr) - 1, expansion.columns)
        values: Any = scipy.sparse.csr_matrix((points.data.astype(np.float64), points.indices, points.indptr), shape)
    else:
        values = points.values.astype(np.float64)
    given = {name: expansion.parameters[name] for name in ARGUMENTS.get(expansion.kernel, ("gamma",))}
    found = Nystroem(expansion.kernel, **given, n_components=len(weights))
    fitted = {"components_": values, "normalization_": weights, "component_indices_": np.arange(values.shape[0])}
    vars(found).update(fitted, n_features_in_=expansion.columns, _n_features_out=len(weights))
    return found
