"""Values nobody expects, and plain JSON changed in a place or two."""

from __future__ import annotations

import copy
import random
from typing import Any

NUMBERS = (0, 1, -1, 2, 3, 255, 256, 1 << 31, (1 << 31) - 1, 1 << 53, 1 << 63, 1 << 64, 0.5, -0.0, 1e-300, 1e300, 1e39)
TEXTS = (
    "",
    " ",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "\x00",
    "é",
    "a" * 5000,
    "..",
    "/",
    "%s",
    "{}",
    "\ud800",
    "0x10",
    "1_0",
)
VALUES: tuple[Any, ...] = (None, True, False, *NUMBERS, *TEXTS, [], {}, [[]], [None], {"": None}, float("nan"))


def value(draw: random.Random) -> Any:
    """Any value there can be in JSON, nested deeply now and then."""
    if draw.random() < 0.02:
        found: Any = 1
        for _ in range(draw.choice((10, 400))):
            found = [found]
        return found
    return copy.deepcopy(draw.choice(VALUES))


def changed(plain: Any, draw: random.Random) -> Any:
    """A copy with one place changed: replaced, removed, doubled, moved by one, exchanged with its neighbor."""
    found = [copy.deepcopy(plain)]
    places = list(_places(found))
    holder, key = draw.choice(places[1:] or places)
    old, way = holder[key], draw.randrange(6)
    if way == 0 and holder is not found:
        del holder[key]
    elif way == 1 and isinstance(old, int | float):
        holder[key] = old + draw.choice((-1, 1))
    elif way == 2 and isinstance(holder, list) and holder is not found:
        holder.insert(key, copy.deepcopy(old))
    elif way == 3 and isinstance(holder, list) and len(holder) > 1:
        other = draw.randrange(len(holder))
        holder[key], holder[other] = holder[other], holder[key]
    elif way == 4 and isinstance(old, str) and old:
        at = draw.randrange(len(old))
        holder[key] = old[:at] + draw.choice(("", "\x00", "9", "a", "é")) + old[at + 1 :]
    else:
        holder[key] = value(draw)
    return found[0]


def _places(holder: Any) -> Any:
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        yield holder, key
        if isinstance(holder[key], dict | list):
            yield from _places(holder[key])
