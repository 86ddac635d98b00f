"""Tables of names: a name stands for "module:attribute", imported when it is first asked for."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
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
            raise UsageError(
                f"no {self.kind} is called '{name}'{did_you_mean(name, self)}", hint=f"choose from {', '.join(self)}"
            )
        return load(self._entries[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def load(target: str) -> Any:
    """The attribute that "module:name" stands for."""
    module, _, name = target.partition(":")
    with no_collection():
        return getattr(import_module(module), name)  # a table of names is what this is


@contextmanager
def no_collection() -> Iterator[None]:
    """Look for no garbage while modules are loaded: they make hundreds of thousands of objects, and all of them stay."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name there is not: '; did you mean ...?' with the nearest, if one is near."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""
