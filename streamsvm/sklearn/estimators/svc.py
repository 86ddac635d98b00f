"""A support vector classifier with scikit-learn's manners: every solver, linear, Nystrom and exact kernels."""

from __future__ import annotations

from dataclasses import field, replace
from itertools import combinations
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from streamsvm.aliases import Array, ByName
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.options import CRAMMER_SINGER, OVO, OVR
from streamsvm.jobs.partial_fit import partial_fit, takes_portions
from streamsvm.model import Model
from streamsvm.model.model import count_votes
from streamsvm.rows import Float64
from streamsvm.sklearn.estimators.classifier import StreamClassifier
from streamsvm.sklearn.estimators.probabilities import AROUND, check_calibrated
from streamsvm.sklearn.fitting.classes import class_weights, named
from streamsvm.sklearn.fitting.portions import classes_of_portion, resumable
from streamsvm.sklearn.fitting.results import keep
from streamsvm.sklearn.parameters import estimator, option, own
from streamsvm.sklearn.rows.checked import as_value_errors, checked, row_weights, store_of

SHAPES = (OVR, OVO)
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
    sampling : 'auto', 'uniform', 'leverage', 'kmeans++' or 'greedy', default 'auto'
        How landmarks are drawn: evenly, by their leverage, far from each other, or as those of a larger sample that explain the labels best.
        'auto' is 'greedy', and 'uniform' with ``calibration``, which learns from the same labels, or where memory is short;
        ``model_.provenance['settings']['sampling']`` says which.
    solver : str, default 'auto'
    tolerance : float, default 1e-3
        The relative gap (primal - dual) / primal at which a fit may end. A small linear problem is solved exactly.
    max_passes : int, default 1000
    time_limit : float or str, optional
        Seconds, or '1h30m'.
    memory : int or str, optional
        Bytes the process may use, or '512MiB'; a fit that needs more is refused before it begins.
    missing : 'error', 'mean', 'zero' or 'indicator', default 'error'
        What stands for missing values, in fits and in what is predicted: the mean of the column, 0, or 0 beside a column that says so.
        Rows are read as those of a file are then, arrays too.
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
        With several classes one problem for each against the rest, one for each pair of them and a vote, as ``SVC`` does it (all pairs share
        each reading), or one for all of them together, as ``LinearSVC`` has it: C weighs losses of the distance to the nearest other class.
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
    multi_class: str = own(default=OVR)
    """How several classes become problems of two."""
    decision_function_shape: str = own(default=OVR)
    """What decision values of pairs are made into."""
    l1: float | None = None
    """Weight of ||w||_1."""
    nu: float | None = None
    """The share of rows beyond their margin."""

    def _job(self, chosen: ByName) -> FitJob:
        """See ``StreamEstimator``; the one place where parameters are looked at that are no options."""
        for name, given, known in (
            ("multi_class", self.multi_class, (*SHAPES, CRAMMER_SINGER)),
            ("decision_function_shape", self.decision_function_shape, SHAPES),
        ):
            if given not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, not {given!r}")
        by_nu = {} if self.nu is None else {"C": None}
        job = super()._job(by_nu | chosen)
        if self.multi_class == OVO and job.calibrate is not None:
            raise ValueError(
                f"calibration={self.calibration!r} is for multi_class='ovr': pairs of classes have no probabilities; "
                f"leave it out, or fit through {AROUND}"
            )
        return job if self.multi_class == OVR else replace(job, multi_class=self.multi_class)

    def _start(self, classes: Array) -> Model | None:
        starts = self.warm_start and self.multi_class != OVO and self.nu is None
        return resumable(self, self.kernel, classes) if starts else None

    def decision_function(self, X: Any) -> Float64:
        """Return float64 (n_samples,) for two classes, positive for ``classes_[1]``, or (n_samples, n_classes).

        Of pairs of classes it is the votes, and less than half a vote by how sure they are; (n_samples, n_pairs) values of all
        pairs where ``decision_function_shape`` is 'ovo'.
        """
        found = super().decision_function(X)
        if not self.model_.pairs or self.decision_function_shape == OVO:
            return found
        return by_class(found, len(self.classes_))

    def _check_probabilities(self) -> bool:
        """See ``StreamClassifier``."""
        if self.multi_class == OVO:
            raise AttributeError(
                f"pairs of classes, multi_class='ovo', have no probabilities: fit with multi_class='ovr', or through {AROUND}"
            )
        return check_calibrated(self.calibration, self.loss)

    @available_if(lambda self: takes_portions(self.solver))  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Make one pass over a portion of rows in memory, from the weights that all rows so far have come to.

        Only of a linear model, and a stochastic solver: solver='sgd', 'pegasos' or 'assg'. ``classes`` (n_classes,): all that will
        come, wanted by the first call. The certificate is void from then on, and said to be: ``gap_`` is infinite, as nothing is proved
        of rows that are gone; ``fit`` proves again. class_weight='balanced' is refused: it wants all labels. Raises ValueError.
        """
        if self.nu is not None:
            raise ValueError("portions are learned with C: leave nu out")
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' is not supported by partial_fit: the rows of each class are not known before the last portion; "
                "give class_weight={class: factor}, computed from all labels or from a large sample of them"
            )
        first = not self.__sklearn_is_fitted__()
        X, y = checked(self, X, y, reset=first)
        known = classes_of_portion(None if first else self.classes_, classes, y)
        if self.multi_class == OVO and len(known) > 2:
            raise ValueError("portions are learned one class against the rest: multi_class='ovr'")
        codes = np.searchsorted(known, y).astype(np.int32)
        weights = row_weights(sample_weight, len(codes))
        each_once = np.arange(len(known), dtype=np.int32)
        start, rows = resumable(self, self.kernel, known), 0 if first else self.rows_seen_
        with as_value_errors():
            store = store_of(X, codes, weights, len(known), ends=(), least=1)
            job = self._job({"class_weight": class_weights(self.class_weight, known, each_once, None)})
            model = partial_fit(job, store, start, rows)
        self.classes_ = known
        keep(self, named(model, known, vars(self).get("feature_names_in_")), rows + store.layout.rows)
        self.gap_, self.primal_, self.dual_ = float("inf"), float("nan"), float("nan")
        return self


def by_class(pairs: Float64, classes: int) -> Float64:
    """Return one value a class (n, classes) for those of all pairs (n, classes (classes - 1) / 2), as scikit-learn makes it.

    v_a + s_a / (3 (|s_a| + 1)): the votes for a, and s_a the sum of the decision values that speak for a.
    """
    sums = np.zeros((len(pairs), classes))
    for k, (first, second) in enumerate(combinations(range(classes), 2)):
        sums[:, first] += pairs[:, k]
        sums[:, second] -= pairs[:, k]
    return count_votes(pairs, classes) + sums / (3.0 * (np.abs(sums) + 1.0))
