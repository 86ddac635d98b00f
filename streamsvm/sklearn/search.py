"""Cross-validation: ``StreamSVCCV``, a classifier that chooses C, and ``StreamKFold``, a splitter whose folds are whole chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator, check_cv
from sklearn.utils.validation import _num_samples

from streamsvm.api.callbacks import open_job_report
from streamsvm.api.functions import explain_synonyms, ingest
from streamsvm.api.inputs import find_or_make_store
from streamsvm.errors import UsageError
from streamsvm.jobs.folds import CHUNKS_PER_FOLD, assign_at_random, cut_sizes
from streamsvm.jobs.tune.options import TuneFilesJob
from streamsvm.jobs.tune.results import best_of
from streamsvm.jobs.tune.run import tune_in_memory
from streamsvm.model.measures import BALANCED_ERROR, ERROR, parse_measure
from streamsvm.rows import Int32, Int64
from streamsvm.sklearn.base import build_job, class_weights, encode_classes, estimator, own_parameter
from streamsvm.sklearn.rows import StreamRows, as_value_errors, check_own_labels, check_weights, make_store
from streamsvm.sklearn.svc import StreamClassifier
from streamsvm.store import open_store
from streamsvm.type_aliases import Array, ValuesByName
from streamsvm.types import Store


class StreamKFold(BaseCrossValidator):
    """K-fold splitter that assigns whole chunks to folds at random, so that a fold is read in few pieces and neighboring rows stay together.

    For ``StreamRows`` of a store, the folds are those of ``streamsvm tune`` with the same number and seed; chunks are divided if there are
    fewer than eight for each fold. Other rows are divided into pieces of equal length.

    Parameters
    ----------
    n_splits : int, default 5
        Number of folds; at least 2.
    random_state : int, default 0
        The seed. ``seed`` is another name.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.sklearn import StreamKFold
    >>> [len(test) for _, test in StreamKFold(4).split(np.zeros((64, 2)))]
    [16, 16, 16, 16]
    """

    def __init__(self, n_splits: int = 5, *, random_state: int = 0, seed: int | None = None) -> None:
        if seed is not None and random_state not in {0, seed}:
            raise ValueError(explain_synonyms("random_state", random_state, "seed", seed))
        self.n_splits = n_splits
        self.random_state = self.seed = random_state if seed is None else seed

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds; the arguments are ignored."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Int64, Int64]]:
        """Yield, for each fold, the indices of its training rows and of its test rows (k,), ascending. Raises ValueError for too few rows."""
        with as_value_errors():
            pieces = self._pieces(X)
            fold = np.repeat(assign_at_random(len(pieces), self.n_splits, self.random_state), pieces)
        for number in range(self.n_splits):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)

    def _pieces(self, X: Any) -> list[int]:
        """Return the number of rows of each piece that is assigned to a fold."""
        if isinstance(X, StreamRows) and X.pieces is not None:
            return list(cut_sizes(X.store(), self.n_splits))
        rows = _num_samples(X)
        count = min(rows, CHUNKS_PER_FOLD * self.n_splits)
        return np.diff(np.linspace(0, rows, count + 1).astype(np.int64)).tolist()


def assign_folds(cv: Any, X: Any, y: Array) -> Int32:
    """Return the fold of each row (n,) by a splitter of scikit-learn, or by pairs (train, test).

    Raises ValueError unless every row is in exactly one test set, and the training set of a fold has all other rows.
    """
    fold = np.full(len(y), -1, np.int32)
    for number, (train, test) in enumerate(check_cv(cv, y, classifier=True).split(X, y)):
        if (fold[test] >= 0).any() or len(train) + len(test) != len(y):
            raise ValueError(
                "cv must have every row in one test set, with all other rows in its training set, as StratifiedKFold does"
            )
        fold[test] = number
    if (fold < 0).any():
        raise ValueError("cv must have every row in one test set: some rows are in none")
    return fold


SCORING = {
    "accuracy": "error",
    "balanced_accuracy": "balanced_error",
    "f1_macro": "f1",
    "roc_auc": "auc",
    "roc_auc_ovr": "auc",
    "neg_log_loss": "log_loss",
    "neg_brier_score": "brier",
}
"""The measures by their names in scikit-learn."""
DEFAULT_CS = (0.01, 0.1, 1.0, 10.0, 100.0)


@estimator
class StreamSVCCV(StreamClassifier):
    """Choose C by cross-validation and fit with it, like ``LogisticRegressionCV``: ``streamsvm tune`` followed by a fit.

    The fits for all values of C and all folds share the passes over the rows, so that a search makes about as many passes as its slowest
    fit. With landmarks, each fold has its own landmarks, chosen by the labels of the other folds, and its own passes; with
    ``sampling='uniform'`` all folds share one feature map.

    Parameters
    ----------
    Cs : sequence of float, default (0.01, 0.1, 1, 10, 100)
        Values of C to try. ``C``, as in ``tune``, is another name.
    cv : int, splitter or iterable of (train, test), default 5
        Number of folds, assigned as by ``StreamKFold`` and ``tune``. For rows in memory also a splitter of scikit-learn, or its splits,
        with every row in one test set. ``folds``, as in ``tune``, is another name.
    loss, loss_options, bias, class_weight, standardize, kernel, kernel_options, gamma, landmarks, sampling, solver, options, \
    tolerance, max_passes, memory, missing, random_state, verbose, n_jobs, on_pass
        As for ``StreamSVC``.

    scoring : str, optional
        The measure by which C is chosen, as ``score`` of ``streamsvm.tune``: 'error' (default), 'balanced_error', 'f1', 'auc',
        'average_precision', 'cost:fp=1,fn=50', with the loss 'logistic' also 'log_loss' and 'brier'; or their names in scikit-learn: 'accuracy',
        'balanced_accuracy', 'roc_auc', 'neg_log_loss', 'neg_brier_score', 'f1_macro' (more than two classes). With two classes, the rarer
        one is the positive class.

    Attributes
    ----------
    C_ : float
        The value of C with the best score; in a tie the smallest.
    scores_ : ndarray (cv, n_Cs)
        The score of each of ``Cs`` on each fold; greater is better. By default the accuracy, 1 - error; for balanced_error likewise
        1 - balanced_error; for other measures of which smaller values are better, the negative value.
    classes_, coef_, intercept_, gap_, primal_, dual_, n_passes_, peak_memory_, passes_, model_, n_features_in_
        Attributes of the fit to all rows with C_, as for ``StreamSVC``.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.sklearn import StreamSVCCV
    >>> X = np.linspace(-1, 1, 80).reshape(-1, 1)
    >>> StreamSVCCV(Cs=[0.1, 10.0], cv=4).fit(X, X[:, 0] > 0.1).scores_.shape
    (4, 2)
    """

    Cs: Sequence[float] = own_parameter(default=DEFAULT_CS, kw_only=False)
    C: Sequence[float] | None = own_parameter(default=None, synonym_of="Cs")
    cv: Any = own_parameter(default=5)
    folds: int | None = own_parameter(default=None, synonym_of="cv")
    scoring: str | None = own_parameter(default=None)

    def _fit_arrays(self, X: Any, y: Array, sample_weight: Any, chosen: ValuesByName) -> None:
        self._search_arrays(X, y, sample_weight)
        super()._fit_arrays(X, y, sample_weight, chosen | {"C": self.C_})

    def _fit_rows(self, X: StreamRows, y: Any, sample_weight: Any, chosen: ValuesByName) -> None:
        check_own_labels(X, y, sample_weight)
        self._search(X.store(), self.class_weight, None)
        super()._fit_rows(X, y, sample_weight, chosen | {"C": self.C_})

    def _fit_ingested(self, X: Any, y: Any, sample_weight: Any, chosen: ValuesByName) -> None:
        with TemporaryDirectory(prefix="streamsvm-") as folder:
            store = find_or_make_store(partial(ingest, **self._ingest_options()), X, y, sample_weight, Path(folder))
            self._search(open_store(store), self.class_weight, None)
            super()._fit_ingested(store, None, None, chosen | {"C": self.C_})
            self._set_classes(self.model_, y)

    def _search_arrays(self, X: Any, y: Array, sample_weight: Any) -> None:
        """Search on checked rows in memory. With a splitter, rows are sorted by fold, and rows of weight 0 are dropped."""
        classes, codes = encode_classes(y)
        weights = check_weights(sample_weight, len(codes))
        factors = class_weights(self.class_weight, classes, codes, weights)
        cv = self._parameter("cv")
        fold = None if isinstance(cv, int) else assign_folds(cv, X, y)
        ends: list[int] = []
        if fold is not None:
            order = np.argsort(fold, kind="stable")
            order = order if weights is None else order[weights[order] > 0]
            X, codes, fold = X[order], codes[order], fold[order]
            weights = None if weights is None else weights[order]
            ends = (np.flatnonzero(np.diff(fold)) + 1).tolist()
        store = make_store(X, codes, weights, len(classes), ends=ends)
        starts = np.cumsum((0, *store.layout.chunks[:-1]))
        self._search(store, factors, None if fold is None else fold[starts])

    def _search(self, store: Store, factors: Mapping[Any, float] | str | None, fold: Int32 | None) -> None:
        """Set ``C_`` and ``scores_`` by a search on a store. ``fold`` (chunks,): the fold of each chunk; None: assigned at random."""
        cv = self._parameter("cv")
        if fold is None and not isinstance(cv, int):
            raise UsageError("cv must be a number of folds for rows that lie in chunks", hint="cv=5")
        folds = cv if fold is None else int(fold.max()) + 1
        if self.scoring == "f1_macro" and len(store.layout.classes) == 2:
            raise UsageError(
                "scoring='f1_macro', a mean over the classes, needs more than two classes",
                hint="scoring='f1' for that of the rarer class, or 'balanced_accuracy'",
            )
        score = SCORING.get(self.scoring or "", self.scoring)
        measure = ERROR if score is None else parse_measure(score, "scoring")
        grid = {
            "C": tuple(float(C) for C in self._parameter("Cs")),
            "folds": folds,
            "class_weight": factors,
            "score": score,
        }
        files_job: TuneFilesJob = build_job("tune", self, {"store": "", "out": ""} | grid)
        job = files_job.store_job("")
        with open_job_report(progress=self._parameter("verbose"), on_event=None) as report:
            scores = tune_in_memory(job, store, report, fold)
        self.C_ = best_of(scores, measure).loss_weight
        values = np.array([score.folds for score in scores]).T
        if measure in {ERROR, BALANCED_ERROR}:
            self.scores_ = 1.0 - values
        else:
            self.scores_ = values if measure.higher_is_better else -values
