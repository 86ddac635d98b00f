"""Tags of classes whose instances are saved in checkpoints.

A checkpoint names a class by its tag and not by its module, so that a class can be renamed or moved. If the meaning of a class changes, it
needs a new tag.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K", bound=type)

_CLASSES: dict[str, type] = {}
_TAGS: dict[type, str] = {}


def saved_as(tag: str) -> Callable[[K], K]:
    """Class decorator: save instances of this dataclass or named tuple in checkpoints under ``tag``.

    Raises ValueError if another class has this tag.
    """

    def register(kind: K) -> K:
        if tag in _CLASSES:
            raise ValueError(f"the tag '{tag}' belongs to {_CLASSES[tag].__qualname__}")
        _CLASSES[tag], _TAGS[kind] = kind, tag
        return kind

    return register


def class_of(tag: str) -> type:
    """Return the class with this tag. Raises KeyError if no imported module declares it."""
    return _CLASSES[tag]


def tag_of(kind: type) -> str | None:
    """Return the tag of a class; None if its instances cannot be saved in checkpoints."""
    return _TAGS.get(kind)
