"""A support vector classifier with scikit-learn's manners: every solver, linear, Nystrom and exact kernels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from streamsvm.aliases import Array, ByName
from streamsvm.api.running import reported
from streamsvm.api.values import by_field
from streamsvm.config.job_file import make_job
from streamsvm.engine.checkpoint.signals import interruptible
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import FitResult, fit
from streamsvm.jobs.fit_in_memory import MemoryFitResult, fit_in_memory
from streamsvm.model import LINEAR, Model
from streamsvm.rows import Float64, Int32
from streamsvm.sklearn.rows import NUMBERS, as_value_errors, balanced, row_weights, seed_of, store_of
from streamsvm.sklearn.stores import classes_of, is_elsewhere, located
from streamsvm.store.format.labels import label_text

OURS = ("random_state", "warm_start", "class_weight", "verbose")
"""Parameters that have scikit-learn's meaning; all others are options of ``streamsvm fit``, by their names."""


class StreamSVC(ClassifierMixin, BaseEstimator):
    """Classify by a support vector machine whose distance from the optimum is proved.

    Minimizes 1/2 ||w||^2 + C sum_i s_i l(y_i w.phi(x_i)), one class against the rest for each of several. The constant
    feature ``bias`` is regularized, as in ``LinearSVC``.

    Parameters
    ----------
    C : float, default 1
        Weight of the losses.
    loss : 'squared_hinge', 'hinge' or 'huber'
    loss_options, kernel_options, options : dict, optional
        Settings of the loss, of the kernel and of the solver, by name.
    bias : float, default 1
        Value of the constant feature; 0: there is none.
    class_weight : dict or 'balanced', optional
        Factors of C by class.
    standardize : bool, default False
        Give columns mean 0 and standard deviation 1 first; ``coef_`` is in the units of X all the same.
    kernel : str, default 'linear'
        'linear', 'rbf', 'laplacian', 'polynomial' or 'sigmoid'.
    gamma : float, 'scale' or 'mean-distance'
    landmarks : int, optional
        Approximate the kernel by so many Nystrom features; without, it is solved exactly.
    sampling : 'uniform', 'leverage', 'kmeans++' or 'greedy'
        How landmarks are drawn.
    solver : str, default 'auto'
    tolerance : float, default 1e-3
        The relative gap (primal - dual) / primal at which a fit may end. A small linear problem is solved exactly.
    max_passes : int, default 1000
    time_limit : float or str, optional
        Seconds, or '1h30m'.
    memory : int or str, optional
        Bytes the process may use, or '512MiB'; a fit that needs more is refused before it begins.
    random_state : int, RandomState instance or None
        The seed; None is 0, so that two fits of the same data agree.
    warm_start : bool, default False
        Start from the last fit where the solver can: dcd and newton, of a linear model.
    verbose : bool, default False
        Show progress.

    Attributes
    ----------
    classes_ : ndarray (n_classes,)
    coef_, intercept_ : ndarray (n_problems, n_features), (n_problems,)
        Of a linear model.
    gap_, primal_, dual_ : float
        The certificate, of the class with the largest gap.
    n_passes_ : int
        Readings of the data.
    peak_memory_ : int
        The most bytes of memory that were seen in use.
    model_ : streamsvm.Model
        What can be saved, explained and applied to stores and files.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.sklearn import StreamSVC
    >>> X, y = np.array([[-1.0], [-2.0], [1.0], [3.0]]), ["no", "no", "yes", "yes"]
    >>> StreamSVC().fit(X, y).predict([[2.0]])
    array(['yes'], dtype='<U3')
    """

    def __init__(  # noqa: PLR0913 (an estimator's parameters are its options)
        self,
        C: float = 1.0,
        *,
        loss: str = "squared_hinge",
        loss_options: Mapping[str, float] | None = None,
        bias: float = 1.0,
        class_weight: Mapping[Any, float] | str | None = None,
        standardize: bool = False,
        kernel: str = "linear",
        kernel_options: Mapping[str, float] | None = None,
        gamma: float | str = "scale",
        landmarks: int | None = None,
        sampling: str = "uniform",
        solver: str = "auto",
        options: Mapping[str, Any] | None = None,
        tolerance: float = 1e-3,
        max_passes: int = 1000,
        time_limit: float | str | None = None,
        memory: int | str | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: bool = False,
    ) -> None:
        self.C = C
        self.loss = loss
        self.loss_options = loss_options
        self.bias = bias
        self.class_weight = class_weight
        self.standardize = standardize
        self.kernel = kernel
        self.kernel_options = kernel_options
        self.gamma = gamma
        self.landmarks = landmarks
        self.sampling = sampling
        self.solver = solver
        self.options = options
        self.tolerance = tolerance
        self.max_passes = max_passes
        self.time_limit = time_limit
        self.memory = memory
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows X (n_samples, n_features), dense or sparse, and labels y (n_samples,).

        X may also be the path of a store, which has its labels, or of a file; a data frame with words, categories, dates; a
        lazy frame, a data set or reader of Arrow, a relation of DuckDB; an array of h5py, Zarr or dask; an AnnData. None of
        these is pulled into memory; y is then one label a row or the name of the column that has them, and the model is that
        of the command line. ``sample_weight`` (n_samples,): how often each row counts. Raises ValueError for data and parameters that cannot be
        used, BudgetError (a StreamSVMError) for what does not fit the memory. Warns (ConvergenceWarning) where the
        tolerance was not reached.
        """
        if is_elsewhere(X):
            return self._fit_elsewhere(X, y, sample_weight)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=NUMBERS, accept_large_sparse=True)
        check_classification_targets(y)
        classes, found = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y has one class, {classes[0]!r}: at least two classes are needed")
        codes = found.ravel().astype(np.int32)
        weights = row_weights(sample_weight, len(codes))
        with as_value_errors():
            store = store_of(X, codes, weights, len(classes))
            job = self._job(self._class_weights(classes, codes, weights))
            with reported(progress=self.verbose, on_event=None) as report:
                result = fit_in_memory(job, store, report, self._start(classes))
        return self._take(result, classes)

    def _fit_elsewhere(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """As the command line does, in a folder that is removed at the end."""
        with (
            as_value_errors(),
            located(self._job(self.class_weight), X, y, sample_weight) as job,
            reported(progress=self.verbose, on_event=None) as report,
            interruptible(),
        ):
            result = fit(job, report)
        self.n_features_in_ = result.model.columns
        if result.model.names is not None:
            self.feature_names_in_ = np.array(result.model.names, dtype=object)
        return self._take(result, classes_of(result.model.classes))

    def decision_function(self, X: Any) -> Float64:
        """Return float64 (n_samples,) for two classes, positive for ``classes_[1]``, or (n_samples, n_classes)."""
        check_is_fitted(self)
        encoded = "schema" in (self.model_.provenance.get("encoding") or {})
        if not is_elsewhere(X) and not (encoded and hasattr(X, "columns")):
            X = validate_data(self, X, accept_sparse="csr", dtype=NUMBERS, accept_large_sparse=True, reset=False)
        with as_value_errors():
            return self.model_.decision_function(X)

    def predict(self, X: Any) -> Array:
        """Return the class of each row, (n_samples,)."""
        decision = self.decision_function(X).reshape(-1, len(self.model_.weights))
        return self.classes_[self.model_.codes(decision)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _job(self, class_weight: Mapping[Any, float] | str | None) -> FitJob:
        """What is asked for. Raises UsageError, ConfigError."""
        asked = {name: value for name, value in self.get_params(deep=False).items() if name not in OURS}
        places = {"store": "", "model": ""}
        values = by_field(
            "fit", asked | places | {"class_weight": class_weight, "seed": seed_of(self.random_state)}, "StreamSVC"
        )
        job: FitJob = make_job("fit", values, "StreamSVC")
        return job

    def _class_weights(self, classes: Array, codes: Int32, weights: Float64 | None) -> ByName | None:
        """Factors of C by the code of a class."""
        if self.class_weight is None:
            return None
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            found = balanced(codes, weights, len(classes))
        else:
            found = compute_class_weight(self.class_weight, classes=classes, y=classes[codes])
        return {str(code): float(factor) for code, factor in enumerate(found)}

    def _start(self, classes: Array) -> Model | None:
        """The model of the last fit, where it can be started from, as one of class codes."""
        last: Model | None = getattr(self, "model_", None) if self.warm_start else None
        if last is None or last.kind != LINEAR or self.kernel != "linear":
            return None
        if last.columns != self.n_features_in_ or not np.array_equal(classes, self.classes_):
            return None
        return replace(last, classes=tuple(map(str, range(len(classes)))), provenance={})

    def _named(self, model: Model, classes: Array) -> Model:
        """The model of a fit in memory, with the names of columns and classes."""
        names = getattr(self, "feature_names_in_", None)
        known = {"names": None if names is None else [str(name) for name in names]}
        texts = tuple(label_text(label) for label in classes.tolist())
        return replace(model, classes=texts, provenance=model.provenance | known)

    def _take(self, result: MemoryFitResult | FitResult, classes: Array) -> Self:
        """Keep what a fit has found."""
        in_memory = isinstance(result, MemoryFitResult)
        self.classes_ = classes
        self.model_ = self._named(result.model, classes) if in_memory else result.model
        found = self.model_.certificate
        self.gap_, self.primal_, self.dual_ = found.gap, found.primal, found.dual
        self.n_passes_, self.peak_memory_ = result.training.passes, result.training.peak
        if self.model_.kind == LINEAR:
            self.coef_, self.intercept_ = self.model_.coef, self.model_.intercept
        for warning in result.warnings:
            warnings.warn(warning, ConvergenceWarning, stacklevel=3)
        return self
