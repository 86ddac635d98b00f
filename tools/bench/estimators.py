"""StreamSVC beside scikit-learn's SVMs on rows in memory: alternated fits of the same arrays in one process, default settings.

python -m tools.bench.estimators --data ../shared/data --linear a9a,imdb,letter,covtype --kernel letter --rows 5000
python -m tools.bench.estimators --linear '' --kernel '' --small 500,1000,2000 --pairs 51

Linear: ``LinearSVC()``, which is said where it has not converged. With --kernel: ``SVC()`` on --rows rows drawn of each set, and the one of
scikit-learn-intelex where that is installed; of several classes beside one against the rest and beside pairs, which are what these solve. With --small: both on the first rows of ijcnn1. Seconds by the clock are medians of --pairs alternated fits,
and ratios are medians of their ratios.
"""

from __future__ import annotations

import argparse
import gzip
import lzma
import time
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, LinearSVC

from streamsvm.sklearn import StreamSVC

HEAD = "| rows | peer | StreamSVC, s | peer, s | ratio | CPU, ratio | gap | right | right, peer |"


def svmlight(data: Path, name: str) -> tuple[Any, Any]:
    """Return the rows of a compressed svmlight file, with indices of 32 bits: LinearSVC takes no others."""
    with lzma.open(data / f"{name}.xz") as file:
        X, y = load_svmlight_file(file)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X, y


def covtype(data: Path) -> tuple[Any, Any]:
    """Return four fifths of 581,012 x 54 rows, drawn, seven classes, columns divided by their largest value."""
    with gzip.open(data / "covtype.csv.gz") as file:
        table = np.loadtxt(file, np.float32, delimiter=",", skiprows=1)
    train = np.random.default_rng(0).permutation(len(table))[: 4 * len(table) // 5]
    X, y = table[:, :-1] / np.maximum(np.abs(table[:, :-1]).max(axis=0), 1e-9), table[:, -1].astype(int)
    return X[train], y[train]


def ijcnn1(data: Path, rows: int) -> tuple[Any, Any]:
    """Return the first rows of ijcnn1, dense."""
    with gzip.open(data / "ijcnn1.gz") as file:
        X, y = load_svmlight_file(file)
    return X[:rows].toarray(), y[:rows]


def rows_of(data: Path, name: str) -> tuple[Any, Any]:
    """Return the rows to train on and their labels."""
    return covtype(data) if name == "covtype" else svmlight(data, name)


def timed(fit: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what is fitted, and the seconds by the clock and of processors it took."""
    clock, began = time.perf_counter(), time.process_time()
    return fit(), time.perf_counter() - clock, time.process_time() - began


def measured(name: str, ours: Any, theirs: Any, rows: tuple[Any, Any], pairs: int) -> str:
    """Return a row of the table."""
    X, y = rows
    ours.fit(X, y)  # compiled passes are loaded once a process
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        taken = [(timed(lambda: ours.fit(X, y)), timed(lambda: theirs.fit(X, y))) for _ in range(pairs)]
    short = any(issubclass(one.category, ConvergenceWarning) and "Liblinear" in str(one.message) for one in said)
    one, other = (np.median([pair[k][1:] for pair in taken], axis=0) for k in (0, 1))
    ratios = np.median([np.divide(mine[1:], peers[1:]) for mine, peers in taken], axis=0)
    peer = f"{type(theirs).__module__.partition('.')[0]} {type(theirs).__name__}{', not converged' if short else ''}"
    told = f"{one[0]:.4f} | {other[0]:.4f} | {ratios[0]:.2f} | {ratios[1]:.2f} | {ours.gap_:.1e}"
    right = f"{ours.score(X[:20_000], y[:20_000]):.4f} | {theirs.score(X[:20_000], y[:20_000]):.4f}"
    return f"| {name} {X.shape[0]} x {X.shape[1]} | {peer} | {told} | {right} |"


def kernel_peers() -> list[Any]:
    """Return SVC, and that of scikit-learn-intelex where it is installed."""
    found = [SVC()]
    try:
        from sklearnex import svm as accelerated  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ModuleNotFoundError:
        return found
    return [*found, accelerated.SVC()]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--linear", default="a9a,imdb,letter,covtype")
    parser.add_argument("--kernel", default="letter,a9a")
    parser.add_argument("--small", default="", help="numbers of first rows of ijcnn1")
    parser.add_argument("--rows", type=int, default=5000, help="rows of the kernel machines")
    parser.add_argument("--pairs", type=int, default=3)
    asked = parser.parse_args()
    print(f"{HEAD}\n|{'---|' * 9}")
    for name in filter(None, asked.linear.split(",")):
        X, y = rows_of(asked.data, name)
        print(measured(name, StreamSVC(), LinearSVC(), (X, y), asked.pairs), flush=True)
    for name in filter(None, asked.kernel.split(",")):
        X, y = rows_of(asked.data, name)
        chosen = np.sort(np.random.default_rng(0).permutation(X.shape[0])[: asked.rows])
        X, y = X[chosen], y[chosen]
        several: list[Literal["ovr", "ovo"]] = ["ovr", "ovo"] if len(np.unique(y)) > 2 else ["ovr"]
        for peer, pairs in product(kernel_peers(), several):
            ours = StreamSVC(kernel="rbf", loss="hinge", multi_class=pairs)
            print(measured(f"{name}, rbf, {pairs},", ours, peer, (X, y), asked.pairs), flush=True)
    for rows in map(int, filter(None, asked.small.split(","))):
        given = ijcnn1(asked.data, rows)
        print(measured("ijcnn1, linear,", StreamSVC(), LinearSVC(), given, asked.pairs), flush=True)
        ours, peer = StreamSVC(10.0, kernel="rbf", gamma=2.0, loss="hinge"), SVC(C=10.0, gamma=2.0)
        print(measured("ijcnn1, rbf,", ours, peer, given, asked.pairs), flush=True)


if __name__ == "__main__":
    main()
