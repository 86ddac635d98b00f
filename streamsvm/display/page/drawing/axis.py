"""Axes: where a value lies, and which ticks tell so in the fewest strokes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
"""What a tick may be a multiple of, times a power of ten."""
CLOCK = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
"""The same of seconds."""
FAR = 20.0
"""Lengths of an axis: values further out are drawn there, where nobody sees them."""
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Tick(NamedTuple):
    """A place on an axis, and what stands there."""

    value: float
    """The value."""
    text: str
    """How it is written."""


class Axis(NamedTuple):
    """A range of values, and the places of its ends in the drawing."""

    low: float
    """The value at ``start``."""
    high: float
    """The value at ``stop``."""
    start: float
    """The coordinate of ``low``."""
    stop: float
    """The coordinate of ``high``."""
    ticks: tuple[Tick, ...]
    """The ticks, rising."""
    unit: str = ""
    """The unit of the ticks, for the title of the axis."""
    log: bool = False
    """Whether equal distances are equal ratios."""

    def at(self, value: float) -> float:
        """Return the coordinate of a value; one far beyond the ends lies beyond them, but not that far."""
        low, high, value = (self._measure(x) for x in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(max(share, -FAR), FAR) * (self.stop - self.start)

    def _measure(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log else value


def finite(values: Iterable[float | None]) -> list[float]:
    """Return those of the values that are numbers."""
    return [value for value in values if value is not None and math.isfinite(value)]


def linear(
    low: float, high: float, place: tuple[float, float], count: int = 5, text: Callable[[float], str] | None = None
) -> Axis:
    """Return an axis from ``low`` to ``high``, with some ``count`` ticks."""
    high = high if high > low else low + (abs(low) or 1.0)
    step = _step((high - low) / count)
    values = _multiples(low, high, step)
    shown = text or (lambda value: number(value, step))
    return Axis(low, high, *place, tuple(Tick(v, shown(v)) for v in values))


def logarithmic(low: float, high: float, place: tuple[float, float], count: int = 6, *, powers: bool = True) -> Axis:
    """Return an axis with ticks at powers of ten; with ``powers`` it also begins and ends at such."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    every = max(1, -(-(last - first) // count))
    ends = (10.0**first, 10.0**last) if powers else (low, high)
    shown = [p for p in range(first, last + 1) if (p - last) % every == 0 and ends[0] <= 10.0**p <= ends[1]]
    ticks = tuple(Tick(10.0**p, f"10{str(p).translate(SUPERSCRIPT)}") for p in shown)
    return Axis(*ends, *place, ticks, log=True)


def durations(high: float, place: tuple[float, float], count: int = 5) -> Axis:
    """Return an axis of seconds from 0, in the unit that suits them."""
    high = high if high > 0 else 1.0
    step = _step(high / count)
    if high >= 10:
        step = float(next((s for s in CLOCK if s >= high / count), 86400 * math.ceil(high / count / 86400)))
    scale, unit = next((s, u) for s, u in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")) if high >= 2 * s or s == 1)
    values = _multiples(0.0, high, step)
    return Axis(0.0, high, *place, tuple(Tick(v, number(v / scale, step / scale)) for v in values), unit)


def sizes(high: float, place: tuple[float, float], count: int = 4) -> Axis:
    """Return an axis of bytes from 0, in KiB, MiB or GiB."""
    scale, unit = next((1 << k, u) for k, u in ((30, "GiB"), (20, "MiB"), (10, "KiB")) if high >= 2 << k or k == 10)
    step = _step(max(high, 1.0) / scale / count)
    values = _multiples(0.0, high / scale, step)
    return Axis(0.0, max(high, 1.0), *place, tuple(Tick(v * scale, number(v, step)) for v in values), unit)


def whole(high: int, place: tuple[float, float], count: int = 6) -> Axis:
    """Return an axis of whole numbers from 0."""
    step = max(1.0, _step(max(high, 1) / count))
    step = 5.0 if step == 2.5 else step
    return Axis(0.0, float(max(high, 1)), *place, tuple(Tick(v, number(v, step)) for v in _multiples(0.0, high, step)))


def _step(least: float) -> float:
    """The smallest round number that is not less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(s * power for s in STEPS if s * power >= least * (1 - 1e-9))


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def grouped(count: int) -> str:
    """Return a whole number, thousands apart."""
    return f"{count:,}".replace(",", "\u202f")


def number(value: float, step: float) -> str:
    """Return a number with the decimals its neighbors ``step`` away need; thousands apart, large ones as k, M, G."""
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if step >= scale / 10 and abs(value) + step >= 10 * scale / 10:
            return f"{_plain(value / scale, step / scale)}{unit if value else ''}"
    return _plain(value, step)


def _plain(value: float, step: float) -> str:
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    if step > 0 and not math.isclose(step * 10**decimals, round(step * 10**decimals)):
        decimals += 1
    text = f"{value:,.{min(decimals, 9)}f}" if decimals < 7 else f"{value:.3g}"
    return "0" if float(text.replace(",", "")) == 0 else text.replace("-", "−").replace(",", "\u202f")
