"""Recompute a certificate with nothing but zarr-python, safetensors and numpy float64: tools/audit.py STORE MODEL.

With --dual FILE (written by 'streamsvm fit --dual FILE') the dual value as well; a certificate says which row of the
file is its own ("problem"), since a fit of several C writes one file for all its models. Nothing of streamsvm is imported: what
is checked here is not checked by what made it. Exit code 1 when a value differs from the certificate by more than 1e-6
relative, 2 when the model is of a kind this tool knows nothing of, or rows were held out.

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

Where all classes are one problem (multi_class crammer_singer) there is a u_k for each, m_i is how far u_y.z_i is above all others for the
row's class y, and a row has a_ik, 0 or less but for k = y, with sum 0; a_iy stands for a_i above, and the last term is 1/2 sum_k
||sum_i a_ik (z_i, b)||^2. A model of two classes holds u_1 - u_0, and u_1 = -u_0.
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
TOGETHER = "crammer_singer"
"""The setting of one problem for all classes."""
AT_ONCE = 1 << 16
"""Rows in memory at a time."""


class Rows(NamedTuple):
    """Some rows of the store: raw features float64 (n, d), class codes and weights (n,), and the number of the first."""

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
        self.sparse = isinstance(self.group["X"], zarr.Group)
        self.rows = self.group["y"].shape[0]

    def __iter__(self) -> Iterator[Rows]:
        for start in range(0, self.rows, AT_ONCE):
            span = slice(start, min(start + AT_ONCE, self.rows))
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
        return np.ones(len(classes))
    if isinstance(setting, dict):
        return np.array([setting.get(name, 1.0) for name in classes])
    rows, mine = counts.sum(), counts[positive]
    return np.array([rows / (2.0 * (mine if code == positive else rows - mine)) for code in range(len(classes))])


def solution_of(weights: Any, scaling: Scaling, bias: float) -> Any:
    """What is regularized: u of the docstring."""
    u = weights[:-1] / scaling.scale
    constant = weights[-1] + weights[:-1] @ scaling.shift
    return np.append(u, constant / bias if bias else 0.0)


def audit(data: Data, header: dict[str, Any], weights: Any, alpha: Any) -> Iterator[Audited]:
    """Every problem of a model; ``alpha`` (problems, rows) or None."""
    settings, certificates = header["provenance"]["settings"], header["provenance"]["certificates"]
    together = settings.get("multi_class") == TOGETHER
    scaling = scaling_of(data, standardize=settings["standardize"])
    counts = sum(np.bincount(part.codes, minlength=len(data.classes)) for part in data)
    for k, certificate in enumerate(certificates):
        mine = None if alpha is None else alpha[certificate.get("problem", k)]
        if together:
            factors = joint_factors(settings["class_weight"], data.classes, counts)
            rows = rows_by_code(weights, header["classes"], data.classes)
            yield recompute_together(data, Question(settings, certificate, factors, scaling, rows), mine)
            continue
        if (other := certificate.get("negative")) is None:
            factors = class_factors(settings["class_weight"], data.classes, counts, certificate["positive"])
        else:  # a pair of classes: rows of others count for nothing
            factors = joint_factors(settings["class_weight"], data.classes, counts)
            factors = np.where(np.isin(np.arange(len(factors)), (certificate["positive"], other)), factors, 0.0)
        yield recompute(data, Question(settings, certificate, factors, scaling, weights[k]), mine)


class Question(NamedTuple):
    """One problem of a model: what was asked for, and the weights that answer it."""

    settings: dict[str, Any]
    certificate: dict[str, Any]
    factors: Any
    """Weight of each class."""
    scaling: Scaling
    weights: Any


def recompute(data: Data, asked: Question, alpha: Any) -> Audited:
    """One reading of the data; ``alpha`` (rows,) or None."""
    bias, squared = float(asked.settings["bias"]), asked.settings["loss"] == "squared_hinge"
    margin, w, scaling = asked.settings["loss_options"].get("margin", 1.0), asked.weights, asked.scaling
    losses, linear, outside = 0.0, 0.0, 0.0
    raw, constant = np.zeros(data.columns), 0.0  # sum a y x and sum a y
    for part in data:
        y = np.where(part.codes == asked.certificate["positive"], 1.0, -1.0)
        C = asked.certificate["C"] * asked.factors[part.codes] * part.weight
        z = np.maximum(0.0, margin - y * (part.X @ w[:-1] + w[-1]))
        losses += float(C @ (z**2 if squared else z))
        if alpha is not None:
            a = alpha[part.start : part.start + len(y)]
            heavy = C > 0.0
            linear += margin * float(a.sum()) - squared * float(np.sum(a[heavy] ** 2 / (4.0 * C[heavy])))
            raw += part.X.T @ (a * y)
            constant += float(a @ y)
            top = np.where(heavy & squared, np.inf, C)
            outside = max(outside, float(np.max(np.maximum(-a, a - top) / np.maximum(C, C.max()))))
    u = solution_of(w, scaling, bias)
    primal = 0.5 * float(u @ u) + losses
    if alpha is None:
        return Audited(primal, None, 0.0)
    v = np.append((raw - constant * scaling.shift) * scaling.scale, constant * bias)
    return Audited(primal, linear - 0.5 * float(v @ v), outside)


def joint_factors(setting: Any, classes: list[str], counts: Any) -> Any:
    """The weight of each class where all are one problem, and in every pair."""
    if setting == "balanced":
        return counts.sum() / (len(classes) * np.maximum(counts, 1.0))
    return class_factors(setting, classes, counts, 0)


def rows_by_code(weights: Any, named: list[str], classes: list[str]) -> Any:
    """The weights (classes, columns + 1) by the class codes of the store."""
    rows = np.vstack([-weights, weights]) / 2.0 if len(weights) == 1 else weights
    return rows[[named.index(name) for name in classes]]


def recompute_together(data: Data, asked: Question, alpha: Any) -> Audited:
    """One reading of the data for all classes in one problem; ``alpha`` (rows, classes) or None."""
    bias, squared = float(asked.settings["bias"]), asked.settings["loss"] == "squared_hinge"
    margin, W, scaling = asked.settings["loss_options"].get("margin", 1.0), asked.weights, asked.scaling
    losses, linear, outside = 0.0, 0.0, 0.0
    raw, constant = np.zeros((len(W), data.columns)), np.zeros(len(W))
    for part in data:
        rows = np.arange(len(part.codes))
        C = asked.certificate["C"] * asked.factors[part.codes] * part.weight
        F = np.asarray(part.X @ W[:, :-1].T) + W[:, -1]
        own = F[rows, part.codes]
        F[rows, part.codes] = -np.inf
        z = np.maximum(0.0, margin - own + F.max(axis=1))
        losses += float(C @ (z**2 if squared else z))
        if alpha is not None:
            a = alpha[part.start : part.start + len(rows)]
            b, heavy = a[rows, part.codes], C > 0.0
            linear += margin * float(b.sum()) - squared * float(np.sum(b[heavy] ** 2 / (4.0 * C[heavy])))
            raw += np.asarray((part.X.T @ a).T)
            constant += a.sum(axis=0)
            others = np.where(np.arange(len(W)) == part.codes[:, None], 0.0, a).max(axis=1)
            off = np.maximum(np.maximum(others, b - np.where(heavy & squared, np.inf, C)), np.abs(a.sum(axis=1)))
            outside = max(outside, float(np.max(off / np.maximum(C, C.max()))))
    U = np.array([solution_of(w, scaling, bias) for w in W])
    primal = 0.5 * float(np.sum(U**2)) + losses
    if alpha is None:
        return Audited(primal, None, 0.0)
    V = np.column_stack([(raw - constant[:, None] * scaling.shift) * scaling.scale, constant * bias])
    return Audited(primal, linear - 0.5 * float(np.sum(V**2)), outside)


def difference(found: float, said: float) -> float:
    """Relative to what was said."""
    return abs(found - said) / max(abs(said), 1e-300)


def report(certificates: list[dict[str, Any]], found: list[Audited], *, together: bool) -> bool:
    """Print both side by side; whether they agree."""
    agree = True
    for k, (said, audited) in enumerate(zip(certificates, found, strict=True)):
        what = "all classes together" if together else f"class {said['positive']} against the rest"
        print(f"problem {said.get('problem', k)}: C {said['C']:g}, {what}")
        for name, value in (("primal", audited.primal), ("dual", audited.dual)):
            if value is not None:
                off = difference(value, said[name])
                agree &= bool(off <= TOLERANCE)
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
    header, weights = read_model(given.model)
    settings = header["provenance"]["settings"]
    if header["kind"] != "linear" or settings["loss"] not in ("hinge", "squared_hinge"):
        print(f"a {header['kind']} model, loss {settings['loss']}, cannot be audited: only linear ones of the hinges")
        return 2
    if isinstance(settings["validation"], float):
        print(f"{settings['validation']:g} of the chunks were held out, and a model does not say which: no audit")
        return 2
    certificates = header["provenance"]["certificates"]
    together = settings.get("multi_class") == TOGETHER
    if len(certificates) != (1 if together else len(weights)):
        print(f"the model has {len(weights)} problems and {len(certificates)} certificates: it is of an early version")
        return 2
    alpha = None if given.dual is None else np.load(given.dual, allow_pickle=False)
    if alpha is not None and alpha.ndim == (2 if together else 1):  # of one problem
        alpha = alpha[None]
    found = list(audit(Data(given.store), header, weights, alpha))
    return 0 if report(certificates, found, together=together) else 1


if __name__ == "__main__":
    sys.exit(main())
