"""Models: linear functions of the stored columns, of kernel values k(x, z_j) for landmarks or support rows z_j, or of the
hat functions of curves.

``Explanation`` has the contribution of each column to a linear model. Reading a model file executes no code and opens
no other file.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamsvm import __version__, durable
from streamsvm.array_file import open_container, pieces
from streamsvm.errors import DataError, MissingError, StreamSVMError, UsageError, quote
from streamsvm.input_files import find_url, is_file, open_regular
from streamsvm.losses import LOSSES
from streamsvm.object_store import upload_file
from streamsvm.registry import load as load_name
from streamsvm.rows import Float64, Int32, Rows, row_count
from streamsvm.type_aliases import Array, JsonObject
from streamsvm.types import Certificate
from streamsvm.types.data import check_recorded
from streamsvm.working_copies import download_file

if TYPE_CHECKING:
    import pandas as pd

    from streamsvm.calibration.calibrators import Calibration
    from streamsvm.features.curves import Hats
    from streamsvm.features.expansion import Expansion
    from streamsvm.proofs.kept import Enclosures


def predict_codes(decision: Float64, voting: int = 0, threshold: float = 0.0) -> Int32:
    """Return the class codes (n,) for decision values (n, k): for one column 1 if the value is above the threshold,
    else 0; for several columns the number of the largest value.

    ``voting``: number of classes, if the columns are the decision values of one-vs-one problems. Then the class with
    the most votes is predicted; in a tie the first of them, as in LIBSVM.
    """
    if voting:
        return np.argmax(count_votes(decision, voting), axis=1).astype(np.int32)
    if decision.shape[1] == 1:
        return (decision[:, 0] > threshold).astype(np.int32)
    return np.argmax(decision, axis=1).astype(np.int32)


def count_votes(pairs: Float64, classes: int) -> Int32:
    """Return the number of votes for each class (n, classes), given the decision values of all pairs of classes (n,
    pairs).
    """
    votes = np.zeros((len(pairs), classes), np.int32)
    for k, (first, second) in enumerate(combinations(range(classes), 2)):
        votes[:, first] += pairs[:, k] > 0
        votes[:, second] += pairs[:, k] <= 0
    return votes


def possible_classes(low: Float64, high: Float64, voting: int = 0, threshold: float = 0.0) -> NDArray[np.bool_]:
    """Return which classes (n, classes) ``predict_codes`` can give for decision values between low and high (n, k)."""
    if voting:
        sure, perhaps = (np.zeros((len(low), voting), np.int32) for _ in range(2))
        for k, (first, second) in enumerate(combinations(range(voting), 2)):
            sure[:, first] += low[:, k] > 0
            sure[:, second] += high[:, k] <= 0
            perhaps[:, first] += high[:, k] > 0
            perhaps[:, second] += low[:, k] <= 0
        possible: NDArray[np.bool_] = perhaps >= sure.max(axis=1, keepdims=True)
        # of classes with as many votes the first is predicted
        for later in range(1, voting):
            before = sure[:, :later].max(axis=1)
            possible[:, later] &= perhaps[:, later] > before
        return possible
    if low.shape[1] == 1:
        return np.concatenate([low <= threshold, high > threshold], axis=1)
    largest: NDArray[np.bool_] = high >= low.max(axis=1, keepdims=True)
    return largest


def find_right(possible: NDArray[np.bool_], truth: Int32) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which labels (n,) are right whichever of the possible classes (n, classes) is predicted, and which can be right. ``truth`` (n,): the
    true classes; numbers that are none of the classes are always predicted wrongly.
    """
    in_classes = (truth >= 0) & (truth < possible.shape[1])
    can_be_right = in_classes & possible[np.arange(len(truth)), np.where(in_classes, truth, 0)]
    return can_be_right & (possible.sum(axis=1) == 1), can_be_right


def count_possible_errors(possible: NDArray[np.bool_], truth: Int32) -> tuple[int, int]:
    """Return how many labels are wrong whichever of the possible classes is predicted, and how many can be wrong; as for ``find_right``."""
    sure, can_be_right = find_right(possible, truth)
    return int((~can_be_right).sum()), int((~sure).sum())


PROVED, OPEN, DIFFERS = 1, 0, -1
"""What is known of a label: the exact optimum predicts it, may predict it or another one, predicts another one."""
FORMAT, VOTING_FORMAT, THRESHOLD_FORMAT = 1, 2, 3
"""Format versions of model files: usual models, one-vs-one models, and models with a threshold. A program that knows
only lower versions refuses the file."""
LINEAR, KERNEL, CURVES = "linear", "kernel", "curves"
TARGET = "target"
"""Name of the predicted number, used in place of class names."""
DECISIONS = "streamsvm.jobs.apply.decision_values:compute_decision_values"
INTERVALS = "streamsvm.jobs.apply.decision_values:compute_decision_intervals"
CONTRIBUTIONS = "streamsvm.jobs.apply.decision_values:compute_contributions"
COLUMN_NAMES = "streamsvm.jobs.apply.column_names:column_names"
SOURCE_COLUMNS = "streamsvm.jobs.apply.column_names:source_columns"
PAIR_VARIABLES = "streamsvm.jobs.apply.column_names:pair_variables"
"""Functions that read rows of any kind for a model. They are named here and imported when called, because this package
must not depend on those that read files."""
TYPED_LABELS = "streamsvm.store.format.labels:convert_labels"
"""The function that converts class labels to the type that they had in the data."""
TO_SKLEARN = "streamsvm.sklearn.convert:convert_model"
CARD = "streamsvm.display.html:build_card"
"""The function that builds the HTML card of an object for notebooks."""
RESPELL = "streamsvm.api.wording:respell"
"""The function that replaces options of commands in an error message by the names of Python parameters."""
P = ParamSpec("P")
R = TypeVar("R")


def with_python_wording(method: Callable[P, R]) -> Callable[P, R]:
    """Make the errors of a method name Python parameters instead of options of commands; for methods that only programs
    call.
    """

    @wraps(method)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            return method(*arguments, **options)
        except StreamSVMError as error:
            load_name(RESPELL)(error, "predict")
            raise

    return call


@dataclass(frozen=True, slots=True, eq=False)
class ProvedPredictions:
    """Predictions of rows, and for which of them the exact optimum, which training approaches, is proved to agree.

    Nothing is said about whether a label is right, nor about other data, C or scaling.
    """

    label: Array
    """(n,) the labels, or the numbers."""
    low: Float64
    """The least decision value of the exact optimum, (n,), or (n, classes) for several classes."""
    high: Float64
    """The largest one."""
    proved: NDArray[np.bool_]
    """(n,) whether the exact optimum predicts the same label; for numbers, whether the interval is finite."""
    differs: NDArray[np.bool_]
    """(n,) whether it predicts another label."""

    def __repr__(self) -> str:
        differs = int(self.differs.sum())
        text = f"<ProvedPredictions: {int(self.proved.sum())} of {len(self.label)} proved"
        return f"{text}, {differs} differ>" if differs else f"{text}>"


class Effect(NamedTuple):
    """What a column adds to a decision value of a model of curves: a curve, or a weight."""

    outcome: str
    """The class, or other outcome, to whose decision value it is added."""
    column: int
    """The number of the stored column."""
    x: Float64
    """(K,) The knots in the original units of the column; for a weight, the value 1 of the column."""
    effect: Float64
    """(K,) The curve at its knots, less its mean over the training rows; or the weight."""
    rows: Float64
    """(K,) About the fraction of the training rows near each knot; NaN for a weight."""
    importance: float
    """The standard deviation of the effect over the training rows."""
    curve: bool
    jump: bool = False
    """Whether it is the effect of a single value ``x`` (1,) of a column with a curve, in addition to the curve."""


class PairVariable(NamedTuple):
    """A column of a table of a pair, or the columns of a category."""

    name: str
    cells: list[str]
    """What each cell stands for: a category, or a range of numbers."""
    edges: Float64
    """The inner limits of the cells of a number in its original units; empty for a category."""


class PairEffect(NamedTuple):
    """What a pair of columns adds to a decision value of a model of curves."""

    outcome: str
    """The class, or other outcome, to whose decision value it is added."""
    variables: tuple[PairVariable, PairVariable]
    effect: Float64
    """(A, B) The value in each cell of the two variables."""
    rows: Float64
    """(A, B) The fraction of the training rows in each cell."""
    importance: float
    """The standard deviation of the effect over the training rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A decision function for each problem: f_k(x) = weights[k, :-1].phi(x) + weights[k, -1].

    phi(x) is x as it is stored (minus the offsets of columns), the kernel values of an expansion, or the hat functions of
    curves, whose weights are the values of the curves at their knots. With one row of
    weights, ``classes[1]`` is predicted if f > ``threshold``, else ``classes[0]``. With several rows of weights the
    class of the largest f is predicted, or with ``pairs`` the class with the most votes. Without classes, f is the
    prediction.

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
    """The label of each class code; empty for regression."""
    provenance: JsonObject = field(default_factory=dict)
    """How the model was made, as plain JSON: settings, certificates, the store, and the options used to read its
    files."""
    expansion: Expansion | Hats | None = None
    """The points and the kernel of phi, or the knots of curves; None for a linear function."""
    calibration: Calibration | None = None
    """The map from decision values to probabilities; None if the model has no probabilities."""
    pairs: bool = False
    """Whether the problems are one-vs-one: (0, 1), (0, 2), ..., (1, 2), ...; f > 0 is a vote for the first class of a
    pair."""
    threshold: float = 0.0
    """For two classes, the decision value above which ``classes[1]`` is predicted; ``provenance`` says how it was
    chosen."""
    enclosures: Enclosures | None = None
    """What is stored to prove predictions (--certify): bounds of the decision values of the exact optima follow from it.
    None without --certify."""

    def __repr__(self) -> str:
        return f"<Model: {', '.join(self._summary().values())}>"

    def _repr_html_(self) -> str:
        """Return a card with the main facts about the model, for notebooks."""
        return str(load_name(CARD)("Model", self._summary()))

    def _summary(self) -> dict[str, str]:
        """Return the main facts about the model as short texts by name."""
        classes = ", ".join(map(repr, self.classes[:4])) + (
            f", ... ({len(self.classes)})" if len(self.classes) > 4 else ""
        )
        texts = {
            "kind": self.kind,
            "columns": f"{self.columns} columns",
            "predicts": f"classes {classes}" if classes else "a number",
        }
        if self.threshold:
            texts["threshold"] = f"threshold {self.threshold:.6g}"
        if self.calibration is not None:
            texts["probabilities"] = "probabilities"
        if self.certificates:
            texts["certificate"] = f"gap {self.certificate.gap:.3g}"
        return texts

    @property
    def kind(self) -> str:
        """'linear', 'kernel' or 'curves'."""
        if self.expansion is None:
            return LINEAR
        return CURVES if "curves" in self.expansion.header() else KERNEL

    @property
    def numeric(self) -> bool:
        """Whether the model predicts numbers instead of classes."""
        return not self.classes

    @property
    def columns(self) -> int:
        """The number of columns of the rows to which the model can be applied."""
        return self.weights.shape[1] - 1 if self.expansion is None else self.expansion.columns

    @property
    def labels(self) -> Array:
        """The label of each class code (classes,), in the type that ``predict`` returns: bool, int64, float64 or
        text.
        """
        labels: Array = load_name(TYPED_LABELS)(self.classes, (self.provenance.get("labels") or {}).get("type", ""))
        return labels

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """The certificate of each problem, a bound on its distance from the optimum: one for two classes, else one for
        each class, in the order of the classes.
        """
        records = self.provenance.get("certificates", [])
        return tuple(Certificate(c["primal"], c["dual"], rounding=c.get("rounding", 0.0)) for c in records)

    @property
    def certificate(self) -> Certificate:
        """The certificate with the largest gap. Raises UsageError if the model was not made by a fit."""
        if not self.certificates:
            raise UsageError("this model has no certificate", hint="only 'fit' computes one")
        return max(self.certificates, key=lambda certificate: certificate.gap)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns; None if they have no names."""
        recorded = self.provenance.get("names")
        return None if recorded is None else tuple(recorded)

    @property
    def coef(self) -> Float64:
        """The weights of the columns in their original units, (problems, columns) float64. Raises UsageError for a
        kernel model and for curves.
        """
        if self.kind == CURVES:
            raise UsageError(
                "a model of curves has no weights of columns",
                hint="model.shapes() has its curves",
            )
        if self.expansion is not None:
            raise UsageError(
                "a kernel model has no weights of columns", hint="model.weights has the weights of its points"
            )
        return self.weights[:, :-1]

    @property
    def offsets(self) -> dict[int, float]:
        """The number that is subtracted from a column before the model is applied, by column number; most columns have
        none.
        """
        recorded = (self.provenance.get("encoding") or {}).get("offsets") or ()
        return {int(j): float(o) for j, o in recorded}

    @property
    def intercept(self) -> Float64:
        """The constant term of each problem, (problems,) float64. For linear models it belongs to columns in their
        original units, for kernel models to kernel values, for curves to the values of curves.
        """
        if self.expansion is not None:
            return self.weights[:, -1]
        columns = list(self.offsets)
        return self.weights[:, -1] - self.weights[:, columns] @ np.array(list(self.offsets.values()))

    @property
    def digest(self) -> str:
        """The sha256 of the whole model; equal models have equal digests, in whatever way they were made."""
        return hash_model(*self._parts())

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Model) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    @with_python_wording
    def decision_function(self, X: Any) -> Float64:
        """Return the decision values of rows of any kind: float64 (n,) for two classes, (n, classes) for more, (n,
        pairs) for a one-vs-one model.

        ``X``: an array (n, columns), a sparse matrix, a data frame, or the path of a store or of files with the same
        columns as those from which the model's store was made. For two classes, ``classes[1]`` is predicted if f >
        ``threshold``. Raises DataError, UsageError, MissingError.
        """
        decision: Float64 = load_name(DECISIONS)(self, X)
        return decision[:, 0] if decision.shape[1] == 1 else decision

    @with_python_wording
    def predict(self, X: Any, *, certify: bool = False) -> Any:
        """Return the label of each row (n,), in the type that the labels of the training rows had; for regression the
        predicted numbers, float64 (n,).

        ``X``: as for ``decision_function``. Labels from files without types, such as CSV, are numbers if all classes
        are numbers, else text.
        With ``certify`` return ``ProvedPredictions``: the labels, and which of them more training cannot change. Raises
        UsageError if the model was fitted without ``certify``.
        """
        if certify:
            return self._prove(X)
        decision = self.decision_function(X).reshape(-1, len(self.weights))
        if self.numeric:
            return decision[:, 0]
        return self.labels[self.codes(decision)]

    def _prove(self, X: Any) -> ProvedPredictions:
        """Return the predictions of rows of any kind with what is proved of them."""
        self.check_enclosures()
        decision, low, high = load_name(INTERVALS)(self, X)
        shape = (slice(None), 0) if low.shape[1] == 1 else (slice(None), slice(None))
        if self.numeric:
            proved = np.isfinite(high - low)[:, 0]
            return ProvedPredictions(decision[:, 0], low[shape], high[shape], proved, np.zeros(len(low), np.bool_))
        codes = self.codes(decision)
        verdict = self.prove(codes, low, high)
        return ProvedPredictions(self.labels[codes], low[shape], high[shape], verdict == PROVED, verdict == DIFFERS)

    @with_python_wording
    def decision_interval(self, X: Any) -> tuple[Float64, Float64]:
        """Return the least and the largest decision value that the exact optimum can have, float64 (n,) each, or (n, classes).

        ``X`` as for ``decision_function``. Raises UsageError for a model that was fitted without ``certify``.
        """
        self.check_enclosures()
        _, low, high = load_name(INTERVALS)(self, X)
        return (low[:, 0], high[:, 0]) if low.shape[1] == 1 else (low, high)

    @with_python_wording
    def predict_proba(self, X: Any) -> Float64:
        """Return the probability of each class, float64 (n, classes) in the order of ``classes``.

        ``X``: as for ``decision_function``. Raises UsageError if the model has no probabilities.
        """
        self.check_probabilities()
        return self.probabilities(self.decision_function(X).reshape(-1, len(self.weights)))

    @with_python_wording
    def probability_interval(self, X: Any) -> tuple[Float64, Float64]:
        """Return the least and the largest probability of each class that the exact optimum can give, float64 (n, classes) each, in the order of ``classes``.

        The map from decision values to probabilities is taken as given. ``X`` as for ``decision_function``. Raises UsageError if the model has no
        probabilities, or was fitted without ``certify``.
        """
        calibration = self.check_probabilities()
        self.check_enclosures()
        _, low, high = load_name(INTERVALS)(self, X)
        return calibration.calibrator.probability_interval(low, high)

    @with_python_wording
    def explain(self, X: Any = None) -> Explanation:
        """Return the weights by column name, in the original units of the columns; with rows ``X``, also the
        contribution of each column to the decision value of each row.

        ``X``: rows (n, columns), dense or sparse, or a table with the columns of the one from which the model's store
        was made. For a model of curves, rows are needed: a column has a curve in place of a weight (NaN), and contributes
        its curve less the mean of the curve over the training rows (``shapes``). Pairs of columns, such as 'age*income', follow
        the columns. Raises UsageError for a kernel model,
        which has no weights of columns, and for too many rows; DataError.
        """
        if self.kind == CURVES and X is not None:
            return self._explain_by_curves(X)
        coef = self.coef
        parts = None if X is None else load_name(CONTRIBUTIONS)(self, X)
        return Explanation(self.outcomes, load_name(COLUMN_NAMES)(self), coef, self.intercept, parts)

    def _explain_by_curves(self, X: Any) -> Explanation:
        effects, intercepts = self.effects()
        weights, row = np.zeros((len(self.weights), self.columns)), {name: k for k, name in enumerate(self.outcomes)}
        for one in effects:
            weights[row[one.outcome], one.column] = np.nan if one.curve or one.jump else one.effect[0]
        names, parts = load_name(COLUMN_NAMES)(self), load_name(CONTRIBUTIONS)(self, X)
        pairs = self._check_curves().pairs
        if pairs is not None:  # they follow the columns
            variables = [one.name for one in load_name(PAIR_VARIABLES)(self)]
            names = (*names, *(f"{variables[a]}*{variables[b]}" for a, b in pairs.pairs.tolist()))
            weights = np.hstack([weights, np.full((len(weights), len(pairs)), np.nan)])
        return Explanation(self.outcomes, names, weights, np.array(list(intercepts.values())), parts)

    @with_python_wording
    def coefficients(self, X: Any = None) -> pd.DataFrame:
        """Return the coefficients as a pandas data frame with one row for each column of the model, largest share
        first.

        The columns of the frame:

        - ``outcome``: the class whose decision value has the coefficient
        - ``column``: the column of the table
        - ``value``: the value of that column for which the coefficient stands, such as a category; else empty
        - ``coefficient``: in the original units of the column
        - ``share``: |coefficient| as a share of the sum over all columns, which compares columns of equal scale. With
          rows ``X`` (as for ``explain``), |coefficient| is multiplied by the standard deviation of the column in these
          rows, so that the shares do not depend on scales.
        - ``low``, ``high``: of a model fitted with ``certify``, the bounds of the coefficient of the exact optimum

        Raises the errors of ``explain``, and ImportError without pandas.
        """
        import pandas as pd

        explanation, sources = self.explain(X), load_name(SOURCE_COLUMNS)(self)
        columns, values, signs = zip(*sources, strict=True) if sources else ((), (), ())
        frames = []
        for k, outcome in enumerate(explanation.outcomes):
            w = explanation.weights[k]
            size = np.abs(w) if explanation.contributions is None else explanation.contributions[:, k].std(axis=0)
            table = {
                "outcome": outcome,
                "column": columns,
                "value": values,
                "coefficient": w * signs,
                "share": size / (size.sum() or 1.0),
            }
            if self.enclosures is not None:
                low, high = self.enclosures.coefficients()
                table |= {"low": low[k], "high": high[k]}
            frames.append(pd.DataFrame(table).sort_values("share", ascending=False, kind="stable"))
        return pd.concat(frames, ignore_index=True)

    @with_python_wording
    def shapes(self) -> pd.DataFrame:
        """Return the curves and the weights of a model of curves as a pandas data frame, a row for each knot and weight.

        The columns of the frame:

        - ``outcome``: the class whose decision value has the curve
        - ``column``: the column of the table
        - ``value``: the value of that column for which a weight stands, such as a category, or at which a curve jumps; empty for a
          curve
        - ``x``: the knot in the original units of the column; 1 for a weight; the value of a jump, which is added to the curve there
        - ``effect``: what is added to the decision value at x, for a curve less its mean over the training rows. Between
          knots the effect is linear, outside of them constant.
        - ``rows``: about the fraction of the training rows near the knot; NaN for a weight
        - ``importance``: the standard deviation of the effect over the training rows

        The decision value is the sum of the effects, of those of pairs of columns (``tables``), and of the intercept, which
        ``frame.attrs["intercept"]`` has by outcome. Raises UsageError for other models, and ImportError without pandas.
        """
        effects, intercepts = self.effects()
        import pandas as pd

        sources = load_name(SOURCE_COLUMNS)(self)
        frames = []
        for one in effects:
            column, value, sign = sources[one.column]
            value = f"{one.x[0]:.9g}" if one.jump else value
            table = {"outcome": one.outcome, "column": column, "value": value, "x": one.x, "effect": one.effect * sign}
            frames.append(pd.DataFrame(table | {"rows": one.rows, "importance": one.importance}))
        frame = pd.concat(frames, ignore_index=True)
        frame.attrs["intercept"] = intercepts
        return frame

    def effects(self) -> tuple[list[Effect], dict[str, float]]:
        """Return the effects of a model of curves, outcome by outcome, and the intercept of each outcome, to which they
        and ``effects_of_pairs`` add up. Raises UsageError for other models.
        """
        hats = self._check_curves()
        effects, intercepts = [], {}
        for outcome, weights in zip(self.outcomes, self.weights, strict=True):
            shapes = hats.shapes(weights[:-1])
            intercepts[outcome] = float(weights[-1]) + sum(shape.mean for shape in shapes)
            for shape in shapes:
                x = shape.knots + self.offsets.get(shape.column, 0.0)
                effects.append(
                    Effect(outcome, shape.column, x, shape.values, shape.knot_mass, shape.deviation, curve=True)
                )
            of_columns = zip(hats.linear.tolist(), hats.linear_weights(weights).tolist(), hats.deviations, strict=True)
            for j, w, deviation in of_columns:
                one, none = np.ones(1), np.full(1, np.nan)
                effects.append(Effect(outcome, j, one, w * one, none, abs(w) * float(deviation), curve=False))
            effects += self._effects_of_jumps(hats, outcome, weights[:-1])
        return effects, intercepts

    def _effects_of_jumps(self, hats: Hats, outcome: str, weights: Float64) -> list[Effect]:
        if hats.jumps is None:
            return []
        jumps, effects = hats.jumps, []
        columns = np.repeat(jumps.columns, np.diff(jumps.starts)).tolist()
        of_values = zip(columns, jumps.values, jumps.rows, hats.jump_weights(weights), strict=True)
        for column, value, rows, weight in of_values:
            x = np.array([np.float64(value) + self.offsets.get(column, 0.0)])
            importance = abs(float(weight)) * float(np.sqrt(rows * (1.0 - rows)))
            arrays = (x, np.array([weight]), np.array([rows]))
            effects.append(Effect(outcome, column, *arrays, importance, curve=False, jump=True))
        return effects

    @with_python_wording
    def tables(self) -> pd.DataFrame:
        """Return the tables of pairs of columns of a model of curves as a pandas data frame, a row for each cell; empty
        without pairs.

        The columns of the frame:

        - ``outcome``: the class whose decision value has the table
        - ``column``, ``other_column``: the two columns of the table
        - ``value``, ``other_value``: the cell: a category, or a range of numbers such as '2 to 5', which includes 2
        - ``effect``: what is added to the decision value. Its mean over the distribution of either column is 0.
        - ``rows``: the fraction of the training rows in the cell; 0: the effect is extrapolated from the cells beside it
        - ``importance``: the standard deviation of the effect over the training rows

        Raises UsageError for other models, and ImportError without pandas.
        """
        effects = self.effects_of_pairs()
        import pandas as pd

        columns = ("outcome", "column", "value", "other_column", "other_value", "effect", "rows", "importance")
        frames = [pd.DataFrame(columns=list(columns))] if not effects else []
        for one in effects:
            first, second = one.variables
            cells = {
                "value": np.repeat(np.array(first.cells, object), len(second.cells)),
                "other_value": np.tile(np.array(second.cells, object), len(first.cells)),
                "effect": one.effect.ravel(),
                "rows": one.rows.ravel(),
            }
            names = {"outcome": one.outcome, "column": first.name, "other_column": second.name}
            frames.append(pd.DataFrame(cells | names | {"importance": one.importance})[list(columns)])
        return pd.concat(frames, ignore_index=True)

    def effects_of_pairs(self) -> list[PairEffect]:
        """Return the tables of pairs of columns, outcome by outcome. Raises UsageError for models without curves."""
        hats = self._check_curves()
        if hats.pairs is None:
            return []
        variables, effects = load_name(PAIR_VARIABLES)(self), []
        for outcome, weights in zip(self.outcomes, self.weights, strict=True):
            for one in hats.pairs.tables(weights[hats.additive_features : -1]):
                a, b = one.variables
                effects.append(PairEffect(outcome, (variables[a], variables[b]), one.values, one.rows, one.deviation))
        return effects

    def _check_curves(self) -> Hats:
        """Return the hat functions of a model of curves. Raises UsageError for other models."""
        from streamsvm.features.curves import Hats

        if not isinstance(self.expansion, Hats):
            raise UsageError(
                "this model has no curves", hint="fit with --curves; of other linear models, see coefficients"
            )
        return self.expansion

    @with_python_wording
    def to_sklearn(self) -> Any:
        """Return a fitted scikit-learn estimator with the same decision function of columns in their original units.

        The estimator is a ``LinearSVC`` (``LinearRegression`` for regression); for a kernel model a ``Pipeline`` that
        ends with one of these; for a model of a table a ``Pipeline`` that takes pandas frames of the raw table. It
        works without streamsvm. Probabilities are kept only for two classes with the logistic loss, as a
        ``LogisticRegression``; otherwise a StreamSVMWarning says that they are lost. Raises ImportError without
        scikit-learn, UsageError for hashed text columns.
        """
        return load_name(TO_SKLEARN)(self)

    @property
    def outcomes(self) -> tuple[str, ...]:
        """For each decision value the class for which a positive value counts; 'A/B' for a one-vs-one problem, in which
        a positive value counts for A; ``TARGET`` for regression.
        """
        if self.numeric:
            return (TARGET,)
        if self.pairs:
            return tuple("/".join(pair) for pair in combinations(self.classes, 2))
        return self.classes[1:] if len(self.weights) == 1 else self.classes

    def decision(self, X: Rows, *, exact: bool = False) -> Float64:
        """Return the decision values (n, k) float64 of stored rows; columns that CSR rows lack count as 0.

        ``exact``: make the value of a row independent of the other rows of the block, at half the speed for dense rows
        and a kernel.
        """
        from streamsvm.compute.blocks.operators import decision_values

        values = np.empty((row_count(X), len(self.weights)))
        if self.expansion is None:
            decision_values(X._replace(bias=1.0), self.weights, values)
        else:
            self.expansion.decision(X, self.weights, values, exact=exact)
        return values

    def probabilities(self, decision: Float64) -> Float64:
        """Return the probability of each class (n, classes) for decision values (n, k). Raises UsageError if the model
        has no probabilities.
        """
        return self.check_probabilities().calibrator.probabilities(decision)

    def check_probabilities(self) -> Calibration:
        """Return the calibration. Raises UsageError if the model has no probabilities."""
        if self.calibration is None:
            raise self._no_probabilities_error()
        return self.calibration

    def _no_probabilities_error(self) -> UsageError:
        """Return the error that says why the model has no probabilities, and what to do."""
        if self.numeric:
            return UsageError("this model predicts numbers: it has no probabilities", hint="ask for its predictions")
        if self.pairs:
            hint = "fit with --multi-class ovr and --calibrate"
            return UsageError("a one-vs-one model has votes but no probabilities", hint=hint)
        asked = (self.provenance.get("settings") or {}).get("calibrate")
        if asked is not None:
            why = f"this model has no probabilities: its fit had no time left for --calibrate {asked}"
            return UsageError(why, hint="run the same fit with --resume and a larger --time-limit")
        hint = "fit with --calibrate sigmoid (or isotonic, temperature), or with the logistic loss"
        return UsageError("this model has no probabilities, only decision values", hint=hint)

    def check_enclosures(self) -> Enclosures:
        """Return the enclosures. Raises UsageError if the model has none."""
        if self.enclosures is None:
            hint = "fit with --certify labels, or full for narrower intervals"
            raise UsageError("this model cannot prove its predictions: it was fitted without --certify", hint=hint)
        return self.enclosures

    def intervals(self, X: Rows) -> tuple[Float64, Float64]:
        """Return the least and the largest decision values (n, k) of the exact optima for rows as stored."""
        return self.check_enclosures().intervals(X)

    def possible_classes(self, low: Float64, high: Float64) -> NDArray[np.bool_]:
        """Return which classes (n, classes) the exact optimum can predict."""
        return possible_classes(low, high, len(self.classes) if self.pairs else 0, self.threshold)

    def prove(self, codes: Int32, low: Float64, high: Float64) -> NDArray[np.int8]:
        """Return PROVED, OPEN or DIFFERS (n,) for the codes (n,) that the model predicts."""
        possible = self.possible_classes(low, high)
        can_be_same = possible[np.arange(len(codes)), codes]
        return np.where(~can_be_same, DIFFERS, np.where(possible.sum(axis=1) == 1, PROVED, OPEN)).astype(np.int8)

    def codes(self, decision: Float64) -> Int32:
        """Return the index of the predicted class in ``classes`` (n,) for decision values (n, k)."""
        return predict_codes(decision, len(self.classes) if self.pairs else 0, self.threshold)

    def decide_at_zero(self) -> Model:
        """Return a model that predicts the same labels with threshold 0: the threshold is subtracted from the
        intercept.
        """
        if not self.threshold:
            return self
        weights = self.weights.copy()
        weights[:, -1] -= self.threshold
        return replace(self, weights=weights, threshold=0.0, enclosures=None)

    def refuse_pairs(self) -> None:
        """Raise UsageError for a one-vs-one model; for formats with a function for each class (one for two classes)."""
        if self.pairs:
            hint = "fit with --multi-class ovr, or export to libsvm, which supports one-vs-one models"
            raise UsageError("this format cannot represent the votes of a one-vs-one model", hint=hint)

    def refuse_curves(self, target: str) -> None:
        """Raise UsageError for a model of curves, which cannot be written for ``target``."""
        if self.kind == CURVES:
            raise UsageError(
                f"a model of curves cannot be exported to {target}",
                hint="keep the model as it is, or fit without --curves",
            )

    @with_python_wording
    def save(self, path: Path) -> None:
        """Write the model to a file, also at a URL, completely or not at all. Raises StorageError, SecurityError, UsageError."""
        if (url := find_url(path)) is not None:
            with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
                copy = Path(folder, "model.ssvm")
                self.save(copy)
                upload_file(copy, url)
            return
        text, tensors = self._parts()
        sealed = {"header": text, "sha256": hash_model(text, tensors)}
        durable.write_stream(path, pieces(tensors, sealed, by_name=True))

    def _parts(self) -> tuple[str, dict[str, Array]]:
        """Return the header and the arrays of the file."""
        header = {
            "format": FORMAT,
            "kind": self.kind,
            "classes": list(self.classes),
            "streamsvm": __version__,
            "provenance": self.provenance,
        }
        if self.pairs:  # a program without one-vs-one models must not read the weights as those of classes
            header |= {"format": VOTING_FORMAT, "pairs": True}
        if self.threshold:  # a program without thresholds must not predict labels at threshold 0
            header |= {"format": THRESHOLD_FORMAT, "threshold": self.threshold}
        tensors = {"weights": np.ascontiguousarray(self.weights)}
        if self.expansion is not None:
            header["expansion"] = self.expansion.header()
            tensors |= self.expansion.tensors()
        if self.calibration is not None:
            header["calibration"] = self.calibration.header()
            tensors |= self.calibration.tensors()
        if self.enclosures is not None:
            header["enclosures"] = self.enclosures.header()
            tensors |= self.enclosures.tensors()
        return json.dumps(header, sort_keys=True), tensors


COLUMNS_SHOWN = 10
"""Number of columns that are listed for each problem."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Explanation:
    """Weights of columns in their original units, and the contribution of each column to the decision values of some
    rows.
    """

    outcomes: tuple[str, ...]
    """For each problem the class for which a positive decision value counts, (k,)."""
    names: tuple[str, ...]
    """Names of the columns, (d,); their numbers if they have no names."""
    weights: Float64
    """Float64 (k, d); NaN for a column with a curve."""
    intercept: Float64
    """Float64 (k,)."""
    contributions: Float64 | None = None
    """w_kj x_j, or the value of a curve, for each row, float64 (n, k, d); with the intercept, they add up to the decision value. None without
    rows."""

    def largest(self, problem: int = 0, count: int = COLUMNS_SHOWN) -> list[tuple[str, float]]:
        """Return the columns with the largest |w_kj| and their weights, the largest first."""
        w = self.weights[problem]
        return [(self.names[j], float(w[j])) for j in np.argsort(-np.abs(w), kind="stable")[:count]]

    def of_row(self, row: int, problem: int = 0, count: int = COLUMNS_SHOWN) -> list[tuple[str, float]]:
        """Return the columns with the largest contribution |w_kj x_j| to the decision value of a row, and their
        contributions, the largest first.

        Raises ValueError if no rows were explained.
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
        """Return a table of the largest weights of each problem, for notebooks."""
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
    """Return the model that ``value`` is or contains (a model, the result of a fit, a fitted estimator); else None."""
    for candidate in (value, getattr(value, "model", None), getattr(value, "model_", None)):
        if isinstance(candidate, Model):
            return candidate
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
"""The reader of a model file of LIBLINEAR or LIBSVM, by the first bytes of the file."""


def load(path: Path) -> Model:
    """Read and verify a model file, also one written by LIBLINEAR or LIBSVM. Raises MissingError, DataError (E-MODEL,
    E-VERSION).
    """
    if (url := find_url(path)) is not None:
        with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
            copy = Path(folder, "model.ssvm")
            download_file(url, copy)
            return load(copy)
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
    """Return the first bytes of a file, which identify its format."""
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
    version = VOTING_FORMAT if pairs else THRESHOLD_FORMAT if threshold else FORMAT
    if header.get("format") != version or kind not in (LINEAR, KERNEL, CURVES):
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
    enclosures = _read_enclosures(path, header, tensors, weights) if kind == LINEAR else None
    names, provenance = tuple(str(c) for c in classes), header.get("provenance", {})
    model = Model(weights, names, provenance, expansion, calibration, pairs, threshold, enclosures)
    try:
        check_recorded(model.provenance, model.columns)
    except ValueError as error:
        raise _refuse(path, quote(error)) from error
    return model


def _is_regression(provenance: object) -> bool:
    """Return whether the model was fitted with a regression loss, so that it has no classes."""
    settings = provenance.get("settings") if isinstance(provenance, dict) else None
    loss = settings.get("loss") if isinstance(settings, dict) else None
    return isinstance(loss, str) and loss in LOSSES and LOSSES[loss]().numeric()


def _read_weights(path: Path, tensors: dict[str, Array]) -> Float64:
    """Return the weights of a file, (problems, features + 1) float64. Raises DataError if they are not finite."""
    weights = tensors.get("weights")
    if weights is None or weights.dtype != np.float64 or weights.ndim != 2 or weights.size == 0:
        raise _refuse_content(path)
    if not np.isfinite(weights).all():
        raise _refuse_content(path)
    return weights


def _read_calibration(path: Path, header: JsonObject, tensors: dict[str, Array], problems: int) -> Calibration | None:
    """Return the calibration in a file; None if there is none."""
    if header.get("calibration") is None:
        return None
    try:
        from streamsvm.calibration.calibrators import read_calibration

        return read_calibration(header["calibration"], tensors, problems)
    except DataError as error:
        raise _refuse_content(path) from error


def _read_enclosures(path: Path, header: JsonObject, tensors: dict[str, Array], weights: Float64) -> Enclosures | None:
    """Return the enclosures of a file; None if it has none."""
    if header.get("enclosures") is None:
        return None
    from streamsvm.proofs.kept import decode_enclosures

    try:
        return decode_enclosures(header["enclosures"], tensors, len(weights), weights.shape[1] - 1)
    except (DataError, KeyError, TypeError, ValueError) as error:
        raise _refuse_content(path) from error


def _read_expansion(path: Path, header: JsonObject, tensors: dict[str, Array], features: int) -> Expansion | Hats:
    from streamsvm.features.curves import decode_hats
    from streamsvm.features.expansion import decode_expansion

    try:
        if header["kind"] == CURVES:
            hats = decode_hats(header["expansion"], tensors)
            found: Expansion | Hats = hats
            count = hats.features
        else:
            found = decode_expansion(header["expansion"], tensors)
            count = row_count(found.points)
    except (StreamSVMError, KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise _refuse_content(path) from error
    if count != features:
        raise _refuse_content(path)
    return found


def _refuse(path: Path, why: str) -> DataError:
    return DataError(
        f"{path} is not a model: {why}",
        code="E-MODEL",
        hint="name a model that fit wrote, or fit again if it is damaged; ingest FILE --describe shows a table",
    )


def _refuse_content(path: Path) -> DataError:
    return DataError(f"{path} does not hold a usable model", code="E-MODEL", hint="fit again")
