"""Crosses: columns whose values are those of several columns together, made as a table is read."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.store.sources.table.cells import Arrow, by_value

BETWEEN = " x "
"""What stands between two values."""


def with_crosses(table: pa.RecordBatch, crosses: Mapping[str, tuple[str, ...]]) -> pa.RecordBatch:
    """Return the table with a column more for each cross whose columns are there; null where a part has no value."""
    for name, parts in crosses.items():
        if name not in table.schema.names and set(parts) <= set(table.schema.names):
            joined = pc.binary_join_element_wise(*(_texts(table.column(part)) for part in parts), BETWEEN)
            table = table.append_column(name, joined.dictionary_encode())
    return table


def _texts(values: Arrow) -> Arrow:
    if pa.types.is_dictionary(values.type):
        return by_value(values.dictionary).take(values.indices)
    return by_value(values)
