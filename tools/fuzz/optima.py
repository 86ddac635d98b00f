"""Fuzz optima: python tools/fuzz/optima.py [--sets 50] [--seed 0] [--solvers NAME,...] [--tolerance 1e-6].

Small weighted problems through every solver and every loss it takes, as the registries have them, against the optimum of another
program at its tightest: LIBLINEAR for the hinge and its square, scikit-learn's newton-cholesky for the logistic loss, L-BFGS of scipy
for huber; of exact kernels LIBSVM, whose constant is free, or LIBLINEAR where the constant is regularized and the kernel linear.
A peer's P is computed here in float64 from its weights, for LIBSVM from its dual variables. A finding is

- a printed D, less the printed rounding, above the best P that is known: the peer's, or that of our model;
- a printed P, with its rounding, below the peer's optimum by more than the peer can be off (``PEER``);
- a run that says "converged" and is not within its printed gap of the peer.

A row of the table is a solver and a loss: sets, how many converged, the largest (P - P of the peer) / P of those, findings. A task of
another kind joins by a line in ``TASKS``. Exit code 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.losses import LOSSES
from streamsvm.rows import Dense
from streamsvm.solvers import SOLVERS, losses_of
from streamsvm.store import create
from streamsvm.types import KernelSolver

PEER = 1e-6
"""How far, relatively, a peer at its tightest may be above the optimum."""
GAMMA = 0.3
PASSES = 60


class Drawn(NamedTuple):
    """A problem: rows float32 (n, d), signs, weights above 0, C."""

    X: Any
    y: Any
    s: Any
    C: float


class Task(NamedTuple):
    """What is fitted, and by whom else."""

    solvers: Callable[[], list[str]]
    settings: dict[str, Any]
    peer: Callable[[Drawn, str], float | None]
    """The optimal P for a loss by name; None where no other program has it."""


def drawn(seed: int) -> Drawn:
    """Columns of several scales, one of them 0 or 1; weights from 0.5 to 3."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(40, 160)), int(rng.integers(2, 7))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 1, d)
    X[:, -1] = rng.random(n) < 0.2
    y = np.where(X[:, 0] / np.abs(X[:, 0]).max() + 0.4 * rng.normal(size=n) > 0.1, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    return Drawn(X.astype(np.float32), y, rng.choice([0.5, 1.0, 2.0, 3.0], n), 10.0 ** float(rng.uniform(-3, 1)))


def linear_primal(given: Drawn, w: Any, loss: str) -> float:
    """P(w), the constant feature last in w."""
    m = given.y * (given.X.astype(np.float64) @ w[:-1] + w[-1])
    terms = [c * LOSSES[loss]().value(v) for c, v in zip(given.s, m, strict=True)]
    return float(0.5 * w @ w + given.C * sum(terms))


def linear_peer(given: Drawn, loss: str) -> float | None:
    """By LIBLINEAR, scikit-learn or scipy, each with a regularized constant."""
    X = np.column_stack([given.X.astype(np.float64), np.ones(len(given.y))])
    if loss in ("hinge", "squared_hinge"):
        from sklearn.svm import LinearSVC

        machine = LinearSVC(
            C=given.C, loss=loss, dual=True, tol=1e-10, max_iter=200_000, fit_intercept=False, random_state=0
        )
    elif loss == "logistic":
        from sklearn.linear_model import LogisticRegression

        machine = LogisticRegression(C=given.C, solver="newton-cholesky", tol=1e-12, fit_intercept=False)
    elif loss == "huber":
        return by_descent(given, loss)
    else:
        return None
    machine.fit(X, given.y, sample_weight=given.s)
    return linear_primal(given, machine.coef_[0], loss)


def by_descent(given: Drawn, loss: str) -> float:
    """A smooth loss by L-BFGS."""
    from scipy.optimize import minimize

    kind, Z = LOSSES[loss](), given.y[:, None] * np.column_stack([given.X.astype(np.float64), np.ones(len(given.y))])

    def both(w: Any) -> tuple[float, Any]:
        slopes = np.array([kind.slope(v) for v in Z @ w])
        return linear_primal(given, w, loss), w + given.C * Z.T @ (given.s * slopes)

    options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-10}
    return float(minimize(both, np.zeros(Z.shape[1]), jac=True, method="L-BFGS-B", options=options).fun)


def kernel_peer(given: Drawn, loss: str) -> float | None:
    """By LIBSVM: the optimal D of the hinge, and of its square, which is the hinge without a bound and 1 / (2 C_i) on the diagonal."""
    from sklearn.metrics.pairwise import rbf_kernel
    from sklearn.svm import SVC

    if loss not in ("hinge", "squared_hinge"):
        return None
    K, C = rbf_kernel(given.X.astype(np.float64), gamma=GAMMA), given.C * given.s
    if loss == "squared_hinge":
        K, C = K + np.diag(0.5 / C), np.full(len(C), 1e9)
    machine = SVC(kernel="precomputed", C=1.0, tol=1e-10).fit(K, given.y, sample_weight=C)
    x = np.zeros(len(C))
    x[machine.support_] = machine.dual_coef_[0]
    return float(np.abs(x).sum() - 0.5 * x @ K @ x)


def names(kernel: bool, free: bool = False) -> list[str]:
    """Solvers by what they are: for exact kernels or not, with a free constant or not."""
    found = [(name, SOLVERS[name]()) for name in SOLVERS]
    return [
        name
        for name, solver in found
        if isinstance(solver, KernelSolver) == kernel and (not kernel or solver.free_bias == free)
    ]


TASKS = {
    "linear": Task(lambda: names(kernel=False), {}, linear_peer),
    "rbf": Task(lambda: names(kernel=True, free=True), {"kernel": "rbf", "gamma": GAMMA}, kernel_peer),
    "linear kernel": Task(lambda: names(kernel=True, free=False), {"kernel": "linear"}, linear_peer),
}


class Outcome(NamedTuple):
    """One fit beside its peer."""

    converged: bool
    over: float
    """(P - P of the peer) / P."""
    finding: str


def compared(task: Task, asked: dict[str, Any], given: Drawn, best: float) -> Outcome:
    """Fit, and say whether the printed interval holds the peer's optimum."""
    with tempfile.TemporaryDirectory() as place:
        writer = create(Path(place) / "s", sparse=False, chunk_bytes=2048)
        writer.append(Dense(given.X), (given.y > 0).astype(np.int32), given.s.astype(np.float32))
        writer.commit(("-1", "1"), given.X.shape[1], {"names": None})
        job = FitJob(f"{place}/s", f"{place}/m", C=given.C, max_passes=PASSES, **asked, **task.settings)
        training = fit(job).training
    found = training.runs[0].certificate
    assert found is not None
    converged, over = training.status.value == "converged", (found.primal - best) / abs(found.primal)
    finding = ""
    if found.dual - found.rounding > min(best, found.primal) * (1 + 1e-9):
        finding = f"D {found.dual:.12g} above P {best:.12g}"
    elif found.primal + found.rounding < best * (1 - PEER):
        finding = f"P {found.primal:.12g} below the optimum {best:.12g}"
    elif converged and over > max(found.gap, asked["tolerance"]):
        finding = f"P {found.primal:.12g}, gap {found.gap:.1e}, but {best:.12g} is known"
    return Outcome(converged, over, finding)


def rows(sets: int, seed: int, chosen: list[str], tolerance: float) -> tuple[list[tuple[Any, ...]], list[str]]:
    """A row for each solver and loss, and the findings."""
    table, findings = [], []
    peers: dict[tuple[str, str, int], float | None] = {}
    for kind, task in TASKS.items():
        for solver in task.solvers():
            for loss in losses_of(solver) if not chosen or solver in chosen else ():
                outcomes = []
                for k in range(seed, seed + sets):
                    given, key = drawn(k), (kind, loss, k)
                    if key not in peers:
                        peers[key] = task.peer(given, loss)
                    best = peers[key]
                    if best is not None:
                        asked = {"solver": solver, "loss": loss, "tolerance": tolerance}
                        outcomes.append(compared(task, asked, given, best))
                        if outcomes[-1].finding:
                            findings.append(f"{kind} {solver} {loss} seed {k}: {outcomes[-1].finding}")
                within = [one.over for one in outcomes if one.converged]
                wrong = sum(bool(one.finding) for one in outcomes)
                table.append((kind, solver, loss, len(outcomes), len(within), max(within, default=float("nan")), wrong))
    return table, findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--solvers", default="")
    parser.add_argument("--tolerance", type=float, default=1e-6)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)  # a peer that stops at its limit of iterations
    table, findings = rows(
        options.sets, options.seed, [name for name in options.solvers.split(",") if name], options.tolerance
    )
    print(f"{'task':14}{'solver':18}{'loss':15}{'sets':>5}{'converged':>10}{'over':>10}{'findings':>9}")
    for kind, solver, loss, sets, converged, over, wrong in table:
        print(f"{kind:14}{solver:18}{loss:15}{sets:5}{converged:10}{over:10.1e}{wrong:9}")
    print(*findings, sep="\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
