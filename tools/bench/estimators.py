"""StreamSVC beside LinearSVC on rows in memory: processor time of alternated fits of svmlight files, default settings.

python -m tools.bench.estimators a9a letter
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.svm import LinearSVC

from streamsvm.sklearn import StreamSVC

REPEATS = 3
"""Pairs of fits; the least time of each is what counts."""


def timed(fit: Callable[[], Any]) -> tuple[Any, float]:
    """Return what is fitted, and the processor seconds it took."""
    began = time.process_time()
    return fit(), time.process_time() - began


def measured(path: Path) -> str:
    """Return a row of the table for a file."""
    X, y = load_svmlight_file(str(path))
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # LinearSVC takes no others
    StreamSVC().fit(X[:300], y[:300])  # compiled passes are loaded once a process
    pairs = [(timed(lambda: StreamSVC().fit(X, y)), timed(lambda: LinearSVC().fit(X, y))) for _ in range(REPEATS)]
    ours, theirs = (min(pair[k][1] for pair in pairs) for k in (0, 1))
    one, other = pairs[-1][0][0], pairs[-1][1][0]
    figures = f"{ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} | {one.gap_:.1e} | {one.score(X, y):.4f} | {other.score(X, y):.4f}"
    return f"| {path.name} {X.shape[0]} x {X.shape[1]} | {figures} |"


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    print(
        "| rows | StreamSVC, CPU s | LinearSVC, CPU s | ratio | gap | right | right, LinearSVC |\n|---|---|---|---|---|---|---|"
    )
    for name in sys.argv[1:]:
        print(measured(Path(name)), flush=True)


if __name__ == "__main__":
    main()
