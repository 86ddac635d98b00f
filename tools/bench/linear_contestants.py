"""One contestant of ``linear.py``, alone in this process: prints {"cpu": seconds, "primal": P} as it goes.

Contestants of many classes end when their P is at most what they are told (``until``).
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

SLICE = 1 << 15
PASSES = 300
EPSILONS = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4)
ITERATIONS = (1, 2, 3, 5, 8, 12, 20, 40, 80, 160, 320)
RATES = (0.05, 0.5)
"""Of Vowpal Wabbit: those of its best runs."""

Task = dict[str, Any]


def array(task: Task, name: str, mapped: bool = True) -> Any:
    path = Path(task["store"])
    return np.load(path.parent / f"{path.stem}.{name}.npy", mmap_mode="r" if mapped else None)


def rows_of(task: Task, mapped: bool = True) -> Any:
    """float32 (n, d): an array or a CSR matrix, from files or in memory."""
    if Path(task["store"]).with_suffix(".values.npy").exists():
        return array(task, "values", mapped)
    parts = [array(task, name, mapped) for name in ("data", "indices", "indptr")]
    found = sp.csr_matrix((len(parts[2]) - 1, int(array(task, "columns"))), dtype=np.float32)
    found.data, found.indices, found.indptr = parts[0], parts[1], parts[2].astype(np.int32)
    return found


def slices(X: Any) -> Iterator[slice]:
    return (slice(start, start + SLICE) for start in range(0, X.shape[0], SLICE))


def primal(task: Task, w: Any) -> float:
    """P(w) in float64, slice by slice; the last component of ``w`` belongs to a constant 1."""
    X, y, total = rows_of(task), array(task, "y"), 0.0
    for part in slices(X):
        z = np.maximum(0.0, 1.0 - y[part] * (X[part] @ w[:-1] + w[-1]))
        total += float(z.sum() if task["loss"] == "hinge" else z @ z)
    return float(0.5 * w @ w + task["C"] * total)


class Clock:
    """CPU seconds of this process, those spent on evaluating points left out."""

    def __init__(self) -> None:
        gc.collect()
        self.spent, self.began = 0.0, time.process_time()

    def point(self, task: Task, w: Any, **more: Any) -> float:
        now = time.process_time()
        cpu = now - self.began - self.spent
        print(json.dumps({"cpu": cpu, "primal": primal(task, w), **more}), flush=True)
        self.spent += time.process_time() - now
        return cpu


# -- ours --------------------------------------------------------------------------------------------------------------


def auto(task: Task) -> None:
    """A fit as a user starts it, looked at after every pass."""
    train(task, task["tolerance"])


def reference(task: Task) -> None:
    """A certified bracket around the optimum."""
    train(task, 1e-5)


def train(task: Task, tolerance: float) -> None:
    from streamsvm.jobs.fit.driver import local_loop
    from streamsvm.jobs.fit.options import FitJob
    from streamsvm.jobs.fit.plan import make_plan
    from streamsvm.store import open_store
    from streamsvm.types import Stop

    store = open_store(task["store"])
    job = FitJob(
        task["store"], "unused", loss=task["loss"], C=task["C"], tolerance=tolerance,
        standardize=task["standardize"], memory=task["memory"],
    )  # fmt: skip
    plan = make_plan(job, store)
    plan.memory.check(plan.remedy)

    def look(event: dict[str, Any]) -> None:
        if event["event"] == "pass":
            state = trainer.training.runs[0].state
            w = state.best if plan.solver_name == "newton" or event["exact"] else state.tail
            clock.point(task, w, dual=event["dual"], gap=event["gap"] if event["exact"] else 1.0)

    for passes, report in ((2, silent), (PASSES, look)):  # the first one loads the compiled passes
        trainer: Any = local_loop(job, store, plan, Path(task["store"]).parent, report)
        clock = Clock()
        trainer.train(Stop(passes))  # the limit is one of CPU seconds, set below
        trainer.close()


def silent(event: dict[str, Any]) -> None:
    """Nobody looks."""


# -- the others --------------------------------------------------------------------------------------------------------


def retrained(task: Task, fits: Iterator[Callable[[], Any]]) -> None:
    """Fits from scratch, from loose to tight, until one takes too long; each is a point."""
    for fit in fits:
        clock = Clock()
        model = fit()
        if clock.point(task, model()) > task["limit"]:
            return


def liblinear(task: Task, solver: int) -> None:
    from liblinear.liblinearutil import parameter, problem, train

    given = problem(np.array(array(task, "y")), sp.csr_matrix(rows_of(task, False), dtype=np.float64), bias=1)

    def fit(epsilon: float) -> Callable[[], Any]:
        model = train(given, parameter(f"-s {solver} -c {task['C']} -B 1 -e {epsilon} -q"))
        sign = -1.0 if model.get_labels()[0] < 0 else 1.0
        return lambda: sign * np.append(*model.get_decfun())

    tight = EPSILONS if solver != 2 else tuple(e / 100 for e in EPSILONS)
    retrained(task, (partial(fit, e) for e in tight))


def linear_svc(task: Task) -> None:
    from sklearn.svm import LinearSVC

    X, y = rows_of(task, False), np.array(array(task, "y"))

    def fit(iterations: int) -> Callable[[], Any]:
        model = LinearSVC(loss=task["loss"], C=task["C"], tol=1e-8, max_iter=iterations, dual=True, random_state=0)
        model.fit(X, y)
        return lambda: np.append(model.coef_[0], model.intercept_)

    warnings.simplefilter("ignore")
    retrained(task, (partial(fit, k) for k in ITERATIONS))


def averaged_sgd(task: Task) -> None:
    """Chunk after chunk from the file, chunks in random order; the constant is a column, so that it is regularized."""
    from sklearn.linear_model import SGDClassifier

    X, y = rows_of(task), array(task, "y")
    model = SGDClassifier(loss=task["loss"], alpha=task["lam"], average=True, fit_intercept=False, random_state=0)
    parts, rng = list(slices(X)), np.random.default_rng(0)
    clock = Clock()
    while True:
        for k in rng.permutation(len(parts)):
            rows = X[parts[k]]
            one = np.ones((rows.shape[0], 1), np.float32)
            rows = sp.hstack([rows, one], "csr") if sp.issparse(rows) else np.hstack([rows, one])
            model.partial_fit(rows, y[parts[k]], classes=np.array([-1.0, 1.0]))
        if clock.point(task, model.coef_[0]) > task["limit"]:
            return


def vowpal_wabbit(task: Task) -> None:
    """From its cache, which is made first; the passes of a run are given beforehand."""
    from vowpalwabbit import Workspace

    path, columns = Path(task["store"]), int(array(task, "columns"))
    text = path.with_suffix(".vw")
    if not text.exists():
        write_text(task, text)

    def fit(passes: int, rate: float) -> Callable[[], Any]:
        vw = Workspace(
            f"--data {text} --cache_file {text}.cache --passes {passes} --holdout_off --sgd -l {rate} "
            f"--loss_function hinge --l2 {task['lam']} --noconstant --quiet -b 18"
        )
        return lambda: np.array([vw.get_weight(j) for j in range(1, columns + 2)])

    fit(1, 0.5)
    for rate in RATES:
        retrained(task, (partial(fit, k, rate) for k in (1, 2, 3, 5, 8, 12, 20, 40, 80)))


def write_text(task: Task, path: Path) -> None:
    """Label | number:value ..., numbers from 1, the constant last."""
    X, y, last = rows_of(task), array(task, "y"), int(array(task, "columns")) + 1
    with open(path, "w") as file:
        for part in slices(X):
            rows = sp.csr_matrix(X[part])
            words = [f"{j + 1}:{v:.7g}" for j, v in zip(rows.indices.tolist(), rows.data.tolist(), strict=True)]
            file.writelines(
                f"{label:.0f} | {' '.join(words[a:b])} {last}:1\n"
                for label, (a, b) in zip(y[part], itertools.pairwise(rows.indptr.tolist()), strict=True)
            )


# -- many classes ------------------------------------------------------------------------------------------------------


def total_primal(task: Task, W: Any) -> float:
    """P of all classes in float64, of W (classes, d + 1) whose last column belongs to a constant 1."""
    X, y, total = np.load(task["rows"], mmap_mode="r"), np.load(task["codes"]), 0.0
    W = np.asarray(W, np.float64)
    for part in slices(X):
        Z, own = X[part] @ W[:, :-1].T + W[:, -1], y[part]
        index = np.arange(len(own))
        if task["loss"] == "softmax":
            top = Z.max(axis=1)
            total += float(np.sum(top + np.log(np.exp(Z - top[:, None]).sum(axis=1)) - Z[index, own]))
            continue
        Z[index, own] *= -1.0  # -m of each class against the rest
        losses = np.maximum(0.0, 1.0 + Z) ** 2 if task["loss"] == "squared_hinge" else np.logaddexp(0.0, Z)
        total += float(losses.sum())
    return float(0.5 * np.sum(W * W) + task["C"] * total)


class Reached(Exception):
    """A contestant has reached the P that is asked for, or its time is over."""


class Steps:
    """The steps of a contestant: prints CPU seconds and P after each, evaluations left out."""

    def __init__(self, task: Task) -> None:
        self._task, self._count = task, 0
        gc.collect()
        self._began, self._evaluating = time.process_time(), 0.0

    def look(self, W: Any) -> None:
        """Print the point W (classes, d + 1). Raises Reached."""
        now = time.process_time()
        cpu, primal = now - self._began - self._evaluating, total_primal(self._task, W)
        self._count += 1
        print(json.dumps({"cpu": cpu, "passes": self._count, "primal": primal}), flush=True)
        self._evaluating += time.process_time() - now
        if primal <= self._task["until"] or cpu > self._task["limit"]:
            raise Reached


def with_constant(task: Task) -> tuple[Any, Any]:
    """Rows with a constant 1, and class codes."""
    X = np.load(task["rows"])
    return np.column_stack([X, np.ones(len(X), np.float32)]), np.load(task["codes"])


def probe(task: Task) -> None:
    """A fit as a user starts it, of rows in a store."""
    import streamsvm as sv

    softmax = {"loss": "logistic", "multi_class": "softmax"}
    settings: dict[str, Any] = softmax if task["loss"] == "softmax" else {"loss": task["loss"]}
    model = Path(task["rows"]).with_name("m.ssvm")
    settings |= {"C": task["C"], "memory": task["memory"], "threads": 1, "report": "none", "overwrite": True}
    sv.fit(task["store"], model, max_passes=2, **settings)  # loads the compiled passes
    gc.collect()
    began = time.process_time()
    found = sv.fit(task["store"], model, tolerance=task["tolerance"], **settings)
    cpu = time.process_time() - began
    certificates = [run.certificate for run in found.training.runs if run.certificate is not None]
    point = {"cpu": cpu, "passes": found.passes, "primal": total_primal(task, found.model.weights)}
    point |= {"dual": sum(one.dual for one in certificates), "gap": max(one.gap for one in certificates)}
    print(json.dumps(point | {"solver": found.plan.solver_name}), flush=True)


def logistic_regression(task: Task) -> None:
    """Looked at after every iteration of its L-BFGS, which it gives no access to: ``scipy.optimize.minimize`` is wrapped."""
    from sklearn.linear_model import LogisticRegression, _logistic

    X, y = with_constant(task)
    minimize = _logistic.optimize.minimize

    def minimize_and_look(function: Any, start: Any, **settings: Any) -> Any:
        def look(w: Any) -> None:
            steps.look(w.reshape((task["classes"], -1), order="F"))

        return minimize(function, start, **(settings | {"callback": look}))

    _logistic.optimize.minimize = minimize_and_look
    machine = LogisticRegression(C=task["C"], tol=1e-12, max_iter=PASSES, fit_intercept=False)
    steps = Steps(task)
    machine.fit(X, y)


def linear_svc_probe(task: Task) -> None:
    """Fits from scratch with more and more iterations, as it cannot go on."""
    from sklearn.svm import LinearSVC

    X, y = with_constant(task)
    warnings.simplefilter("ignore")
    for iterations in ITERATIONS:
        machine = LinearSVC(C=task["C"], tol=1e-8, max_iter=iterations, fit_intercept=False, dual="auto")
        steps = Steps(task)
        machine.fit(X, y)
        steps.look(machine.coef_)


def sgd_probe(task: Task) -> None:
    from sklearn.linear_model import SGDClassifier

    X, y = with_constant(task)
    machine = SGDClassifier(
        loss="log_loss", alpha=1 / (task["C"] * len(y)), average=True, fit_intercept=False, random_state=0
    )
    steps = Steps(task)
    while True:
        machine.partial_fit(X, y, classes=np.arange(task["classes"]))
        steps.look(machine.coef_)


def torch_lbfgs(task: Task) -> None:
    """The objective of all rows in one product, divided by C n, as probe scripts have it."""
    import torch

    torch.set_num_threads(1)
    X, y = (torch.from_numpy(values) for values in with_constant(task))
    y = y.long()
    W = torch.zeros(task["classes"], X.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [W], max_iter=1, max_eval=25, history_size=10, line_search_fn="strong_wolfe", tolerance_grad=0.0, tolerance_change=0.0
    )  # fmt: skip

    def closure() -> Any:
        optimizer.zero_grad()
        losses = torch.nn.functional.cross_entropy(X @ W.T, y, reduction="sum")
        value = (0.5 * (W * W).sum() + task["C"] * losses) / (task["C"] * len(y))
        value.backward()
        return value

    steps = Steps(task)
    for _ in range(PASSES):
        optimizer.step(closure)
        steps.look(W.detach().numpy())


WHO: dict[str, Callable[[Task], None]] = {
    "auto": auto,
    "reference": reference,
    "LIBLINEAR -s 1": lambda task: liblinear(task, 1),
    "LIBLINEAR -s 2": lambda task: liblinear(task, 2),
    "LIBLINEAR -s 3": lambda task: liblinear(task, 3),
    "LinearSVC": linear_svc,
    "averaged SGD": averaged_sgd,
    "VW --sgd": vowpal_wabbit,
    "streamsvm": probe,
    "LogisticRegression": logistic_regression,
    "LinearSVC, all classes": linear_svc_probe,
    "SGDClassifier": sgd_probe,
    "torch LBFGS": torch_lbfgs,
}

if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (int(4 * told["limit"]) + 10,) * 2)  # evaluations take as long
    with contextlib.suppress(Reached):
        WHO[told["who"]](told)
