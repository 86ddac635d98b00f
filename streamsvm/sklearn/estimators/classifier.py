"""What classifiers do alike: classes of any kind, their weights, decision values, labels and probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from streamsvm.aliases import Array, ByName
from streamsvm.engine.signals import interruptible
from streamsvm.jobs.fit.driver import fit_in_memory
from streamsvm.model import Model
from streamsvm.rows import Float64
from streamsvm.sklearn.estimators.estimator import StreamEstimator
from streamsvm.sklearn.estimators.probabilities import check_calibrated, check_probabilities
from streamsvm.sklearn.fitting.classes import class_weights, coded, in_order, labels_as_given, named
from streamsvm.sklearn.fitting.results import take
from streamsvm.sklearn.parameters import estimator
from streamsvm.sklearn.rows.checked import as_value_errors, labels_in_memory, row_weights, rows_counted, store_of
from streamsvm.sklearn.rows.stream_rows import StreamRows, check_own


@estimator
class StreamClassifier(ClassifierMixin, StreamEstimator):
    """A classifier; the parameters that all of them have."""

    loss: str = "squared_hinge"
    """The name of the loss."""
    loss_options: Mapping[str, float] | None = None
    """Its settings."""
    class_weight: Mapping[Any, float] | str | None = None
    """Factors of C by class."""

    def _fit_arrays(self, X: Any, y: Array, sample_weight: Any, chosen: ByName) -> None:
        """See ``StreamEstimator``."""
        classes, codes = coded(y)
        weights = row_weights(sample_weight, len(codes))
        with as_value_errors():
            store = store_of(X, codes, weights, len(classes))
            factors = class_weights(self.class_weight, classes, codes, weights)
            job = self._job({"class_weight": factors} | chosen)
            with self._watched() as report:
                result = fit_in_memory(job, store, report, self._start(classes))
        columns = vars(self).get("feature_names_in_")
        self.classes_ = classes
        take(self, result, named(result.model, classes, columns), rows_counted(weights, len(codes)))

    def _fit_rows(self, X: StreamRows, y: Any, sample_weight: Any, chosen: ByName) -> None:
        """See ``StreamEstimator``."""
        check_own(X, y, sample_weight)
        with as_value_errors():
            job = self._job(chosen)
            with self._watched() as report, interruptible():
                store = X.store()
                result = fit_in_memory(job, store, report)
        self.n_features_in_ = store.layout.columns
        self.classes_ = X.known([store.layout.classes[code] for code in in_order(store)])
        take(self, result, result.model, store.layout.rows)

    def _named(self, model: Model, y: Any) -> None:
        self.classes_ = labels_as_given(model, y)

    def _start(self, classes: Array) -> Model | None:
        """Return the model that a fit of these classes begins with, as one of class codes."""
        return None

    def decision_function(self, X: Any) -> Float64:
        """Return float64 (n_samples,) for two classes, positive for ``classes_[1]``, or (n_samples, n_classes)."""
        check_is_fitted(self)
        return self._decisions(self.model_, X)

    def predict(self, X: Any) -> Array:
        """Return the class of each row, (n_samples,); pairs of classes vote, and of those with most votes it is the first, as in ``SVC``."""
        check_is_fitted(self)
        found = self._decisions(self.model_, X)
        return self.classes_[self.model_.codes(found.reshape(len(found), -1))]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of right answers; ``y``: one label a row, also lazy ones of dask and polars, or the name of a column of X."""
        found: float = super().score(X, labels_in_memory(X, y), sample_weight)
        return found

    def _check_probabilities(self) -> bool:
        """Return whether a fit gives probabilities; raises AttributeError where it does not."""
        return check_calibrated(None, self.loss)

    @available_if(lambda self: self._check_probabilities())  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Float64:
        """Return the probability of each class, float64 (n_samples, n_classes) in the order of ``classes_``.

        Raises UsageError where the last fit has learned none: after ``partial_fit``, or at its time limit.
        """
        check_is_fitted(self)
        check_probabilities(self.model_)
        return self.model_.probabilities(self.decision_function(X).reshape(-1, len(self.model_.weights)))

    @available_if(lambda self: self._check_probabilities())  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Float64:
        """Return the natural logarithm of ``predict_proba``; minus infinity of a probability of 0."""
        with np.errstate(divide="ignore"):
            found: Float64 = np.log(self.predict_proba(X))
        return found
