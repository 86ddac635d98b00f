"""A model: a linear function of the stored columns, or of kernel values k(x, z_j) for landmarks or support rows z_j."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from streamsvm import __version__, durable
from streamsvm.aliases import Array, JsonObject
from streamsvm.array_file import pieces
from streamsvm.errors import StreamSVMError, UsageError
from streamsvm.input_files import refuse_url
from streamsvm.registry import load as load_name
from streamsvm.rows import Float64, Int32, Rows, row_count
from streamsvm.types import Certificate

if TYPE_CHECKING:
    import pandas as pd

    from streamsvm.calibration.calibrators import Calibration
    from streamsvm.features.expansion import Expansion
    from streamsvm.model.explain import Explanation


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
DECISIONS = "streamsvm.jobs.apply.decision_values:decisions_of"
CONTRIBUTIONS = "streamsvm.jobs.apply.decision_values:parts_of"
COLUMN_NAMES = "streamsvm.jobs.apply.column_names:names_of"
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
        from streamsvm.model.explain import Explanation

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
        from streamsvm.model.explain import coefficient_frame

        return coefficient_frame(self.explain(X), load_name(SOURCE_COLUMNS)(self))

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
