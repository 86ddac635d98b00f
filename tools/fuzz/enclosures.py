"""Audit enclosures of exact optima: python -m tools.fuzz.enclosures [--problems 3000] [--seed 0] [--faults] [--counts].

Random problems - every smooth loss, weights 0 and 1000, columns far from 0, of all scales, equal or 0, fewer rows than columns, repeated rows, separable classes, one
row of norm 1e6, C from 1e-6 to 1e6, with and without a constant feature - are solved here, by a Newton method whose losses, gradients and steps share nothing with
the package: the weights and the gradient are long doubles, and as P is strongly convex, ||w - w*|| <= ||grad P(w)||, which is
all that the audit allows for. Enclosures are built at iterates from w = 0 to the optimum, by some rows, by all rows, and from
the gradient alone, and compared with that optimum for the rows of the problem, fresh rows, and unit vectors (coefficients). Some rows are left out, one after
the other, and the optimum without each is compared with what was said of it. Some rows are removed together, others are added, and some of these
removed again; the optimum after each of these changes is compared. So are the optima for other C, with and without a second look.

An interval that does not contain what it should, and a label called proved that is not the optimum's, is a finding; exit code 1 if there is one.
--faults plants nine faults in the package, one after the other, and fails unless each is found: the gradient left out of the radius, the
bounds of secants exchanged, the check of the steps left out, derivatives in the place of secants, rounding of margins and sums left out, removed
rows left in the matrices, no allowance for the share of the Hessian that goes with removed rows, one end of a range for all of it, no radius in a range.
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from streamsvm import losses
from streamsvm.proofs import cost_range, enclosure, row_changes

L = np.longdouble
U = 2.0**-53
LEAST_ROWS, ROWS_LEFT_OUT = 3, 4
"""Rows of a problem, at least, of which rows are left out, and how many."""
LOOKED_AT = (0, 1, 2, 4, 7)
"""Steps of the Newton method at whose points enclosures are built."""
SMOOTH = ("squared_hinge", "huber", "logistic", "squared", "squared_epsilon", "rounded_epsilon", "rounded_pinball")


class Drawn(NamedTuple):
    """A problem: float64 rows with the constant feature, targets, weights, and the loss by name with its numbers."""

    X: Any
    y: Any
    C: Any
    loss: str
    numbers: tuple[float, ...]
    fresh: Any

    @property
    def numeric(self) -> bool:
        return self.loss in SMOOTH[3:]

    @property
    def record(self) -> Any:
        """The loss as the package has it."""
        kind = {
            "squared_hinge": losses.SquaredHinge, "huber": losses.Huber, "logistic": losses.Logistic, "squared": losses.Squared,
            "squared_epsilon": losses.SquaredEpsilonInsensitive, "rounded_epsilon": losses.RoundedEpsilon, "rounded_pinball": losses.RoundedPinball,
        }[self.loss]  # fmt: skip
        return kind(*self.numbers)


def slope_and_bend(one: Drawn, m: Any) -> tuple[Any, Any]:  # noqa: PLR0911 (a return a loss)
    """-l'(m) and l''(m), in the precision of m."""
    a = [L(number) for number in one.numbers]
    zero = m * 0
    if one.loss == "squared_hinge":
        return 2 * np.maximum(zero, a[0] - m), 2.0 * (m < a[0])
    if one.loss == "huber":
        mu, k = a
        return np.clip((k + mu - m) / (2 * mu), 0, 1), (np.abs(m - k) < mu) / (2 * mu)
    if one.loss == "logistic":
        e = np.exp(-np.abs(a[0] * m))
        return np.where(m > 0, e, 1 + zero) / (1 + e), a[0] * e / ((1 + e) * (1 + e))
    if one.loss == "squared":
        return -2 * a[0] * m, 2 * a[0] + zero
    if one.loss == "squared_epsilon":
        return -2 * np.sign(m) * np.maximum(zero, np.abs(m) - a[0]), 2.0 * (np.abs(m) > a[0])
    if one.loss == "rounded_epsilon":
        inner, outer = a
        s = np.clip((np.abs(m) - inner) / (outer - inner), 0, 1)
        return -np.sign(m) * s, ((np.abs(m) > inner) & (np.abs(m) < outer)) / (outer - inner)
    mu, q = a
    return q - np.clip((m + mu) / (2 * mu), 0, 1), (np.abs(m) < mu) / (2 * mu)


def gradient(one: Drawn, w: Any) -> tuple[Any, Any]:
    """The gradient and the margins at w, in long doubles."""
    f = one.X.astype(L) @ w
    m = f - one.y.astype(L) if one.numeric else one.y.astype(L) * f
    a = one.C.astype(L) * slope_and_bend(one, m)[0] * (1 if one.numeric else one.y)
    return w - one.X.astype(L).T @ a, m


def solve(one: Drawn, steps: int = 200) -> tuple[list[Any], Any, float]:
    """The iterates of Newton's method from 0, the optimum, and the most by which it can be off."""
    p = one.X.shape[1]
    w, found = np.zeros(p, L), []
    best, least = w, np.inf
    for k in range(steps):
        g, m = gradient(one, w)
        length = float(np.sqrt(np.sum(g * g)))
        if k in LOOKED_AT:
            found.append(w.astype(np.float64))
        if length < least:
            best, least = w, length
        if length <= 1e-17 * float(np.sqrt(np.sum(w * w)) + 1e-3):
            break
        bend = (one.C * slope_and_bend(one, m)[1]).astype(np.float64)
        H = np.eye(p) + (one.X * bend[:, None]).T @ one.X
        d = np.linalg.solve(H, -g.astype(np.float64)).astype(L)
        # the slope along d is a rising function of the step: by halves to where it is about 0
        t = L(1)
        for _ in range(40):
            if float(gradient(one, w + t * d)[0] @ d) <= 0.1 * abs(float(g @ d)):
                break
            t /= 2
        w = w + t * d
    return found, best, least * (1 + 1e-9) + float(np.sqrt(np.sum(best * best))) * 1e-18


def draw(seed: int) -> Drawn:
    """A problem of a seed."""
    r = np.random.default_rng(seed)
    n, d = int(r.integers(2, 120)), int(r.integers(1, 14))
    X = r.standard_normal((n, d)) * np.exp(r.normal(0, r.choice([0, 0.5, 3]), d))
    shape = r.integers(0, 8)
    if shape == 0:
        X[:, 0] = 0.0
    elif shape == 1 and d > 1:
        X[:, 1] = X[:, 0]
    elif shape == 2:
        X += r.choice([10.0, 1e4])
    elif shape == 3:
        X[0] *= 1e6 / max(1e-9, float(np.linalg.norm(X[0])))
    elif shape == 4:
        X *= r.random((n, d)) < 0.2
    elif shape == 5:
        X = X[r.integers(0, max(1, n // 5), n)]
    elif shape == 6:
        X[:, 0] = (np.arange(n) == 0) * 1.0
    X = X.astype(np.float32).astype(np.float64)
    fresh = np.concatenate([X[r.permutation(n)[:10]], (r.standard_normal((10, d)) * (np.abs(X).max() or 1.0))]).astype(
        np.float32
    )
    bias = float(r.choice([0.0, 1.0, 1.0, 3.0]))
    X, fresh = (np.hstack([A.astype(np.float64), np.full((len(A), 1), bias)]) for A in (X, fresh))
    loss = str(r.choice(SMOOTH))
    true = X @ r.standard_normal(d + 1) / np.sqrt(1 + np.square(X).sum(1).mean())
    noise = r.choice([0.0, 0.3, 2.0])
    numbers: tuple[float, ...] = ()
    mu = float(np.exp(r.uniform(-6, 1)))
    if loss in SMOOTH[3:]:
        y = true * np.exp(r.normal(0, 2)) + noise * r.standard_normal(n)
        numbers = {
            "squared": (mu,),
            "squared_epsilon": (float(r.choice([0.0, mu])),),
            "rounded_epsilon": (mu / 2, mu),
            "rounded_pinball": (mu, 0.3),
        }[loss]
    else:
        y = np.where(true + noise * r.standard_normal(n) > 0, 1.0, -1.0)
        k = float(r.choice([1.0, 0.5, 8.0]))
        numbers = {"squared_hinge": (k,), "huber": (mu, k), "logistic": (float(np.exp(r.normal(0, 1))),)}[loss]
    C = np.full(n, float(np.exp(r.uniform(np.log(1e-6), np.log(1e6)) * r.choice([0.3, 1.0]))))
    if r.random() < 0.3:
        C *= r.choice([0.0, 1.0, 2.5, 1000.0], n)
    return Drawn(X, y, C, loss, numbers, fresh)


def evaluate(one: Drawn, w: Any) -> tuple[Any, Any]:
    """The point and the rows of the package at w: margins and gradient in float64, with bounds of what that costs."""
    rows = enclosure.margins_of(one.X, one.y, one.C, w, numeric=one.numeric)
    slopes, _ = slope_and_bend(one, rows.m)
    a = (one.C * slopes).astype(np.float64)
    signed = a if one.numeric else a * one.y
    n, size = len(one.y), np.abs(one.X).T @ np.abs(a) + np.abs(w)
    most = 1.0 / one.record.curvature(1.0)
    margins = float(np.sqrt(np.sum(one.C * most * rows.errors**2))) * 1.000001
    return enclosure.EvaluatedPoint(w, w - one.X.T @ signed, (n + 16) * U * size, margins), rows


def enclosures_at(one: Drawn, w: Any, r: Any) -> Iterator[tuple[str, Any]]:
    """The enclosures that the package builds at w."""
    point, rows = evaluate(one, w)
    yield "ball", enclosure.ball_of_gradient(point)
    some = np.sort(r.permutation(len(one.y))[: max(1, len(one.y) // 2)])
    by_some = enclosure.enclose_by_rows(point, enclosure.MarginRows(*(a[some] for a in rows)), one.record)
    yield "some rows", by_some
    yield "all rows, one side", enclosure.enclose_by_rows(point, rows, one.record)
    before = (by_some, len(some) / len(one.y))
    yield "all rows after some", enclosure.enclose_by_rows(point, rows, one.record, before)
    first = enclosure.close_first_pass(add_up(one, rows, lambda: enclosure.start_first_pass(len(w)), _add_first), w)
    if first.metric is None:
        return
    passes = enclosure.TwoSidedPasses(first, one.record)
    passes = passes.close(add_up(one, rows, passes.empty, lambda _, *given: passes.add(*given[:2])))
    yield (
        "all rows, two sides",
        passes.enclose(add_up(one, rows, passes.empty, lambda _, *given: passes.add(*given[:2]))),
    )


def _add_first(one: Drawn, sums: Any, rows: Any, signs: Any) -> None:
    enclosure.add_first_pass(sums, rows, signs, one.record)


def add_up(one: Drawn, rows: Any, empty: Any, add: Any) -> Any:
    """The sums of a pass over all rows in two parts."""
    sums, cut, signs = empty(), len(one.y) // 3, np.ones(len(one.y)) if one.numeric else one.y
    for part in (slice(0, cut), slice(cut, None)):
        other = empty()
        add(one, other, enclosure.MarginRows(*(a[part] for a in rows)), signs[part])
        sums.merge(other)
    return sums


def audit(seed: int, counts: Any) -> list[str]:
    """Findings of one problem."""
    one, found = draw(seed), []
    with np.errstate(all="ignore"):
        iterates, best, off = solve(one)
    exact = best.astype(L)
    Z = np.concatenate([one.fresh, one.X[:20], np.eye(one.X.shape[1])])
    true, allowed = (
        Z.astype(L) @ exact,
        off * np.sqrt(np.square(Z).sum(1)) + 1e-18 * np.abs(Z) @ np.abs(exact.astype(float)),
    )
    r = np.random.default_rng(seed)
    points = [
        *iterates,
        best.astype(np.float64),
        best.astype(np.float64) * (1 + r.normal(0, 1e-6)),
        r.standard_normal(len(best)),
    ]
    for number, w in enumerate(points):
        for kind, box in enclosures_at(one, w, r):
            low, high = box.interval(Z)
            bad = (true < low.astype(L) - allowed) | (true > high.astype(L) + allowed) | ~(low <= high)
            counts[f"{kind}: statements"] += len(Z)
            counts[f"{kind}: signs proved"] += int(((low > 0) | (high < 0)).sum())
            if box.root is not None or kind == "ball":
                counts[f"{kind}: built"] += 1
            if bad.any():
                j = int(np.flatnonzero(bad)[0])
                by = float(max(low[j] - true[j], true[j] - high[j]))
                found.append(
                    f"seed {seed} {one.loss} point {number} {kind}: {int(bad.sum())} of {len(Z)} false, by {by:.2g}, width {high[j] - low[j]:.2g}"
                )
    return found


def add_up_levels(one: Drawn, w: Any, start: Callable[..., Any]) -> tuple[Any, Any]:
    """The bounds of the Hessian for steps of several sizes at w, and the rows there. ``start(first, loss)``: the state before their passes."""
    _, rows = evaluate(one, w)
    first = enclosure.close_first_pass(add_up(one, rows, lambda: enclosure.start_first_pass(len(w)), _add_first), w)
    state = start(first, one.record)
    while not state.is_complete:
        state = state.close(add_up(one, rows, state.empty, lambda _, *given, now=state: now.add(*given[:2])))
    return state, rows


def left_out(one: Drawn, w: Any, chosen: Any) -> tuple[Any, Any, Any]:
    """The bounds of the package for the margins of some rows at the optima without them, and whether they are more than balls."""
    state, rows = add_up_levels(one, w, partial(row_changes.StepLevels, sizes=row_changes.ONE_ROW))
    some, signs = enclosure.MarginRows(*(a[chosen] for a in rows)), np.ones(len(one.y)) if one.numeric else one.y
    return state.bounds_without_row(some, signs[chosen])


def audit_left_out(seed: int, counts: Any) -> list[str]:
    """Findings of one problem whose rows are left out, one after the other."""
    one, found, r = draw(seed), [], np.random.default_rng(seed)
    if len(one.y) < LEAST_ROWS:
        return []
    chosen = np.sort(r.permutation(len(one.y))[:ROWS_LEFT_OUT])
    true, allowed = [], []
    with np.errstate(all="ignore"):
        iterates, best, _ = solve(one)
        for i in chosen:
            C = one.C.copy()
            C[i] = 0.0
            _, w, off = solve(one._replace(C=C))
            f = one.X[i].astype(L) @ w
            true.append(f - L(one.y[i]) if one.numeric else L(one.y[i]) * f)
            allowed.append(
                off * float(np.linalg.norm(one.X[i])) + 1e-17 * float(np.abs(one.X[i]) @ np.abs(w).astype(float))
            )
    for number, w in enumerate(
        [iterates[-1], best.astype(np.float64), best.astype(np.float64) * (1 + r.normal(0, 1e-4))]
    ):
        low, high, settled = left_out(one, w, chosen)
        bad = (np.array(true) < low.astype(L) - allowed) | (np.array(true) > high.astype(L) + allowed) | ~(low <= high)
        counts["rows left out: statements"] += len(chosen)
        counts["rows left out: settled"] += int(settled.sum())
        if bad.any():
            j = int(np.flatnonzero(bad)[0])
            what = f"width {high[j] - low[j]:.2g}, settled {bool(settled[j])}"
            found.append(
                f"seed {seed} {one.loss} point {number} row {chosen[j]} left out: {int(bad.sum())} false, {what}"
            )
    return found


def changed(one: Drawn, chosen: Any) -> Drawn:
    """The problem of some rows."""
    return one._replace(X=one.X[chosen], y=one.y[chosen], C=one.C[chosen])


def audit_changes(seed: int, counts: Any) -> list[str]:
    """Findings of one problem of which rows are removed, to which rows are added, and from which some of these are removed again."""
    whole, r = draw(seed), np.random.default_rng(seed)
    n = len(whole.y)
    if n < LEAST_ROWS:
        return []
    share = r.choice([0.02, 0.1, 0.5])
    order = r.permutation(n)
    new, old = order[: max(1, int(share * n / 2))], order[max(1, int(share * n / 2)) :]
    gone = old[: max(1, int(share * len(old)))]
    stays = old[len(gone) :]
    some, others = new[: len(new) // 2 + 1], new[len(new) // 2 + 1 :]
    changes = [
        (gone, False, stays),
        (new, True, np.concatenate([stays, new])),
        (some, False, np.concatenate([stays, others])),
    ]
    return compare_changes(f"seed {seed}", whole, old, changes, counts)


def audit_most_rows_removed(seed: int, counts: Any) -> list[str]:
    """Findings of one problem of which nearly all rows, and with them nearly all of the Hessian, are removed.

    With one or two columns, no inequality of the proof is far from an equality, so that a wrong share T shows.
    """
    r = np.random.default_rng(seed)
    whole = draw_narrow(r)
    n = len(whole.y)
    order, left = r.permutation(n), 1 + int(n * r.choice([0.02, 0.05, 0.1, 0.3]))
    name, changes = f"seed {seed}, most rows removed,", [(order[left:], False, order[:left])]
    return compare_changes(name, whole, order, changes, counts)


def draw_narrow(r: Any) -> Drawn:
    """A problem of two classes with one or two columns."""
    n, d = int(r.integers(40, 200)), int(r.integers(1, 3))
    X, loss = r.standard_normal((n, d)), str(r.choice(SMOOTH[:3]))
    y = np.where(X[:, 0] + r.choice([0.3, 2.0]) * r.standard_normal(n) > 0, 1.0, -1.0)
    C, mu = np.full(n, float(np.exp(r.uniform(-3, 3)))), float(np.exp(r.uniform(-3, 0)))
    numbers = {"squared_hinge": (1.0,), "huber": (mu, 1.0), "logistic": (1.0,)}[loss]
    return Drawn(X, y, C, loss, numbers, r.standard_normal((20, d)))


def compare_changes(
    name: str, whole: Drawn, old: Any, changes: Sequence[tuple[Any, bool, Any]], counts: Any
) -> list[str]:
    """Findings of changes of rows, one after the other. ``old``: the rows of the first problem; ``changes``: rows, whether they are added, and
    the rows after the change.
    """
    found, r = [], np.random.default_rng(len(old))
    with np.errstate(all="ignore"):
        iterates, best, _ = solve(changed(whole, old))
        optima = [solve(changed(whole, after))[1:] for _, _, after in changes]
    Z = np.concatenate([whole.fresh, whole.X[:20]])
    for number, w in enumerate(
        [iterates[-1], best.astype(np.float64), best.astype(np.float64) * (1 + r.normal(0, 1e-4))]
    ):
        start = partial(row_changes.StepLevels, sizes=row_changes.MANY_ROWS)
        problem = add_up_levels(changed(whole, old), w, start)[0].keep(1.0, {}, weighted=False)
        for step, ((rows, are_added, _), (optimum, off)) in enumerate(zip(changes, optima, strict=True)):
            change, some = row_changes.RowChange(problem, whole.record, are_added=are_added), changed(whole, rows)
            change.add(evaluate(some, w)[1], np.ones(len(rows)) if whole.numeric else some.y)
            problem = change.close()
            box, true = problem.enclose(), Z.astype(L) @ optimum
            low, high = box.interval(Z)
            allowed = off * np.sqrt(np.square(Z).sum(1)) + 1e-18 * np.abs(Z) @ np.abs(optimum.astype(float))
            bad = (true < low.astype(L) - allowed) | (true > high.astype(L) + allowed) | ~(low <= high)
            counts["rows changed: statements"] += len(Z)
            counts["rows changed: built"] += box.root is not None
            if bad.any():
                j = int(np.flatnonzero(bad)[0])
                by = float(max(low[j] - true[j], true[j] - high[j]))
                found.append(
                    f"{name} {whole.loss} point {number} change {step}: {int(bad.sum())} false, by {by:.2g}, width {high[j] - low[j]:.2g}"
                )
    return found


def audit_costs(seed: int, counts: Any) -> list[str]:
    """Findings of one problem whose optima for other C are enclosed."""
    r = np.random.default_rng(seed)
    cuts = np.exp(np.cumsum(r.uniform(0, r.choice([0.05, 0.5]), 2))).tolist()
    ranges = ((1.0, cuts[0]), (cuts[0], cuts[1]), (1.0 / cuts[1], 1.0))
    inside = [float(r.choice([least, largest, np.sqrt(least * largest)])) for least, largest in ranges]
    return compare_costs(f"seed {seed}", draw(seed), ranges, inside, counts)


def audit_wide_ranges(seed: int, counts: Any) -> list[str]:
    """Findings of one problem with one or two columns, whose optima at the ends of wide ranges of C are enclosed: no inequality is far from an equality there."""
    r = np.random.default_rng(seed)
    one, far = draw_narrow(r), float(np.exp(r.uniform(0.1, 2.0)))
    return compare_costs(f"seed {seed}, wide range,", one, ((1.0, far), (1.0 / far, 1.0)), (far, 1.0 / far), counts)


def compare_costs(name: str, one: Drawn, ranges: Any, inside: Sequence[float], counts: Any) -> list[str]:
    """Findings of one problem. ``ranges``: of factors of C; ``inside``: in each of them, a factor whose optimum is compared."""
    found, r = [], np.random.default_rng(len(one.y))
    with np.errstate(all="ignore"):
        iterates, best, _ = solve(one)
        optima = [solve(one._replace(C=one.C * k))[1:] for k in inside]
    Z = np.concatenate([one.fresh, one.X[:20]])
    for number, w in enumerate(
        [iterates[-1], best.astype(np.float64), best.astype(np.float64) * (1 + r.normal(0, 1e-4))]
    ):
        state, rows = add_up_levels(one, w, cost_range.start_levels)
        fit = cost_range.CostFit.of(state)
        for ends, k, (optimum, off) in zip(ranges, inside, optima, strict=True):
            boxes, true = {"": fit.enclose(ends[0], ends[1])}, Z.astype(L) @ optimum
            if not one.numeric:
                boxes[", second look"] = fit.enclose(ends[0], ends[1], look_again(one, rows, boxes[""]))
            size = np.abs(optimum.astype(float))  # the factor k of C is rounded here, and exact in the package
            allowed = (off + 1e-15 * float(np.linalg.norm(size))) * np.sqrt(np.square(Z).sum(1)) + 1e-18 * np.abs(
                Z
            ) @ size
            for look, box in boxes.items():
                low, high = box.interval(Z)
                bad = (true < low.astype(L) - allowed) | (true > high.astype(L) + allowed) | ~(low <= high)
                counts[f"ranges of C{look}: statements"] += len(Z)
                counts[f"ranges of C{look}: built"] += box.slope is not None
                if bad.any():
                    j = int(np.flatnonzero(bad)[0])
                    by = float(max(low[j] - true[j], true[j] - high[j]))
                    found.append(
                        f"{name} {one.loss} point {number} C times {k:.3g}{look}: {int(bad.sum())} false, by {by:.2g}, width {high[j] - low[j]:.2g}"
                    )
    return found


def look_again(one: Drawn, rows: Any, box: Any) -> Any:
    """The bounds of the Hessian that a second look at a range of C gives."""

    def add(_: Drawn, sums: Any, part: Any, signs: Any) -> None:
        cost_range.add_to_second_look(sums, part, signs, one.record, (box, box))

    return cost_range.close_second_look(add_up(one, rows, lambda: cost_range.start_second_look(one.X.shape[1]), add))


# -- faults


def _towards_one_end(loss: Any, m: Any, low: Any, _high: Any) -> Any:
    return _TOWARDS(loss, m, low, low)


_TOWARDS = cost_range.secants_towards


def _without_gradient(point: Any, metric: Any) -> Any:
    box = _ENCLOSE_FROM_BELOW(point, metric)
    return box._replace(radius=0.0, slack=box.slack)


def _exchanged(loss: Any, m: Any, reach: Any) -> Any:
    low, high = _SECANTS(loss, m, reach)
    return high, low


def _derivatives(loss: Any, m: Any, _reach: Any) -> Any:
    return _SECANTS(loss, m, np.full(len(m), 1e-300))


_ENCLOSE_FROM_BELOW, _SECANTS = enclosure.enclose_from_below, enclosure.secants


def _point_without_rounding(weights: Any, gradient: Any, errors: Any, _margins: float) -> Any:
    return _EVALUATED(weights, gradient, errors * 0, 0.0)


_EVALUATED = enclosure.EvaluatedPoint
FAULTS: dict[str, dict[str, Any]] = {
    "the gradient is left out of the radius": {"enclose_from_below": _without_gradient},
    "the bounds of secants are exchanged": {"secants": _exchanged},
    "derivatives stand for secants": {"secants": _derivatives},
    "the steps are not checked": {
        "size_of_gradient": lambda metric, point: 1e-3 * float(np.linalg.norm(metric.W @ point.gradient))
    },
    "rounding is left out": {"EvaluatedPoint": _point_without_rounding, "UNIT": 0.0},
}


CHANGE_FAULTS: dict[str, dict[str, Any]] = {
    "removed rows stay in the matrices": {"bounds_of_counted": lambda rows, steps, loss: (np.zeros(len(steps)),) * 2},
    "the share of the Hessian that goes is 0": {"_largest_share": lambda metric, part: 0.0},
}
"""Faults in ``row_changes``, which ``audit_most_rows_removed`` finds."""


COST_FAULTS: dict[str, dict[str, Any]] = {
    "a second look is at one end only": {"secants_towards": _towards_one_end},
    "the move of the weights is left out": {
        "enclose_between": lambda point, low, high: enclosure.enclose_between(point, low, high)._replace(radius=0.0)
    },
}
"""Faults in ``cost_range``, which ``audit_wide_ranges`` finds."""


@contextmanager
def planted(changes: dict[str, Callable[..., Any]], module: Any = enclosure) -> Iterator[None]:
    """The package with functions of a module replaced."""
    before = {name: getattr(module, name) for name in changes}
    for name, value in changes.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def find_faults(seeds: range) -> list[str]:
    """The faults that no problem of these seeds shows."""
    missed = []
    looks = (
        (FAULTS, enclosure, audit),
        (CHANGE_FAULTS, row_changes, audit_most_rows_removed),
        (COST_FAULTS, cost_range, audit_wide_ranges),
    )
    for faults, module, look in looks:
        for name, changes in faults.items():
            with planted(changes, module):
                if not any(look(seed, collections.Counter()) for seed in seeds):
                    missed.append(name)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--counts", action="store_true")
    given = parser.parse_args()
    if given.faults:
        missed = find_faults(range(given.seed, given.seed + given.problems))
        print(
            "\n".join(f"not found: {name}" for name in missed)
            or f"all {len(FAULTS) + len(CHANGE_FAULTS) + len(COST_FAULTS)} faults found"
        )
        return bool(missed)
    counts: Any = collections.Counter()
    found = []
    for seed in range(given.seed, given.seed + given.problems):
        found += (
            audit(seed, counts)
            + audit_left_out(seed, counts)
            + audit_changes(seed, counts)
            + audit_most_rows_removed(seed, counts)
            + audit_costs(seed, counts)
            + audit_wide_ranges(seed, counts)
        )
    if given.counts:
        print("\n".join(f"{name} {count}" for name, count in sorted(counts.items())))
    print(
        "\n".join(found)
        or f"{given.problems} problems, {sum(v for k, v in counts.items() if k.endswith('statements'))} statements: none false"
    )
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
