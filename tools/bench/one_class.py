"""One class beside scikit-learn's: AUC on rows held out, CPU seconds of the fit and the memory it takes beside its rows, each contestant in a process of its own.

python -m tools.bench.one_class --sets kdd99,mnist --rows 80000
python -m tools.bench.one_class --sets mnist --digits 0,3,5,7,8,9 --landmarks 300 --samplings "uniform;kmeans++;leverage"

kdd99: the normal rows of the ten-percent file are learned, a fifth of all rows is tested; columns are divided by their standard deviations over the
rows learned. mnist: images of one digit (each of ``--digits``) are learned, the publishers' test file is tested. Labels have a say in the test alone.
gamma is 1 / (columns x variance) of the rows learned, for all alike. OneClassSVM and exact kernels get ``--rows`` rows at most, the others all;
SGDOneClassSVM is linear, or has as many of scikit-learn's Nystrom features as ours have landmarks, which are drawn in each way of ``--samplings``. ``--seed`` draws both. What is not timed: loading and compilation.
"""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tools.bench.calibration import mnist
from tools.measure.harness import DATA, Row, arguments, scratch, show
from tools.measure.paper_data import kdd99

WARM = 500
"""Rows of a first fit, for which passes are compiled."""


class Rows(NamedTuple):
    """What is learned and tested: float32 arrays, and whether a test row is of the class."""

    learned: Any
    tested: Any
    inside: Any
    gamma: float


def rows_of(name: str, digit: int, directory: Path) -> Rows:
    """The rows of a set by name."""
    rng = np.random.default_rng(0)
    if name == "mnist":
        X, y, tested, truth = mnist(DATA)
        learned, inside = X[y == digit], truth == digit
    else:
        given, y = kdd99(directory)
        X = np.asarray(given.toarray(), np.float32)
        order = rng.permutation(len(y))
        out, kept = np.split(order, [len(order) // 5])
        learned, tested, inside = X[kept][y[kept] > 0], X[out], y[out] > 0
        scale = learned.std(0)
        scale[scale == 0.0] = 1.0
        learned, tested = learned / scale, tested / scale
    learned = np.ascontiguousarray(learned[rng.permutation(len(learned))], np.float32)
    return Rows(learned, np.ascontiguousarray(tested, np.float32), inside, 1.0 / (X.shape[1] * float(learned.var())))


def made(who: str, given: Rows, options: Any, landmarks: int) -> Any:
    """An estimator by name."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import SGDOneClassSVM
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import OneClassSVM

    from streamsvm.sklearn import StreamOneClassSVM

    nu, seed = options.nu, options.seed
    features = Nystroem(gamma=given.gamma, n_components=landmarks, random_state=seed)
    rbf: dict[str, Any] = {"nu": nu, "kernel": "rbf", "gamma": given.gamma}
    contestants: dict[str, Any] = {
        **{
            f"streamsvm, landmarks, {way}": partial(
                StreamOneClassSVM, **rbf, landmarks=landmarks, sampling=way, random_state=seed, n_jobs=1
            )
            for way in options.samplings.split(";")
        },
        "streamsvm, exact": lambda: StreamOneClassSVM(**rbf, random_state=seed, n_jobs=1),
        "streamsvm, linear": lambda: StreamOneClassSVM(nu=nu, random_state=seed, n_jobs=1),
        "OneClassSVM": lambda: OneClassSVM(**rbf),
        "SGDOneClassSVM, Nystroem": lambda: make_pipeline(features, SGDOneClassSVM(nu=nu, random_state=seed)),
        "SGDOneClassSVM, linear": lambda: SGDOneClassSVM(nu=nu, random_state=seed),
    }
    return contestants[who]()


EXACT = ("streamsvm, exact", "OneClassSVM")
OTHERS = (*EXACT, "SGDOneClassSVM, Nystroem", "streamsvm, linear", "SGDOneClassSVM, linear")


def measured(who: str, given: Rows, options: Any) -> Row:
    """A fit and the AUC of its scores."""
    from sklearn.metrics import roc_auc_score

    warnings.simplefilter("ignore")
    made(who, given, options, min(options.landmarks, WARM // 2)).fit(given.learned[:WARM])
    learned = given.learned[: options.rows] if who in EXACT else given.learned
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is that of what follows
    before = memory_kib("VmRSS")
    machine, began = made(who, given, options, options.landmarks), time.process_time()
    machine.fit(learned)
    seconds, more = time.process_time() - began, (memory_kib("VmHWM") - before) >> 10
    found = roc_auc_score(given.inside, machine.decision_function(given.tested))
    outside = float(np.mean(machine.decision_function(learned[:5000]) < 0.0))
    gap = float(machine.gap_) if who.startswith("streamsvm") else None
    return {
        "who": who,
        "rows": len(learned),
        "CPU s": seconds,
        "MiB": more,
        "AUC": float(found),
        "outside": outside,
        "gap": gap,
    }


def memory_kib(name: str) -> int:
    """A figure of this process by the name it has in /proc/self/status."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))


def main() -> None:
    options = arguments(
        __doc__,
        sets="kdd99,mnist",
        rows=20_000,
        nu=0.05,
        landmarks=500,
        digits="7",
        samplings="uniform;leverage",
        seed=0,
        who="",
    )
    rows: list[Row] = []
    landmarks = [f"streamsvm, landmarks, {way}" for way in options.samplings.split(";")]
    digits = {"mnist": options.digits.split(",")}
    sets = options.sets.split(",")
    for name, digit in [(one, digit) for one in sets for digit in digits.get(one, ("",))]:
        with scratch() as directory:
            given = rows_of(name, int(digit or 0), directory)
        for who in options.who.split(";") if options.who else (*landmarks, *OTHERS):
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                found = pool.submit(partial(measured, who, given, options)).result()
            rows.append({"set": f"{name} {digit}".strip()} | found)
            print(rows[-1], flush=True)
    show("one class", rows, options)


if __name__ == "__main__":
    main()
