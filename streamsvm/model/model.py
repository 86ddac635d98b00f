"""A model: a linear function of the stored columns, or one of kernel values, k(x, z_j) for landmarks or support rows z_j."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm import __version__, durable
from streamsvm.aliases import Array, JsonObject
from streamsvm.calibration.stored import Calibration
from streamsvm.compute.blocks.operators import decision_values
from streamsvm.container import pieces
from streamsvm.errors import UsageError
from streamsvm.model.outcomes import outcomes_of
from streamsvm.registry import load as load_name
from streamsvm.regular import refuse_url
from streamsvm.rows import Float64, Int32, Rows, row_count
from streamsvm.types import Certificate

if TYPE_CHECKING:
    from streamsvm.features.expansion import Expansion
    from streamsvm.model.explanation import Explanation

FORMAT, VOTING_FORMAT = 1, 2
"""Of the file; that of models whose pairs of classes vote is newer."""
LINEAR, KERNEL = "linear", "kernel"
TARGET = "target"
"""What a number that is predicted is called where classes have names."""
DECISIONS = "streamsvm.jobs.apply.given_rows:decisions_of"
PARTS = "streamsvm.jobs.apply.given_rows:parts_of"
NAMES = "streamsvm.jobs.apply.column_names:names_of"
"""What reads rows of any kind for a model, by name: a model sees blocks, never files."""
TYPED_LABELS = "streamsvm.store.format.labels:typed_labels"
"""What gives class labels the type they had in the data."""
TO_SKLEARN = "streamsvm.sklearn.converted:converted"


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A decision function for each problem: f_k(x) = weights[k, :-1].phi(x) + weights[k, -1].

    phi(x) is x as it is stored, columns with an offset less it, or the kernel values of an expansion. With one row of weights, f > 0 means
    ``classes[1]``; with several the largest f names the class, or the votes of ``pairs``. Without classes f is the number that is predicted.

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
    """How the model was made, as plain JSON: settings, certificates, the store, how its files were read."""
    expansion: Expansion | None = None
    """The points and kernel of phi; None for a linear function."""
    calibration: Calibration | None = None
    """How decision values become probabilities; None for a model that has none."""
    pairs: bool = False
    """Whether problems are pairs of classes, (0, 1), (0, 2), ..., (1, 2), ..., which vote: f > 0 for the first of both."""

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
        """The label each class code stands for, as it is predicted: bool, int64, float64 or text (classes,)."""
        found: Array = load_name(TYPED_LABELS)(self.classes, (self.provenance.get("labels") or {}).get("type", ""))
        return found

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
        return max(self.certificates, key=lambda found: found.gap)

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
        """By column number, what is taken from its numbers before the model sees them; most columns have none."""
        known = (self.provenance.get("encoding") or {}).get("offsets") or ()
        return {int(j): float(o) for j, o in known}

    @property
    def intercept(self) -> Float64:
        """What is added to the sum of each problem, (problems,) float64: over columns as the sources have them.

        Of a kernel model what is added to the kernel values.
        """
        if self.expansion is not None:
            return self.weights[:, -1]
        columns = list(self.offsets)
        return self.weights[:, -1] - self.weights[:, columns] @ np.array(list(self.offsets.values()))

    @property
    def digest(self) -> str:
        """The sha256 of the whole model: equal for equal models, however they were come by."""
        return seal(*self._parts())

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Model) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def decision_function(self, X: Any) -> Float64:
        """Return what the model says of rows of any kind: float64 (n,) for two classes, (n, classes) for more, (n, pairs) for ``pairs``.

        ``X``: an array (n, columns), a sparse matrix, or the path of a store or of files like those the model's store was
        made of. With two classes f > 0 means ``classes[1]``. Raises DataError, UsageError, MissingError.
        """
        found: Float64 = load_name(DECISIONS)(self, X)
        return found[:, 0] if found.shape[1] == 1 else found

    def predict(self, X: Any) -> Array:
        """Return the label of each row (n,), of the type that labels were given in, or the number float64 (n,).

        ``X`` as for ``decision_function``. Labels of files without types, as CSV, are numbers where all classes are, else text.
        """
        decision = self.decision_function(X).reshape(-1, len(self.weights))
        if self.numeric:
            return decision[:, 0]
        return self.labels[self.codes(decision)]

    def predict_proba(self, X: Any) -> Float64:
        """Return the probability of each class, float64 (n, classes) in the order of ``classes``; ``X`` as for ``decision_function``.

        Raises UsageError for a model without probabilities.
        """
        self.check_probabilities()
        return self.probabilities(self.decision_function(X).reshape(-1, len(self.weights)))

    def explain(self, X: Any = None) -> Explanation:
        """Return the weights by column name, in the units of the columns; of rows, the part each column has in f.

        ``X``: rows (n, columns), dense or sparse, or a table like the one the model's store was made of. Raises UsageError for a kernel
        model, which has no weights of columns, and for rows too many to be told of; DataError.
        """
        from streamsvm.model.explanation import Explanation

        coef = self.coef
        parts = None if X is None else load_name(PARTS)(self, X)
        return Explanation(self.outcomes, load_name(NAMES)(self), coef, self.intercept, parts)

    def to_sklearn(self) -> Any:
        """Return a fitted estimator of scikit-learn with the same decision function, over columns as the sources have them.

        A ``LinearSVC``, for a kernel model a ``Pipeline`` that ends with one; it needs nothing of streamsvm, and has no probabilities: of
        a calibrated model it warns (StreamSVMWarning) that they stay behind. Raises ImportError
        without scikit-learn, UsageError for a model of a table whose columns are not numbers.
        """
        return load_name(TO_SKLEARN)(self)

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The class that each decision value speaks for where it is positive; of a model of numbers ``TARGET``.

        Of pairs of classes both, A/B: A is the one.
        """
        if self.numeric:
            return (TARGET,)
        if self.pairs:
            return tuple("/".join(pair) for pair in combinations(self.classes, 2))
        return self.classes[1:] if len(self.weights) == 1 else self.classes

    def decision(self, X: Rows, *, exact: bool = False) -> Float64:
        """Return the decision values (n, k) float64 of rows as stored; columns that CSR rows lack count as 0.

        ``exact``: the value of a row does not depend on the rows beside it, at half the speed for dense rows and a kernel.
        """
        values = np.empty((row_count(X), len(self.weights)))
        if self.expansion is None:
            decision_values(X._replace(bias=1.0), self.weights, values)
        else:
            self.expansion.decision(X, self.weights, values, exact=exact)
        return values

    def probabilities(self, decision: Float64) -> Float64:
        """Return the probability of each class (n, classes) for decision values (n, k). Raises UsageError where there is none."""
        return self.check_probabilities().calibrator.probabilities(decision)

    def check_probabilities(self) -> Calibration:
        """Return where its probabilities come from. Raises UsageError where it has none."""
        if self.calibration is None:
            raise self._without_probabilities()
        return self.calibration

    def _without_probabilities(self) -> UsageError:
        """Why there are none, and what to do."""
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
        return outcomes_of(decision, len(self.classes) if self.pairs else 0)

    def check_one_each(self) -> None:
        """Raise UsageError where pairs of classes vote: for what has one function a class, or one for two."""
        if self.pairs:
            hint = "fit with --multi-class ovr, or export to libsvm, which lets pairs vote too"
            raise UsageError("the model lets pairs of classes vote", hint=hint)

    def save(self, path: Path) -> None:
        """Write the model to a file, all of it or nothing. Raises StorageError, UsageError for a URL."""
        refuse_url(path)
        text, tensors = self._parts()
        sealed = {"header": text, "sha256": seal(text, tensors)}
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
        if self.pairs:  # versions that know of no votes must not read it as one of a function a class
            header |= {"format": VOTING_FORMAT, "pairs": True}
        tensors = {"weights": np.ascontiguousarray(self.weights)}
        if self.expansion is not None:
            header["expansion"] = self.expansion.header()
            tensors |= self.expansion.tensors()
        if self.calibration is not None:
            header["calibration"] = self.calibration.header()
            tensors |= self.calibration.tensors()
        return json.dumps(header, sort_keys=True), tensors


def model_of(value: Any) -> Model | None:
    """Return the model that a program hands over: a model, the result of a fit, or a fitted estimator; None for all else."""
    for found in (value, getattr(value, "model", None), getattr(value, "model_", None)):
        if isinstance(found, Model):
            return found
    return None


def seal(header: str, tensors: dict[str, Array]) -> str:
    """Return the sha256 of all that a model consists of."""
    digest = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\0{name} {array.dtype.str} {array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
