"""The timing table on heart of the report on dual coordinate descent, and the method's published settings side by side.

**heart.** "Dual Descent Method" fits scikit-learn's LinearSVC to the Cleveland heart disease rows: n = 30 and 300, dual or primal, without the
bias, in random order. The table has its seconds, LinearSVC's here under the same conditions, and ours: coordinate descent and, for the primal, Newton's method,
squared hinge, C = 1. The file is no part of the repository: heart.csv, 303 rows of 13 numbers and then 0 or 1, as it is passed on by many (of
"processed.cleveland.data" of the UCI repository: 0 against the rest), belongs into the data folder. CPU seconds are medians of ``--repeats`` fits in one
process, of ours from the rows in memory to the certificate.

**Settings.** To a relative gap of ``--gap``: rows permuted and visited once or three times a reading; shrinking with the largest and least projected gradient of the pass
before (M-bar, m-bar); the online setting, rows drawn one by one. All rows in one block, or in blocks of ``--chunk`` bytes.

**Rivals.** The report's conclusions: coordinate descent on the dual is faster than Pegasos, coordinate descent on the primal, TRON and SVMperf, and faster without the
constraint y'a = 0 that a free bias brings. CPU seconds and readings until P is within 1 % and 0.1 % of the optimum, of the methods of ``baselines.py`` (TRON is
LIBLINEAR's own, at the loosest of its tolerances that gets there; its readings are Newton steps) and of ours, whose P is that of their last or best w. The constant
feature is regularized but in "dcd, y'a = 0", whose optimum is another, which decomposition finds. Looking at P is not timed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from streamsvm.types import Stop
from tools.measure.datasets import Data, load
from tools.measure.fits import WHOLE, certificate_of, store_of, trainer_of
from tools.measure.harness import DATA, Row, arguments, scratch, show
from tools.reproduce.baselines import Primal, dcd, free_bias_dcd, primal_cd, tron, with_constant

PAPER = {
    (30, "dual"): 0.00961,
    (30, "dual, random order"): 0.00832,
    (30, "dual, without bias"): 0.00848,
    (30, "primal"): 0.01073,
    (300, "dual"): 0.1136,
    (300, "primal"): 0.0251,
}
"""Its seconds, by rows and method."""
NEAR = (1e-2, 1e-3)
"""How near P is to come to the optimum, relative."""
RIVALS: dict[str, dict[str, Row]] = {
    "hinge": {"dcd": {"solver": "dcd"}, "pegasos": {"solver": "pegasos"}, "cutting_plane": {"solver": "cutting_plane"}},
    "squared_hinge": {"dcd": {"solver": "dcd"}, "newton": {"solver": "newton"}},
}
"""What of ours stands beside the plain methods; cutting_plane is for SVMperf."""
LIMIT = 1000
"""Sweeps of LinearSVC, which is its default, and readings of ours."""


class Fitted(NamedTuple):
    """What a fit came to."""

    w: Any
    """(columns + 1,), the last one the bias."""
    steps: int
    """Sweeps or iterations of LinearSVC, readings of ours."""
    within: bool
    """Whether it ended by its own criterion."""


CONDITIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dual": ({"dual": True}, {"solver": "dcd"}),
    "dual, without bias": ({"dual": True, "fit_intercept": False}, {"solver": "dcd", "bias": 0.0}),
    "primal": ({"dual": False}, {"solver": "newton"}),
}
"""Settings of LinearSVC, and of ours. Its rows always come in random order, so that the paper's two lines are one here."""
SETTINGS: dict[str, dict[str, Any]] = {
    "one visit": {"sweeps": 1},
    "three visits": {"sweeps": 3},
    "shrinking": {"sweeps": 1, "shrinking": True},
    "online": {"sweeps": 1, "online": True},
}


def heart(scaled: bool) -> Data:
    """The rows in random order: the file is sorted by class. Ends the program with what to do where there is none."""
    path = DATA / "heart.csv"
    if not path.exists():
        raise SystemExit(f"{path} does not exist: put the 303 rows there, or leave the table out with --heart 0")
    table = np.random.default_rng(0).permutation(np.loadtxt(path, np.float64, delimiter=",", skiprows=1))
    X = table[:, :-1]
    X = (X - X.mean(0)) / X.std(0) if scaled else X
    return Data("heart", np.ascontiguousarray(X, np.float32), np.where(table[:, -1] > 0, 1.0, -1.0))


def linear_svc(data: Data, settings: dict[str, Any]) -> Fitted:
    """LinearSVC with its defaults but for these."""
    model = LinearSVC(random_state=0, max_iter=LIMIT, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data.X, data.y)
    return Fitted(np.append(model.coef_[0], model.intercept_), int(model.n_iter_), int(model.n_iter_) < LIMIT)


def ours(data: Data, settings: dict[str, Any]) -> Fitted:
    """A certified fit with the default tolerance."""
    trainer = trainer_of(store_of(data), C=1.0, loss="squared_hinge", **settings)
    result = trainer.train(Stop(LIMIT))
    certificate = result.runs[0].certificate
    within = certificate is not None and certificate.exact and certificate.gap <= 1e-3
    return Fitted(result.runs[0].state.best, result.passes, within)


def timed(fit: Callable[[], Fitted], repeats: int) -> tuple[float, Fitted]:
    """CPU seconds of the median fit, and what it came to; a first one is not counted."""
    found, taken = fit(), []
    for _ in range(repeats):
        began = time.process_time()
        found = fit()
        taken.append(time.process_time() - began)
    return median(taken), found


def line(data: Data, who: str, seconds: float, found: Fitted) -> Row:
    """A row of the table."""
    right = float(np.mean((data.X @ found.w[:-1] + found.w[-1] > 0) == (data.y > 0)))
    return {
        "who": who,
        "CPU s": seconds,
        "steps": found.steps,
        "by its own criterion": str(found.within),
        "right %": 100 * right,
    }


def heart_table(options: Any) -> list[Row]:
    """Both sizes, as the rows are and standardized."""
    rows: list[Row] = []
    for count in (30, 300):
        rows += [
            {"rows": count, "scale": "", "method": m, "who": "the report", "CPU s": s}
            for (n, m), s in PAPER.items()
            if n == count
        ]
        for scale in ("raw", "standardized"):
            whole = heart(scale == "standardized")
            data = Data("heart", whole.X[:count], whole.y[:count])
            for method, (their, our) in CONDITIONS.items():
                about: Row = {"rows": count, "scale": scale, "method": method}
                rows.append(about | line(data, "LinearSVC", *timed(partial(linear_svc, data, their), options.repeats)))
                rows.append(about | line(data, "streamsvm", *timed(partial(ours, data, our), options.repeats)))
    return [{**dict.fromkeys(rows[-1]), **row} for row in rows]


def settings_table(directory: Any, options: Any) -> list[Row]:
    """Readings and CPU seconds of the published settings."""
    rows: list[Row] = []
    for name in filter(None, options.data.split(",")):
        data = load(name, directory)
        for chunk in (WHOLE, options.chunk):
            store = store_of(data, chunk)
            for C in map(float, options.C.split(",")):
                for setting, chosen in SETTINGS.items():
                    job: Row = {"solver": "dcd", "loss": "hinge", "options": chosen, "C": C, "tolerance": options.gap}
                    trainer_of(store, **job).train(Stop(2))  # compiles
                    began = time.process_time()
                    found, readings = certificate_of(trainer_of(store, **job), Stop(options.passes, options.limit))
                    row: Row = {
                        "set": name,
                        "C": C,
                        "blocks": len(store.layout.chunks),
                        "setting": setting,
                        "readings": readings,
                    }
                    rows.append(row | {"CPU s": time.process_time() - began, "gap": float(found.gap)})
                    print(rows[-1], flush=True)
    return rows


def trajectory(
    steps: Iterator[tuple[Any, float]], value: Callable[[Any, float], float], best: float, options: Any
) -> Row:
    """CPU seconds and readings of a method until its P is near enough to the optimum."""
    row: Row = {f"{what} to {part:g}": None for part in NEAR for what in ("s", "readings")}
    seconds = 0.0
    for reading in range(1, options.passes + 1):
        began = time.process_time()
        w, b = next(steps)
        seconds += time.process_time() - began
        P = value(w, b)
        for part in NEAR:
            if row[f"s to {part:g}"] is None and P <= (1.0 + part) * best:
                row |= {f"s to {part:g}": seconds, f"readings to {part:g}": reading}
        if P <= (1.0 + min(NEAR)) * best or seconds > options.rival_limit:
            break
    return row


def of_tron(task: Primal, best: float) -> Row:
    """The same of LIBLINEAR, which says nothing before its end: the first of falling tolerances that gets there."""
    row: Row = {f"{what} to {part:g}": None for part in NEAR for what in ("s", "readings")}
    for tolerance in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5):
        began = time.process_time()
        w, steps = tron(task, tolerance)
        seconds = time.process_time() - began
        for part in NEAR:
            if row[f"s to {part:g}"] is None and task.value(w) <= (1.0 + part) * best:
                row |= {f"s to {part:g}": seconds, f"readings to {part:g}": steps}
    return row


def of_ours(data: Data, task: Primal, best: float, settings: Row, options: Any) -> Row:
    """The same of a solver here, which ends where P is near enough."""
    row: Row = {f"{what} to {part:g}": None for part in NEAR for what in ("s", "readings")}
    store, looked, began, trainer = store_of(data), 0.0, 0.0, None

    def watch(event: dict[str, Any]) -> None:
        nonlocal looked
        if event["event"] != "pass" or trainer is None:
            return
        now, state = time.process_time(), trainer.training.runs[0].state
        candidate = getattr(state, "averaged", None)
        w = (
            candidate.candidate
            if candidate is not None
            else next(getattr(state, name) for name in ("best", "point", "w") if hasattr(state, name))
        )
        P = task.value(np.asarray(w))
        for part in NEAR:
            if row[f"s to {part:g}"] is None and P <= (1.0 + part) * best:
                row.update({f"s to {part:g}": now - began - looked, f"readings to {part:g}": event["pass"]})
        looked += time.process_time() - now

    job: Row = {"C": task.C, "loss": task.loss, "tolerance": 0.5 * min(NEAR), **settings}
    trainer_of(store, **job).train(Stop(2))  # compiles
    trainer = trainer_of(store, watch, **job)
    began = time.process_time()
    trainer.train(Stop(options.passes, options.rival_limit))
    return row


def optimum(data: Data, C: float, loss: str) -> float:
    """P of the constant feature's problem, to a millionth."""
    job: Row = {"solver": "newton", "loss": loss, "C": C, "tolerance": 1e-6}
    return float(certificate_of(trainer_of(store_of(data), **job), Stop(200))[0].primal)


def free_optimum(task: Primal) -> float:
    """P with a bias that is free, to a ten thousandth."""
    dense = np.ascontiguousarray(task.X.toarray(), np.float32)
    job: Row = {"solver": "decomposition", "kernel": "linear", "loss": "hinge", "C": task.C, "tolerance": 1e-4}
    return float(certificate_of(trainer_of(store_of(Data("", dense, task.y)), **job), Stop(200))[0].primal)


def rivals_table(directory: Any, options: Any) -> list[Row]:
    """Each line as it is known."""
    rows: list[Row] = []

    def add(name: str, task: Primal, method: str, found: Row) -> None:
        rows.append({"set": name, "C": task.C, "loss": task.loss, "method": method, **found})
        print(rows[-1], flush=True)

    for name in filter(None, options.rivals.split(",")):
        data = load(name, directory)
        few = np.random.default_rng(0).permutation(data.rows)[: options.rows]
        data = Data(name, data.X[few], data.y[few])
        plain = sp.csr_matrix(data.X, dtype=np.float64)
        for C in map(float, options.C.split(",")):
            for loss, ours in RIVALS.items():
                task = Primal(with_constant(data.X), data.y, C, loss)
                best = optimum(data, C, loss)
                next(dcd(task))
                add(name, task, "dcd, plain", trajectory(dcd(task), task.value, best, options))
                if loss == "hinge":
                    free = Primal(plain, data.y, C)
                    next(free_bias_dcd(free))
                    pairs = trajectory(free_bias_dcd(free), free.value, free_optimum(free), options)
                    add(name, task, "dcd, y'a = 0", pairs)
                else:
                    next(primal_cd(task))
                    add(name, task, "primal cd", trajectory(primal_cd(task), task.value, best, options))
                    add(name, task, "TRON", of_tron(task, best))
                for method, settings in ours.items():
                    add(name, task, f"streamsvm, {method}", of_ours(data, task, best, settings, options))
    return rows


def main() -> None:
    options = arguments(
        __doc__, heart=1, repeats=9, data="a9a,w8a", rivals="a9a,w8a", rows=20_000, C="0.1,1", gap=1e-3, passes=1000, limit=600.0,
        rival_limit=30.0, chunk=1 << 20,
    )  # fmt: skip
    if options.heart:
        show("heart, squared hinge, C = 1", heart_table(options), options)
    with scratch() as directory:
        rows = settings_table(directory, options)
    if rows:
        options.json = None
        show(f"dcd to a gap of {options.gap:g}", rows, options)
    with scratch() as directory:
        rows = rivals_table(directory, options)
    if rows:
        options.json = None
        show(f"until P is near the optimum, {options.rows} rows at most", rows, options)


if __name__ == "__main__":
    main()
