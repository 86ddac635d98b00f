"""Where a transcript is not the one that was recorded.

Other processors sum in another order: numbers are compared as far as they agree there, what is counted exactly, but for steps on
the way of a solver and rows that lie between two bars of a histogram.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")
NEAR = 1e-3
"""Of a number, of the largest of a list, and of what a gap is a share of."""
ROUGH = 1e-2
"""Of what a histogram reaches over, in bars of another one."""
GAPS = {"gap", "simplex", "simplex_gap", "seen_gap"}
SMALL = 1e-2
"""A number of a text is compared as if it were so large."""
STEPS, SHARE, MOVED = 2, 0.3, 2
"""Steps by which solvers may differ, or the share of them and of bounds on rounding; rows that may be in the next bar."""


def differences(found: Any, wanted: Any, where: tuple[str, ...] = ()) -> Iterator[str]:
    """A line for each difference."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for name in sorted({*found, *wanted}):
            if name not in found or name not in wanted:
                yield f"{'/'.join(where)}/{name}: only {'recorded' if name in wanted else 'found'}"
            else:
                yield from differences(found[name], wanted[name], (*where, name))
    elif _numbers(wanted) and _numbers(found) and len(found) == len(wanted):
        scale = max(map(abs, wanted))
        if not all(_alike(one, other, where, scale) for one, other in zip(found, wanted, strict=True)):
            yield f"{'/'.join(where)}: {found!r}, recorded was {wanted!r}"
    elif isinstance(wanted, list) and isinstance(found, list) and len(found) == len(wanted):
        for k, (one, other) in enumerate(zip(found, wanted, strict=True)):
            yield from differences(one, other, (*where, str(k)))
    elif not _alike(found, wanted, where):
        yield f"{'/'.join(where)}: {found!r}, recorded was {wanted!r}"


def _numbers(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, float) for value in values)


def _alike(found: Any, wanted: Any, where: tuple[str, ...], scale: float = 0.0) -> bool:
    if isinstance(wanted, str) and isinstance(found, str):
        return _same_text(found, wanted)
    if type(found) is not type(wanted) or isinstance(wanted, bool) or found == wanted:
        return bool(found == wanted)
    if isinstance(wanted, float):
        near = ROUGH if where[-1] == "range" else SHARE if {"rounding", "facts"} & set(where) else NEAR
        return abs(found - wanted) <= near * max(abs(wanted), scale, float(bool(GAPS & set(where[-2:]))))
    if isinstance(wanted, int):
        apart = abs(found - wanted)
        return ("facts" in where and apart <= max(STEPS, SHARE * wanted)) or ("counts" in where and apart <= MOVED)
    return False


def _same_text(found: str, wanted: str) -> bool:
    """The same words, and whole numbers; other numbers as far as they agree."""
    if NUMBER.sub("#", found) != NUMBER.sub("#", wanted):
        return False
    pairs = zip(NUMBER.findall(found), NUMBER.findall(wanted), strict=True)
    return all(one == other or _same_digits(one, other) for one, other in pairs)


def _same_digits(found: str, wanted: str) -> bool:
    fraction = "." in wanted or "e" in wanted
    return fraction and abs(float(found) - float(wanted)) <= NEAR * max(abs(float(wanted)), SMALL)
