"""Names for types that occur on every floor, so that each ``Any`` of the package is one of a few kinds that have a name.

The module imports nothing heavy: numpy is named for type checkers only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"
"""An array whose element type is known only when the program runs: what a file holds, or any number type."""

DType: TypeAlias = "np.dtype[Any]"
"""A numpy element type that is known only when the program runs."""

BytesLike: TypeAlias = Any
"""What the system reads and writes as it lies in memory: bytes, a memoryview or an array.

Of arrays numpy says from Python 3.12 on only that they are buffers.
"""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object. Its values are None, bool, int, float, str, and lists and objects of these.

A recursive type would ask every reader of ``facts["rows"]`` to test for six types of which the writer allows one; what
comes from a file is checked where it is read.
"""

JsonMapping: TypeAlias = Mapping[str, Any]
"""A JSON object that is only read."""

RowRecord: TypeAlias = Any
"""Rows as compiled passes take them: ``Dense``, ``CSR`` or the factored pair of ``compute.blocks.operators``.

A pass is compiled once for each record it meets, and has no type that a checker could know before.
"""

Handle: TypeAlias = Any
"""An object that only its maker looks into: everybody else keeps it and hands it back to the same maker.

The buffers of a store, what a store's writer notes of its progress: each implementation has a type of its own.
"""

ByName: TypeAlias = dict[str, Any]
"""Values of different types by the name of the field, option or argument they are for; that field's type is theirs."""
