"""What calibration costs and what it is worth: fits with and without, by turns, and CalibratedClassifierCV on the same estimator.

python -m tools.bench.calibration --data ../shared/data --sets a9a,covtype,mnist

Of each set: processor seconds of a whole ``sv.fit(store, model)`` without and with ``calibrate`` (medians of so many alternated pairs, one
process, a store on disk), the ratio of both and that of the seconds by the clock, and the figures on rows that were not fitted. The peer is
``CalibratedClassifierCV(StreamSVC(...), cv=5, ensemble=False)``: five fits on four fifths of the rows, and one of all.
"""

from __future__ import annotations

import argparse
import gzip
import lzma
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_svmlight_file

import streamsvm as sv
from streamsvm.calibration.reliability import ProbabilityCounts, ProbabilityFigures
from streamsvm.sklearn import StreamSVC

METHODS = ("sigmoid", "isotonic", "temperature")
HEAD = "| set | method | fit, CPU s | calibrated, CPU s | ratio | by the clock | log loss | Brier | ECE | ECE, CalibratedClassifierCV | its CPU s |"


def a9a(data: Path) -> tuple[Any, Any, Any, Any]:
    """Return rows and labels to train on and to judge on: 32,561 and 16,281 x 123, two classes."""
    parts: list[Any] = []
    for name in ("a9a.xz", "a9a.t.xz"):
        with lzma.open(data / name) as file:
            X, y = load_svmlight_file(file, n_features=123)
        parts += [X, y.astype(int)]
    return parts[0], parts[1], parts[2], parts[3]


def covtype(data: Path) -> tuple[Any, Any, Any, Any]:
    """Return the same of 581,012 x 54 rows, four fifths and one fifth drawn, seven classes, columns divided by their largest value."""
    with gzip.open(data / "covtype.csv.gz") as file:
        table = np.loadtxt(file, np.float32, delimiter=",", skiprows=1)
    X, y = table[:, :-1] / np.maximum(np.abs(table[:, :-1]).max(axis=0), 1e-9), table[:, -1].astype(int)
    order = np.random.default_rng(0).permutation(len(X))
    train, test = np.split(order, [4 * len(X) // 5])
    return X[train], y[train], X[test], y[test]


def mnist(data: Path) -> tuple[Any, Any, Any, Any]:
    """Return the same of 60,000 and 10,000 x 784 rows, ten classes, pixels divided by 255."""
    parts = []
    for part in ("train", "t10k"):
        with gzip.open(data / "mnist" / f"{part}-images-idx3-ubyte.gz") as file:
            parts.append(np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784).astype(np.float32) / 255)
        with gzip.open(data / "mnist" / f"{part}-labels-idx1-ubyte.gz") as file:
            parts.append(np.frombuffer(file.read(), np.uint8, offset=8).astype(int))
    return parts[0], parts[1], parts[2], parts[3]


SETS: dict[str, Callable[[Path], tuple[Any, Any, Any, Any]]] = {"a9a": a9a, "covtype": covtype, "mnist": mnist}


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what a call returns, and the processor seconds and those by the clock that it took."""
    began, clock = time.process_time(), time.perf_counter()
    return call(), time.process_time() - began, time.perf_counter() - clock


def figures(probabilities: Any, y: Any, classes: Any) -> ProbabilityFigures:
    """Return log loss, Brier score and ECE of probabilities (n, classes)."""
    counts = ProbabilityCounts()
    counts.add(probabilities, np.searchsorted(classes, y).astype(np.int32))
    found = counts.figures()
    assert found is not None
    return found


def rows_of(name: str, arguments: argparse.Namespace) -> None:
    """Print the rows of the table for a set."""
    X, y, test, truth = SETS[name](Path(arguments.data))
    classes = np.unique(y)
    with tempfile.TemporaryDirectory() as folder:
        store, model = Path(folder) / "s.zarr", Path(folder) / "m"
        sv.ingest(X, store, y=y)
        given = {"C": arguments.C, "solver": arguments.solver, "threads": 1, "overwrite": True}
        sv.fit(store, model, calibrate="sigmoid", **given)  # compiled passes are loaded once a process
        for method in arguments.methods.split(","):
            ours, cost = pairs_of(
                lambda: sv.fit(store, model, **given),
                lambda: sv.fit(store, model, calibrate=method, **given),  # noqa: B023
                arguments.pairs,
            )
            found = figures(ours.model.predict_proba(test), truth, classes)
            told = f"{cost} | {found.log_loss:.4f} | {found.Brier:.4f} | {found.ECE:.4f}"
            print(
                f"| {name} | {method} | {told} | {_peer(arguments, method, (X, y, test, truth), classes)} |", flush=True
            )


def pairs_of(one: Callable[[], Any], other: Callable[[], Any], pairs: int) -> tuple[Any, str]:
    """Return what the second call returns, and the medians of alternated pairs: of each, and ratios by processor and by clock."""
    taken = [(timed(one)[1:], timed(other)) for _ in range(pairs)]
    alone, with_ = (np.median([pair[0] for pair in taken], axis=0), np.median([pair[1][1:] for pair in taken], axis=0))
    ratios = with_ / alone
    return taken[-1][1][0], f"{alone[0]:.2f} | {with_[0]:.2f} | {ratios[0]:.2f} | {ratios[1]:.2f}"


def _peer(arguments: argparse.Namespace, method: str, data: tuple[Any, Any, Any, Any], classes: Any) -> str:
    """ECE and processor seconds of CalibratedClassifierCV."""
    X, y, test, truth = data
    if not arguments.peer:
        return "- | -"
    estimator = StreamSVC(C=arguments.C, solver=arguments.solver)
    peer = CalibratedClassifierCV(estimator, method=method, cv=5, ensemble=False)
    fitted, cost, _ = timed(lambda: peer.fit(X, y))
    return f"{figures(fitted.predict_proba(test), truth, classes).ECE:.4f} | {cost:.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--sets", default="a9a,covtype,mnist")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--solver", default="newton")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--peer", type=int, default=1)
    arguments = parser.parse_args()
    print(f"{HEAD}\n|{'---|' * 11}")
    for name in arguments.sets.split(","):
        rows_of(name, arguments)


if __name__ == "__main__":
    main()
