"""How much memory the columns of a table take before any row is stored, and a refusal where there is not so much."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from streamsvm.config.units import mib
from streamsvm.errors import BudgetError

COLUMN_BYTES = 8000
"""Bytes of memory for each column of a table beside its name: types, what is recorded of it, a block of its values
(measured with CSV of 20,000 and 50,000 columns: 4,000 to 7,800, as the allocator has it)."""

NAME_COPIES = 40
"""Bytes for each character of a name: in the header, a block, as text of several objects, in the manifest as written."""


class TableWidth(NamedTuple):
    """The columns of a file, and the bytes that knowing and reading them takes."""

    name: str
    """The file."""
    columns: int
    """How many columns it has."""
    nbytes: int
    """Bytes."""

    def refusal(self, left: int, enough: int) -> BudgetError:
        """Return the error for the bytes that are ``left``; ``enough`` is a limit that would do for the whole job."""
        return BudgetError(
            f"{self.name} has {self.columns} columns: about {self.nbytes >> 20}MiB are needed for them, {left >> 20}MiB are left",
            hint=f"use --memory {mib(enough, up=True)}, or store the table as npy, HDF5 or svmlight",
        )


NO_TABLE = TableWidth("", 0, 0)


def width_bytes(columns: Collection[str]) -> int:
    """Return the bytes that knowing columns of these names takes."""
    return len(columns) * COLUMN_BYTES + NAME_COPIES * sum(map(len, columns))


def check_width(
    name: str, columns: Collection[str], memory_limit: int | None, reading: int = 0, where: str = ""
) -> None:
    """Raise BudgetError for a table with more columns, of these names, than there is memory to know them and to read them,
    which takes so many bytes; ``where`` says what that is of.
    """
    needed = width_bytes(columns) + reading
    if memory_limit is not None and needed > memory_limit:
        found = f"{name} has {len(columns)} columns{where}: about {needed >> 20}MiB are needed for them"
        smaller = ", write it with smaller row groups" if where else ""
        raise BudgetError(
            f"{found}, {memory_limit >> 20}MiB are left",
            hint=f"give {(needed - memory_limit >> 20) + 1}MiB more with --memory{smaller}, or store the table as npy, HDF5 or svmlight",
        )
