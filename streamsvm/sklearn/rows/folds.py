"""Folds of rows that lie in chunks: those of ``streamsvm tune``, for every tool of scikit-learn that takes a splitter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils.validation import _num_samples

from streamsvm.jobs.folds import CHUNKS_PER_FOLD, dealt, pieces_of
from streamsvm.rows import Int64
from streamsvm.sklearn.rows.checked import as_value_errors
from streamsvm.sklearn.rows.stream_rows import StreamRows


class StreamKFold(BaseCrossValidator):
    """K folds of whole chunks, dealt at random: rows that lie together stay together, and a fold is read in few pieces.

    Of the rows of a store (``StreamRows``) these are the folds of ``streamsvm tune`` with the same number and seed, cut finer
    where there are fewer than eight chunks a fold. Of other rows they are made of pieces of equal length.

    Parameters
    ----------
    n_splits : int, default 5
        How many folds there are; at least 2.
    random_state : int, default 0
        The seed.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.sklearn import StreamKFold
    >>> [len(test) for _, test in StreamKFold(4).split(np.zeros((64, 2)))]
    [16, 16, 16, 16]
    """

    def __init__(self, n_splits: int = 5, *, random_state: int = 0) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds, whatever the rows are."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Int64, Int64]]:
        """Yield the numbers of the rows to train on and of those to judge by (k,), rising. Raises ValueError for too few rows."""
        with as_value_errors():
            pieces = self._pieces(X)
            fold = np.repeat(dealt(len(pieces), self.n_splits, self.random_state), pieces)
        for number in range(self.n_splits):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)

    def _pieces(self, X: Any) -> list[int]:
        """The rows of each piece that is dealt to a fold."""
        if isinstance(X, StreamRows) and X.pieces is not None:
            return list(pieces_of(X.store(), self.n_splits))
        rows = _num_samples(X)
        count = min(rows, CHUNKS_PER_FOLD * self.n_splits)
        return np.diff(np.linspace(0, rows, count + 1).astype(np.int64)).tolist()
