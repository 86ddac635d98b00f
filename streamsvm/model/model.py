"""A model: a linear function of the stored columns, or of kernel values k(x, z_j) for landmarks or support rows z_j; what each
column adds to a linear one (``Explanation``); and the file of a model, of which nothing is executed when it is read, and no path
followed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from streamsvm import __version__, durable
from streamsvm.aliases import Array, JsonObject
from streamsvm.array_file import open_container, pieces
from streamsvm.errors import DataError, MissingError, StreamSVMError, UsageError, quote
from streamsvm.input_files import is_file, open_regular, refuse_url
from streamsvm.losses import LOSSES
from streamsvm.registry import load as load_name
from streamsvm.rows import Float64, Int32, Rows, row_count
from streamsvm.types import Certificate
from streamsvm.types.data import check_recorded

if TYPE_CHECKING:
    import pandas as pd

    from streamsvm.calibration.calibrators import Calibration
    from streamsvm.features.expansion import Expansion


def predict_codes(decision: Float64, voting: int = 0, threshold: float = 0.0) -> Int32:
    """Return the class code (n,) for decision values (n, k): with one column 1 where it is above the threshold, else 0;
    with several the largest.

    ``voting``: number of classes whose pairs have these values and vote; of several with most votes the first, as in LIBSVM.
    """
    if voting:
        return np.argmax(count_votes(decision, voting), axis=1).astype(np.int32)
    if decision.shape[1] == 1:
        return (decision[:, 0] > threshold).astype(np.int32)
    return np.argmax(decision, axis=1).astype(np.int32)


def count_votes(pairs: Float64, classes: int) -> Int32:
    """Return how many pairs speak for each class (n, classes), for their decision values (n, classes (classes - 1) / 2)."""
    found = np.zeros((len(pairs), classes), np.int32)
    for k, (first, second) in enumerate(combinations(range(classes), 2)):
        found[:, first] += pairs[:, k] > 0
        found[:, second] += pairs[:, k] <= 0
    return found


FORMAT, VOTING_FORMAT, THRESHOLD_FORMAT = 1, 2, 3
"""Version of the file, and those of models whose pairs of classes vote, and that have a threshold, which older programs
must not read.
"""
LINEAR, KERNEL = "linear", "kernel"
TARGET = "target"
"""Name of the predicted number, where class names would stand."""
DECISIONS = "streamsvm.jobs.apply.decision_values:compute_decision_values"
CONTRIBUTIONS = "streamsvm.jobs.apply.decision_values:compute_contributions"
COLUMN_NAMES = "streamsvm.jobs.apply.column_names:column_names"
SOURCE_COLUMNS = "streamsvm.jobs.apply.column_names:source_columns"
"""Functions that read rows of any kind for a model, by name, because a model sees blocks, never files."""
TYPED_LABELS = "streamsvm.store.format.labels:convert_labels"
"""Function that gives class labels the type they had in the data."""
TO_SKLEARN = "streamsvm.sklearn.convert:convert_model"
CARD = "streamsvm.display.html:build_card"
"""Function that makes what a notebook shows of an object."""
RESPELL = "streamsvm.api.wording:respell"
"""Function that spells options in an error as parameters of Python."""
P = ParamSpec("P")
R = TypeVar("R")


def called_from_python(method: Callable[P, R]) -> Callable[P, R]:
    """Make a method that programs call, and no command, raise errors that name parameters where those of commands name options."""

    @wraps(method)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            return method(*arguments, **options)
        except StreamSVMError as error:
            load_name(RESPELL)(error, "predict")
            raise

    return call


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A decision function for each problem: f_k(x) = weights[k, :-1].phi(x) + weights[k, -1].

    phi(x) is x as it is stored, columns with an offset less it, or the kernel values of an expansion. With one row of weights, f > ``threshold``
    means ``classes[1]``; with several the class of the largest f is predicted, or the one with most votes (``pairs``). Without classes f is the prediction.

    Examples
    --------
    >>> import numpy as np
    >>> model = sv.Model(np.array([[2.0, -1.0]]), ("no", "yes"))
    >>> model.decision_function(np.array([[0.0], [3.0]]))
    array([-1.,  5.])
    >>> model.predict(np.array([[0.0], [3.0]])).tolist()
    ['no', 'yes']
    """

    weights: Float64
    """Float64 (problems, features + 1); the last column belongs to the constant feature."""
    classes: tuple[str, ...]
    """The label each class code stands for; empty where the model predicts a number."""
    provenance: JsonObject = field(default_factory=dict)
    """How the model was made, as plain JSON: settings, certificates, the store, the options its files were read with."""
    expansion: Expansion | None = None
    """The points and kernel of phi; None for a linear function."""
    calibration: Calibration | None = None
    """How decision values become probabilities; None where the model has none."""
    pairs: bool = False
    """Whether problems are pairs of classes, (0, 1), (0, 2), ..., (1, 2), ..., which vote: f > 0 for the first of both."""
    threshold: float = 0.0
    """Of two classes, the decision value above which ``classes[1]`` is predicted; how it was chosen is in ``provenance``."""

    def __repr__(self) -> str:
        return f"<Model: {', '.join(self._summary().values())}>"

    def _repr_html_(self) -> str:
        """Return what the model is, for a notebook."""
        return str(load_name(CARD)("Model", self._summary()))

    def _summary(self) -> dict[str, str]:
        """Return what the model is as short texts by name."""
        classes = ", ".join(map(repr, self.classes[:4])) + (
            f", ... ({len(self.classes)})" if len(self.classes) > 4 else ""
        )
        found = {
            "kind": self.kind,
            "columns": f"{self.columns} columns",
            "predicts": f"classes {classes}" if classes else "a number",
        }
        if self.threshold:
            found["threshold"] = f"threshold {self.threshold:.6g}"
        if self.calibration is not None:
            found["probabilities"] = "probabilities"
        if self.certificates:
            found["certificate"] = f"gap {self.certificate.gap:.3g}"
        return found

    @property
    def kind(self) -> str:
        """'linear' or 'kernel'."""
        return LINEAR if self.expansion is None else KERNEL

    @property
    def numeric(self) -> bool:
        """Whether the model predicts a number, and not a class."""
        return not self.classes

    @property
    def columns(self) -> int:
        """The number of columns of the rows it is applied to."""
        return self.weights.shape[1] - 1 if self.expansion is None else self.expansion.columns

    @property
    def labels(self) -> Array:
        """The label each class code stands for, in the type that is predicted: bool, int64, float64 or text (classes,)."""
        labels: Array = load_name(TYPED_LABELS)(self.classes, (self.provenance.get("labels") or {}).get("type", ""))
        return labels

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """How far each problem can be from its optimum; one for two classes, else one a class in their order."""
        known = self.provenance.get("certificates", [])
        return tuple(Certificate(c["primal"], c["dual"], rounding=c.get("rounding", 0.0)) for c in known)

    @property
    def certificate(self) -> Certificate:
        """The certificate with the largest gap. Raises UsageError for a model that was made without a fit."""
        if not self.certificates:
            raise UsageError("this model has no certificate", hint="a fit gives it one")
        return max(self.certificates, key=lambda certificate: certificate.gap)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns; None where they have none."""
        known = self.provenance.get("names")
        return None if known is None else tuple(known)

    @property
    def coef(self) -> Float64:
        """The weights of the columns, (problems, columns) float64, scaling undone. Raises UsageError for a kernel."""
        if self.expansion is not None:
            raise UsageError("a kernel model has no weights of columns", hint="model.weights are those of its points")
        return self.weights[:, :-1]

    @property
    def offsets(self) -> dict[int, float]:
        """By column number, what is subtracted from a column before the model sees it; most columns have none."""
        known = (self.provenance.get("encoding") or {}).get("offsets") or ()
        return {int(j): float(o) for j, o in known}

    @property
    def intercept(self) -> Float64:
        """The constant of each problem, (problems,) float64, for columns as the sources have them; of a kernel model for kernel values."""
        if self.expansion is not None:
            return self.weights[:, -1]
        columns = list(self.offsets)
        return self.weights[:, -1] - self.weights[:, columns] @ np.array(list(self.offsets.values()))

    @property
    def digest(self) -> str:
        """The sha256 of the whole model: equal for equal models, whatever their origin."""
        return hash_model(*self._parts())

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Model) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    @called_from_python
    def decision_function(self, X: Any) -> Float64:
        """Return the decision values of rows of any kind: float64 (n,) for two classes, (n, classes) for more, (n, pairs) for ``pairs``.

        ``X``: an array (n, columns), a sparse matrix, or the path of a store or of files like those the model's store was
        made of. With two classes f > ``threshold`` means ``classes[1]``. Raises DataError, UsageError, MissingError.
        """
        decision: Float64 = load_name(DECISIONS)(self, X)
        return decision[:, 0] if decision.shape[1] == 1 else decision

    @called_from_python
    def predict(self, X: Any) -> Array:
        """Return the label of each row (n,), of the type that labels were given in, or the number float64 (n,).

        ``X`` as for ``decision_function``. Labels of files without types, as CSV, are numbers where all classes are, else text.
        """
        decision = self.decision_function(X).reshape(-1, len(self.weights))
        if self.numeric:
            return decision[:, 0]
        return self.labels[self.codes(decision)]

    @called_from_python
    def predict_proba(self, X: Any) -> Float64:
        """Return the probability of each class, float64 (n, classes) in the order of ``classes``; ``X`` as for ``decision_function``.

        Raises UsageError for a model without probabilities.
        """
        self.check_probabilities()
        return self.probabilities(self.decision_function(X).reshape(-1, len(self.weights)))

    @called_from_python
    def explain(self, X: Any = None) -> Explanation:
        """Return the weights by column name, in the units of the columns; for rows, what each column contributes to f.

        ``X``: rows (n, columns), dense or sparse, or a table like the one the model's store was made of. Raises UsageError for a kernel
        model, which has no weights of columns, and for too many rows; DataError.
        """
        coef = self.coef
        parts = None if X is None else load_name(CONTRIBUTIONS)(self, X)
        return Explanation(self.outcomes, load_name(COLUMN_NAMES)(self), coef, self.intercept, parts)

    @called_from_python
    def coefficients(self, X: Any = None) -> pd.DataFrame:
        """Return the coefficients as a data frame of pandas, a row for each column of the model, those of largest share first.

        Its columns: ``outcome``, the class whose decision value it is; ``column``, the column of the table; ``value``, what
        it stands for of that column, such as a category, else empty; ``coefficient``, in the units of the column; ``share``,
        of the sum of |coefficient|, which compares columns of one scale. With rows ``X``, as for ``explain``, the share is
        that of |coefficient| times the standard deviation of the column in these rows, whatever the scales.
        Raises what ``explain`` raises, ImportError without pandas.
        """
        import pandas as pd

        found, sources = self.explain(X), load_name(SOURCE_COLUMNS)(self)
        columns, values = zip(*sources, strict=True) if sources else ((), ())
        frames = []
        for k, outcome in enumerate(found.outcomes):
            w = found.weights[k]
            size = np.abs(w) if found.contributions is None else found.contributions[:, k].std(axis=0)
            table = {
                "outcome": outcome,
                "column": columns,
                "value": values,
                "coefficient": w,
                "share": size / (size.sum() or 1.0),
            }
            frames.append(pd.DataFrame(table).sort_values("share", ascending=False, kind="stable"))
        return pd.concat(frames, ignore_index=True)

    @called_from_python
    def to_sklearn(self) -> Any:
        """Return a fitted estimator of scikit-learn with the same decision function, over columns as the sources have them.

        A ``LinearSVC`` (``LinearRegression`` for numbers), for a kernel model a ``Pipeline`` that ends with one; for a model of a table
        a ``Pipeline`` that takes pandas frames of the raw table. It needs nothing of streamsvm. Only
        models of two classes of the logistic loss keep their probabilities, as a ``LogisticRegression``: of others it warns
        (StreamSVMWarning) that they stay behind. Raises ImportError without scikit-learn, UsageError for hashed columns of text.
        """
        return load_name(TO_SKLEARN)(self)

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The class that each decision value speaks for where it is positive; of a pair of classes 'A/B', A; for regression ``TARGET``."""
        if self.numeric:
            return (TARGET,)
        if self.pairs:
            return tuple("/".join(pair) for pair in combinations(self.classes, 2))
        return self.classes[1:] if len(self.weights) == 1 else self.classes

    def decision(self, X: Rows, *, exact: bool = False) -> Float64:
        """Return the decision values (n, k) float64 of rows as stored; columns that CSR rows lack count as 0.

        ``exact``: the value of a row does not depend on the rows beside it, at half the speed for dense rows and a kernel.
        """
        from streamsvm.compute.blocks.operators import decision_values

        values = np.empty((row_count(X), len(self.weights)))
        if self.expansion is None:
            decision_values(X._replace(bias=1.0), self.weights, values)
        else:
            self.expansion.decision(X, self.weights, values, exact=exact)
        return values

    def probabilities(self, decision: Float64) -> Float64:
        """Return the probability of each class (n, classes) for decision values (n, k). Raises UsageError where the model has none."""
        return self.check_probabilities().calibrator.probabilities(decision)

    def check_probabilities(self) -> Calibration:
        """Return the calibration. Raises UsageError where the model has no probabilities."""
        if self.calibration is None:
            raise self._without_probabilities()
        return self.calibration

    def _without_probabilities(self) -> UsageError:
        """Return the error that says why there are none, and what to do."""
        if self.numeric:
            return UsageError("this model predicts numbers: it has no probabilities", hint="ask for its predictions")
        if self.pairs:
            hint = "fit with --multi-class ovr and --calibrate"
            return UsageError("pairs of classes vote, and have no probabilities", hint=hint)
        asked = (self.provenance.get("settings") or {}).get("calibrate")
        if asked is not None:
            why = f"this model has no probabilities: its fit had no time left for --calibrate {asked}"
            return UsageError(why, hint="run the same fit with --resume and a larger --time-limit")
        hint = "fit with --calibrate sigmoid (or isotonic, temperature), or with the logistic loss"
        return UsageError("this model has no probabilities, only decision values", hint=hint)

    def codes(self, decision: Float64) -> Int32:
        """Return the index into ``classes`` (n,) for decision values (n, k)."""
        return predict_codes(decision, len(self.classes) if self.pairs else 0, self.threshold)

    def decide_at_zero(self) -> Model:
        """Return a model with the threshold in its constant: the same labels, where decision values are above 0."""
        if not self.threshold:
            return self
        weights = self.weights.copy()
        weights[:, -1] -= self.threshold
        return replace(self, weights=weights, threshold=0.0)

    def check_one_each(self) -> None:
        """Raise UsageError where pairs of classes vote: for formats with one function a class, or one for two."""
        if self.pairs:
            hint = "fit with --multi-class ovr, or export to libsvm, which lets pairs vote too"
            raise UsageError("the model lets pairs of classes vote", hint=hint)

    @called_from_python
    def save(self, path: Path) -> None:
        """Write the model to a file, all of it or nothing. Raises StorageError, UsageError for a URL."""
        refuse_url(path)
        text, tensors = self._parts()
        sealed = {"header": text, "sha256": hash_model(text, tensors)}
        durable.write_stream(path, pieces(tensors, sealed, by_name=True))

    def _parts(self) -> tuple[str, dict[str, Array]]:
        """The header and the arrays of the file."""
        header = {
            "format": FORMAT,
            "kind": self.kind,
            "classes": list(self.classes),
            "streamsvm": __version__,
            "provenance": self.provenance,
        }
        if self.pairs:  # a program that knows no votes must not read it as one function a class
            header |= {"format": VOTING_FORMAT, "pairs": True}
        if self.threshold:  # nor predict labels at 0
            header |= {"format": THRESHOLD_FORMAT, "threshold": self.threshold}
        tensors = {"weights": np.ascontiguousarray(self.weights)}
        if self.expansion is not None:
            header["expansion"] = self.expansion.header()
            tensors |= self.expansion.tensors()
        if self.calibration is not None:
            header["calibration"] = self.calibration.header()
            tensors |= self.calibration.tensors()
        return json.dumps(header, sort_keys=True), tensors


COLUMNS_SHOWN = 10
"""Number of columns of each problem that the text lists."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Explanation:
    """Weights of columns in their own units, and what each column adds to the decision values of some rows."""

    outcomes: tuple[str, ...]
    """The class that each problem's decision value speaks for, (k,)."""
    names: tuple[str, ...]
    """Names of the columns, (d,); their numbers where they have none."""
    weights: Float64
    """Float64 (k, d)."""
    intercept: Float64
    """Float64 (k,)."""
    contributions: Float64 | None = None
    """w_kj x_j of each row, float64 (n, k, d), which add up with the intercept to the decision value; None without rows."""

    def largest(self, problem: int = 0, count: int = COLUMNS_SHOWN) -> list[tuple[str, float]]:
        """Return the columns of largest weight |w_kj| with their weights, the largest first."""
        w = self.weights[problem]
        return [(self.names[j], float(w[j])) for j in np.argsort(-np.abs(w), kind="stable")[:count]]

    def of_row(self, row: int, problem: int = 0, count: int = COLUMNS_SHOWN) -> list[tuple[str, float]]:
        """Return the columns that move the decision value of a row most, |w_kj x_j|, the largest first.

        Raises ValueError where no rows were explained.
        """
        if self.contributions is None:
            raise ValueError("no rows were explained: call model.explain(X)")
        parts = self.contributions[row, problem]
        return [(self.names[j], float(parts[j])) for j in np.argsort(-np.abs(parts), kind="stable")[:count]]

    def __repr__(self) -> str:
        rows = "" if self.contributions is None else f", {len(self.contributions)} rows"
        largest = ", ".join(f"{name} {value:+.3g}" for name, value in self.largest(count=3))
        return f"<Explanation: {len(self.names)} columns{rows}; for {self.outcomes[0]}: {largest}>"

    def _repr_html_(self) -> str:
        """Return the columns of largest weight of each problem, for a notebook."""
        tables = [
            load_name(CARD)(f"for {outcome}", {name: f"{value:+.6g}" for name, value in self.largest(k)})
            for k, outcome in enumerate(self.outcomes)
        ]
        return "".join(tables)

    def __str__(self) -> str:
        lines = []
        for k, outcome in enumerate(self.outcomes):
            lines.append(f"for {outcome}: intercept {self.intercept[k]:.6g}")
            lines += [f"  {value:+.6g}  {name}" for name, value in self.largest(k)]
        return "\n".join(lines)


def find_model(value: Any) -> Model | None:
    """Return the model that an object is or has: a model, the result of a fit, or a fitted estimator; None for others."""
    for found in (value, getattr(value, "model", None), getattr(value, "model_", None)):
        if isinstance(found, Model):
            return found
    return None


def hash_model(header: str, tensors: dict[str, Array]) -> str:
    """Return the sha256 of the header and the arrays of a model."""
    digest = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\0{name} {array.dtype.str} {array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


TEXT_READERS = {
    b"solver_type ": "streamsvm.model.liblinear_libsvm:read_liblinear",
    b"svm_type ": "streamsvm.model.liblinear_libsvm:read_libsvm",
}
"""By first bytes, the reader of a model that LIBLINEAR or LIBSVM wrote."""


def load(path: Path) -> Model:
    """Read and verify a model file, also one that LIBLINEAR or LIBSVM wrote. Raises MissingError, DataError (E-MODEL, E-VERSION)."""
    if not is_file(path):
        raise MissingError(f"there is no model at {path}", hint="create one with 'streamsvm fit'")
    head = _read_head(path)
    for first, reader in TEXT_READERS.items():
        if head.startswith(first):
            model: Model = load_name(reader)(path)
            return model
    header, tensors = _open(path)
    return _make_model(path, header, tensors)


def _read_head(path: Path) -> bytes:
    """Return the first bytes of a file, which tell its format."""
    try:
        with open(open_regular(path, follow=True), "rb") as file:
            return file.read(max(map(len, TEXT_READERS)))
    except OSError as error:
        raise _refuse(path, quote(error)) from error


def _open(path: Path) -> tuple[JsonObject, dict[str, Array]]:
    """Return the header and the arrays of a file, after checking its sha256."""
    with open_container(path, lambda why: _refuse(path, why)) as file:
        text = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        header = text.get("header", "")
        if text.get("sha256") != hash_model(header, tensors):
            raise DataError(f"{path} is damaged: its sha256 does not match", code="E-MODEL", hint="fit again")
        facts = json.loads(header)
    if not isinstance(facts, dict) or not isinstance(facts.get("provenance", {}), dict):
        raise _refuse_content(path)
    return facts, tensors


def _make_model(path: Path, header: JsonObject, tensors: dict[str, Array]) -> Model:
    kind, pairs = header.get("kind"), header.get("pairs") is True
    threshold = header.get("threshold", 0.0)
    wanted = VOTING_FORMAT if pairs else THRESHOLD_FORMAT if threshold else FORMAT
    if header.get("format") != wanted or kind not in (LINEAR, KERNEL):
        raise DataError(
            f"{path} was made by another streamsvm (format {quote(header.get('format'))}, this one reads {FORMAT} to {THRESHOLD_FORMAT})",
            code="E-VERSION",
            hint="use the version that made it, or fit again",
        )
    weights, classes = _read_weights(path, tensors), header.get("classes")
    numeric = _is_regression(header.get("provenance"))
    if not isinstance(classes, list):
        raise _refuse_content(path)
    if not isinstance(threshold, float) or not math.isfinite(threshold) or (threshold and len(weights) != 1):
        raise _refuse_content(path)
    problems = math.comb(len(classes), 2) if pairs else len(weights)
    if problems != len(weights) or (not pairs and len(classes) != (0 if numeric else max(2, problems))):
        raise _refuse_content(path)
    expansion = None if kind == LINEAR else _read_expansion(path, header, tensors, weights.shape[1] - 1)
    calibration = _read_calibration(path, header, tensors, len(weights))
    model = Model(
        weights, tuple(str(c) for c in classes), header.get("provenance", {}), expansion, calibration, pairs, threshold
    )
    try:
        check_recorded(model.provenance, model.columns)
    except ValueError as error:
        raise _refuse(path, quote(error)) from error
    return model


def _is_regression(provenance: object) -> bool:
    """Return whether the model was fitted with a regression loss: then it has no classes, else as many as its weights tell apart."""
    settings = provenance.get("settings") if isinstance(provenance, dict) else None
    loss = settings.get("loss") if isinstance(settings, dict) else None
    return isinstance(loss, str) and loss in LOSSES and LOSSES[loss]().numeric()


def _read_weights(path: Path, tensors: dict[str, Array]) -> Float64:
    """Return the weights of a file: finite, (problems, features + 1) float64."""
    weights = tensors.get("weights")
    if weights is None or weights.dtype != np.float64 or weights.ndim != 2 or weights.size == 0:
        raise _refuse_content(path)
    if not np.isfinite(weights).all():
        raise _refuse_content(path)
    return weights


def _read_calibration(path: Path, header: JsonObject, tensors: dict[str, Array], problems: int) -> Calibration | None:
    """Return the calibration of a file; None where it has none."""
    if header.get("calibration") is None:
        return None
    try:
        from streamsvm.calibration.calibrators import read_calibration

        return read_calibration(header["calibration"], tensors, problems)
    except DataError as error:
        raise _refuse_content(path) from error


def _read_expansion(path: Path, header: JsonObject, tensors: dict[str, Array], points: int) -> Expansion:
    from streamsvm.features.expansion import decode_expansion

    try:
        expansion = decode_expansion(header["expansion"], tensors)
    except (StreamSVMError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _refuse_content(path) from error
    if row_count(expansion.points) != points:
        raise _refuse_content(path)
    return expansion


def _refuse(path: Path, why: str) -> DataError:
    return DataError(f"{path} is not a model: {why}", code="E-MODEL", hint="fit again")


def _refuse_content(path: Path) -> DataError:
    return DataError(f"{path} does not hold a usable model", code="E-MODEL", hint="fit again")
