"""Recompute a certificate with nothing but zarr-python, safetensors and numpy float64: tools/audit.py STORE MODEL.

With --dual FILE (written by 'streamsvm fit --dual FILE') the dual value as well; a certificate says which row of the
file is its own ("problem"), since a fit of several C writes one file for all its models. Nothing of streamsvm is imported: what
is checked here is not checked by what made it. Linear models, models on landmarks and exact kernels are audited, of classes and of numbers. Exit
code 1 when a value differs from the certificate by more than 1e-6 relative (the dual value on landmarks 1e-5) and the rounding that it states, 2 when the fit was of a kind this tool knows nothing of, which it
names, or rows were held out.

What is recomputed. A fit minimizes, over the features z it sees and a constant feature of value b,

    P(u) = 1/2 ||u||^2 + sum_i C_i l(m_i),     m_i = y_i (u_1 z_i1 + ... + u_d z_id + u_{d+1} b),     C_i = C s_i

s_i being the weight of row i times that of its class. The model holds another form of u: coefficients v and a constant
c of raw features x, f(x) = v.x + c. Without standardization z = x, hence

    u_j = v_j,     u_{d+1} = c / b     (nothing where b = 0: then c = 0 as well).

With it z_j = (x_j - shift_j) scale_j, so that f(x) = sum_j u_j scale_j x_j + (u_{d+1} b - sum_j u_j scale_j shift_j):

    u_j = v_j / scale_j,     u_{d+1} = (c + sum_j v_j shift_j) / b.

The margins are the same in both forms, the norm is not: what is regularized is u. scale is 1 over the standard deviation
(over n; 1 for a constant column), shift the mean, 0 for sparse rows; both as float32, the numbers the features were
computed with. They are recomputed here from the data, in float64, and then rounded. With

    hinge           l(m) = max(0, t - m)       conjugate(a) = (1 - t) a                     0 <= a_i <= C_i
    squared_hinge   l(m) = max(0, t - m)^2     conjugate(a) = (1 - t) a + a^2 / (4 C_i)     0 <= a_i

(t = 1 unless 'margin' was set) the dual value is D(a) = sum_i (a_i - conjugate(a_i)) - 1/2 ||sum_i a_i y_i (z_i, b)||^2.

Other losses of classes, and those of numbers t_i, whose m_i is the residual f(x_i) - t_i and for which sum_i a_i t_i is added to D and y_i is 1:

    huber                         l = max over b of b (k - m) - mu (b^2 - b)     conjugate = (1 - k - mu) a + mu a^2 / C     0 <= a <= C
    logistic                      l = log(1 + exp(-k m)) / k       a + C/k (b log b + (1 - b) log(1 - b)), b = a / C     0 <= a <= C
    epsilon_insensitive           l = max(0, |m| - e)              a + e |a|                                     -C <= a <= C
    squared_epsilon_insensitive   l = max(0, |m| - e)^2            a + e |a| + a^2 / (4 C)
    squared                       l = factor m^2                   a + a^2 / (4 factor C)
    pinball                       l = max((1 - q) m, -q m)         a                                   -(1 - q) C <= a <= q C

Models on landmarks z_1 .. z_m are f(x) = sum_j v_j k(x, z_j) + c. With K = V L V' the kernel values of the landmarks, in float64, the features are
W' k(x), W = V L^-1/2 without the eigenvalues below the cutoff, rounded to float32; u solves W u = v, and the rest is as above. For exact
kernels the norm is v' K v over the support rows, and the constant c costs nothing: D wants sum_i a_i y_i = 0, and its last term is 1/2 sum_ij
a_i y_i a_j y_j k(x_i, x_j). Kernel values are computed in float64 of rows that are, as in the fit, scaled in float32.

Where all classes are one problem (multi_class crammer_singer) there is a u_k for each, m_i is how far u_y.z_i is above all others for the
row's class y, and a row has a_ik, 0 or less but for k = y, with sum 0; a_iy stands for a_i above, and the last term is 1/2 sum_k
||sum_i a_ik (z_i, b)||^2. A model of two classes holds u_1 - u_0, and u_1 = -u_0. With multi_class softmax, of three classes and more, the
loss of a row is log sum_k e^(u_k.z_i) - u_y.z_i, and a_i = C_i (e_y - p_i) with p_i in the simplex adds C_i times the entropy of p_i to D.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TOLERANCE = 1e-6
OF_FEATURES = 1e-5
"""The same of the dual value on landmarks: dual variables are those of features in float32, and the certificate is of features in float64."""
TOGETHER, SOFTMAX = "crammer_singer", "softmax"
"""The setting of one problem for all classes."""
AT_ONCE = 1 << 16
"""Rows in memory at a time."""


class Rows(NamedTuple):
    """Some rows of the store: raw features float64 (n, d), class codes or targets and weights (n,), and the number of the first."""

    X: Any
    codes: Any
    weight: Any
    start: int


class Data:
    """A store as any Zarr client sees it; the class table and the number of columns are in its manifest."""

    def __init__(self, path: Path) -> None:
        import zarr

        self.group: Any = zarr.open_group(str(path), mode="r")
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))["manifest"]
        self.classes, self.columns = manifest["classes"], manifest["columns"]
        self.at_once = AT_ONCE
        self.sparse = isinstance(self.group["X"], zarr.Group)
        self.rows = self.group["y"].shape[0]

    def __iter__(self) -> Iterator[Rows]:
        for start in range(0, self.rows, self.at_once):
            span = slice(start, min(start + self.at_once, self.rows))
            codes = self.group["y"][span]
            weight = self.group["weight"][span] if "weight" in self.group else np.ones(len(codes))
            yield Rows(self._features(span), codes, weight.astype(np.float64), start)

    def _features(self, span: slice) -> Any:
        if not self.sparse:
            return self.group["X"][span].astype(np.float64)
        import scipy.sparse as sp

        X = self.group["X"]
        indptr = X["indptr"][span.start : span.stop + 1]
        entries = slice(int(indptr[0]), int(indptr[-1]))
        shape = (span.stop - span.start, self.columns)
        data = X["data"][entries].astype(np.float64)
        return sp.csr_matrix((data, X["indices"][entries], indptr - indptr[0]), shape)


class Audited(NamedTuple):
    """What was recomputed for one problem. ``outside``: by how much the dual variables leave their box, relative."""

    primal: float
    dual: float | None
    outside: float


class Scaling(NamedTuple):
    """x_j -> (x_j - shift_j) scale_j."""

    shift: Any
    scale: Any


def read_model(path: Path) -> tuple[dict[str, Any], Any]:
    """The header and the weights (problems, columns + 1) of a model file."""
    from safetensors import safe_open

    with safe_open(str(path), framework="np") as file:
        return json.loads(file.metadata()["header"]), file.get_tensor("weights")


def read_tensors(path: Path) -> dict[str, Any]:
    """All arrays of a model file by name."""
    from safetensors import safe_open

    with safe_open(str(path), framework="np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)


class Loss(NamedTuple):
    """A loss of the docstring. ``gain``: a less its conjugate, of a and C > 0; ``box``: the bounds of a, of C."""

    value: Any
    gain: Any
    box: Any
    numeric: bool = False


def loss_of(name: str, options: dict[str, float]) -> Loss | None:
    """A loss by its name and settings; None for one that is not known here."""
    k, mu = options.get("margin", 1.0), options.get("mu", 0.1)
    sharp, e = options.get("sharpness", 1.0), options.get("epsilon", 0.1)
    factor, q = options.get("factor", 1.0), options.get("quantile", 0.5)
    inf = np.inf

    def rounded(m: Any) -> Any:
        b = np.clip((k + mu - m) / (2.0 * mu), 0.0, 1.0)
        return b * (k - m) - mu * (b**2 - b)

    def entropy(a: Any, C: Any) -> Any:
        b = np.clip(a / C, 1e-300, 1.0)
        rest = np.clip(1.0 - a / C, 1e-300, 1.0)
        return -C / sharp * (b * np.log(b) + rest * np.log(rest))

    outside = lambda m: np.maximum(0.0, np.abs(m) - e)  # noqa: E731
    positive, both = lambda C: (0.0, C), lambda C: (-C, C)
    known = {
        "hinge": Loss(lambda m: np.maximum(0.0, k - m), lambda a, C: k * a, positive),
        "squared_hinge": Loss(
            lambda m: np.maximum(0.0, k - m) ** 2, lambda a, C: k * a - a**2 / (4.0 * C), lambda C: (0.0, inf)
        ),
        "huber": Loss(rounded, lambda a, C: (k + mu) * a - mu * a**2 / C, positive),
        "logistic": Loss(lambda m: np.logaddexp(0.0, -sharp * m) / sharp, entropy, positive),
        "epsilon_insensitive": Loss(outside, lambda a, C: -e * np.abs(a), both, numeric=True),
        "squared_epsilon_insensitive": Loss(
            lambda m: outside(m) ** 2,
            lambda a, C: -e * np.abs(a) - a**2 / (4.0 * C),
            lambda C: (-inf, inf),
            numeric=True,
        ),
        "squared": Loss(
            lambda m: factor * m**2, lambda a, C: -(a**2) / (4.0 * factor * C), lambda C: (-inf, inf), numeric=True
        ),
        "pinball": Loss(
            lambda m: np.maximum((1.0 - q) * m, -q * m),
            lambda a, C: 0.0 * a,
            lambda C: (-(1.0 - q) * C, q * C),
            numeric=True,
        ),
    }
    return known.get(name)


def kernel_values(name: str, parameters: dict[str, float], X: Any, Z: Any) -> Any:
    """k(x, z) for rows X (n, d) and Z (m, d), float64, both dense or both scipy.sparse: (n, m)."""
    gamma, coef0 = parameters.get("gamma", 1.0), parameters.get("coef0", 0.0)
    sparse = not isinstance(X, np.ndarray)
    if name == "laplacian":
        X, Z = (np.asarray(X.todense()), np.asarray(Z.todense())) if sparse else (X, Z)
        return np.exp(-gamma * np.stack([np.abs(X - z).sum(axis=1) for z in Z], axis=1))
    if name == "rbf":
        middle = 0.0 if sparse else Z.mean(axis=0)
        X, Z = (X, Z) if sparse else (X - middle, Z - middle)  # less is lost by cancellation
        squares = [np.asarray((A.multiply(A) if sparse else A * A).sum(axis=1)).ravel() for A in (X, Z)]
        dot = np.asarray((X @ Z.T).todense()) if sparse else X @ Z.T
        return np.exp(-gamma * np.maximum(squares[0][:, None] + squares[1] - 2.0 * dot, 0.0))
    dot = np.asarray((X @ Z.T).todense()) if sparse else X @ Z.T
    if name == "polynomial":
        return (gamma * dot + coef0) ** parameters["degree"]
    return np.tanh(gamma * dot + coef0) if name == "sigmoid" else parameters.get("scale", 1.0) * dot


class Linear:
    """Features of a linear model: the columns. ``columns``: how many weights f has beside its constant."""

    def __init__(self, data: Data, settings: dict[str, Any]) -> None:
        self.scaling, self.bias = scaling_of(data, standardize=settings["standardize"]), float(settings["bias"])
        self.columns = data.columns

    def features(self, X: Any) -> Any:
        """What f is a linear function of, (n, columns)."""
        return X

    def norm(self, weights: Any) -> float:
        """||u||^2."""
        u = solution_of(weights, self.scaling, self.bias)
        return float(u @ u)

    def dual_norm(self, raw: Any, constant: float, rows: list[Any]) -> float:
        """||sum_i a_i y_i (z_i, b)||^2, of sum_i a_i y_i features_i and sum_i a_i y_i; ``rows`` are for exact kernels."""
        v = np.append((raw - constant * self.scaling.shift) * self.scaling.scale, constant * self.bias)
        return float(v @ v)


class Kernel:
    """Points and kernel of a model; rows as the kernel sees them."""

    def __init__(self, header: dict[str, Any], tensors: dict[str, Any]) -> None:
        self.header, self.scaling = header["expansion"], (tensors.get("shift"), tensors.get("scale"))
        if "points" in tensors:
            self.points = tensors["points"].astype(np.float64)
        else:
            import scipy.sparse as sp

            given = [tensors[f"points.{part}"] for part in ("data", "indices", "indptr")]
            shape = (len(given[2]) - 1, self.header["columns"])
            self.points = sp.csr_matrix((given[0].astype(np.float64), given[1], given[2]), shape)
        self.columns = self.points.shape[0]

    def seen(self, X: Any) -> Any:
        """Rows as the kernel sees them: scaled in float32, and then float64."""
        shift, scale = self.scaling
        shift = np.float32(0.0) if shift is None else shift
        if scale is None:
            return X
        if isinstance(X, np.ndarray):
            return ((X.astype(np.float32) - shift) * scale).astype(np.float64)
        X = X.copy()
        X.data = (X.data.astype(np.float32) * scale[X.indices]).astype(np.float64)
        return X

    def values(self, X: Any, Z: Any) -> Any:
        """Kernel values of rows as the kernel sees them."""
        if isinstance(X, np.ndarray) != isinstance(Z, np.ndarray):
            X, Z = (A if isinstance(A, np.ndarray) else np.asarray(A.todense()) for A in (X, Z))
        return kernel_values(self.header["kernel"], self.header["parameters"], X, Z)

    def features(self, X: Any) -> Any:
        """See ``Linear``: the kernel values with the points."""
        return self.values(self.seen(X), self.points)


class Landmarks(Kernel):
    """Features on landmarks."""

    def __init__(self, header: dict[str, Any], tensors: dict[str, Any], settings: dict[str, Any]) -> None:
        super().__init__(header, tensors)
        self.bias = float(settings["bias"])
        values, vectors = np.linalg.eigh(self.values(self.points, self.points))
        kept = values > settings["cutoff"] * values[-1]
        self.W = (vectors[:, kept] / np.sqrt(values[kept])).astype(np.float32).astype(np.float64)

    def norm(self, weights: Any) -> float:
        """See ``Linear``."""
        u = np.linalg.lstsq(self.W, weights[:-1], rcond=None)[0]
        constant = weights[-1] / self.bias if self.bias else 0.0
        return float(u @ u) + constant**2

    def dual_norm(self, raw: Any, constant: float, rows: list[Any]) -> float:
        """See ``Linear``."""
        v = self.W.T @ raw
        return float(v @ v) + (constant * self.bias) ** 2


class Exact(Kernel):
    """An exact kernel; its constant is free."""

    def norm(self, weights: Any) -> float:
        """See ``Linear``."""
        found = 0.0
        for start in range(0, self.columns, 1024):
            part = slice(start, start + 1024)
            found += float(weights[:-1][part] @ self.values(self.points[part], self.points) @ weights[:-1])
        return found

    def dual_norm(self, raw: Any, constant: float, rows: list[Any]) -> float:
        """See ``Linear``; ``rows``: those with a_i y_i that is not 0, and that."""
        found = 0.0
        for X, x in rows:
            found += sum(float(x @ self.values(X, Z) @ z) for Z, z in rows)
        return found


def basis_of(data: Data, header: dict[str, Any], tensors: dict[str, Any]) -> Any:
    """What the model is a linear function of."""
    settings = header["provenance"]["settings"]
    if header["kind"] == "linear":
        return Linear(data, settings)
    on_landmarks = settings["landmarks"] is not None or settings["landmark_file"] is not None
    basis = Landmarks(header, tensors, settings) if on_landmarks else Exact(header, tensors)
    data.at_once = max(64, min(AT_ONCE, (1 << 22) // max(basis.columns, 1)))
    return basis


def unknown_kind(header: dict[str, Any], tensors: dict[str, Any]) -> str:
    """Why a model cannot be audited; empty where it can be."""
    settings = header["provenance"]["settings"]
    linear, stored = header["kind"] == "linear", settings.get("embedding_dtype", "float32")
    together = settings.get("multi_class") == TOGETHER and settings["loss"] not in ("hinge", "squared_hinge")
    without_points = "expansion" not in header or not any(name.startswith("points") for name in tensors)
    reasons = {
        **{
            f"a fit with --{name.replace('_', '-')}": settings.get(name)
            for name in ("one_class", "nu", "l1", "l1_ball", "free_bias", "curves")
        },
        f"a {header['kind']} model, loss {settings['loss']},": loss_of(settings["loss"], settings["loss_options"])
        is None,
        f"a model of all classes together, loss {settings['loss']},": together,
        "a linear model of --standardize-all": linear and settings.get("standardize_all"),
        "a kernel model without points": not linear and without_points,
        "a fit to an embedding": not linear and header.get("expansion", {}).get("kernel") != settings["kernel"],
        f"a fit to features in {stored}": not linear and settings.get("landmarks") is not None and stored != "float32",
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def scaling_of(data: Data, *, standardize: bool) -> Scaling:
    """Means and deviations over all rows, in two readings: the second sum is of differences from the mean."""
    if not standardize:
        return Scaling(np.zeros(data.columns), np.ones(data.columns))
    mean: Any = sum(np.asarray(part.X.sum(axis=0)).ravel() for part in data) / data.rows
    if data.sparse:  # sum (x - mean)^2 over the entries, and mean^2 for each entry that is not there
        squares: Any = sum(_entries(part.X, mean) for part in data)
    else:
        squares = sum(((part.X - mean) ** 2).sum(axis=0) for part in data)
    deviation = np.sqrt(squares / data.rows)
    scale = np.where(deviation > 0.0, 1.0 / np.where(deviation > 0.0, deviation, 1.0), 1.0)
    shift = np.zeros(data.columns) if data.sparse else mean
    return Scaling(shift.astype(np.float32).astype(np.float64), scale.astype(np.float32).astype(np.float64))


def _entries(X: Any, mean: Any) -> Any:
    stored = np.bincount(X.indices, minlength=len(mean))
    squares = np.bincount(X.indices, (X.data - mean[X.indices]) ** 2, minlength=len(mean))
    return squares + (X.shape[0] - stored) * mean**2


def class_factors(setting: Any, classes: list[str], counts: Any, positive: int) -> Any:
    """The weight of each class in the problem of class ``positive``."""
    if setting is None:
        return np.ones(max(len(classes), 1))
    if isinstance(setting, dict):
        if set(classes) == {"false", "true"}:
            setting = {{"0": "false", "1": "true"}.get(name, name): factor for name, factor in setting.items()}
        return np.array([setting.get(name, 1.0) for name in classes])
    rows, mine = counts.sum(), counts[positive]
    if mine in (0, rows):
        return np.ones(len(classes))
    return np.array([rows / (2.0 * (mine if code == positive else rows - mine)) for code in range(len(classes))])


def solution_of(weights: Any, scaling: Scaling, bias: float) -> Any:
    """What is regularized: u of the docstring."""
    u = weights[:-1] / scaling.scale
    constant = weights[-1] + weights[:-1] @ scaling.shift
    return np.append(u, constant / bias if bias else 0.0)


def audit(data: Data, header: dict[str, Any], tensors: dict[str, Any], alpha: Any) -> Iterator[Audited]:
    """Every problem of a model; ``alpha`` (problems, rows) or None."""
    settings, certificates = header["provenance"]["settings"], header["provenance"]["certificates"]
    weights, basis = tensors["weights"], basis_of(data, header, tensors)
    loss = loss_of(settings["loss"], settings["loss_options"])
    assert loss is not None
    together = are_together(settings, weights)
    counts: Any = 0
    if not loss.numeric:
        counts = sum(np.bincount(part.codes, minlength=len(data.classes)) for part in data)
    for k, certificate in enumerate(certificates):
        mine = None if alpha is None else alpha[certificate.get("problem", k)]
        if together:
            factors = joint_factors(settings["class_weight"], data.classes, counts)
            rows = rows_by_code(weights, header["classes"], data.classes)
            recompute_all = recompute_softmax if settings["multi_class"] == SOFTMAX else recompute_together
            yield recompute_all(data, Question(settings, certificate, factors, basis, rows, loss), mine)
            continue
        if (other := certificate.get("negative")) is None:
            factors = class_factors(settings["class_weight"], data.classes, counts, certificate["positive"])
        else:  # a pair of classes: rows of others count for nothing
            factors = joint_factors(settings["class_weight"], data.classes, counts)
            factors = np.where(np.isin(np.arange(len(factors)), (certificate["positive"], other)), factors, 0.0)
        yield recompute(data, Question(settings, certificate, factors, basis, weights[k], loss), mine)


class Question(NamedTuple):
    """One problem of a model: what was asked for, and the weights that answer it."""

    settings: dict[str, Any]
    certificate: dict[str, Any]
    factors: Any
    """Weight of each class."""
    basis: Any
    weights: Any
    loss: Loss


def recompute(data: Data, asked: Question, alpha: Any) -> Audited:
    """One reading of the data; ``alpha`` (rows,) or None."""
    loss, w, basis = asked.loss, asked.weights, asked.basis
    losses, linear, outside, largest = 0.0, 0.0, 0.0, 0.0
    raw, constant, support = np.zeros(basis.columns), 0.0, []  # sum a y features and sum a y
    for part in data:
        features = basis.features(part.X)
        f = features @ w[:-1] + w[-1]
        if loss.numeric:
            y, m = np.ones(len(f)), f - part.codes
            C = asked.certificate["C"] * part.weight
        else:
            y = np.where(part.codes == asked.certificate["positive"], 1.0, -1.0)
            m, C = y * f, asked.certificate["C"] * asked.factors[part.codes] * part.weight
        losses += float(C @ loss.value(m))
        if alpha is not None:
            a = alpha[part.start : part.start + len(y)]
            heavy = C > 0.0
            linear += float(np.sum(loss.gain(a[heavy], C[heavy])))
            linear += float(a @ part.codes) if loss.numeric else 0.0
            raw += features.T @ (a * y)
            constant += float(a @ y)
            low, top = (np.where(heavy, bound, 0.0) for bound in loss.box(C))
            outside = max(outside, float(np.max(np.maximum(low - a, a - top) / np.maximum(C, C.max()))))
            largest = max(largest, float(C.max()))
            if isinstance(basis, Exact) and np.any(a):
                support.append((basis.seen(part.X)[a != 0.0], (a * y)[a != 0.0]))
    primal = 0.5 * basis.norm(w) + losses
    if alpha is None:
        return Audited(primal, None, 0.0)
    if isinstance(basis, Exact):  # the constant is free
        outside = max(outside, abs(constant) / max(largest, 1e-300))
    return Audited(primal, linear - 0.5 * basis.dual_norm(raw, constant, support), outside)


def joint_factors(setting: Any, classes: list[str], counts: Any) -> Any:
    """The weight of each class where all are one problem, and in every pair."""
    if setting == "balanced":
        return np.where(counts > 0, counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1.0)), 1.0)
    return class_factors(setting, classes, counts, 0)


def rows_by_code(weights: Any, named: list[str], classes: list[str]) -> Any:
    """The weights (classes, columns + 1) by the class codes of the store."""
    rows = np.vstack([-weights, weights]) / 2.0 if len(weights) == 1 else weights
    return rows[[named.index(name) for name in classes]]


def are_together(settings: dict[str, Any], weights: Any) -> bool:
    """Whether all classes are one problem."""
    kind = settings.get("multi_class")
    return kind == TOGETHER or (kind == SOFTMAX and len(weights) > 1)


def recompute_softmax(data: Data, asked: Question, alpha: Any) -> Audited:
    """One reading of the data for the softmax of all classes; ``alpha`` (rows, classes) or None."""
    sharpness, W, basis = asked.settings["loss_options"].get("sharpness", 1.0), asked.weights, asked.basis
    losses, linear, outside = 0.0, 0.0, 0.0
    raw, constant = np.zeros((len(W), basis.columns)), np.zeros(len(W))
    for part in data:
        rows = np.arange(len(part.codes))
        C = asked.certificate["C"] * asked.factors[part.codes] * part.weight
        features = basis.features(part.X)
        F = sharpness * (np.asarray(features @ W[:, :-1].T) + W[:, -1])
        losses += float(C @ (np.logaddexp.reduce(F, axis=1) - F[rows, part.codes])) / sharpness
        if alpha is not None:
            a, heavy = alpha[part.start : part.start + len(rows)], C > 0.0
            p = -a / np.where(heavy, C, 1.0)[:, None]
            p[rows, part.codes] += 1.0
            entropy = -np.sum(np.where(p > 0.0, p * np.log(np.where(p > 0.0, p, 1.0)), 0.0), axis=1)
            linear += float(C @ entropy) / sharpness
            raw += np.asarray((features.T @ a).T)
            constant += a.sum(axis=0)
            outside = max(outside, float(-p.min()), float(np.abs(p.sum(axis=1) - 1.0).max()))
    primal = 0.5 * sum(basis.norm(w) for w in W) + losses
    if alpha is None:
        return Audited(primal, None, 0.0)
    norms = sum(basis.dual_norm(one, float(c), []) for one, c in zip(raw, constant, strict=True))
    return Audited(primal, linear - 0.5 * norms, outside)


def recompute_together(data: Data, asked: Question, alpha: Any) -> Audited:
    """One reading of the data for all classes in one problem; ``alpha`` (rows, classes) or None."""
    squared, margin = asked.settings["loss"] == "squared_hinge", asked.settings["loss_options"].get("margin", 1.0)
    W, basis = asked.weights, asked.basis
    losses, linear, outside = 0.0, 0.0, 0.0
    raw, constant = np.zeros((len(W), basis.columns)), np.zeros(len(W))
    for part in data:
        rows = np.arange(len(part.codes))
        C = asked.certificate["C"] * asked.factors[part.codes] * part.weight
        features = basis.features(part.X)
        F = np.asarray(features @ W[:, :-1].T) + W[:, -1]
        own = F[rows, part.codes]
        F[rows, part.codes] = -np.inf
        z = np.maximum(0.0, margin - own + F.max(axis=1))
        losses += float(C @ (z**2 if squared else z))
        if alpha is not None:
            a = alpha[part.start : part.start + len(rows)]
            b, heavy = a[rows, part.codes], C > 0.0
            linear += margin * float(b.sum()) - squared * float(np.sum(b[heavy] ** 2 / (4.0 * C[heavy])))
            raw += np.asarray((features.T @ a).T)
            constant += a.sum(axis=0)
            others = np.where(np.arange(len(W)) == part.codes[:, None], 0.0, a).max(axis=1)
            off = np.maximum(np.maximum(others, b - np.where(heavy & squared, np.inf, C)), np.abs(a.sum(axis=1)))
            outside = max(outside, float(np.max(off / np.maximum(C, C.max()))))
    primal = 0.5 * sum(basis.norm(w) for w in W) + losses
    if alpha is None:
        return Audited(primal, None, 0.0)
    norms = sum(basis.dual_norm(one, float(c), []) for one, c in zip(raw, constant, strict=True))
    return Audited(primal, linear - 0.5 * norms, outside)


def difference(found: float, said: float) -> float:
    """Relative to what was said."""
    return abs(found - said) / max(abs(said), 1e-300)


def problem_name(said: dict[str, Any], *, numeric: bool) -> str:
    """What a problem is of."""
    if numeric:
        return "regression"
    return f"class {said['positive']} against {said.get('negative', 'the rest')}"


def report(
    certificates: list[dict[str, Any]], found: list[Audited], *, together: bool, numeric: bool, on_landmarks: bool
) -> bool:
    """Print both side by side; whether they agree."""
    agree = True
    for k, (said, audited) in enumerate(zip(certificates, found, strict=True)):
        what = "all classes together" if together else problem_name(said, numeric=numeric)
        print(f"problem {said.get('problem', k)}: C {said['C']:g}, {what}")
        for name, value in (("primal", audited.primal), ("dual", audited.dual)):
            if value is not None:
                off = difference(value, said[name])
                tolerance = OF_FEATURES if name == "dual" and on_landmarks else TOLERANCE
                agree &= bool(off <= tolerance + said.get("rounding", 0.0) / max(abs(said[name]), 1e-300))
                print(f"  {name:<7} recomputed {value:.15g}  certificate {said[name]:.15g}  difference {off:.1e}")
        if audited.dual is not None:
            agree &= audited.outside <= TOLERANCE
            gap = (audited.primal - audited.dual) / abs(audited.primal)
            print(f"  gap     recomputed {gap:.6e}  certificate {said['gap']:.6e}")
            print(f"  dual variables outside their box by at most {max(audited.outside, 0.0):.1e} of its size")
    print("the certificate holds" if agree else f"THE CERTIFICATE DOES NOT HOLD (more than {TOLERANCE:g})")
    return agree


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Recompute the certificate of a model with zarr-python and numpy.")
    parser.add_argument("store", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--dual", type=Path, help="the dual variables that 'streamsvm fit --dual' wrote")
    given = parser.parse_args(arguments)
    (header, weights), tensors = read_model(given.model), read_tensors(given.model)
    settings = header["provenance"]["settings"]
    if why := unknown_kind(header, tensors):
        print(f"{why} cannot be audited")
        return 2
    if isinstance(settings["validation"], float):
        print(f"{settings['validation']:g} of the chunks were held out, and a model does not say which: no audit")
        return 2
    certificates = header["provenance"]["certificates"]
    together = are_together(settings, weights)
    if len(certificates) != (1 if together else len(weights)):
        print(f"the model has {len(weights)} problems and {len(certificates)} certificates: it is of an early version")
        return 2
    alpha = None if given.dual is None else np.load(given.dual, allow_pickle=False)
    if alpha is not None and alpha.ndim == (2 if together else 1):  # of one problem
        alpha = alpha[None]
    data, columns = (
        Data(given.store),
        header["expansion"]["columns"] if header["kind"] != "linear" else weights.shape[1] - 1,
    )
    if data.columns != columns:
        print(
            f"the store has {data.columns} columns, the model {columns}: it was made of another store, or of an embedding of this one"
        )
        return 2
    found = list(audit(data, header, tensors, alpha))
    on_landmarks = header["kind"] != "linear" and (settings["landmarks"] or settings["landmark_file"]) is not None
    kind = {"together": together, "numeric": not data.classes, "on_landmarks": on_landmarks}
    return 0 if report(certificates, found, **kind) else 1


if __name__ == "__main__":
    sys.exit(main())
