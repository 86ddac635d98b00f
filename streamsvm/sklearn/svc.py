"""A support vector classifier with scikit-learn's manners: every solver, linear, Nystrom and exact kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from streamsvm.aliases import Array
from streamsvm.jobs.partial_fit import takes_portions
from streamsvm.model import Model, outcomes_of
from streamsvm.rows import Float64
from streamsvm.sklearn.fitting import decisions, fit_arrays, fit_elsewhere, fit_store
from streamsvm.sklearn.history import shown
from streamsvm.sklearn.pairs import votes
from streamsvm.sklearn.portions import fit_portion
from streamsvm.sklearn.probabilities import has_probabilities, model_with_probabilities
from streamsvm.sklearn.rows import as_value_errors, checked
from streamsvm.sklearn.stores import is_elsewhere
from streamsvm.sklearn.stream_rows import StreamRows


class StreamSVC(ClassifierMixin, BaseEstimator):
    """Classify by a support vector machine whose distance from the optimum is proved.

    Minimizes 1/2 ||w||^2 + C sum_i s_i l(y_i w.phi(x_i)), one class against the rest for each of several. The constant
    feature ``bias`` is regularized, as in ``LinearSVC``.

    Parameters
    ----------
    C : float, default 1
        Weight of the losses.
    loss : 'squared_hinge', 'hinge', 'huber' or 'logistic'
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
    calibration : 'sigmoid', 'isotonic' or 'temperature', optional
        Learn probabilities from scores of rows that had no part in them; only then, or with loss 'logistic', there is ``predict_proba``;
        pairs of classes (multi_class 'ovo') have none.
    verbose : bool, default False
        Show progress.
    n_jobs : int, optional
        Threads that compute side by side: None is 1, -1 all processors, -2 all but one; ``joblib.parallel_config`` has no say.
        The model does not depend on it. Fewer where memory is short.
    multi_class : 'ovr' or 'ovo', default 'ovr'
        With several classes one problem for each against the rest, or one for each pair and a vote, as ``SVC`` does it.
    decision_function_shape : 'ovr' or 'ovo', default 'ovr'
        Of pairs: one value a class, or (ovo) the values of all pairs, (0, 1), (0, 2), ..., (1, 2), ...
    on_pass : callable, optional
        Called after every pass with its record, a dict: pass, problems, problem, primal, dual, gap, exact, seconds, memory.
        ``streamsvm.MlflowTracker`` and ``streamsvm.TensorBoardTracker`` are such.

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
    passes_ : list of dict
        What each pass has come to; ``history_`` is the same as a data frame of pandas, where that is installed.
    model_ : streamsvm.Model
        What can be saved, explained and applied to stores and files; of pairs of classes there are ``models_``, one a pair.
    rows_seen_ : int
        Rows that were fitted to, those of all portions together.
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
        calibration: str | None = None,
        verbose: bool = False,
        n_jobs: int | None = None,
        multi_class: str = "ovr",
        decision_function_shape: str = "ovr",
        on_pass: Callable[[dict[str, Any]], object] | None = None,
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
        self.calibration = calibration
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.multi_class = multi_class
        self.decision_function_shape = decision_function_shape
        self.on_pass = on_pass

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
        if isinstance(X, StreamRows):
            fit_store(self, X, y, sample_weight)
        elif is_elsewhere(X):
            fit_elsewhere(self, X, y, sample_weight)
        else:
            X, y = checked(self, X, y)
            fit_arrays(self, X, y, sample_weight)
        return self

    @property
    def history_(self) -> Any:
        """What each pass of the last fit has come to, one row a pass: a data frame of pandas, or without it a list of dicts."""
        check_is_fitted(self)
        return shown(self.passes_)

    def decision_function(self, X: Any) -> Float64:
        """Return float64 (n_samples,) for two classes, positive for ``classes_[1]``, or (n_samples, n_classes)."""
        check_is_fitted(self)
        models = getattr(self, "models_", None)
        if models is None:
            return self._decision(self.model_, X)
        found = np.column_stack([self._decision(model, X) for model in models])
        return found if self.decision_function_shape == "ovo" else votes(found, len(self.classes_))

    def _decision(self, model: Model, X: Any) -> Float64:
        """What a model says of rows of any kind."""
        if isinstance(X, StreamRows):
            return decisions(model, X)
        encoded = "schema" in (model.provenance.get("encoding") or {})
        if not is_elsewhere(X) and not (encoded and hasattr(X, "columns")):
            X = checked(self, X, reset=False)
        with as_value_errors():
            return model.decision_function(X)

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Float64:
        """Return the probability of each class, float64 (n_samples, n_classes) in the order of ``classes_``.

        Raises UsageError where the last fit has learned none: after ``partial_fit``, or at its time limit.
        """
        model = model_with_probabilities(self)
        return model.probabilities(self.decision_function(X).reshape(-1, len(model.weights)))

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Float64:
        """Return the natural logarithm of ``predict_proba``; minus infinity of a probability of 0."""
        with np.errstate(divide="ignore"):
            found: Float64 = np.log(self.predict_proba(X))
        return found

    def predict(self, X: Any) -> Array:
        """Return the class of each row, (n_samples,); pairs of classes vote, and among equals the surest win."""
        found = self.decision_function(X)
        if hasattr(self, "models_") and self.decision_function_shape == "ovo":
            found = votes(found, len(self.classes_))
        return self.classes_[outcomes_of(found.reshape(len(found), -1))]

    @available_if(lambda self: takes_portions(self.solver))  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Make one pass over a portion of rows in memory, from the weights that all rows so far have come to.

        Only of a linear model, and a stochastic solver: solver='sgd', 'pegasos' or 'assg'. ``classes`` (n_classes,): all that will
        come, wanted by the first call. The certificate is void from then on, and said to be: ``gap_`` is infinite, as nothing is proved
        of rows that are gone; ``fit`` proves again. 'balanced' classes are not known here, and count alike. Raises ValueError.
        """
        first = not hasattr(self, "classes_")
        X, y = checked(self, X, y, reset=first)
        fit_portion(self, X, y, classes, sample_weight)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
