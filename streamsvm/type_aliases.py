"""Type aliases used in the whole package; each says what an ``Any`` stands for.

The module imports nothing heavy: numpy is imported for type checkers only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"
"""A numpy array of any dtype, such as the content of a file."""

DType: TypeAlias = "np.dtype[Any]"
"""A numpy dtype that is known only at run time."""

BytesLike: TypeAlias = Any
"""A buffer to read or write: bytes, a memoryview or an array.

No type covers these: numpy declares arrays as buffers only from Python 3.12 on.
"""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object. Its values are None, bool, int, float, str, and lists and objects of these.

With a recursive type, every use of ``facts["rows"]`` would have to test for six types although the writer allows one. Objects from files
are checked where they are read.
"""

JsonMapping: TypeAlias = Mapping[str, Any]
"""A JSON object that is not changed."""

RowRecord: TypeAlias = Any
"""Rows as compiled passes take them: ``Dense``, ``CSR`` or the factored rows of ``compute.blocks.operators``.

A pass is compiled for each of these types that it is called with, so that it has no static type.
"""

Handle: TypeAlias = Any
"""An opaque object: only the implementation that created it uses its content, others keep it and pass it back.

Examples are the buffers of a store and the progress of its writer, whose types depend on the format of the store.
"""

ValuesByName: TypeAlias = dict[str, Any]
"""Values by the name of a field, option or argument, which determines the type of the value."""
