"""Settings of solvers, losses and kernels, given by name: made into values that are known to be right."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec

from streamsvm.errors import UsageError


def build(kind: Any, options: dict[str, Any], what: str) -> Any:
    """Make a settings value from options given by name. Raises UsageError naming what there is."""
    record = hasattr(kind, "_fields")
    known = list(kind._fields) if record else [f.name for f in fields(kind)]
    for name in options:
        if name not in known:
            raise UsageError(f"{what} has no setting '{name}'", hint=f"it has: {', '.join(known) or 'none'}")
    try:
        if record:  # records hold floats only; one of ints would be another type to the compiler
            return kind(**msgspec.convert(options, dict[str, float], strict=False))
        return msgspec.convert(options, kind, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{what}: {error}", hint="see 'streamsvm fit --help'") from error
