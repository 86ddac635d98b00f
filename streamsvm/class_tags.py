"""Tags of the classes that checkpoints hold.

A checkpoint names a class by its tag and never by the module that defines it, so that a class can be renamed or moved. Give a
class that means something else a new tag.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K", bound=type)

_CLASSES: dict[str, type] = {}
_TAGS: dict[type, str] = {}


def saved_as(tag: str) -> Callable[[K], K]:
    """A class decorator: instances of this dataclass or named tuple are saved in checkpoints under ``tag``.

    Raises ValueError when another class has the tag.
    """

    def register(kind: K) -> K:
        if tag in _CLASSES:
            raise ValueError(f"the tag '{tag}' belongs to {_CLASSES[tag].__qualname__}")
        _CLASSES[tag], _TAGS[kind] = kind, tag
        return kind

    return register


def class_of(tag: str) -> type:
    """Return the class saved under ``tag``. Raises KeyError for one that no loaded module has declared."""
    return _CLASSES[tag]


def tag_of(kind: type) -> str | None:
    """The tag a class is saved under; None for one that a checkpoint cannot hold."""
    return _TAGS.get(kind)
