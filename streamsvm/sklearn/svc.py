"""Classification: linear models, Nystrom features and exact kernels; one-vs-rest, one-vs-one, or one problem for all classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from itertools import combinations
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from streamsvm.api.wording import python_words
from streamsvm.engine.signals import allow_interrupt
from streamsvm.errors import UsageError
from streamsvm.jobs.common_options import CRAMMER_SINGER, OVO, OVR, SOFTMAX
from streamsvm.jobs.fit.driver import fit_in_memory
from streamsvm.jobs.fit.options import NO_CALIBRATION, FitJob
from streamsvm.jobs.partial_fit import PORTIONS, partial_fit, takes_portions
from streamsvm.model import Model
from streamsvm.model.model import DIFFERS, LINEAR, PROVED, ProvedPredictions, count_votes
from streamsvm.rows import Float64
from streamsvm.sklearn.base import (
    CalibrationName,
    CertifyName,
    Fitted,
    LossName,
    MultiClassName,
    ProvingEstimator,
    SmoothName,
    StreamEstimator,
    class_weights,
    encode_classes,
    estimator,
    keep_fit,
    keep_model,
    label_model,
    method_where,
    own_parameter,
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
from streamsvm.type_aliases import Array, ValuesByName

CALIBRATION_TOOL = "CalibratedClassifierCV"
"""The class of scikit-learn that calibrates any classifier with decision values."""


def check_calibrated(calibrate: str | None, loss: str) -> bool:
    """Return True if a fit gives probabilities, else raise AttributeError, because scikit-learn tests for a method by ``hasattr``."""
    if calibrate in {None, NO_CALIBRATION} and loss != "logistic":
        raise AttributeError(
            "there are only decision values: fit with calibrate='sigmoid' (or 'isotonic', 'temperature'), or loss='logistic'"
        )
    return True


def check_probabilities(model: Model) -> None:
    """Raise UsageError if the model of a fitted estimator has no probabilities."""
    if model.pairs:
        hint = f"fit again with multi_class='ovr', or through {CALIBRATION_TOOL}"
        raise UsageError("this estimator was fitted for pairs of classes, which have no probabilities", hint=hint)
    if PORTIONS in model.provenance:
        raise UsageError(
            "this estimator was last fitted by partial_fit, which learns no probabilities: the rows of earlier portions are gone",
            hint=f"fit all rows with fit, or learn them from rows kept back: {CALIBRATION_TOOL}(FrozenEstimator(estimator))",
        )
    model.check_probabilities()


def check_portion_classes(last: Array | None, classes: Any, y: Array) -> Array:
    """Return the classes of ``partial_fit``, passed on the first call. Raises ValueError for missing, other or unknown classes.

    ``last``: the classes of earlier calls; None on the first call.
    """
    if classes is None and last is None:
        raise ValueError("classes must be passed on the first call to partial_fit")
    all_classes: Array = np.asarray(last if classes is None else np.unique(classes))
    if last is not None and not np.array_equal(all_classes, last):
        raise ValueError(f"`classes={classes!r}` is not the same as on last call to partial_fit, was: {last!r}")
    unknown = np.setdiff1d(y, all_classes)
    if len(unknown) or len(all_classes) < 2:
        raise ValueError(
            f"y has the labels {unknown}, which are not classes, or there are fewer than two: {all_classes}"
        )
    return all_classes


def find_start(fitted: Fitted, kernel: str, classes: Array) -> Model | None:
    """Return the model of an estimator for a warm start, with class codes as labels; None unless it is a linear one-vs-rest model of the same columns and classes."""
    if not fitted.__sklearn_is_fitted__() or fitted.model_.pairs or kernel != "linear":
        return None
    last = fitted.model_
    if last.kind != LINEAR or last.columns != fitted.n_features_in_ or not np.array_equal(classes, fitted.classes_):
        return None
    return strip_labels(last)


@estimator
class StreamClassifier(ClassifierMixin, StreamEstimator):
    """Base class of classifiers, with the parameters that all of them have."""

    loss: LossName = "squared_hinge"
    loss_options: Mapping[str, float] | None = None
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None

    def _fit_arrays(self, X: Any, y: Array, sample_weight: Any, chosen: ValuesByName) -> None:
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

    def _fit_rows(self, X: StreamRows, y: Any, sample_weight: Any, chosen: ValuesByName) -> None:
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
        """Return the model from which a fit of these classes is warm-started, with class codes as labels; None for no warm start."""
        return None

    def decision_function(self, X: Any) -> Float64:
        """Return decision values: float64 (n_samples,) for two classes, positive for ``classes_[1]``, else (n_samples, n_classes)."""
        check_is_fitted(self)
        return self._decisions(self.model_, X)

    def predict(self, X: Any) -> Array:
        """Return the class of each row, (n_samples,). For one-vs-one, the class with most votes, in a tie the first one, as in ``SVC``."""
        check_is_fitted(self)
        values = self._decisions(self.model_, X)
        return self.classes_[self.model_.codes(values.reshape(len(values), -1))]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy. ``y``: a label for each row, also a lazy column of dask or polars, or the name of a column of X."""
        accuracy: float = super().score(X, load_labels(X, y), sample_weight)
        return accuracy

    def _check_probabilities(self) -> bool:
        """Return True if a fit gives probabilities, else raise AttributeError."""
        return check_calibrated(None, self.loss)

    @method_where(lambda self: self._check_probabilities())
    def predict_proba(self, X: Any) -> Float64:
        """Return the probability of each class, float64 (n_samples, n_classes) in the order of ``classes_``.

        Raises UsageError if the last fit gave no probabilities: after ``partial_fit``, or if its time limit was reached before calibration.
        """
        check_is_fitted(self)
        with python_words("fit", PARAMETER_NAMES):
            check_probabilities(self.model_)
        return self.model_.probabilities(self.decision_function(X).reshape(-1, len(self.model_.weights)))

    @method_where(lambda self: self._check_probabilities())
    def predict_log_proba(self, X: Any) -> Float64:
        """Return the natural logarithm of ``predict_proba``; minus infinity for a probability of 0."""
        with np.errstate(divide="ignore"):
            logarithms: Float64 = np.log(self.predict_proba(X))
        return logarithms


SHAPES = (OVR, OVO)


@estimator
class StreamSVC(ProvingEstimator, StreamClassifier):
    """Support vector classifier with a certificate: a proved bound on the distance from the optimum.

    Minimizes 1/2 ||w||^2 + C sum_i s_i l(y_i w.phi(x_i)); with more than two classes, each against the rest. The weight of the constant
    feature ``bias`` is regularized, as in ``LinearSVC``.

    Parameters
    ----------
    C : float, default 1
        Factor of the sum of losses.
    loss : 'squared_hinge', 'hinge', 'huber' or 'logistic', default 'squared_hinge'
        The loss, a function of the margin; 'logistic' is logistic regression.
    loss_options, kernel_options, options : dict, optional
        Settings of the loss, of the kernel and of the solver, by name.
    bias : float, default 1
        Value of the constant feature; 0 for none.
    class_weight : dict or 'balanced', optional
        Factors of C by class.
    standardize : bool, default False
        Scale columns to mean 0 and standard deviation 1; ``coef_`` is in the units of X nevertheless.
    kernel : str, default 'linear'
        'linear', 'rbf', 'laplacian', 'polynomial' or 'sigmoid'.
    gamma : float, 'scale' or 'mean-distance', default 'scale'
        Width of the kernel; 'scale' is 1 / (n_features X.var()), as in ``SVC``.
    landmarks : int, optional
        Approximate the kernel by Nystrom features from this number of rows; by default the exact kernel is used.
    sampling : 'auto', 'uniform', 'leverage', 'kmeans++' or 'greedy', default 'auto'
        How landmarks are chosen: at random, by leverage, far from each other, or as the rows of a larger sample that explain the labels
        best. 'auto' is 'greedy', but 'uniform' with ``calibrate``, which uses the same labels, or if memory is short;
        ``model_.provenance['settings']['sampling']`` has the choice.
    solver : str, default 'auto'
        The algorithm; 'auto' chooses it by the size of the data, the kernel and the memory limit.
    tolerance : float, default 1e-3
        The relative duality gap (primal - dual) / primal at which a fit stops. Small linear problems are solved exactly.
    max_passes : int, default 1000
        Maximum number of passes over the data.
    time_limit : float or str, optional
        Time limit of the fit in seconds, or as text: '1h30m'.
    memory : int or str, optional
        Memory limit of the process in bytes, or as text: '512MiB'. A fit that needs more is refused before it starts.
    missing : 'error', 'mean', 'zero' or 'indicator', default 'error'
        Replacement of missing values, for fits and predictions: the mean of the column, 0, or 0 with an additional indicator column.
        Except for 'error', arrays are ingested like files.
    random_state : int, RandomState instance or None
        The seed; None is 0, so that fits of the same data are equal. ``seed`` is another name.
    warm_start : bool, default False
        Start from the weights of the last fit, if the model is linear and the solver supports it: dcd and newton.
    calibrate : 'sigmoid', 'isotonic' or 'temperature', optional
        Calibrate probabilities on out-of-sample scores. ``predict_proba`` exists only then, or with the loss 'logistic'. Not supported with
        multi_class 'ovo'. ``calibration`` is another name.
    threshold : str, optional
        Two classes: the measure by which the threshold of the decision value is chosen: 'f1', 'balanced_error', 'error' or
        'cost:fp=1,fn=50', on out-of-sample scores as for ``calibrate``. For f1 and cost, the rarer class is the positive one.
        ``predict`` uses this threshold, which is ``model_.threshold``; by default 0.
    curves : bool, default False
        Fit a piecewise-linear curve for each column in place of a weight; columns of 0 and 1 keep their weights. The loss 'logistic' suits it
        best.
    knots : int, optional
        Largest number of knots of a curve; by default 64.
    smooth : 'd2', 'd1' or 'none', optional
        Penalty of curves: mostly of changes of the slope (the default), of the slope, or of the values at the knots, which suits every solver.
    jumps : 'auto' or str, optional
        Values with an effect of their own in addition to the curve: frequent ones whose target differs from that of the rows around them, by
        a test, or given ones: 'term=84,amount=25000'. By default none.
    pairs : 'auto', int or str, optional
        Pairs of columns whose joint effect is fitted as a table in addition to curves: those that pass a test on what curves leave over, at most
        so many of them, or named ones: 'age*income,city*year'. By default none.
    pair_scale : float, optional
        Scale of the tables of pairs: a smaller one shrinks them more, with the same C for curves; by default 1.
    certify : 'labels', 'full' or 'updates', optional
        Store with the model what its proofs need: ``predict(X, certify=True)`` then says for which rows the exact optimum is proved to
        predict the same label, and ``decision_interval`` bounds its decision values. 'labels' takes no extra pass, 'full' takes three and
        gives far narrower intervals; 'updates' also stores what ``streamsvm.forget`` and ``learn`` need. Only linear models; the intervals
        of losses with a kink, such as 'hinge', are wide.
    verbose : bool, default False
        Show progress. ``progress`` is another name.
    n_jobs : int, optional
        Number of threads: None is 1, -1 all processors, -2 all but one; ``joblib.parallel_config`` is ignored. Fewer threads are used
        if memory is short. The model does not depend on it. ``threads`` is another name.
    multi_class : 'ovr', 'ovo', 'crammer_singer' or 'softmax', default 'ovr'
        More than two classes: a problem for each class against the rest; a problem for each pair of classes and a vote, as in ``SVC`` (all
        pairs share each pass); or one problem for all classes, as in ``LinearSVC``, whose margin is the lead over the best other class.
        'softmax', with the loss 'logistic', is the multinomial model of ``LogisticRegression``; with two classes it is the logistic loss.
    decision_function_shape : 'ovr' or 'ovo', default 'ovr'
        With multi_class 'ovo': a decision value for each class, or (ovo) for each pair: (0, 1), (0, 2), ..., (1, 2), ...
    l1 : float, optional
        Elastic net: factor of ||w||_1, which is added to 1/2 ||w||^2. Weights of columns of little use become 0. Only linear models.
    free_bias : bool, optional
        Do not regularize the constant, as in ``LogisticRegression``. Only linear models, by the solver 'lbfgs'.
    nu : float, optional
        Replaces ``C`` and ``loss``: use the hinge loss with the C at which at most this fraction of rows violates the margin, as in
        ``NuSVC``. Only linear models and landmarks. ``model_.provenance`` contains this C.
    on_pass : callable, optional
        Called after every pass with its record, a dict with pass, problems, problem, primal, dual, gap, exact, seconds, memory and others.
        If it returns True, or a callback of scikit-learn requests to stop, the fit ends after one more pass, which computes the certificate;
        ``model_.provenance['status']`` is then 'asked to end'. ``streamsvm.MlflowTracker`` and ``streamsvm.TensorBoardTracker`` are
        such callbacks.

    Attributes
    ----------
    classes_ : ndarray (n_classes,)
        The labels, sorted.
    coef_, intercept_ : ndarray (n_problems, n_features), (n_problems,)
        The weights and the constants of a linear model.
    gap_, primal_, dual_ : float
        The certificate: relative duality gap, primal objective and dual bound of the class with the largest gap.
    n_passes_ : int
        Number of passes over the data.
    peak_memory_ : int
        Peak memory of the fit in bytes.
    passes_ : list of dict
        The records of the passes; ``history_`` is the same as a pandas data frame.
    model_ : streamsvm.Model
        The model, which can be saved, explained and applied to stores and files.
    rows_seen_ : int
        Number of rows fitted, including those of earlier calls of ``partial_fit``.
    n_features_in_ : int
        Number of columns of X.

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
    warm_start: bool = own_parameter(default=False)
    calibrate: CalibrationName | None = None
    calibration: CalibrationName | None = own_parameter(default=None, synonym_of="calibrate")
    threshold: str | None = None
    curves: bool = False
    knots: int | None = None
    smooth: SmoothName | None = None
    jumps: str | None = None
    pairs: int | str | None = None
    pair_scale: float | None = None
    certify: CertifyName | None = None
    multi_class: MultiClassName = own_parameter(default=OVR)
    decision_function_shape: Literal["ovr", "ovo"] = own_parameter(default=OVR)
    l1: float | None = None
    free_bias: bool | None = None
    nu: float | None = None

    def _job(self, chosen: ValuesByName) -> FitJob:
        """Return the job of a fit, after checking the parameters that are not options."""
        for name, parameter, choices in (
            ("multi_class", self.multi_class, (*SHAPES, CRAMMER_SINGER, SOFTMAX)),
            ("decision_function_shape", self.decision_function_shape, SHAPES),
        ):
            if parameter not in choices:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {parameter!r}")
        by_nu = {} if self.nu is None else {"C": None}
        job = super()._job(by_nu | chosen)
        if self.multi_class == OVO and job.calibrate is not None:
            raise ValueError(
                f"calibrate={job.calibrate!r} is for multi_class='ovr': pairs of classes have no probabilities; "
                f"leave it out, or fit through {CALIBRATION_TOOL}"
            )
        return job if self.multi_class == OVR else replace(job, multi_class=self.multi_class)

    @method_where(lambda self: self._check_probabilities())
    def probability_interval(self, X: Any) -> tuple[Float64, Float64]:
        """Return the least and the largest probability of each class that the exact optimum can give, float64 (n_samples, n_classes) each.

        The map from decision values to probabilities is taken as given. Raises UsageError after a fit without ``certify``.
        """
        _, low, high = self._prove(X)
        columns = len(self.model_.weights)
        with python_words("fit", PARAMETER_NAMES):
            check_probabilities(self.model_)
        calibrator = self.model_.check_probabilities().calibrator
        return calibrator.probability_interval(low.reshape(-1, columns), high.reshape(-1, columns))

    def _start(self, classes: Array) -> Model | None:
        starts = self.warm_start and self.multi_class != OVO and self.nu is None
        return find_start(self, self.kernel, classes) if starts else None

    def predict(self, X: Any, certify: bool = False) -> Any:
        """Return the class of each row, (n_samples,); with pairs of classes the first of those with most votes, as in ``SVC``.

        With ``certify`` return ``ProvedPredictions``: ``label``, ``low``, ``high``, and ``proved``: whether the exact optimum is
        proved to predict the same label. Raises UsageError after a fit without ``certify``.
        """
        if not certify:
            return super().predict(X)
        decision, low, high = self._prove(X)
        codes = self.model_.codes(decision.reshape(len(decision), -1))
        verdict = self.model_.prove(codes, low.reshape(len(low), -1), high.reshape(len(high), -1))
        return ProvedPredictions(self.classes_[codes], low, high, verdict == PROVED, verdict == DIFFERS)

    def decision_function(self, X: Any) -> Float64:
        """Return float64 (n_samples,) for two classes, positive for ``classes_[1]``, or (n_samples, n_classes).

        For one-vs-one, the value of a class is the number of its votes plus a term of less than half a vote for their confidence; with
        ``decision_function_shape`` 'ovo', the values of all pairs are returned, (n_samples, n_pairs).
        """
        values = super().decision_function(X)
        if not self.model_.pairs or self.decision_function_shape == OVO:
            return values
        return score_classes(values, len(self.classes_))

    def _takes_portions(self) -> bool:
        """Return whether ``partial_fit`` exists: with a stochastic solver, or with 'auto' for a model that these can fit."""
        if self.solver == "auto":
            return self.kernel == LINEAR and self.multi_class == OVR and not self.standardize
        return takes_portions(self.solver)

    def _check_probabilities(self) -> bool:
        if self.multi_class == OVO:
            raise AttributeError(
                f"pairs of classes, multi_class='ovo', have no probabilities: fit with multi_class='ovr', or through {CALIBRATION_TOOL}"
            )
        return check_calibrated(self.calibrate or self.calibration, self.loss)

    @method_where(lambda self: self._takes_portions())
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Make one pass over rows in memory, starting from the weights of the earlier calls.

        Only for linear models with a stochastic solver: 'sgd', 'pegasos' or 'assg'; 'auto' is sgd, or assg for losses that sgd does not
        support. ``classes`` (n_classes,): all classes of all portions, required on the first call. There is no certificate, because the
        earlier rows are gone: ``gap_`` is infinite until the next ``fit``. class_weight='balanced' and threshold are not supported, because
        they need all labels. Raises ValueError.
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
        all_classes = check_portion_classes(None if first else self.classes_, classes, y)
        if self.multi_class == OVO and len(all_classes) > 2:
            raise ValueError("portions are learned one class against the rest: multi_class='ovr'")
        codes = np.searchsorted(all_classes, y).astype(np.int32)
        weights = check_weights(sample_weight, len(codes))
        each_once = np.arange(len(all_classes), dtype=np.int32)
        start, rows = find_start(self, self.kernel, all_classes), 0 if first else self.rows_seen_
        with as_value_errors():
            store = make_store(X, codes, weights, len(all_classes), ends=(), least=1)
            job = self._job({"class_weight": class_weights(self.class_weight, all_classes, each_once, None)})
            model = partial_fit(job, store, start, rows)
        self.classes_ = all_classes
        keep_model(self, label_model(model, all_classes, vars(self).get("feature_names_in_")), rows + store.layout.rows)
        self.gap_, self.primal_, self.dual_ = float("inf"), float("nan"), float("nan")
        return self


def score_classes(pairs: Float64, classes: int) -> Float64:
    """Return a score for each class (n, classes) from the decision values of all pairs (n, classes (classes - 1) / 2), as scikit-learn does.

    The score of class a is v_a + s_a / (3 (|s_a| + 1)), with v_a its votes and s_a the sum of its decision values, signed in favor of a.
    """
    sums = np.zeros((len(pairs), classes))
    for k, (first, second) in enumerate(combinations(range(classes), 2)):
        sums[:, first] += pairs[:, k]
        sums[:, second] -= pairs[:, k]
    return count_votes(pairs, classes) + sums / (3.0 * (np.abs(sums) + 1.0))
