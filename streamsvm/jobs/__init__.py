"""What every job has in common: what it answers with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from streamsvm.aliases import JsonObject
from streamsvm.config.options import field_values
from streamsvm.errors import StreamSVMError

PLAIN = (str, int, float, list, tuple, Mapping, type(None))
"""Types of values that can be written as JSON."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job answers with: each job adds fields of its own."""

    notices: tuple[str, ...] = field(default=(), kw_only=True)
    """What is worth knowing of the data and of what was done, as lines of text."""
    warnings: tuple[str, ...] = field(default=(), kw_only=True)
    """What a user has to know before the outputs are used, as lines of text."""
    failure: StreamSVMError | None = field(default=None, kw_only=True)
    """What the command ends with although its outputs are complete; a program that calls the job reads it here."""

    def facts(self) -> JsonObject:
        """Return the result as JSON values: those of its fields that are plain, paths as text."""
        found = field_values(self, (item.name for item in fields(self))).items()
        written = {name: str(value) if isinstance(value, Path) else value for name, value in found}
        return {name: value for name, value in written.items() if isinstance(value, PLAIN) and name != "failure"}
