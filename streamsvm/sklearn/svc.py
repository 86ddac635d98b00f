"""Support vector classification: one-vs-rest, one-vs-one or all classes together; every solver, linear, Nystrom and exact kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from itertools import combinations
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from streamsvm.aliases import Array, ByName
from streamsvm.api.wording import python_words
from streamsvm.engine.signals import allow_interrupt
from streamsvm.errors import UsageError
from streamsvm.jobs.common_options import CRAMMER_SINGER, OVO, OVR, SOFTMAX
from streamsvm.jobs.fit.driver import fit_in_memory
from streamsvm.jobs.fit.options import NO_CALIBRATION, FitJob
from streamsvm.jobs.partial_fit import PORTIONS, partial_fit, takes_portions
from streamsvm.model import Model
from streamsvm.model.model import LINEAR, count_votes
from streamsvm.rows import Float64
from streamsvm.sklearn.base import (
    CalibrationName,
    Fitted,
    LossName,
    MultiClassName,
    StreamEstimator,
    class_weights,
    encode_classes,
    estimator,
    keep_fit,
    keep_model,
    label_model,
    method_where,
    own,
    restore_labels,
    sort_codes,
    strip_labels,
)
from streamsvm.sklearn.rows import (
    PARAMETER_NAMES,
    StreamRows,
    as_value_errors,
    check_own_labels,
    check_rows,
    check_weights,
    count_rows,
    load_labels,
    make_store,
)

AROUND = "CalibratedClassifierCV"
"""The tool of scikit-learn that calibrates any classifier with decision values."""


def check_calibrated(calibrate: str | None, loss: str) -> bool:
    """Return True where a fit gives probabilities, else raise AttributeError, as scikit-learn does: its tools ask ``hasattr``."""
    if calibrate in {None, NO_CALIBRATION} and loss != "logistic":
        raise AttributeError(
            "there are only decision values: fit with calibrate='sigmoid' (or 'isotonic', 'temperature'), or loss='logistic'"
        )
    return True


def check_probabilities(model: Model) -> None:
    """Raise UsageError where the model of a fitted estimator has no probabilities."""
    if model.pairs:
        hint = f"fit again with multi_class='ovr', or through {AROUND}"
        raise UsageError("this estimator was fitted for pairs of classes, which have no probabilities", hint=hint)
    if PORTIONS in model.provenance:
        raise UsageError(
            "this estimator was last fitted by partial_fit, which learns no probabilities: the rows of earlier portions are gone",
            hint=f"fit all rows with fit, or learn them from rows kept back: {AROUND}(FrozenEstimator(estimator))",
        )
    model.check_probabilities()


def check_portion_classes(last: Array | None, classes: Any, y: Array) -> Array:
    """Return all classes: given with the first portion, the same with every other. Raises ValueError.

    ``last``: those of earlier portions; None: this is the first.
    """
    if classes is None and last is None:
        raise ValueError("classes must be passed on the first call to partial_fit")
    known: Array = np.asarray(last if classes is None else np.unique(classes))
    if last is not None and not np.array_equal(known, last):
        raise ValueError(f"`classes={classes!r}` is not the same as on last call to partial_fit, was: {last!r}")
    strange = np.setdiff1d(y, known)
    if len(strange) or len(known) < 2:
        raise ValueError(f"y has the labels {strange}, which are not classes, or there are fewer than two: {known}")
    return known


def find_start(fitted: Fitted, kernel: str, classes: Array) -> Model | None:
    """Return the model of an estimator, with class codes for labels, if it is linear, one-vs-rest, and of these columns and classes."""
    if not fitted.__sklearn_is_fitted__() or fitted.model_.pairs or kernel != "linear":
        return None
    last = fitted.model_
    if last.kind != LINEAR or last.columns != fitted.n_features_in_ or not np.array_equal(classes, fitted.classes_):
        return None
    return strip_labels(last)


@estimator
class StreamClassifier(ClassifierMixin, StreamEstimator):
    """A classifier, and the parameters that all classifiers have."""

    loss: LossName = "squared_hinge"
    loss_options: Mapping[str, float] | None = None
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None

    def _fit_arrays(self, X: Any, y: Array, sample_weight: Any, chosen: ByName) -> None:
        classes, codes = encode_classes(y)
        weights = check_weights(sample_weight, len(codes))
        store = make_store(X, codes, weights, len(classes))
        factors = class_weights(self.class_weight, classes, codes, weights)
        job = self._job({"class_weight": factors} | chosen)
        with self._report_passes() as report:
            result = fit_in_memory(job, store, report, self._start(classes))
        columns = vars(self).get("feature_names_in_")
        self.classes_ = classes
        keep_fit(self, result, label_model(result.model, classes, columns), count_rows(weights, len(codes)))

    def _fit_rows(self, X: StreamRows, y: Any, sample_weight: Any, chosen: ByName) -> None:
        check_own_labels(X, y, sample_weight)
        job = self._job(chosen)
        with self._report_passes() as report, allow_interrupt():
            store = X.store()
            result = fit_in_memory(job, store, report)
        self.n_features_in_ = store.layout.columns
        self.classes_ = X.labels_of([store.layout.classes[code] for code in sort_codes(store)])
        keep_fit(self, result, result.model, store.layout.rows)

    def _set_classes(self, model: Model, y: Any) -> None:
        self.classes_ = restore_labels(model, y)

    def _start(self, classes: Array) -> Model | None:
        """Return the model that a fit of these classes starts from, with class codes for labels."""
        return None

    def decision_function(self, X: Any) -> Float64:
        """Return float64 (n_samples,) for two classes, positive for ``classes_[1]``, or (n_samples, n_classes)."""
        check_is_fitted(self)
        return self._decisions(self.model_, X)

    def predict(self, X: Any) -> Array:
        """Return the class of each row, (n_samples,); with pairs of classes the first of those with most votes, as in ``SVC``."""
        check_is_fitted(self)
        found = self._decisions(self.model_, X)
        return self.classes_[self.model_.codes(found.reshape(len(found), -1))]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy; ``y``: one label a row, also lazy ones of dask and polars, or the name of a column of X."""
        found: float = super().score(X, load_labels(X, y), sample_weight)
        return found

    def _check_probabilities(self) -> bool:
        """Return True where a fit gives probabilities, else raise AttributeError."""
        return check_calibrated(None, self.loss)

    @method_where(lambda self: self._check_probabilities())
    def predict_proba(self, X: Any) -> Float64:
        """Return the probability of each class, float64 (n_samples, n_classes) in the order of ``classes_``.

        Raises UsageError where the last fit gave none: after ``partial_fit``, or at its time limit.
        """
        check_is_fitted(self)
        with python_words("fit", PARAMETER_NAMES):
            check_probabilities(self.model_)
        return self.model_.probabilities(self.decision_function(X).reshape(-1, len(self.model_.weights)))

    @method_where(lambda self: self._check_probabilities())
    def predict_log_proba(self, X: Any) -> Float64:
        """Return the natural logarithm of ``predict_proba``; minus infinity of a probability of 0."""
        with np.errstate(divide="ignore"):
            found: Float64 = np.log(self.predict_proba(X))
        return found


SHAPES = (OVR, OVO)


@estimator
class StreamSVC(StreamClassifier):
    """Classify by a support vector machine whose distance from the optimum is proved.

    Minimizes 1/2 ||w||^2 + C sum_i s_i l(y_i w.phi(x_i)), one class against the rest for each of several. The constant
    feature ``bias`` is regularized, as in ``LinearSVC``.

    Parameters
    ----------
    C : float, default 1
        Weight of the losses.
    loss : 'squared_hinge', 'hinge', 'huber' or 'logistic', default 'squared_hinge'
        What a row costs by its margin; 'logistic' is logistic regression.
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
    gamma : float, 'scale' or 'mean-distance', default 'scale'
        Width of the kernel; 'scale' is 1 / (n_features X.var()), as in ``SVC``.
    landmarks : int, optional
        Approximate the kernel by so many Nystrom features; without, it is solved exactly.
    sampling : 'auto', 'uniform', 'leverage', 'kmeans++' or 'greedy', default 'auto'
        How landmarks are drawn: evenly, by their leverage, far from each other, or as those of a larger sample that explain the labels best.
        'auto' is 'greedy', and 'uniform' with ``calibrate``, which learns from the same labels, or where memory is short;
        ``model_.provenance['settings']['sampling']`` says which.
    solver : str, default 'auto'
        The algorithm; 'auto' decides from the data, the kernel and the memory.
    tolerance : float, default 1e-3
        The relative gap (primal - dual) / primal at which a fit may end. A small linear problem is solved exactly.
    max_passes : int, default 1000
        How often the rows are read at most.
    time_limit : float or str, optional
        Seconds, or '1h30m'.
    memory : int or str, optional
        Bytes the process may use, or '512MiB'; a fit that needs more is refused before it begins.
    missing : 'error', 'mean', 'zero' or 'indicator', default 'error'
        What stands for missing values, in fits and in what is predicted: the mean of the column, 0, or 0 beside a column that says so.
        Rows are read as those of a file are then, arrays too.
    random_state : int, RandomState instance or None
        The seed; None is 0, so that two fits of the same data agree. ``seed`` is the same.
    warm_start : bool, default False
        Start from the last fit where the solver can: dcd and newton, of a linear model.
    calibrate : 'sigmoid', 'isotonic' or 'temperature', optional
        Learn probabilities from scores of rows that had no part in them; only then, or with loss 'logistic', there is ``predict_proba``.
        Pairs of classes (multi_class 'ovo') have none, and this is refused beside them. ``calibration`` is the same.
    threshold : str, optional
        Two classes: ``predict`` divides them at the threshold of the decision value at which this measure is best, 'f1', 'balanced_error',
        'error' or 'cost:fp=1,fn=50', on scores of rows by fits without them, as those of ``calibrate``. Of f1 and cost the positive class is the
        rarer one. ``model_.threshold`` is what was chosen; 0 without.
    verbose : bool, default False
        Show progress. ``progress`` is the same.
    n_jobs : int, optional
        Threads that compute side by side: None is 1, -1 all processors, -2 all but one; ``joblib.parallel_config`` has no say.
        The model does not depend on it. Fewer where memory is short. ``threads`` is the same.
    multi_class : 'ovr', 'ovo', 'crammer_singer' or 'softmax', default 'ovr'
        With several classes one problem for each against the rest, one for each pair of them and a vote, as ``SVC`` does it (all pairs share
        each reading), or one for all of them together, as ``LinearSVC`` has it: C weighs losses of the distance to the nearest other class.
        'softmax', of loss 'logistic', is the multinomial model of ``LogisticRegression``; of two classes it is the logistic loss as it is.
    decision_function_shape : 'ovr' or 'ovo', default 'ovr'
        Of pairs: one value a class, or (ovo) the values of all pairs, (0, 1), (0, 2), ..., (1, 2), ...
    l1 : float, optional
        Weight of ||w||_1 beside 1/2 ||w||^2, the elastic net: weights of columns that are of little use are exactly 0. Linear models alone.
    nu : float, optional
        In place of ``C`` and ``loss``: find the C of the hinge with which the share of rows beyond their margin is at most this, as ``NuSVC``
        does it. Linear models and landmarks; ``model_.provenance`` has the C that was found.
    on_pass : callable, optional
        Called after every pass with its record, a dict: pass, problems, problem, primal, dual, gap, exact, seconds, memory.
        Where it returns True, or a callback of scikit-learn asks to stop, the fit ends with one more pass, which certifies what there is:
        ``gap_`` says how much, and ``model_.provenance['status']`` is 'asked to end'.
        ``streamsvm.MlflowTracker`` and ``streamsvm.TensorBoardTracker`` are such.

    Attributes
    ----------
    classes_ : ndarray (n_classes,)
        The labels, sorted.
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
        What can be saved, explained and applied to stores and files.
    rows_seen_ : int
        Rows that were fitted to, those of all portions together.
    n_features_in_ : int
        The number of columns of the rows of the fit.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.sklearn import StreamSVC
    >>> X, y = np.array([[-1.0], [-2.0], [1.0], [3.0]]), ["no", "no", "yes", "yes"]
    >>> StreamSVC().fit(X, y).predict([[2.0]])
    array(['yes'], dtype='<U3')
    """

    C: float = field(default=1.0, kw_only=False)
    time_limit: float | str | None = None
    warm_start: bool = own(default=False)
    calibrate: CalibrationName | None = None
    calibration: CalibrationName | None = own(default=None, synonym_of="calibrate")
    threshold: str | None = None
    multi_class: MultiClassName = own(default=OVR)
    decision_function_shape: Literal["ovr", "ovo"] = own(default=OVR)
    l1: float | None = None
    nu: float | None = None

    def _job(self, chosen: ByName) -> FitJob:
        """Return the job of a fit, after checking the parameters that are not options."""
        for name, given, known in (
            ("multi_class", self.multi_class, (*SHAPES, CRAMMER_SINGER, SOFTMAX)),
            ("decision_function_shape", self.decision_function_shape, SHAPES),
        ):
            if given not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, not {given!r}")
        by_nu = {} if self.nu is None else {"C": None}
        job = super()._job(by_nu | chosen)
        if self.multi_class == OVO and job.calibrate is not None:
            raise ValueError(
                f"calibrate={job.calibrate!r} is for multi_class='ovr': pairs of classes have no probabilities; "
                f"leave it out, or fit through {AROUND}"
            )
        return job if self.multi_class == OVR else replace(job, multi_class=self.multi_class)

    def _start(self, classes: Array) -> Model | None:
        starts = self.warm_start and self.multi_class != OVO and self.nu is None
        return find_start(self, self.kernel, classes) if starts else None

    def decision_function(self, X: Any) -> Float64:
        """Return float64 (n_samples,) for two classes, positive for ``classes_[1]``, or (n_samples, n_classes).

        Of pairs of classes it is the votes, and less than half a vote by how sure they are; (n_samples, n_pairs) values of all
        pairs where ``decision_function_shape`` is 'ovo'.
        """
        found = super().decision_function(X)
        if not self.model_.pairs or self.decision_function_shape == OVO:
            return found
        return score_classes(found, len(self.classes_))

    def _takes_portions(self) -> bool:
        """Whether rows may come in portions: with a stochastic solver, or 'auto' where the model is one of theirs."""
        if self.solver == "auto":
            return self.kernel == LINEAR and self.multi_class == OVR and not self.standardize
        return takes_portions(self.solver)

    def _check_probabilities(self) -> bool:
        if self.multi_class == OVO:
            raise AttributeError(
                f"pairs of classes, multi_class='ovo', have no probabilities: fit with multi_class='ovr', or through {AROUND}"
            )
        return check_calibrated(self.calibrate or self.calibration, self.loss)

    @method_where(lambda self: self._takes_portions())
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Make one pass over a portion of rows in memory, from the weights that all rows so far have come to.

        Only of a linear model, and a stochastic solver: 'sgd', 'pegasos' or 'assg'; 'auto' is sgd, or assg for losses that sgd does not
        take. ``classes`` (n_classes,): all that will come, wanted by the first call. The certificate is void from then on, and said to be: ``gap_`` is infinite, as nothing is proved
        of rows that are gone; ``fit`` proves again. class_weight='balanced' and threshold are refused: they need
        all labels. Raises ValueError.
        """
        if self.nu is not None:
            raise ValueError("portions are learned with C: leave nu out")
        if self.threshold is not None:
            raise ValueError(
                f"threshold={self.threshold!r} is not supported by partial_fit: it is chosen by scores of all rows, and those of earlier "
                "portions are gone; choose it on rows kept back: TunedThresholdClassifierCV(FrozenEstimator(estimator), cv='prefit', refit=False)"
            )
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' is not supported by partial_fit: the rows of each class are not known before the last portion; "
                "give class_weight={class: factor}, computed from all labels or from a large sample of them"
            )
        first = not self.__sklearn_is_fitted__()
        X, y = check_rows(self, X, y, reset=first)
        known = check_portion_classes(None if first else self.classes_, classes, y)
        if self.multi_class == OVO and len(known) > 2:
            raise ValueError("portions are learned one class against the rest: multi_class='ovr'")
        codes = np.searchsorted(known, y).astype(np.int32)
        weights = check_weights(sample_weight, len(codes))
        each_once = np.arange(len(known), dtype=np.int32)
        start, rows = find_start(self, self.kernel, known), 0 if first else self.rows_seen_
        with as_value_errors():
            store = make_store(X, codes, weights, len(known), ends=(), least=1)
            job = self._job({"class_weight": class_weights(self.class_weight, known, each_once, None)})
            model = partial_fit(job, store, start, rows)
        self.classes_ = known
        keep_model(self, label_model(model, known, vars(self).get("feature_names_in_")), rows + store.layout.rows)
        self.gap_, self.primal_, self.dual_ = float("inf"), float("nan"), float("nan")
        return self


def score_classes(pairs: Float64, classes: int) -> Float64:
    """Return one score a class (n, classes) for the decision values of all pairs (n, classes (classes - 1) / 2), as scikit-learn does.

    v_a + s_a / (3 (|s_a| + 1)): the votes for a, and s_a the sum of the decision values that speak for a.
    """
    sums = np.zeros((len(pairs), classes))
    for k, (first, second) in enumerate(combinations(range(classes), 2)):
        sums[:, first] += pairs[:, k]
        sums[:, second] -= pairs[:, k]
    return count_votes(pairs, classes) + sums / (3.0 * (np.abs(sums) + 1.0))
