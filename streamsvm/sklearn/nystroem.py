"""Nystrom features as a transformer of scikit-learn: the same map as that of ``embed`` and of fits with landmarks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from streamsvm.compute.blocks.operators import Factored
from streamsvm.errors import UsageError
from streamsvm.features.nystrom import Nystrom
from streamsvm.features.scaling import choose_scaling
from streamsvm.jobs.common_options import EmbedJob
from streamsvm.jobs.embed.landmarks import make_projection
from streamsvm.jobs.embed.plan import GREEDY, request_features
from streamsvm.rows import Dense, Float64, Rows, row_count
from streamsvm.sklearn.base import (
    KernelName,
    Parameters,
    SamplingName,
    build_job,
    draw_seed,
    estimator,
    option,
    own_parameter,
)
from streamsvm.sklearn.rows import as_value_errors, center_rows, check_rows, is_small, merge_copies
from streamsvm.store.sources.array_rows import rows_of
from streamsvm.store.sources.offsets import offsets_of_store
from streamsvm.store.views import MemoryStore
from streamsvm.type_aliases import JsonObject
from streamsvm.types import silent


@estimator
class StreamNystroem(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Parameters):
    """Map rows to features phi(x) = W' k(x) whose inner products approximate a kernel; k(x) are the kernel values with the landmarks.

    W = U S^-1/2, where U S U' is the kernel matrix of the landmarks without eigenvectors whose eigenvalue is below ``cutoff`` times the
    largest (Williams and Seeger, NIPS 2000). The number of features is that of the remaining eigenvectors, at most ``landmarks``.

    Parameters
    ----------
    kernel : str, default 'rbf'
        'rbf', 'laplacian', 'polynomial', 'sigmoid' or 'linear'.
    gamma : float, 'scale' or 'mean-distance', default 'scale'
        Width of the kernel; 'scale' is 1 / (n_features X.var()), as in scikit-learn.
    kernel_options : dict, optional
        Settings of the kernel by name, such as degree and coef0.
    landmarks : int, default 100
        Number of rows from which the features are made; all rows if there are fewer.
    sampling : 'uniform', 'leverage' or 'kmeans++'
        How the landmarks are chosen: at random, by leverage, or far from each other.
    cutoff : float, default 1e-6
        The smallest eigenvalue that is kept, as a fraction of the largest.
    standardize : bool, default False
        Scale columns to mean 0 and standard deviation 1.
    random_state : int, RandomState instance or None
        The seed; None is 0. ``seed`` is another name.

    Attributes
    ----------
    components_ : ndarray (n_landmarks, n_features)
        The landmarks, scaled if ``standardize``.
    normalization_ : ndarray (n_landmarks, n_components)
        W.
    n_features_in_ : int
        Number of columns of X.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.sklearn import StreamNystroem
    >>> StreamNystroem(landmarks=2).fit_transform(np.eye(4)).shape
    (4, 2)
    """

    kernel: KernelName = "rbf"
    gamma: float | Literal["scale", "mean-distance"] = "scale"
    kernel_options: Mapping[str, float] | None = None
    landmarks: int = 100
    sampling: SamplingName = "uniform"
    cutoff: float = 1e-6
    standardize: bool = False
    random_state: Any = option(default=None, name="seed", value=draw_seed)
    seed: int | None = own_parameter(default=None, synonym_of="random_state")

    if TYPE_CHECKING:  # inherited from classes without type annotations

        def fit_transform(self, X: Any, y: Any = None) -> Any:
            """Fit to rows, and return their features as an array or a frame, as set by ``set_output``."""
            raise NotImplementedError

        def set_output(self, *, transform: Literal["default", "pandas", "polars"] | None = None) -> Self:
            """Set the type of the result of ``transform``."""
            raise NotImplementedError

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose the landmarks from rows X (n_samples, n_features), dense or sparse; y is ignored.

        Raises ValueError for unusable data and parameters.
        """
        X = check_rows(self, X, ensure_min_samples=2)
        with as_value_errors():
            if self.sampling == GREEDY:
                raise UsageError(
                    "sampling='greedy' chooses landmarks by labels, and StreamNystroem does not look at them",
                    hint="uniform, leverage or kmeans++; StreamSVC(kernel='rbf', landmarks=..., sampling='greedy') has them",
                )
            job: EmbedJob = build_job("embed", self, {"store": "", "embedding": ""})
            rows, facts = center_rows(X)
            store = _make_store(rows, X.shape[1], facts)
            inner = choose_scaling(store, standardize=job.standardize, every=False, bias=0.0)
            request = request_features(job, store, inner)
            assert request is not None  # a job of features has landmarks
            self._offsets = offsets_of_store(facts)
            self._projection = make_projection(request, store, silent)
        self.components_, self.normalization_ = self._projection.points.columns.T, self._projection.W
        self._n_features_out = self._projection.rank
        return self

    def transform(self, X: Any) -> Float64:
        """Return the features of rows, float64 (n_samples, n_components)."""
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        with as_value_errors():
            rows = self._offsets.apply(rows_of(X, "X", exact=bool(len(self._offsets.columns))))
        if isinstance(rows, Dense):
            rows = Dense(rows.values.copy())  # the map standardizes in place
        features = np.empty((X.shape[0], self._projection.rank))
        W = self._projection.W.astype(np.float64)
        for part in Nystrom(self._projection, 0.0, factored=True, exact=True).parts(rows):
            assert isinstance(part.X, Factored)
            np.matmul(part.X.kernel_values, W, out=features[part.start : part.stop])
        return features


def _make_store(rows: Rows, columns: int, facts: JsonObject) -> MemoryStore:
    """Return rows as a store without labels. Few rows are merged as for estimators, which then choose the same landmarks."""
    codes, counts = np.zeros(row_count(rows), np.int32), None
    if is_small(rows):
        rows, codes, counts = merge_copies(rows, codes, None, columns)
    copied = counts is not None and (counts > 1).any()
    store = MemoryStore(name="X", facts=facts, copies=True)
    store.append(rows, codes, counts.astype(np.float32) if copied and counts is not None else None)
    return store.commit(("0",), columns)
