"""Cross-validation: a classifier that chooses C on shared passes over the rows, and a splitter whose folds are whole chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator, check_cv
from sklearn.utils.validation import _num_samples

from streamsvm.aliases import Array, ByName
from streamsvm.api.functions import explain_synonyms, ingest
from streamsvm.api.inputs import find_or_make_store
from streamsvm.api.run_job import open_job_report
from streamsvm.errors import UsageError
from streamsvm.jobs.folds import CHUNKS_PER_FOLD, cut_sizes, deal
from streamsvm.jobs.tune.options import TuneFilesJob
from streamsvm.jobs.tune.results import best_of
from streamsvm.jobs.tune.run import tune_in_memory
from streamsvm.model.measures import BALANCED_ERROR, ERROR, parse_measure
from streamsvm.rows import Int32, Int64
from streamsvm.sklearn.base import build_job, class_weights, encode_classes, estimator, own
from streamsvm.sklearn.rows import StreamRows, as_value_errors, check_own_labels, check_weights, make_store
from streamsvm.sklearn.svc import StreamClassifier
from streamsvm.store import open_store
from streamsvm.types import Store


class StreamKFold(BaseCrossValidator):
    """K folds of whole chunks, dealt at random: rows that lie together stay together, and a fold is read in few pieces.

    Of the rows of a store (``StreamRows``) these are the folds of ``streamsvm tune`` with the same number and seed, cut finer
    where there are fewer than eight chunks a fold. Of other rows they are made of pieces of equal length.

    Parameters
    ----------
    n_splits : int, default 5
        How many folds there are; at least 2.
    random_state : int, default 0
        The seed. ``seed`` is the same.

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
        """Return the number of folds, whatever the rows are."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Int64, Int64]]:
        """Yield the numbers of the rows to train on and of those to judge by (k,), rising. Raises ValueError for too few rows."""
        with as_value_errors():
            pieces = self._pieces(X)
            fold = np.repeat(deal(len(pieces), self.n_splits, self.random_state), pieces)
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
    """Return the fold of each row (n,) of a splitter of scikit-learn, or of pairs (train, test).

    Raises ValueError unless every row is judged by exactly once, by models of all others.
    """
    fold = np.full(len(y), -1, np.int32)
    for number, (train, test) in enumerate(check_cv(cv, y, classifier=True).split(X, y)):
        if (fold[test] >= 0).any() or len(train) + len(test) != len(y):
            raise ValueError("cv must judge every row once, by a model of all others, as StratifiedKFold does")
        fold[test] = number
    if (fold < 0).any():
        raise ValueError("cv must judge every row once: some are in no test set")
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
"""Scikit-learn's words for measures."""
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
        Weights of the losses to try. ``C``, as ``tune`` calls them, is the same.
    cv : int, splitter or iterable of (train, test), default 5
        How many folds, dealt as by ``StreamKFold`` and ``tune``. Of rows in memory also a splitter of scikit-learn, or its
        splits, that judges every row once. ``folds``, as ``tune`` calls it, is the same.
    loss, loss_options, bias, class_weight, standardize, kernel, kernel_options, gamma, landmarks, sampling, solver, options, \
    tolerance, max_passes, memory, missing, random_state, verbose, n_jobs, on_pass
        As of ``StreamSVC``.

    scoring : str, optional
        The measure that chooses C, as ``score`` of ``streamsvm.tune``: 'error', 'balanced_error', 'f1', 'auc', 'average_precision', 'cost:fp=1,fn=50',
        with loss 'logistic' also 'log_loss' and 'brier'; or scikit-learn's word for one of them: 'accuracy', 'balanced_accuracy', 'roc_auc',
        'neg_log_loss', 'neg_brier_score', 'f1_macro' (more than two classes). Of two classes the rarer one is the positive one. By default the
        error.

    Attributes
    ----------
    C_ : float
        The value with the best score; among equals the smallest.
    scores_ : ndarray (cv, n_Cs)
        The score on each fold, for each of ``Cs``, the greater the better: by default the accuracy, which is 1 - error; for
        balanced_error likewise 1 - balanced_error; of other measures that are better when smaller their negative.
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
    C: Sequence[float] | None = own(default=None, synonym_of="Cs")
    cv: Any = own(default=5)
    folds: int | None = own(default=None, synonym_of="cv")
    scoring: str | None = own(default=None)

    def _fit_arrays(self, X: Any, y: Array, sample_weight: Any, chosen: ByName) -> None:
        self._search_arrays(X, y, sample_weight)
        super()._fit_arrays(X, y, sample_weight, chosen | {"C": self.C_})

    def _fit_rows(self, X: StreamRows, y: Any, sample_weight: Any, chosen: ByName) -> None:
        check_own_labels(X, y, sample_weight)
        self._search(X.store(), self.class_weight, None)
        super()._fit_rows(X, y, sample_weight, chosen | {"C": self.C_})

    def _fit_ingested(self, X: Any, y: Any, sample_weight: Any, chosen: ByName) -> None:
        with TemporaryDirectory(prefix="streamsvm-") as folder:
            place = find_or_make_store(partial(ingest, **self._ingest_options()), X, y, sample_weight, Path(folder))
            self._search(open_store(place), self.class_weight, None)
            super()._fit_ingested(place, None, None, chosen | {"C": self.C_})
            self._set_classes(self.model_, y)

    def _search_arrays(self, X: Any, y: Array, sample_weight: Any) -> None:
        """Search on checked rows in memory: rows of a fold are put side by side, and rows of weight 0 left out."""
        classes, codes = encode_classes(y)
        weights = check_weights(sample_weight, len(codes))
        factors = class_weights(self.class_weight, classes, codes, weights)
        cv = self._stated("cv")
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
        """Set ``C_`` and ``scores_`` by ``tune`` on a store. ``fold`` (chunks,): the fold of each chunk; None: dealt at random."""
        cv = self._stated("cv")
        if fold is None and not isinstance(cv, int):
            raise UsageError("cv must be a number of folds for rows that lie in chunks", hint="cv=5")
        folds = cv if fold is None else int(fold.max()) + 1
        if self.scoring == "f1_macro" and len(store.layout.classes) == 2:
            raise UsageError(
                "scoring='f1_macro' is the mean over the classes, which is there for more than two",
                hint="scoring='f1' for that of the rarer class, or 'balanced_accuracy'",
            )
        score = SCORING.get(self.scoring or "", self.scoring)
        measure = ERROR if score is None else parse_measure(score, "scoring")
        grid = {
            "C": tuple(float(C) for C in self._stated("Cs")),
            "folds": folds,
            "class_weight": factors,
            "score": score,
        }
        asked: TuneFilesJob = build_job("tune", self, {"store": "", "out": ""} | grid)
        job = asked.store_job("")
        with open_job_report(progress=self._stated("verbose"), on_event=None) as report:
            scores = tune_in_memory(job, store, report, fold)
        self.C_ = best_of(scores, measure).loss_weight
        found = np.array([one.folds for one in scores]).T
        if measure in {ERROR, BALANCED_ERROR}:
            self.scores_ = 1.0 - found
        else:
            self.scores_ = found if measure.higher_is_better else -found
