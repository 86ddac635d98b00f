"""Tables of names: a name stands for "module:attribute", imported when it is first asked for."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

from streamsvm.errors import UsageError


class Registry(Mapping[str, Any]):
    """A table of what can be chosen by name. The command line, the configuration and the contract tests read these
    tables.
    """

    def __init__(self, kind: str, entries: dict[str, str]) -> None:
        self.kind = kind
        self._entries = entries

    def __getitem__(self, name: str) -> Any:
        if name not in self._entries:
            near = difflib.get_close_matches(name, self._entries, n=1)
            did_you_mean = f"; did you mean '{near[0]}'?" if near else ""
            raise UsageError(f"no {self.kind} is called '{name}'{did_you_mean}", hint=f"choose from {', '.join(self)}")
        module, _, attribute = self._entries[name].partition(":")
        return getattr(import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def build(kind: Any, options: dict[str, Any], what: str) -> Any:
    """Make a settings value from options given by name. Raises UsageError, which names the settings there are."""
    import msgspec

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
