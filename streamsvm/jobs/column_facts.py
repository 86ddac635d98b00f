"""Describe the columns of a table for the record of a run: their effect on the model, their values, and how evaluated rows
differ from the training rows.

Encoded columns are grouped by the source column of the table (``group_columns``). The effect of a source column is the
standard deviation, over the rows, of its contribution to f(x); for several problems the root mean square of these:

    Var(sum_j w_j x_j) = sum_j w_j^2 p_j - (sum_j w_j p_j)^2   for one-hot columns, which are 1 in a fraction p_j of rows,
                         sum_j w_j^2 Var(x_j)                   for others, as if they were independent,
                         Var(c_j(x_j))                          for curves, and Var(T) for the table of a pair of columns,

and less 2 w_x w_m E x E m for a number x that is 0 in rows where its indicator column m marks it as missing.

All facts are computed from the statistics of the store, for a bounded number of columns.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from streamsvm.jobs.apply.column_names import SourceColumns, group_columns, name_by_number
from streamsvm.model import Model
from streamsvm.model.model import CURVES, Effect, PairEffect
from streamsvm.rows import Float64, Int64
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Store

MAX_COLUMNS, MAX_VALUES, MAX_PROBLEMS = 30, 16, 10
"""Maximum numbers of recorded columns of a table, values of a column, and problems of a model."""
MAX_PAIRS, MAX_CELLS, MAX_PAIR_PROBLEMS = 24, 24, 4
"""Maximum numbers of recorded pairs of columns, cells of a column in a pair, and problems of a pair."""
MAX_LISTED_CLASSES, MAX_COEFFICIENTS = 10, 20
"""Maximum number of classes, and of columns for each, whose coefficients are recorded."""
NUMBER = "number"


class ColumnFacts(NamedTuple):
    """The facts about encoded columns from which effects are computed."""

    sources: SourceColumns
    weights: Float64
    """The weights of the problems, (k, d); (0, d) for a kernel model."""
    mean: Float64
    """The means of the stored columns, from which offsets were subtracted, (d,)."""
    deviation: Float64
    """The standard deviations, (d,)."""
    offsets: dict[int, float]
    """The offsets subtracted from columns, by number."""
    curves: Mapping[int, list[Effect]] = MappingProxyType({})
    """The curves of all problems by the number of their column, whose ``weights`` are such that weight times deviation is
    the standard deviation of the curve, with its jumps."""
    jumps: Mapping[int, list[Effect]] = MappingProxyType({})
    """The jumps of these curves, likewise."""

    def block_of(self, j: int) -> tuple[int, int] | None:
        """Return the range [start, stop) of one-hot columns that contains column j; None if there is none."""
        place = bisect_right(self.sources.one_hot, (j, math.inf)) - 1
        if place < 0:
            return None
        start, stop = self.sources.one_hot[place]
        return (start, stop) if j < stop else None


def describe_columns(model: Model, store: Store) -> list[JsonObject]:
    """Return the source columns with the largest effects, with their values; for a kernel model, in which columns have no
    effects, the first ones.

    ``share`` is the effect of a column divided by the sum of all effects, those of pairs included.
    """
    facts = _collect_facts(model, store)
    effects = column_effects(facts)
    total = float(effects.sum()) + sum(size for _, size in rank_pairs(model))
    group = facts.sources.group
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(len(effects) + 1))
    descriptions = []
    for g in np.argsort(-effects, kind="stable")[:MAX_COLUMNS].tolist():
        places = order[starts[g] : starts[g + 1]]
        one = _describe_column(facts, g, places)
        descriptions.append(one | {"share": float(effects[g]) / total if total > 0 else None})
    return descriptions


def _collect_facts(model: Model, store: Store) -> ColumnFacts:
    """Return the facts about the columns of a store from which effects in a model are computed."""
    d, statistics = store.layout.columns, store.statistics()
    is_linear = model.expansion is None and model.weights.shape[1] == d + 1
    deviation = np.sqrt(statistics.M2 / store.layout.rows)
    weights, curves = model.weights[:, :d] if is_linear else np.empty((0, d)), dict[int, list[Effect]]()
    jumps = dict[int, list[Effect]]()
    if model.kind == CURVES:
        weights, curves, jumps = _weights_of_curves(model, deviation)
    sources = group_columns(store.facts.get("names"), store.facts.get("encoding"), d)
    return ColumnFacts(sources, weights, statistics.mean, deviation, model.offsets, curves, jumps)


def rank_pairs(model: Model) -> list[tuple[list[PairEffect], float]]:
    """Return the tables of each pair of columns in all problems with their effect, the largest first; empty without pairs."""
    if model.kind != CURVES:
        return []
    by_pair: dict[tuple[str, ...], list[PairEffect]] = {}
    for one in model.effects_of_pairs():
        by_pair.setdefault(tuple(variable.name for variable in one.variables), []).append(one)
    ranked = [(tables, math.sqrt(sum(t.importance**2 for t in tables) / len(tables))) for tables in by_pair.values()]
    return sorted(ranked, key=lambda pair: -pair[1])


def describe_pairs(model: Model, store: Store) -> list[JsonObject]:
    """Return the pairs of columns with the largest effects, with their tables in all problems; ``share`` as for columns."""
    ranked = rank_pairs(model)
    if not ranked:
        return []
    total = float(column_effects(_collect_facts(model, store)).sum()) + sum(size for _, size in ranked)
    return [_describe_pair(tables, size / total if total > 0 else 0.0) for tables, size in ranked[:MAX_PAIRS]]


def _describe_pair(tables: Sequence[PairEffect], share: float) -> JsonObject:
    """Return a pair as plain JSON. Of a category, the cells with the most rows are described."""
    first, second = tables[0].variables
    rows = tables[0].rows
    shown = [_most_frequent(rows.sum(axis=axis)) for axis in (1, 0)]
    return {
        "names": [first.name, second.name],
        "cells": [[one.cells[k] for k in kept] for one, kept in zip((first, second), shown, strict=True)],
        "rows": [[_round(x) for x in line] for line in rows[np.ix_(*shown)].tolist()],
        "effects": [
            [[_round(x) for x in line] for line in table.effect[np.ix_(*shown)].tolist()]
            for table in tables[:MAX_PAIR_PROBLEMS]
        ],
        "outcomes": [table.outcome for table in tables[:MAX_PAIR_PROBLEMS]],
        "share": share,
    }


def _most_frequent(shares: Float64) -> list[int]:
    """Return the numbers of the MAX_CELLS cells with the most rows, ascending."""
    return sorted(np.argsort(-shares, kind="stable")[:MAX_CELLS].tolist())


def _weights_of_curves(
    model: Model, deviation: Float64
) -> tuple[Float64, dict[int, list[Effect]], dict[int, list[Effect]]]:
    """Return ``ColumnFacts.weights``, ``ColumnFacts.curves`` and ``ColumnFacts.jumps`` of a model of curves."""
    weights, curves = np.zeros((len(model.weights), len(deviation))), dict[int, list[Effect]]()
    jumps = dict[int, list[Effect]]()
    row = {outcome: k for k, outcome in enumerate(model.outcomes)}
    for one in model.effects()[0]:
        k, j = row[one.outcome], one.column
        if one.jump:  # added to the variance of the curve, which comes first
            jumps.setdefault(j, []).append(one)
            of_curve = weights[k, j] * deviation[j]
            weights[k, j] = math.hypot(of_curve, one.importance) / deviation[j] if deviation[j] > 0 else 0.0
        elif one.curve:
            curves.setdefault(j, []).append(one)
            weights[k, j] = one.importance / deviation[j] if deviation[j] > 0 else 0.0
        else:
            weights[k, j] = one.effect[0]
    return weights, curves, jumps


def column_effects(facts: ColumnFacts) -> Float64:
    """Return the effect of each source column."""
    sources, k = facts.sources, max(len(facts.weights), 1)
    variance = np.zeros(int(sources.group.max(initial=-1)) + 1)
    for w in facts.weights:
        own = (w * facts.deviation) ** 2
        for start, stop in sources.one_hot:
            part, p = w[start:stop], facts.mean[start:stop]
            own[start:stop] = 0.0
            variance[sources.group[start]] += max(0.0, float((part * part) @ p - (part @ p) ** 2))
        variance += np.bincount(sources.group, own, len(variance))
        for mark, number in sources.marks.items():
            if number in facts.curves:
                continue
            variance[sources.group[mark]] -= 2.0 * w[mark] * w[number] * facts.mean[mark] * facts.mean[number]
    return np.sqrt(np.maximum(variance, 0.0) / k)


def _describe_column(facts: ColumnFacts, g: int, places: Int64) -> JsonObject:
    size = ((facts.weights[:, places] * facts.deviation[places]) ** 2).sum(axis=0)
    chosen = places[np.argsort(-size, kind="stable")][:MAX_VALUES].tolist()
    values = [_describe_value(facts, j) for j in chosen]
    return {
        "name": facts.sources.name_of(g),
        "kind": facts.sources.kind_of(g),
        "of": len(places),
        "missing": _missing_share(facts, places),
        "values": values,
    }


def _describe_value(facts: ColumnFacts, j: int) -> JsonObject:
    """Return the facts about an encoded column. For a category, or an indicator of missing values: its fraction of the
    rows, and the change of f from its average in these rows. For a number: its mean, and the change of f by one standard
    deviation.
    """
    block, name = facts.block_of(j), facts.sources.value_of(j)
    number = facts.sources.marks.get(j)
    w = facts.weights[:MAX_PROBLEMS, j] * facts.sources.sign_of(j)
    if block is not None:
        start, stop = block
        pulls = w - facts.weights[:MAX_PROBLEMS, start:stop] @ facts.mean[start:stop]
    elif number is not None and number in facts.curves:  # rows without a value have 0 in the column of numbers
        at_zero = facts.offsets.get(number, 0.0)
        pulls = w + np.array([np.interp(at_zero, one.x, one.effect) for one in facts.curves[number][:MAX_PROBLEMS]])
        for k, one in enumerate(facts.curves[number][:MAX_PROBLEMS]):
            of_zero = (j for j in facts.jumps.get(number, []) if j.outcome == one.outcome and j.x[0] == at_zero)
            pulls[k] += sum(float(j.effect[0]) for j in of_zero)
    elif number is not None:
        pulls = w - facts.weights[:MAX_PROBLEMS, number] * facts.mean[number]
    else:
        pulls = w * facts.deviation[j]
    return {
        "name": name,
        "place": j,
        "is_share": number is not None or block is not None,
        "mean": float(facts.mean[j]) + facts.offsets.get(j, 0.0),
        "offset": facts.offsets.get(j, 0.0),
        "deviation": float(facts.deviation[j]),
        "weights": [_round(value) for value in w.tolist()],
        "pulls": [_round(value) for value in pulls.tolist()],
        **({"curve": _describe_curve(facts.curves[j], facts.jumps.get(j, []))} if j in facts.curves else {}),
    }


def _describe_curve(curves: list[Effect], jumps: list[Effect]) -> JsonObject:
    """Return the curves of a column in all problems as plain JSON. The effect of a jump includes that of the curve there."""
    of_outcomes = [[j for j in jumps if j.outcome == one.outcome] for one in curves[:MAX_PROBLEMS]]
    return {
        "x": [_round(value) for value in curves[0].x.tolist()],
        "rows": [_round(value) for value in curves[0].rows.tolist()],
        "effects": [[_round(value) for value in one.effect.tolist()] for one in curves[:MAX_PROBLEMS]],
        "outcomes": [one.outcome for one in curves[:MAX_PROBLEMS]],
        "jumps": [_round(float(j.x[0])) for j in of_outcomes[0]],
        "jump_effects": [
            [_round(float(np.interp(j.x[0], one.x, one.effect) + j.effect[0])) for j in own]
            for one, own in zip(curves, of_outcomes, strict=False)
        ],
    }


def _round(value: float) -> float:
    return float(f"{value:.6g}")


def _missing_share(facts: ColumnFacts, places: Int64) -> float | None:
    """Return the fraction of rows without a value, from the indicator column or from the rows without any category; None
    if missing values were filled without an indicator.
    """
    marks = [j for j in places[-1:].tolist() if j in facts.sources.marks]
    if marks:
        return float(facts.mean[marks[0]])
    block = facts.block_of(int(places[0])) if len(places) else None
    if block is None:
        return None
    return max(0.0, 1.0 - float(facts.mean[block[0] : block[1]].sum()))


def compare_columns(recorded: Any, means: Float64, rows: int) -> list[JsonObject]:
    """Return how the means of evaluated rows, (d,), differ from the recorded means of the training rows, the largest
    difference first. Columns whose record cannot be read are left out.

    The difference of a number is the difference of the means in standard deviations of the training rows. The difference
    of a category is half the sum of the differences of the shares of its values, with all unrecorded values as one.
    ``chance`` is the approximate difference for ``rows`` rows drawn from the training rows.
    """
    differences = []
    for one in recorded if isinstance(recorded, list) else []:
        try:
            differences += _compare_column(one, means, rows)
        except (KeyError, TypeError, IndexError, ValueError):
            continue
    return sorted(differences, key=lambda one: -one["difference"])


def _compare_column(one: JsonObject, means: Float64, rows: int) -> list[JsonObject]:
    numbers = [v for v in one["values"] if not v["is_share"]]
    shares = [v for v in one["values"] if v["is_share"] and v["name"] != "missing"]
    evaluated_means = {v["place"]: float(means[v["place"]]) + float(v["offset"]) for v in one["values"]}
    missing = _compare_missing(one, shares, evaluated_means)
    base = {"name": one["name"], "kind": one["kind"], **missing}
    if one["kind"] == NUMBER and len(numbers) == 1 and numbers[0]["deviation"] > 0:
        (v,) = numbers
        far = abs(evaluated_means[v["place"]] - v["mean"]) / v["deviation"]
        change = {"value": "", "trained": v["mean"], "evaluated": evaluated_means[v["place"]]}
        return [base | change | {"difference": far, "chance": 1.0 / math.sqrt(rows)}]
    if not shares:
        return []
    differences = [evaluated_means[v["place"]] - v["mean"] for v in shares]
    rest = 1.0 - min(1.0, sum(v["mean"] for v in shares))
    chance = [math.sqrt(max(p * (1.0 - p), 0.0) / rows) for p in (*(v["mean"] for v in shares), rest)]
    largest = max(range(len(shares)), key=lambda k: abs(differences[k]))
    v = shares[largest]
    change = {"value": v["name"], "trained": v["mean"], "evaluated": evaluated_means[v["place"]]}
    distance = (sum(map(abs, differences)) + abs(sum(differences))) / 2
    return [base | change | {"difference": distance, "chance": 0.4 * sum(chance)}]


def _compare_missing(one: JsonObject, shares: Sequence[JsonObject], evaluated_means: dict[int, float]) -> JsonObject:
    """Return the fractions of rows without a value in the training and in the evaluation; empty if they are unknown."""
    marks = [v for v in one["values"] if v["is_share"] and v["name"] == "missing"]
    if one["missing"] is None:
        return {}
    if marks:
        return {"missing": [one["missing"], evaluated_means[marks[0]["place"]]]}
    if len(shares) == one["of"]:
        return {"missing": [one["missing"], max(0.0, 1.0 - sum(evaluated_means[v["place"]] for v in shares))]}
    return {}


def list_largest_coefficients(model: Model, store: Store) -> list[JsonObject]:
    """Return for each class the columns with the largest effect, |weight| times standard deviation; empty for a kernel.

    A row has the name of the column, its weight in the units of the data, and its standard deviation. Of a model fitted with --certify
    ``intervals`` has the bounds of these weights at the exact optimum.
    """
    if model.expansion is not None:
        return []
    name_of = feature_names(store)
    deviation = np.sqrt(store.statistics().M2 / store.layout.rows)
    bounds = None if model.enclosures is None else model.enclosures.coefficients()
    lists = []
    for k, w in enumerate(model.weights[:MAX_LISTED_CLASSES]):
        count = min(len(deviation), len(w) - 1)
        effect = np.abs(w[:count] * deviation[:count])
        top = np.argsort(-effect, kind="stable")[:MAX_COEFFICIENTS]
        shown = [j for j in top.tolist() if effect[j] > 0]
        rows = [(name_of(j), float(w[j]), float(deviation[j])) for j in shown]
        facts = {"positive": model.outcomes[k], "rows": rows, "intercept": float(w[-1]), "of": len(w) - 1}
        if bounds is not None:
            low, high = bounds
            facts["intervals"] = [(float(low[k, j]), float(high[k, j])) for j in shown]
        lists.append(facts)
    return lists


def feature_names(store: Store) -> Callable[[int], str]:
    """Return the function from the number of a column to its name. For a hashed column, which has no name of its own, it
    returns the name of its source column.
    """
    return name_by_number(store.facts.get("names"), store.facts.get("encoding"), store.layout.columns, "column {}")
