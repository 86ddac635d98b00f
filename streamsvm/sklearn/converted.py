"""A model as estimators of scikit-learn alone: f_k(x) = w_k.x + b_k is a LinearSVC, with kernel values for x one behind a step.

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
"""By kernel, its parameters that are those of scikit-learn under the same names; of the others only gamma."""


def converted(model: Model) -> LinearSVC | Pipeline:
    """Return a fitted estimator with the decision function of a model; see ``Model.to_sklearn``."""
    check_columns(model)
    model.check_one_each()
    if model.calibration is not None:
        warnings.warn(
            "the estimator has the decision function alone, not the model's probabilities",
            StreamSVMWarning,
            stacklevel=3,
        )
    if model.expansion is None:
        return _linear(model, model.coef)
    expansion = model.expansion
    factor = expansion.parameters["scale"] if expansion.kernel == "linear" else 1.0
    kernel = _kernel(expansion, factor * model.weights[:, :-1])
    linear = _linear(model, np.eye(len(model.weights)))
    scaler = _scaler(model, expansion)
    steps = [("scale", scaler), ("kernel", kernel), ("linear", linear)]
    return Pipeline(steps if scaler == "passthrough" else [("float64", _widening(expansion.columns)), *steps])


def _linear(model: Model, weights: Float64) -> LinearSVC:
    """The function of these weights (k, d)."""
    found = LinearSVC()
    found.coef_, found.intercept_ = weights.copy(), np.array(model.intercept)
    found.classes_, found.n_features_in_, found.n_iter_ = model.labels, weights.shape[1], 0
    return found


def _widening(columns: int) -> FunctionTransformer:
    """What makes rows float64: a scaler takes shifts from float32 rows in float32, which loses what columns far from 0 differ in."""
    found = FunctionTransformer(check_array, kw_args={"accept_sparse": True, "dtype": np.float64})
    found.n_features_in_ = columns
    return found


def _scaler(model: Model, expansion: Expansion) -> StandardScaler | str:
    """What takes shifts and offsets from columns and multiplies them; 'passthrough' where there are none.

    Sparse rows pass only where nothing is taken from them, as scikit-learn has it.
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


def _kernel(expansion: Expansion, weights: Float64) -> Nystroem:
    """What gives the sums (n, k) over the points of kernel values and weights (k, m): a map of kernel values, W its matrix."""
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
