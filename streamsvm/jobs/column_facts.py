"""What the record of a run says of the columns of a table: what each is worth to the model, what is in it, and how evaluated rows differ.

Columns of rows are summed into the columns of the table that they were made of (``group_columns``). The effect of one is the standard
deviation, over the rows, of what it adds to f(x); of several problems the root of the mean of its square:

    Var(sum_j w_j x_j) = sum_j w_j^2 p_j - (sum_j w_j p_j)^2   for one-hot columns, of which row shares p_j are 1,
                         sum_j w_j^2 Var(x_j)                   for others, as if they were independent,

and for a number x that is 0 where its mark m says that it is missing, less 2 w_x w_m E x E m.

All is computed from the statistics of the store and recorded for few columns: the size of a record does not depend on the data.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from streamsvm.aliases import JsonObject
from streamsvm.jobs.apply.column_names import SourceColumns, group_columns
from streamsvm.model import Model
from streamsvm.rows import Float64, Int64
from streamsvm.types import Store

MAX_COLUMNS, MAX_VALUES, MAX_PROBLEMS = 30, 16, 10
"""At most so many columns of a table, values of one, and problems of a model are recorded."""
NUMBER = "number"


class ColumnFacts(NamedTuple):
    """What is known of the columns of rows."""

    sources: SourceColumns
    weights: Float64
    """Of the problems, (k, d); (0, d) for a kernel model."""
    mean: Float64
    """(d,), without offsets."""
    deviation: Float64
    """(d,)"""
    offsets: dict[int, float]
    """What is subtracted from columns, by number."""

    def block_of(self, j: int) -> tuple[int, int] | None:
        """Return the one-hot columns [start, stop) that a column is one of, or None."""
        place = bisect_right(self.sources.one_hot, (j, math.inf)) - 1
        if place < 0:
            return None
        start, stop = self.sources.one_hot[place]
        return (start, stop) if j < stop else None


def describe_columns(model: Model, store: Store) -> list[JsonObject]:
    """Return the columns of the table that have the largest effect, with their values; of a kernel model, which has no
    effects of columns, the first ones.

    ``share`` is a column's part of the sum of all effects.
    """
    d, statistics = store.layout.columns, store.statistics()
    is_linear = model.expansion is None and model.weights.shape[1] == d + 1
    facts = ColumnFacts(
        group_columns(store.facts.get("names"), store.facts.get("encoding"), d),
        model.weights[:, :d] if is_linear else np.empty((0, d)),
        statistics.mean,
        np.sqrt(statistics.M2 / store.layout.rows),
        model.offsets,
    )
    effects = column_effects(facts)
    total = float(effects.sum())
    group = facts.sources.group
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(len(effects) + 1))
    found = []
    for g in np.argsort(-effects, kind="stable")[:MAX_COLUMNS].tolist():
        places = order[starts[g] : starts[g + 1]]
        one = _describe_column(facts, g, places)
        found.append(one | {"share": float(effects[g]) / total if total > 0 else None})
    return found


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
    """Return a column of rows: of a value of a category, or a missing number, its share of the rows and how far it moves f
    from the average; of a number its mean, and how far one standard deviation moves f.
    """
    block, name = facts.block_of(j), facts.sources.value_of(j)
    number = facts.sources.marks.get(j)
    w = facts.weights[:MAX_PROBLEMS, j]
    if block is not None:
        start, stop = block
        pulls = w - facts.weights[:MAX_PROBLEMS, start:stop] @ facts.mean[start:stop]
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
    }


def _round(value: float) -> float:
    return float(f"{value:.6g}")


def _missing_share(facts: ColumnFacts, places: Int64) -> float | None:
    """Return the share of rows without a value: that of the mark, or of rows that have none of the values of a category;
    None where it was filled in without a mark.
    """
    marks = [j for j in places[-1:].tolist() if j in facts.sources.marks]
    if marks:
        return float(facts.mean[marks[0]])
    block = facts.block_of(int(places[0])) if len(places) else None
    if block is None:
        return None
    return max(0.0, 1.0 - float(facts.mean[block[0] : block[1]].sum()))


def compare_columns(recorded: Any, means: Float64, rows: int) -> list[JsonObject]:
    """Return how the means of evaluated rows, (d,), differ from what was recorded of the training, the largest difference
    first; nothing of columns that were recorded in another way.

    The difference of a number is that of the means in standard deviations of the training rows; of a category it is
    half the sum of the differences of the shares of its values, the rest taken together. ``chance`` is what ``rows`` rows drawn
    from the training rows would differ by, about.
    """
    found = []
    for one in recorded if isinstance(recorded, list) else []:
        try:
            found += _compare_column(one, means, rows)
        except (KeyError, TypeError, IndexError, ValueError):
            continue
    return sorted(found, key=lambda one: -one["difference"])


def _compare_column(one: JsonObject, means: Float64, rows: int) -> list[JsonObject]:
    numbers = [v for v in one["values"] if not v["is_share"]]
    shares = [v for v in one["values"] if v["is_share"] and v["name"] != "missing"]
    seen = {v["place"]: float(means[v["place"]]) + float(v["offset"]) for v in one["values"]}
    missing = _compare_missing(one, shares, seen)
    base = {"name": one["name"], "kind": one["kind"], **missing}
    if one["kind"] == NUMBER and len(numbers) == 1 and numbers[0]["deviation"] > 0:
        (v,) = numbers
        far = abs(seen[v["place"]] - v["mean"]) / v["deviation"]
        change = {"value": "", "trained": v["mean"], "evaluated": seen[v["place"]]}
        return [base | change | {"difference": far, "chance": 1.0 / math.sqrt(rows)}]
    if not shares:
        return []
    apart = [seen[v["place"]] - v["mean"] for v in shares]
    rest = 1.0 - min(1.0, sum(v["mean"] for v in shares))
    chance = [math.sqrt(max(p * (1.0 - p), 0.0) / rows) for p in (*(v["mean"] for v in shares), rest)]
    most = max(range(len(shares)), key=lambda k: abs(apart[k]))
    v = shares[most]
    change = {"value": v["name"], "trained": v["mean"], "evaluated": seen[v["place"]]}
    far = (sum(map(abs, apart)) + abs(sum(apart))) / 2
    return [base | change | {"difference": far, "chance": 0.4 * sum(chance)}]


def _compare_missing(one: JsonObject, shares: Sequence[JsonObject], seen: dict[int, float]) -> JsonObject:
    """Return the share of rows without a value in the training and now; nothing where it is not known."""
    marks = [v for v in one["values"] if v["is_share"] and v["name"] == "missing"]
    if one["missing"] is None:
        return {}
    if marks:
        return {"missing": [one["missing"], seen[marks[0]["place"]]]}
    if len(shares) == one["of"]:
        return {"missing": [one["missing"], max(0.0, 1.0 - sum(seen[v["place"]] for v in shares))]}
    return {}
