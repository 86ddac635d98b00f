"""A problem of each kind and of each regularizer, with P by its definition: all that is under test of one is a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from streamsvm.class_tags import tag_of
from streamsvm.losses import Logistic, Squared, SquaredHinge
from streamsvm.solvers.free_bias import FreeBias
from streamsvm.solvers.nu import UNIT_HINGE, NuMargin
from streamsvm.solvers.one_class import HINGE_AT_ZERO, OFFSET, FreeOffset
from streamsvm.solvers.problem_kinds import Multinomial, OneAgainstRest, OneClass, OneVsOne, Regression
from streamsvm.solvers.regularizers import ElasticNet, L1Ball
from streamsvm.solvers.softmax import Softmax
from streamsvm.types import SQUARED_NORM, Kind, Loss, Regularizer

CLASSES = 4
"""Of the codes; numbers to be predicted are drawn beside them."""
NU = 0.3


def saved_subclasses(base: type[Any]) -> list[type[Any]]:
    """Return a class and all below it, as far as a checkpoint can hold them; what tests define is not counted."""
    found: list[type[Any]] = [one for below in base.__subclasses__() for one in saved_subclasses(below)]
    return [base, *found] if tag_of(base) and base.__module__.startswith("streamsvm.") else found


def half_square(w: Any, losses: float, s: Any) -> float:
    return 0.5 * float(np.sum(w * w)) + losses


def free_offset(w: Any, losses: float, s: Any) -> float:
    """The last weight is the offset, which is not regularized."""
    return 0.5 * float(w[:-1] @ w[:-1]) - NU * float(s.sum()) * float(w[-1]) + losses


def nu_margin(w: Any, losses: float, s: Any) -> float:
    """The least over q >= 0 of q^2 / 2 ||w||^2 - q (nu S - losses), which the multiple q w has with rho = q."""
    lack = max(0.0, NU * float(s.sum()) - losses)
    return -0.5 * lack**2 / float(w @ w)


class Case(NamedTuple):
    """A problem, and what the textbook says of it."""

    kind: Kind
    regularizer: Regularizer
    loss: Loss
    targets: Callable[[Any], Any]
    """From codes (n,) to +1 and -1, numbers, or the codes themselves; NaN for rows that do not belong to it."""
    value: Callable[[Any, float, Any], float]
    """P from the weights, C times the sum of losses, and s (n,)."""
    solvers: tuple[str, ...]
    """Solvers that are to come to the same optimum."""
    bias: float = 1.0
    C: float = 0.5


def ones(codes: Any) -> Any:
    return np.ones(len(codes))


def themselves(codes: Any) -> Any:
    return codes


CASES = {
    "one against rest": Case(
        OneAgainstRest(2), SQUARED_NORM, Logistic(), lambda codes: np.where(codes == 2, 1, -1), half_square,
        ("newton", "dcd"),
    ),
    "one-vs-one": Case(
        OneVsOne(2, 0), SQUARED_NORM, SquaredHinge(), lambda codes: np.where(codes == 2, 1, np.where(codes == 0, -1, np.nan)),
        half_square, ("newton", "dcd"),
    ),
    "regression": Case(Regression(), SQUARED_NORM, Squared(0.5), themselves, half_square, ("newton", "interior_point")),
    "one class": Case(OneClass(), SQUARED_NORM, SquaredHinge(), ones, half_square, ("newton", "dcd"), bias=0.0),
    "multinomial": Case(Multinomial(CLASSES), SQUARED_NORM, SquaredHinge(), themselves, half_square, ("interior_point", "dcd"), C=0.02),
    "softmax": Case(Softmax(CLASSES, 2.0), SQUARED_NORM, Logistic(2.0), themselves, half_square, ("lbfgs",), C=0.02),
    "elastic net": Case(
        OneAgainstRest(1), ElasticNet(3.0), SquaredHinge(), lambda codes: np.where(codes == 1, 1, -1),
        lambda w, losses, s: half_square(w, losses, s) + 3.0 * float(np.abs(w).sum()), ("newton",),
    ),
    "free bias": Case(
        OneAgainstRest(2), FreeBias(6, reach=20.0), Logistic(), lambda codes: np.where(codes == 2, 1, -1),
        lambda w, losses, s: half_square(w[:-1], losses, s), ("lbfgs",),
    ),
    "l1 ball": Case(
        Regression(), L1Ball(0.5), Squared(0.5), themselves, lambda w, losses, s: losses, ("partan", "swap")
    ),
    "one class, nu": Case(
        OneClass(), FreeOffset(NU), HINGE_AT_ZERO, ones, free_offset, ("interior_point",), bias=OFFSET, C=1.0
    ),
    "two classes, nu": Case(
        OneAgainstRest(3), NuMargin(NU), UNIT_HINGE, lambda codes: np.where(codes == 3, 1, -1), nu_margin,
        ("interior_point",), C=1.0,
    ),
    "pairs, nu": Case(
        OneVsOne(3, 1), NuMargin(NU), UNIT_HINGE, lambda codes: np.where(codes == 3, 1, np.where(codes == 1, -1, np.nan)),
        nu_margin, ("interior_point",), C=1.0,
    ),
}  # fmt: skip
