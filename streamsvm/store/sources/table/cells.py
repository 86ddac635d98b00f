"""Cells of a table as numbers: what stands in a column may be written as text."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.errors import DataError, quote


class BadCell(Exception):
    """A value that cannot be a feature: the row within the batch, the column, code and text of the error."""

    def __init__(self, row: int, column: str, code: str, text: str, hint: str) -> None:
        super().__init__(text)
        self.row, self.column, self.code, self.text, self.hint = row, column, code, text, hint

    def error(self, where: str, rows_before: int) -> DataError:
        """Return the error as the user sees it; rows are counted from 1."""
        place = f"{where} row {rows_before + self.row + 1}, column {quote(self.column)}"
        return DataError(f"{place}: {self.text}", code=self.code, hint=self.hint)


def numbers(values: Any, name: str) -> Any:
    """Return decimals, booleans and numbers that are written as text as float64. Raises BadCell."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = pc.utf8_trim_whitespace(values)
    try:
        return values.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        row, found = first_failing(values, float)
        text = f"expected a number, found {quote(found)}"
        raise BadCell(row, name, "E-PARSE", text, "give the column the kind it had in training") from error


def first_failing(values: Any, read: Any) -> tuple[int, Any]:
    """Return row and text of the first value that ``read`` raises ValueError or TypeError for."""
    for row, value in enumerate(values.to_pylist()):
        try:
            read(value) if value is not None else None
        except (ValueError, TypeError):
            return row, value
    return 0, values[0].as_py()
