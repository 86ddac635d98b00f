"""A classifier that chooses C itself: all values and all folds are solved on shared readings of the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from streamsvm.sklearn.fitting import fit_arrays, fit_elsewhere, fit_store
from streamsvm.sklearn.rows import checked
from streamsvm.sklearn.searching import best_of_arrays, best_of_elsewhere, best_of_store
from streamsvm.sklearn.stores import is_elsewhere
from streamsvm.sklearn.stream_rows import StreamRows
from streamsvm.sklearn.svc import StreamSVC

DEFAULT_COSTS = (0.01, 0.1, 1.0, 10.0, 100.0)


class StreamSVCCV(StreamSVC):
    """Choose C by cross-validation and fit with it, as ``LogisticRegressionCV`` does: it is ``streamsvm tune`` and a fit.

    All values of C and all folds are problems on the same readings of the rows, and so is the count of errors: a search reads
    about as often as its slowest fit. With landmarks all of them share the features of one map.

    Parameters
    ----------
    Cs : sequence of float, default (0.01, 0.1, 1, 10, 100)
        Weights of the losses to try.
    cv : int, splitter or iterable of (train, test), default 5
        How many folds, dealt as by ``StreamKFold`` and ``tune``. Of rows in memory also a splitter of scikit-learn, or its
        splits, that judges every row once.
    loss, loss_options, bias, class_weight, standardize, kernel, kernel_options, gamma, landmarks, sampling, solver, options, \
    tolerance, max_passes, memory, random_state, verbose, n_jobs, on_pass
        As of ``StreamSVC``. A kernel wants ``landmarks``: exact kernel machines are not tuned.

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

    def __init__(  # noqa: PLR0913 (an estimator's parameters are its options)
        self,
        Cs: Sequence[float] = DEFAULT_COSTS,
        *,
        cv: Any = 5,
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
        memory: int | str | None = None,
        random_state: Any = None,
        verbose: bool = False,
        n_jobs: int | None = None,
        on_pass: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        super().__init__(
            loss=loss,
            loss_options=loss_options,
            bias=bias,
            class_weight=class_weight,
            standardize=standardize,
            kernel=kernel,
            kernel_options=kernel_options,
            gamma=gamma,
            landmarks=landmarks,
            sampling=sampling,
            solver=solver,
            options=options,
            tolerance=tolerance,
            max_passes=max_passes,
            memory=memory,
            random_state=random_state,
            verbose=verbose,
            n_jobs=n_jobs,
            on_pass=on_pass,
        )
        self.Cs = Cs
        self.cv = cv

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Choose C and fit, to rows of any kind that ``StreamSVC.fit`` takes. Raises and warns as it does.

        ``sample_weight`` counts in training; errors are counted by rows.
        """
        if isinstance(X, StreamRows):
            self._choose(best_of_store(self, X, y, sample_weight))
            fit_store(self, X, y, sample_weight, C=self.C_)
        elif is_elsewhere(X):
            with best_of_elsewhere(self, X, y, sample_weight) as (found, place):
                self._choose(found)
                fit_elsewhere(self, place, None, None, C=self.C_)
        else:
            X, y = checked(self, X, y)
            self._choose(best_of_arrays(self, X, y, sample_weight))
            fit_arrays(self, X, y, sample_weight, C=self.C_)
        return self

    def _choose(self, found: tuple[float, Any]) -> None:
        self.C_, errors = found
        self.scores_ = 1.0 - np.asarray(errors)
