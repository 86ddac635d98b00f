"""A support vector classifier with scikit-learn's manners: every solver, linear, Nystrom and exact kernels."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from streamsvm.aliases import Array, ByName
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit_in_memory import MemoryFitResult
from streamsvm.jobs.model_options import CRAMMER_SINGER
from streamsvm.jobs.partial_fit import partial_fit, takes_portions
from streamsvm.model import Model
from streamsvm.rows import Float64, Int32
from streamsvm.sklearn.estimators.classifier import StreamClassifier
from streamsvm.sklearn.estimators.probabilities import AROUND, check_calibrated
from streamsvm.sklearn.fitting.classes import class_weights, named
from streamsvm.sklearn.fitting.pairs import fit_pairs, votes
from streamsvm.sklearn.fitting.portions import classes_of_portion, resumable
from streamsvm.sklearn.fitting.results import keep
from streamsvm.sklearn.parameters import estimator, option, own
from streamsvm.sklearn.rows.checked import as_value_errors, checked, row_weights, store_of
from streamsvm.sklearn.rows.elsewhere import located
from streamsvm.sklearn.rows.stream_rows import StreamRows
from streamsvm.types import Report, Store

SHAPES = ("ovr", "ovo")
"""One against the rest, and pairs."""


@estimator
class StreamSVC(StreamClassifier):
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
        Learn probabilities from scores of rows that had no part in them; only then, or with loss 'logistic', there is ``predict_proba``.
        Pairs of classes (multi_class 'ovo') have none, and this is refused beside them.
    verbose : bool, default False
        Show progress.
    n_jobs : int, optional
        Threads that compute side by side: None is 1, -1 all processors, -2 all but one; ``joblib.parallel_config`` has no say.
        The model does not depend on it. Fewer where memory is short.
    multi_class : 'ovr', 'ovo' or 'crammer_singer', default 'ovr'
        With several classes one problem for each against the rest, one for each pair and a vote, as ``SVC`` does it, or one for all
        of them together, as ``LinearSVC`` has it: C weighs losses of the distance to the nearest other class.
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
        What can be saved, explained and applied to stores and files; of pairs of classes there is none.
    models_ : list of streamsvm.Model
        The model, or one for each pair of classes.
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

    C: float = field(default=1.0, kw_only=False)
    """Weight of the losses."""
    time_limit: float | str | None = None
    """Seconds after which a fit ends."""
    warm_start: bool = own(default=False)
    """Whether a fit starts from the last one."""
    calibration: str | None = option(default=None, name="calibrate")
    """How probabilities are learned."""
    multi_class: str = own(default="ovr")
    """How several classes become problems of two."""
    decision_function_shape: str = own(default="ovr")
    """What decision values of pairs are made into."""

    def _job(self, chosen: ByName) -> FitJob:
        """See ``StreamEstimator``; the one place where parameters are looked at that are no options."""
        for name, given, known in (
            ("multi_class", self.multi_class, (*SHAPES, CRAMMER_SINGER)),
            ("decision_function_shape", self.decision_function_shape, SHAPES),
        ):
            if given not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, not {given!r}")
        together = {"multi_class": CRAMMER_SINGER} if self.multi_class == CRAMMER_SINGER else {}
        job = super()._job(together | chosen)
        if self.multi_class == "ovo" and job.calibrate is not None:
            raise ValueError(
                f"calibration={self.calibration!r} is for multi_class='ovr': pairs of classes have no probabilities; "
                f"leave it out, or fit through {AROUND}"
            )
        return job

    def _fit_elsewhere(self, X: Any, y: Any, sample_weight: Any, chosen: ByName) -> None:
        """See ``StreamEstimator``; pairs are views of one store."""
        if self.multi_class != "ovo":
            super()._fit_elsewhere(X, y, sample_weight, chosen)
            return
        with as_value_errors(), located(self._job(chosen), X, y, sample_weight, self._ingested()) as job:
            self._fit_rows(StreamRows(job.store), None, None, chosen)

    def _start(self, classes: Array) -> Model | None:
        return resumable(self, self.kernel, classes) if self.warm_start else None

    def _solved(
        self, job: FitJob, store: Store, codes: Int32, report: Report, start: Model | None
    ) -> list[MemoryFitResult]:
        """See ``StreamClassifier``; of two classes there is but one pair."""
        if self.multi_class == "ovo" and len(store.layout.classes) > 2:
            return fit_pairs(job, store, codes, report)
        return super()._solved(job, store, codes, report, start)

    def decision_function(self, X: Any) -> Float64:
        """Return float64 (n_samples,) for two classes, positive for ``classes_[1]``, or (n_samples, n_classes).

        Of pairs of classes (n_samples, n_pairs) where ``decision_function_shape`` is 'ovo'.
        """
        check_is_fitted(self)
        if len(self.models_) > 1 and self.decision_function_shape == "ovo":
            return self._of_pairs(X)
        return self._class_values(X)

    def _class_values(self, X: Any) -> Float64:
        check_is_fitted(self)
        if len(self.models_) > 1:
            return votes(self._of_pairs(X), len(self.classes_))
        return super().decision_function(X)

    def _of_pairs(self, X: Any) -> Float64:
        """Return the values of all pairs of classes (n_samples, n_pairs)."""
        return np.column_stack([self._decisions(model, X) for model in self.models_])

    def _check_probabilities(self) -> bool:
        """See ``StreamClassifier``."""
        if self.multi_class == "ovo":
            raise AttributeError(
                f"pairs of classes, multi_class='ovo', have no probabilities: fit with multi_class='ovr', or through {AROUND}"
            )
        return check_calibrated(self.calibration, self.loss)

    @available_if(lambda self: takes_portions(self.solver))  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Make one pass over a portion of rows in memory, from the weights that all rows so far have come to.

        Only of a linear model, and a stochastic solver: solver='sgd', 'pegasos' or 'assg'. ``classes`` (n_classes,): all that will
        come, wanted by the first call. The certificate is void from then on, and said to be: ``gap_`` is infinite, as nothing is proved
        of rows that are gone; ``fit`` proves again. 'balanced' classes are not known here, and count alike. Raises ValueError.
        """
        first = not self.__sklearn_is_fitted__()
        X, y = checked(self, X, y, reset=first)
        known = classes_of_portion(None if first else self.classes_, classes, y)
        if self.multi_class == "ovo" and len(known) > 2:
            raise ValueError("portions are learned one class against the rest: multi_class='ovr'")
        codes = np.searchsorted(known, y).astype(np.int32)
        weights = row_weights(sample_weight, len(codes))
        each_once = np.arange(len(known), dtype=np.int32)
        start, rows = resumable(self, self.kernel, known), 0 if first else self.rows_seen_
        with as_value_errors():
            store = store_of(X, codes, weights, len(known), least=1)
            job = self._job({"class_weight": class_weights(self.class_weight, known, each_once, None)})
            model = partial_fit(job, store, start, rows)
        self.classes_ = known
        keep(self, [named(model, known, vars(self).get("feature_names_in_"))], rows + store.layout.rows)
        self.gap_, self.primal_, self.dual_ = float("inf"), float("nan"), float("nan")
        return self
