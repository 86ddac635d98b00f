"""The problems of ``tools/fuzz/optima.py``, drawn by a seed, and their optima by other programs, each at its tightest; P is computed here
in float64.

LIBLINEAR, LIBSVM and scikit-learn where they have the problem. Where none of them has it, ``least``: all losses here but the logistic one are
the least e that some lines ask for, so that P is a quadratic program, solved by a textbook interior point (Mehrotra 1992), which has nothing
in common with the package. ``tests/contract/test_optima.py`` holds it to LIBLINEAR.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

from streamsvm.features.curves import Curves
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_features, make_plan
from streamsvm.losses import LOSSES
from streamsvm.rows import Dense
from streamsvm.store import create, open_store
from streamsvm.store.format.arrays import Encoding
from streamsvm.store.views import MemoryStore
from streamsvm.types import silent

NAMES = ("a", "b", "c", "d", "e")
"""Of classes, in the order of their codes."""
WEIGHTS = (0.0, 0.5, 1.0, 2.0, 3.0)


class Drawn(NamedTuple):
    """A problem: rows float32 (n, d), targets (n,), weights (n,) float32, C, what is said of the loss, and of the task."""

    X: Any
    y: Any
    """+1 and -1; class codes; or numbers."""
    s: Any
    C: float
    quantile: float = 0.5
    nu: float = 0.5
    radius: float = 1.0
    """Of the l1 ball, or the weight of ||w||_1."""
    dtype: str = "float32"
    """The type in which the rows are stored, which holds them: float16 is a store on disk."""

    @property
    def seen(self) -> Drawn:
        """The rows with a weight, in float64: other programs refuse those without one, or number rows without them."""
        some = self.s > 0
        return self._replace(X=self.X[some].astype(np.float64), y=self.y[some], s=self.s[some].astype(np.float64))


def draw_table(rng: Any) -> Any:
    """Columns of several scales, one of them 0 or 1."""
    n, d = int(rng.integers(40, 90)), int(rng.integers(2, 7))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 1, d)
    X[:, -1] = rng.random(n) < 0.2
    return X.astype(np.float32)


def draw_weights(rng: Any, rows: int) -> Any:
    return rng.choice(WEIGHTS, rows).astype(np.float32)


def draw_two_classes(seed: int) -> Drawn:
    """Labels that a column makes, with noise; both have rows of weight above 0."""
    rng = np.random.default_rng(seed)
    X = draw_table(rng)
    y = np.where(X[:, 0] / np.abs(X[:, 0]).max() + 0.4 * rng.normal(size=len(X)) > 0.1, 1.0, -1.0)
    s = draw_weights(rng, len(X))
    y[:2], s[:2] = (1.0, -1.0), 1.0
    return Drawn(X, y, s, 10.0 ** float(rng.uniform(-3, 1)))


def draw_rare_class(seed: int) -> Drawn:
    """Two classes of which one may be rare, and rows without features, which may all be of the other; C from 1e-3 to 1e3."""
    rng = np.random.default_rng(seed)
    X = draw_table(rng)
    X[rng.random(len(X)) < rng.choice([0.0, 0.5, 0.9])] = 0.0
    y = np.where(rng.random(len(X)) < rng.choice([0.5, 0.1, 0.02]), -1.0, 1.0)
    if rng.random() < 0.4:
        y[~X.any(axis=1)] = 1.0
    s = draw_weights(rng, len(X)) if rng.random() < 0.5 else np.ones(len(X), np.float32)
    X[0], y[:2], s[:2] = 1.0, (-1.0, 1.0), 1.0
    return Drawn(X, y, s, 10.0 ** float(rng.uniform(-3, 3)))


def draw_some_classes(seed: int) -> Drawn:
    """Codes of three or four classes; each has a row of weight above 0."""
    rng = np.random.default_rng(seed)
    X, classes = draw_table(rng), int(rng.integers(3, 5))
    score = X / np.abs(X).max(0) @ rng.normal(size=(X.shape[1], classes)) + 0.3 * rng.normal(size=(len(X), classes))
    codes, s = score.argmax(1).astype(np.int32), draw_weights(rng, len(X))
    codes[:classes], s[:classes] = np.arange(classes), 1.0
    return Drawn(X, codes, s, 10.0 ** float(rng.uniform(-3, 0.5)))


def draw_hard_softmax(seed: int) -> Drawn:
    """Codes of two to five classes, C from 1e-6 to 1e6; some sets are separable, have an empty class, weights, or rows of
    float16.
    """
    rng = np.random.default_rng(seed)
    classes, d, n = int(rng.integers(2, 6)), int(rng.integers(2, 6)), int(rng.integers(30, 160))
    centers = rng.normal(size=(classes, d)) * rng.choice([0.3, 1.0, 6.0])
    codes = rng.integers(0, classes, n)
    codes[:2] = 0, classes - 1
    if classes > 2 and rng.random() < 0.3:
        codes[codes == 1] = 0
    X = (centers[codes] + rng.normal(size=(n, d))) * 10.0 ** rng.uniform(-1.0, 1.0, d) + rng.choice([0.0, 3.0])
    s = draw_weights(rng, n) if rng.random() < 0.4 else np.ones(n, np.float32)
    s[:2] = 1.0
    half = rng.random() < 0.4
    X = X.astype(np.float16 if half else np.float32).astype(np.float32)
    C = 10.0 ** float(rng.uniform(-6, 6))
    return Drawn(X, codes.astype(np.int32), s, C, dtype="float16" if half else "float32")


def draw_numbers(seed: int) -> Drawn:
    """Numbers of some scale that two columns make, with noise of long tails, away from 0."""
    rng = np.random.default_rng(seed)
    X = draw_table(rng)
    t = X / np.abs(X).max(0) @ rng.normal(size=X.shape[1]) + 0.3 * rng.standard_t(3, size=len(X)) + rng.normal()
    t *= 10.0 ** rng.uniform(-0.5, 1)
    quantile = float(rng.choice([0.1, 0.3, 0.5, 0.9]))
    return Drawn(X, t, draw_weights(rng, len(X)), 10.0 ** float(rng.uniform(-2, 0.5)), quantile)


def draw_one_class(seed: int) -> Drawn:
    """Rows about a point away from 0; y is +1."""
    rng = np.random.default_rng(seed)
    X = draw_table(rng).astype(np.float64)
    X[:, -1] += 0.05 * rng.normal(
        size=len(X)
    )  # copies of a row that lie on the edge are a limit: see "What is not done" in the design decisions
    X += rng.uniform(0.5, 3.0, X.shape[1]) * np.abs(X).mean(0)
    nu = float(rng.choice([0.05, 0.1, 0.3, 0.5, 0.9]))
    C = 10.0 ** float(rng.uniform(-2, 0))
    return Drawn(X.astype(np.float32), np.ones(len(X)), draw_weights(rng, len(X)), C, nu=nu)


def draw_two_classes_by_nu(seed: int) -> Drawn:
    """Two classes, and a nu that both have rows enough for: for a smaller one the optimum may be w = 0."""
    given = draw_two_classes(seed)
    s, share = given.s, float(np.random.default_rng(seed).choice([0.6, 0.8, 0.95]))
    return given._replace(nu=share * 2.0 * float(min(s[given.y > 0].sum(), s[given.y < 0].sum()) / s.sum()))


def draw_ball(seed: int) -> Drawn:
    """Numbers of which few columns make most; a radius that is a share of ||w||_1 of least squares."""
    given = draw_numbers(seed)
    seen, share = given.seen, float(np.random.default_rng(seed).choice([0.2, 0.5, 0.8, 1.5]))
    Z, root = np.column_stack([seen.X, np.ones(len(seen.y))]), np.sqrt(seen.s)
    free = np.linalg.lstsq(Z * root[:, None], seen.y * root, rcond=None)[0]
    return given._replace(radius=share * float(np.abs(free).sum()))


def draw_sparing(given: Drawn, seed: int) -> Drawn:
    """The same with a weight of ||w||_1 that is a share of the one from which on all weights are 0, about."""
    Z, middle = np.column_stack([given.X, np.ones(len(given.y))]), np.median(given.y)
    t = given.y if abs(middle) == 1.0 else np.sign(given.y - middle)
    most = given.C * float(np.abs(Z.T @ (given.s * t)).max())
    return given._replace(radius=float(np.random.default_rng(seed).choice([0.02, 0.1, 0.3])) * most)


def draw_sparing_classes(seed: int) -> Drawn:
    return draw_sparing(draw_two_classes(seed), seed)


def draw_sparing_numbers(seed: int) -> Drawn:
    return draw_sparing(draw_numbers(seed), seed)


def store_of(given: Drawn, chunk_bytes: int) -> MemoryStore:
    """The rows as a store of several chunks."""
    codes, names = _codes_and_names(given)
    store = MemoryStore(chunk_bytes=chunk_bytes)
    store.append(Dense(given.X), codes, given.s)
    return store.commit(names, given.X.shape[1])


@contextmanager
def open_store_of(given: Drawn, chunk_bytes: int) -> Iterator[Any]:
    """The same, on disk where rows are stored in another type than float32."""
    if given.dtype == "float32":
        yield store_of(given, chunk_bytes)
        return
    codes, names = _codes_and_names(given)
    with TemporaryDirectory(prefix="optima-") as folder:
        path = Path(folder) / "rows.zarr"
        writer = create(path, sparse=False, chunk_bytes=chunk_bytes, encoding=Encoding(given.dtype))
        writer.append(Dense(given.X), codes, given.s)
        writer.commit(names, given.X.shape[1], {"names": None})
        yield open_store(path)


def _codes_and_names(given: Drawn) -> tuple[Any, tuple[str, ...]]:
    """Class codes and labels; targets and no label for regression."""
    if given.y.dtype == np.int32:
        return given.y, NAMES[: int(given.y.max()) + 1]
    if set(np.unique(given.y)) <= {-1.0, 1.0}:
        return (given.y > 0).astype(np.int32), ("-1", "1")
    return given.y, ()


# -- by other programs -------------------------------------------------------------------------------------------------

GAMMA, EPSILON = 0.3, 0.1
MU = 0.1
"""Half the width of huber's rounded corner."""


class Growth(NamedTuple):
    """phi(e) = curvature / 2 e^2 up to a width, and from there curvature width (e - width / 2); e for a width of 0."""

    curvature: float
    width: float


LINE, SQUARE = Growth(0.0, 0.0), Growth(2.0, np.inf)
MARGINS: dict[str, tuple[float, Growth]] = {
    "hinge": (1.0, LINE),
    "squared_hinge": (1.0, SQUARE),
    "huber": (1.0 + MU, Growth(0.5 / MU, 2.0 * MU)),
}
"""The margin from which on a row costs nothing, and how its cost grows below it."""
LIBSVM_ITERATIONS = 300_000
"""Without a limit it does not end on some problems of one class."""
ITERATIONS, PRECISION, FEASIBLE = 100, 1e-12, 1e-3


class Lines(NamedTuple):
    """e_i >= need_r - Z_r.v for all lines r of row i, e >= 0; a row costs cost_i phi(e_i)."""

    Z: Any
    """(lines, p)."""
    need: Any
    """(lines,)."""
    owner: Any
    """(lines,) the row of each."""
    cost: Any
    """(rows,)."""
    phi: Growth = LINE


def costs(e: Any, phi: Growth) -> Any:
    """phi(e)."""
    if not phi.width:
        return e
    near = np.minimum(e, phi.width)
    return phi.curvature * near * (e - 0.5 * near)


def least(lines: Lines, norm: Any, linear: Any = 0.0, *, signed: bool = True) -> float:
    """The least 1/2 sum_j norm_j v_j^2 + linear.v + sum_i cost_i phi(e_i), of all v or (``signed`` False) v >= 0.

    Variables are v, for each row the part of e that costs a line and the part that costs a square, where there are both.
    """
    rows, p, phi = len(lines.cost), lines.Z.shape[1], lines.phi
    linear = np.zeros(p) + linear
    H, g, parts = [np.zeros(p) + norm], [linear], 0
    if np.isfinite(phi.width):
        H, g, parts = [*H, np.zeros(rows)], [*g, lines.cost], parts + 1
    if phi.width:
        H, g, parts = [*H, phi.curvature * lines.cost], [*g, np.zeros(rows)], parts + 1
    mine = np.eye(rows)[lines.owner]
    above = np.eye(p + parts * rows)[p if signed else 0 :]
    A = np.vstack([np.hstack([lines.Z, *[mine] * parts]), above])
    x = program(np.concatenate(H), np.concatenate(g), A, np.append(lines.need, np.zeros(len(above))))
    x[:p] = x[:p] if signed else np.maximum(x[:p], 0.0)
    e = np.zeros(rows)
    np.maximum.at(e, lines.owner, lines.need - lines.Z @ x[:p])
    return float(0.5 * norm @ x[:p] ** 2 + linear @ x[:p] + lines.cost @ costs(e, phi))


def program(H: Any, g: Any, A: Any, b: Any) -> Any:
    """The x of least 1/2 sum_j H_j x_j^2 + g.x with A x >= b, H >= 0: predictor and corrector of Mehrotra's method."""
    x, s, z = np.zeros(len(g)), np.ones(len(b)), np.ones(len(b))
    for _ in range(ITERATIONS):
        dual, primal, product = H * x + g - A.T @ z, A @ x - s - b, float(s @ z) / len(b)
        scale = 1.0 + abs(float(0.5 * H @ x**2 + g @ x))
        if max(product * len(b), FEASIBLE * np.abs(dual).max(), FEASIBLE * np.abs(primal).max()) < PRECISION * scale:
            break
        M = np.diag(H) + A.T @ (A * (z / s)[:, None])
        shift, aim = 0.0, 0.0
        for _half in range(2):
            left = s * z - aim + shift
            right = -dual - A.T @ (left / s + z / s * primal)
            try:
                dx = np.linalg.solve(M, right)
            except np.linalg.LinAlgError:  # products of 1e-16: this is as far as float64 goes
                return x
            ds = A @ dx + primal
            dz = -left / s - z / s * ds
            length = min(1.0, *(0.995 * _longest(*pair) for pair in ((s, ds), (z, dz))))
            shift, aim = ds * dz, (float((s + length * ds) @ (z + length * dz)) / len(b) / product) ** 3 * product
        x, s, z = x + length * dx, s + length * ds, z + length * dz
    return x


def _longest(a: Any, da: Any) -> float:
    """How far a >= 0 allows to go."""
    falling = da < 0.0
    return float(np.min(-a[falling] / da[falling])) if falling.any() else np.inf


def features(given: Drawn, kernel: bool) -> tuple[Any, Any]:
    """Z (n, p) and the norm (p,): rows and a regularized constant; of a kernel a root of K, and a constant that is free."""
    n = len(given.y)
    if not kernel:
        return np.column_stack([given.X, np.ones(n)]), np.ones(given.X.shape[1] + 1)
    return np.column_stack([root(gram(given)), np.ones(n)]), np.append(np.ones(n), 0.0)


def gram(given: Drawn) -> Any:
    return np.exp(-GAMMA * ((given.X[:, None] - given.X[None]) ** 2).sum(-1))


def root(K: Any) -> Any:
    """R (n, n) with R R' = K."""
    values, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def margin_lines(Z: Any, y: Any, cost: Any, loss: str) -> Lines:
    """A loss of a margin: one line a row."""
    need, phi = MARGINS[loss]
    return Lines(Z * y[:, None], np.full(len(Z), need), np.arange(len(Z)), cost, phi)


def number_lines(Z: Any, given: Drawn, loss: str) -> Lines:
    """A loss of a residual: a line on each side."""
    q = given.quantile
    up, down = (1.0 - q, q) if loss == "pinball" else (1.0, 1.0)
    slack = 0.0 if loss in ("pinball", "squared") else EPSILON
    both = np.vstack([-up * Z, down * Z])
    need = np.concatenate([-up * given.y - slack, down * given.y - slack])
    phi = SQUARE if loss.startswith("squared") else LINE
    return Lines(both, need, np.tile(np.arange(len(Z)), 2), given.C * given.s, phi)


def primal(given: Drawn, Z: Any, norm: Any, v: Any, loss: str) -> float:
    """P of a function of features."""
    kind = LOSSES[loss](given.quantile) if loss == "pinball" else LOSSES[loss]()
    m = Z @ v - given.y if kind.numeric() else given.y * (Z @ v)
    terms = [c * kind.value(u) for c, u in zip(given.s.tolist(), m.tolist(), strict=True)]
    return float(0.5 * norm @ v**2 + given.C * sum(terms))


def linear_classes(given: Drawn, loss: str) -> list[float]:
    """Two classes, a regularized constant."""
    given = given.seen
    Z, norm = features(given, kernel=False)
    return [by_liblinear(given, Z, norm, loss)]


def free_classes(given: Drawn, loss: str) -> list[float]:
    """Two classes, a constant that is free."""
    given = given.seen
    Z, norm = features(given, kernel=False)
    norm[-1] = 0.0
    if loss != "logistic":
        return [least(margin_lines(Z, given.y, given.C * given.s, loss), norm)]
    from sklearn.linear_model import LogisticRegression

    machine = LogisticRegression(solver="newton-cholesky", C=given.C, tol=1e-10, max_iter=10_000)
    machine.fit(given.X, given.y, sample_weight=given.s)
    return [primal(given, Z, norm, np.append(machine.coef_[0], machine.intercept_), loss)]


def by_liblinear(given: Drawn, Z: Any, norm: Any, loss: str) -> float:
    """LIBLINEAR for the hinges, scikit-learn's newton-cholesky for the logistic loss, else ``least``."""
    if loss in ("hinge", "squared_hinge"):
        from sklearn.svm import LinearSVC

        machine = LinearSVC(
            C=given.C, loss=loss, dual=True, tol=1e-10, max_iter=200_000, fit_intercept=False, random_state=0
        )
    elif loss == "logistic":
        from sklearn.linear_model import LogisticRegression

        machine = LogisticRegression(C=given.C, solver="newton-cholesky", tol=1e-12, fit_intercept=False)
    else:
        return least(margin_lines(Z, given.y, given.C * given.s, loss), norm)
    machine.fit(Z, given.y, sample_weight=given.s)
    return primal(given, Z, norm, machine.coef_[0], loss)


def hats_of(hats: Any, X: Any) -> Any:
    """Rows h(x) as a matrix, by the definition."""
    columns = []
    for j, column in enumerate(hats.curved):
        t = hats.knots[hats.starts[j] : hats.starts[j + 1]].astype(float)
        x = np.clip(X[:, column].astype(float), t[0], t[-1])
        r = np.clip(np.searchsorted(t, x, side="right") - 1, 0, len(t) - 2)
        f = (x - t[r]) / (t[r + 1] - t[r])
        H = np.zeros((len(X), len(t)))
        H[np.arange(len(X)), r], H[np.arange(len(X)), r + 1] = np.float32(1 - f), np.float32(f)
        columns.append(H)
    return np.hstack([*columns, X[:, hats.linear].astype(float), np.ones((len(X), 1))])


def penalty_of(hats: Any, smooth: str) -> Any:
    """The matrix of the penalty theta' S theta of all weights."""
    S = np.eye(hats.features + 1)
    for start, stop in zip(hats.starts, hats.starts[1:], strict=False):
        K = stop - start
        m, D1 = np.full(K, 1 / K), np.diff(np.eye(K), axis=0)
        D2 = np.diff(D1, axis=0)
        own = {
            "none": np.eye(K),
            "d1": np.outer(m, m) + (K - 1) / 12 * D1.T @ D1,
            "d2": np.outer(m, m) + 0.1 * (K - 1) / 12 * D1.T @ D1 + 0.01 * (K - 1) ** 3 / 720 * D2.T @ D2,
        }[smooth]
        S[start:stop, start:stop] = own
    return S


CURVES: dict[str, Any] = {"curves": True, "knots": 6}


def curve_classes(given: Drawn, loss: str) -> list[float]:
    """Two classes, curves on the knots that a fit chooses: the linear problem of the rows h' B, B B' = S^-1."""
    job = FitJob("memory", "none", loss=loss, C=given.C, **CURVES)
    with open_store_of(given, 512) as store:
        plan = make_features(job, store, make_plan(job, store), Path("none"), silent)[1]
    assert isinstance(plan.features, Curves)
    hats = plan.features.hats
    factor = np.linalg.cholesky(penalty_of(hats, "d2"))
    seen = given.seen
    Z = np.linalg.solve(factor, hats_of(hats, seen.X).T).T
    return [by_liblinear(seen, Z, np.ones(Z.shape[1]), loss)]


def kernel_classes(given: Drawn, loss: str) -> list[float]:
    """By LIBSVM: the optimal D of the hinge, and of its square, which is the hinge without a bound and 1 / (2 C_i) on the diagonal."""
    given = given.seen
    if loss not in ("hinge", "squared_hinge"):
        Z, norm = features(given, kernel=True)
        return [least(margin_lines(Z, given.y, given.C * given.s, loss), norm)]
    from sklearn.svm import SVC

    K, C = gram(given), given.C * given.s
    if loss == "squared_hinge":
        K, C = K + np.diag(0.5 / C), np.full(len(C), 1e9)
    machine = SVC(kernel="precomputed", C=1.0, tol=1e-10).fit(K, given.y, sample_weight=C)
    x = np.zeros(len(C))
    x[machine.support_] = machine.dual_coef_[0]
    return [float(np.abs(x).sum() - 0.5 * x @ K @ x)]


def pair_optima(given: Drawn, loss: str, kernel: bool) -> list[float]:
    """An optimum for each pair of classes, of its rows alone."""
    found = []
    for one, other in combinations(range(int(given.y.max()) + 1), 2):
        mine = np.isin(given.y, (one, other))
        pair = given._replace(X=given.X[mine], y=np.where(given.y[mine] == one, 1.0, -1.0), s=given.s[mine])
        found += kernel_classes(pair, loss) if kernel else linear_classes(pair, loss)
    return found


def rest_optima(given: Drawn, loss: str, kernel: bool) -> list[float]:
    """An optimum for each class against the rest."""
    peer = kernel_classes if kernel else linear_classes
    classes = range(int(given.y.max()) + 1)
    return [best for k in classes for best in peer(given._replace(y=np.where(given.y == k, 1.0, -1.0)), loss)]


def class_lines(given: Drawn, loss: str) -> tuple[Lines, Any]:
    """A line for each row and other class, of weights (classes, p) one after the other; and their norm."""
    Z, _ = features(given, kernel=False)
    classes, (n, p) = int(given.y.max()) + 1, Z.shape
    need, phi = MARGINS[loss]
    own = np.zeros((n, classes, p))
    own[np.arange(n), given.y] = Z
    differences = own[:, None] - np.einsum("kc,np->nkcp", np.eye(classes), Z)
    rivals = np.arange(classes)[None, :] != given.y[:, None]
    lines = differences.reshape(n, classes, classes * p)[rivals]
    return Lines(lines, np.full(len(lines), need), np.nonzero(rivals)[0], given.C * given.s, phi), np.ones(classes * p)


def together(given: Drawn, loss: str) -> list[float]:
    """Crammer and Singer's problem: of the hinge by LIBLINEAR, else ``least``."""
    given = given.seen
    lines, norm = class_lines(given, loss)
    if loss != "hinge":
        return [least(lines, norm)]
    from sklearn.svm import LinearSVC

    machine = LinearSVC(
        multi_class="crammer_singer", C=given.C, tol=1e-10, max_iter=200_000, fit_intercept=False, random_state=0
    )
    Z, _ = features(given, kernel=False)
    v, e = machine.fit(Z, given.y, sample_weight=given.s).coef_.ravel(), np.zeros(len(Z))
    np.maximum.at(e, lines.owner, lines.need - lines.Z @ v)
    return [float(0.5 * v @ v + lines.cost @ e)]


def softmax_classes(given: Drawn, loss: str) -> list[float]:
    """Softmax regression, by scikit-learn's Newton method. ``loss`` is the logistic one."""
    del loss
    from sklearn.linear_model import LogisticRegression

    given = given.seen
    Z, _ = features(given, kernel=False)
    machine = LogisticRegression(solver="newton-cg", C=given.C, tol=1e-10, max_iter=10_000, fit_intercept=False)
    W = machine.fit(Z, given.y, sample_weight=given.s).coef_
    scores = Z @ W.T
    top = scores.max(axis=1)
    losses = top + np.log(np.exp(scores - top[:, None]).sum(axis=1)) - scores[np.arange(len(Z)), given.y]
    return [float(0.5 * np.sum(W * W) + given.C * given.s @ losses)]


def hard_softmax(given: Drawn, loss: str) -> list[float]:
    """Softmax regression by ``softmax_bounds``. With two classes it is logistic regression, whose w is the difference of
    two that have half its length each: twice the optimum at half of C.
    """
    del loss
    seen = given.seen
    Z, _ = features(seen, kernel=False)
    classes = int(given.y.max()) + 1
    two = classes == 2
    return [(1 + two) * softmax_bounds(Z, seen.y, seen.s, seen.C / (1 + two), classes)[1]]


def softmax_objective(W: Any, X: Any, codes: Any, s: Any, C: float) -> tuple[float, Any]:
    """P of softmax regression and its gradient in float64, of W (K, p) and rows with their constant feature."""
    Z = X @ W.T
    losses = logsumexp(Z - Z[np.arange(len(Z)), codes][:, None], axis=1)
    R = softmax(Z, axis=1)
    R[np.arange(len(Z)), codes] -= 1.0
    return 0.5 * float(np.sum(W * W)) + C * float(s @ losses), W + C * (R * s[:, None]).T @ X


def softmax_bounds(X: Any, codes: Any, s: Any, C: float, classes: int) -> tuple[float, float]:
    """Bounds of the optimum by Newton's method with all second derivatives, and the duality gap 1/2 ||gradient||^2."""
    K, p = classes, X.shape[1]
    W, best, low = np.zeros((K, p)), np.inf, -np.inf
    for _ in range(300):
        P, G = softmax_objective(W, X, codes, s, C)
        best, low = min(best, P), max(low, P - 0.5 * float(np.sum(G * G)))
        if best - low <= 1e-12 * best:
            break
        q = softmax(X @ W.T, axis=1)
        H = np.einsum("i,ik,il,im,in->kmln", C * s, q, -q, X, X, optimize=True)
        for k in range(K):
            H[k, :, k, :] += (X * (C * s * q[:, k])[:, None]).T @ X
        step = np.linalg.solve(H.reshape(K * p, -1) + np.eye(K * p), -G.ravel()).reshape(K, p)
        t, slope = 1.0, float(np.sum(step * G))
        while t > 1e-12 and softmax_objective(W + t * step, X, codes, s, C)[0] > P + 1e-4 * t * slope + 1e-14 * P:
            t *= 0.5
        W = W + t * step
    return low, best


def linear_numbers(given: Drawn, loss: str) -> list[float]:
    """By LIBLINEAR, the normal equations of least squares, or, of quantiles, ``least``."""
    given = given.seen
    Z, norm = features(given, kernel=False)
    if loss == "squared":
        scaled = 2.0 * given.C * (Z.T * given.s)
        return [primal(given, Z, norm, np.linalg.solve(np.eye(len(norm)) + scaled @ Z, scaled @ given.y), loss)]
    if loss == "pinball":
        return [least(number_lines(Z, given, loss), norm)]
    from sklearn.svm import LinearSVR

    machine = LinearSVR(
        loss=loss, epsilon=EPSILON, C=given.C, tol=1e-10, max_iter=200_000, dual=True, fit_intercept=False, random_state=0
    )  # fmt: skip
    machine.fit(Z, given.y, sample_weight=given.s)
    return [primal(given, Z, norm, machine.coef_, loss)]


def kernel_numbers(given: Drawn, loss: str) -> list[float]:
    """By LIBSVM (of the square with its bend on the diagonal), a linear system of least squares, or ``least``."""
    given = given.seen
    Z, norm = features(given, kernel=True)
    K, c, n = gram(given), given.C * given.s, len(given.y)
    if loss == "squared":
        system = np.block([[K + np.diag(0.5 / c), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
        a = np.linalg.solve(system, np.append(given.y, 0.0))
        m = K @ a[:-1] + a[-1] - given.y
        return [float(0.5 * a[:-1] @ K @ a[:-1] + c @ m**2)]
    if loss == "pinball":
        return [least(number_lines(Z, given, loss), norm)]
    from sklearn.svm import SVR

    square = loss == "squared_epsilon_insensitive"
    matrix, bound = (K + np.diag(0.5 / c), np.full(n, 1e9)) if square else (K, c)
    machine = SVR(kernel="precomputed", C=1.0, epsilon=EPSILON, tol=1e-10).fit(matrix, given.y, sample_weight=bound)
    a = np.zeros(n)
    a[machine.support_] = machine.dual_coef_[0]
    return [float(a @ given.y - EPSILON * np.abs(a).sum() - 0.5 * a @ matrix @ a)]


def one_class(given: Drawn, kernel: bool) -> list[float]:
    """The form with nu: what LIBSVM finds, or ``least``, whichever is less."""
    from sklearn.svm import OneClassSVM

    given = given.seen
    n, total = len(given.y), given.nu * given.s.sum()
    K = gram(given) if kernel else given.X @ given.X.T
    machine = OneClassSVM(kernel="precomputed", nu=given.nu, tol=1e-10, max_iter=LIBSVM_ITERATIONS)
    machine.fit(K, sample_weight=given.s)
    a = np.zeros(n)
    a[machine.support_] = machine.dual_coef_[0]
    f, rho = K @ a, float(-machine.intercept_[0])
    theirs = 0.5 * a @ f - total * rho + given.s @ np.maximum(0.0, rho - f)
    return [min(float(theirs), with_offset(root(K) if kernel else given.X, given))]


def with_offset(Z: Any, given: Drawn) -> float:
    """The least 1/2 ||w||^2 - nu S rho + sum_i s_i max(0, rho - w.z_i) of all w and rho."""
    n, p = Z.shape
    norm, linear = np.append(np.ones(p), 0.0), np.append(np.zeros(p), -given.nu * given.s.sum())
    return least(Lines(np.column_stack([Z, -np.ones(n)]), np.zeros(n), np.arange(n), given.s), norm, linear)


def classes_by_nu(given: Drawn) -> list[float]:
    """Two classes with nu and a constant feature that is regularized, which LIBSVM's is not."""
    given = given.seen
    Z, _ = features(given, kernel=False)
    return [with_offset(Z * given.y[:, None], given)]


def one_class_of_margin(given: Drawn, loss: str, kernel: bool) -> list[float]:
    """The form with C and no constant: rows that are turned round at random, by LIBLINEAR; of a kernel ``least``."""
    given = given.seen
    Z = root(gram(given)) if kernel else given.X
    norm, signs = np.ones(Z.shape[1]), np.where(np.arange(len(Z)) % 2, 1.0, -1.0)
    if kernel:
        return [least(margin_lines(Z, given.y, given.C * given.s, loss), norm)]
    return [by_liblinear(given._replace(y=signs), Z * signs[:, None], norm, loss)]


def elastic_net(given: Drawn, loss: str) -> list[float]:
    """||w||_1 beside: w = u - v with u, v >= 0, of which the optimum has one 0; of the logistic loss by L-BFGS-B of scipy."""
    given = given.seen
    Z, _ = features(given, kernel=False)
    both = np.hstack([Z, -Z])
    norm, linear = np.ones(both.shape[1]), np.full(both.shape[1], given.radius)
    if loss != "logistic":
        numeric, cost = LOSSES[loss]().numeric(), given.C * given.s
        lines = number_lines(both, given, loss) if numeric else margin_lines(both, given.y, cost, loss)
        return [least(lines, norm, linear, signed=False)]
    from scipy.optimize import minimize

    def value(v: Any) -> tuple[float, Any]:
        m, cost = given.y * (both @ v), given.C * given.s
        slopes = -cost * given.y / (1.0 + np.exp(m))
        return 0.5 * v @ v + linear @ v + cost @ np.logaddexp(0.0, -m), v + linear + both.T @ slopes

    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-11}
    start = np.zeros(len(norm))
    found = minimize(value, start, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(norm), options=options)
    return [float(found.fun)]


def ball(given: Drawn) -> list[float]:
    """Least squares over the l1 ball: along the path of the lasso (LARS) ||w||_1 grows in straight pieces, up to that of least squares."""
    from sklearn.linear_model import lars_path_gram

    given = given.seen
    Z, _ = features(given, kernel=False)
    scaled = (Z * given.s[:, None]).T
    _, _, path = lars_path_gram(scaled @ given.y, scaled @ Z, n_samples=1, method="lasso")
    norms = np.abs(path).sum(0)
    k = int(np.searchsorted(norms, given.radius))
    if k == len(norms):
        w = path[:, -1]
    else:
        share = (given.radius - norms[k - 1]) / (norms[k] - norms[k - 1])
        w = (1.0 - share) * path[:, k - 1] + share * path[:, k]
    return [float(given.C * given.s @ (Z @ w - given.y) ** 2)]
