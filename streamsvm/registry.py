"""Registries: tables from the names of choices to classes, which are imported when they are first used."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from streamsvm.errors import UsageError


class Registry(Mapping[str, Any]):
    """The choices for an option, by name: solvers, losses, kernels, formats. The values are imported on access.

    ``kind``: what is chosen, for messages. ``entries``: "module:attribute" by name.
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
    """Import and return the attribute "module:name"."""
    module, _, name = target.partition(":")
    if hasattr(sys.modules.get(module), name):
        return getattr(sys.modules[module], name)
    with no_collection():
        return getattr(import_module(module), name)


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable garbage collection while modules are imported: an import creates hundreds of thousands of objects, and none is garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return '; did you mean ...?' with the known name most similar to ``name``; empty if none is similar."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""
