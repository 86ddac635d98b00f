"""The names of columns, from what is recorded of a store. Every fit asks for them: nothing here loads what reads
tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamsvm.aliases import JsonMapping
from streamsvm.model import Model


def names_of(model: Model) -> tuple[str, ...]:
    """Return the names of the model's columns, (d,); their numbers where they have none.

    Hashed columns are called by what is hashed to them and their number among those.
    """
    name_of = name_by_number(model.names, model.provenance.get("encoding"), model.columns, "{}")
    return tuple(map(name_of, range(model.columns)))


def name_by_number(
    names: Sequence[str] | None, encoding: JsonMapping | None, columns: int, otherwise: str
) -> Callable[[int], str]:
    """Return what tells the name of a column by its number, from what is recorded of a store; ``otherwise`` formats
    the number.
    """
    if names:
        return lambda j: str(names[j])
    from streamsvm.store.sources.schema import schema_from

    recorded = (encoding or {}).get("schema")
    schema = schema_from({**recorded, "documents": {}}) if recorded else None
    if schema is None:
        return otherwise.format
    marked = ((encoding or {}).get("missing") or {}).get("indicators", ())
    if schema.width + len(marked) != columns:
        return otherwise.format
    return lambda j: (
        schema.feature_name(j) if j < schema.width else f"{schema.feature_name(marked[j - schema.width])} missing"
    )
