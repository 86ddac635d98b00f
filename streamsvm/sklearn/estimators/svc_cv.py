"""A classifier that chooses C itself: all values and all folds are solved on shared readings of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamsvm.aliases import Array, ByName
from streamsvm.sklearn.estimators.classifier import StreamClassifier
from streamsvm.sklearn.fitting.searching import CostSearch, Found
from streamsvm.sklearn.parameters import estimator, own
from streamsvm.sklearn.rows.stream_rows import StreamRows

DEFAULT_COSTS = (0.01, 0.1, 1.0, 10.0, 100.0)


@estimator
class StreamSVCCV(StreamClassifier):
    """Choose C by cross-validation and fit with it, as ``LogisticRegressionCV`` does: it is ``streamsvm tune`` and a fit.

    All values of C and all folds are problems on the same readings of the rows, and so is the count of errors: a search reads
    about as often as its slowest fit. With landmarks each fold has landmarks and readings of its own, chosen by the
    labels of the others alone; with ``sampling='uniform'`` all folds share the features of one map.

    Parameters
    ----------
    Cs : sequence of float, default (0.01, 0.1, 1, 10, 100)
        Weights of the losses to try.
    cv : int, splitter or iterable of (train, test), default 5
        How many folds, dealt as by ``StreamKFold`` and ``tune``. Of rows in memory also a splitter of scikit-learn, or its
        splits, that judges every row once.
    loss, loss_options, bias, class_weight, standardize, kernel, kernel_options, gamma, landmarks, sampling, solver, options, \
    tolerance, max_passes, memory, missing, random_state, verbose, n_jobs, on_pass
        As of ``StreamSVC``.

    Attributes
    ----------
    C_ : float
        The value with the least error; among equals the smallest.
    scores_ : ndarray (cv, n_Cs)
        The share of right answers on each fold, for each of ``Cs``.
    classes_, coef_, intercept_, gap_, primal_, dual_, n_passes_, peak_memory_, passes_, model_, n_features_in_
        Of the fit with C_ to all rows, as of ``StreamSVC``.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.sklearn import StreamSVCCV
    >>> X = np.linspace(-1, 1, 80).reshape(-1, 1)
    >>> StreamSVCCV(Cs=[0.1, 10.0], cv=4).fit(X, X[:, 0] > 0.1).scores_.shape
    (4, 2)
    """

    Cs: Sequence[float] = own(default=DEFAULT_COSTS, kw_only=False)
    """Weights of the losses to try."""
    cv: Any = own(default=5)
    """The folds."""

    def _fit_arrays(self, X: Any, y: Array, sample_weight: Any, chosen: ByName) -> None:
        self._choose(self._search().of_arrays(X, y, sample_weight))
        super()._fit_arrays(X, y, sample_weight, chosen | {"C": self.C_})

    def _fit_rows(self, X: StreamRows, y: Any, sample_weight: Any, chosen: ByName) -> None:
        self._choose(self._search().of_rows(X, y, sample_weight))
        super()._fit_rows(X, y, sample_weight, chosen | {"C": self.C_})

    def _fit_elsewhere(self, X: Any, y: Any, sample_weight: Any, chosen: ByName) -> None:
        with self._search().of_elsewhere(X, y, sample_weight) as (found, place):
            self._choose(found)
            super()._fit_elsewhere(place, None, None, chosen | {"C": self.C_})
            self._named(self.model_, y)

    def _search(self) -> CostSearch:
        return CostSearch(self, self.Cs, self.cv, self.class_weight, self._ingested())

    def _choose(self, found: Found) -> None:
        self.C_, errors = found
        self.scores_ = 1.0 - np.asarray(errors)
