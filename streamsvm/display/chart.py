"""Charts with two axes, as inline SVG.

Colors are style classes, for which the page has light and dark values. A chart is 440 units wide, about the number of pixels of half a page
or of a phone, so that its text has the size of the surrounding text on both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from streamsvm.display.html import Markup, element, join

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
"""Distances between ticks, to be multiplied by a power of ten."""
TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
"""Distances between ticks of a time axis, in seconds."""
CLIP_LENGTHS = 20.0
"""Values outside of the axis by more than this multiple of its length are clipped, which cannot be seen."""
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Tick(NamedTuple):
    """A tick on an axis."""

    value: float
    text: str


class Axis(NamedTuple):
    """A range of values, and the coordinates of its ends in the drawing."""

    low: float
    """The value at ``start``."""
    high: float
    """The value at ``stop``."""
    start: float
    """The coordinate of ``low``."""
    stop: float
    """The coordinate of ``high``."""
    ticks: tuple[Tick, ...]
    """The ticks, ascending."""
    unit: str = ""
    """The unit of the ticks, for the title of the axis."""
    log: bool = False
    """Whether the scale is logarithmic."""

    def locate(self, value: float) -> float:
        """Return the coordinate of a value, clipped at ``CLIP_LENGTHS``."""
        low, high, value = (self._measure(x) for x in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(max(share, -CLIP_LENGTHS), CLIP_LENGTHS) * (self.stop - self.start)

    def _measure(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log else value


def keep_finite(values: Iterable[float | None]) -> list[float]:
    """Return the values that are finite numbers."""
    return [value for value in values if value is not None and math.isfinite(value)]


def linear_axis(
    low: float, high: float, place: tuple[float, float], count: int = 5, text: Callable[[float], str] | None = None
) -> Axis:
    """Return an axis from ``low`` to ``high`` with about ``count`` ticks. ``place``: the coordinates of its ends."""
    high = high if high > low else low + (abs(low) or 1.0)
    step = _round_step((high - low) / count)
    values = _multiples(low, high, step)
    format_value = text or (lambda value: format_tick(value, step))
    return Axis(low, high, *place, tuple(Tick(v, format_value(v)) for v in values))


def share_axis(place: tuple[float, float]) -> Axis:
    """Return an axis from 0 to 1 with ticks in percent."""
    return linear_axis(0.0, 1.0, place, text=lambda value: f"{100 * value:.0f}")


def log_axis(low: float, high: float, place: tuple[float, float], count: int = 6, *, powers: bool = True) -> Axis:
    """Return a logarithmic axis with ticks at powers of ten; with ``powers``, its ends are powers of ten, too."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    every = max(1, -(-(last - first) // count))
    ends = (10.0**first, 10.0**last) if powers else (low, high)
    exponents = [p for p in range(first, last + 1) if (p - last) % every == 0 and ends[0] <= 10.0**p <= ends[1]]
    ticks = tuple(Tick(10.0**p, f"10{str(p).translate(SUPERSCRIPT)}") for p in exponents)
    return Axis(*ends, *place, ticks, log=True)


def time_axis(high: float, place: tuple[float, float], count: int = 5) -> Axis:
    """Return an axis of seconds from 0, with ticks in a suitable unit."""
    high = high if high > 0 else 1.0
    step = _round_step(high / count)
    if high >= 10:
        step = float(next((s for s in TIME_STEPS if s >= high / count), 86400 * math.ceil(high / count / 86400)))
    scale, unit = next((s, u) for s, u in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")) if high >= 2 * s or s == 1)
    values = _multiples(0.0, high, step)
    return Axis(0.0, high, *place, tuple(Tick(v, format_tick(v / scale, step / scale)) for v in values), unit)


def size_axis(high: float, place: tuple[float, float], count: int = 4) -> Axis:
    """Return an axis of bytes from 0, with ticks in KiB, MiB or GiB."""
    scale, unit = next((1 << k, u) for k, u in ((30, "GiB"), (20, "MiB"), (10, "KiB")) if high >= 2 << k or k == 10)
    step = _round_step(max(high, 1.0) / scale / count)
    values = _multiples(0.0, high / scale, step)
    return Axis(0.0, max(high, 1.0), *place, tuple(Tick(v * scale, format_tick(v, step)) for v in values), unit)


def count_axis(high: int, place: tuple[float, float], count: int = 6) -> Axis:
    """Return an axis of whole numbers from 0."""
    step = max(1.0, _round_step(max(high, 1) / count))
    step = 5.0 if step == 2.5 else step
    return Axis(
        0.0, float(max(high, 1)), *place, tuple(Tick(v, format_tick(v, step)) for v in _multiples(0.0, high, step))
    )


def _round_step(least: float) -> float:
    """Return the smallest round number that is at least ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(s * power for s in STEPS if s * power >= least * (1 - 1e-9))


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def group_digits(count: int) -> str:
    """Format a whole number with a thin space between thousands."""
    return f"{count:,}".replace(",", "\u202f")


def format_number(value: float, form: str = ".4g") -> str:
    """Format a number with a format specification of Python and a typographic minus sign."""
    return format(value, form).replace("-", "−")


def format_tick(value: float, step: float) -> str:
    """Format a tick with the decimals that a distance of ``step`` requires; large numbers are in k, M or G."""
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if step >= scale / 10 and abs(value) + step >= 10 * scale / 10:
            return f"{_format_plain(value / scale, step / scale)}{unit if value else ''}"
    return _format_plain(value, step)


def _format_plain(value: float, step: float) -> str:
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    if step > 0 and not math.isclose(step * 10**decimals, round(step * 10**decimals)):
        decimals += 1
    text = f"{value:,.{min(decimals, 9)}f}" if decimals < 7 else f"{value:.3g}"
    return "0" if float(text.replace(",", "")) == 0 else text.replace("-", "−").replace(",", "\u202f")


WIDTH, HEIGHT = 440, 270
LEFT, RIGHT, TOP, BOTTOM = 54.0, 426.0, 30.0, 228.0
ACROSS, UPWARDS = (LEFT, RIGHT), (BOTTOM, TOP)
"""Coordinates of the ends of the x axis and of the y axis, which count from the top."""
SERIES = 6
"""Number of colors for classes or runs, which color-blind readers can distinguish; a chart has at most this many series."""
Points: TypeAlias = Iterable[tuple[float, float]]


class Chart:
    """A chart under construction; later elements are drawn above earlier ones."""

    def __init__(self, title: str, says: str, x: Axis, y: Axis, labels: tuple[str, str]) -> None:
        self.title, self._says, self._x, self._y, self._labels = title, says, x, y, labels
        self._marks: list[Markup] = []
        self._notes: list[Markup] = []
        self._legend: list[Markup] = []

    def line(self, points: Points, series: int, name: str = "", *, dots: bool = False, kind: str = "line") -> None:
        """Draw a line through points in the order of x, with ``dots`` at the points."""
        places = self._places(points)
        self._marks.append(element("path", class_=f"{kind} s{series}", d=_path_data(places)))
        if dots:
            self._marks += [element("circle", class_=f"dot f{series}", cx=x, cy=y, r=2.6) for x, y in places]
        self._name(series, name, kind)

    def scatter(self, points: Points, series: int, name: str = "", *, solid: bool = False) -> None:
        """Draw a dot at each point, translucent unless ``solid``."""
        kind, radius = ("dot", 3.0) if solid else ("cloud", 2.4)
        self._marks += [
            element("circle", class_=f"{kind} f{series}", cx=x, cy=y, r=radius) for x, y in self._places(points)
        ]
        self._name(series, name, "bars")

    def steps(self, points: Points, series: int, name: str = "") -> None:
        """Draw a step function: the value of a point holds until the next point."""
        starts = list(points)
        ends = [(b[0], a[1]) for a, b in itertools.pairwise(starts)]
        self.line([p for pair in zip(starts, [*ends, starts[-1]], strict=True) for p in pair], series, name)

    def band(self, low: Points, high: Points, series: int, name: str = "", kind: str = "band") -> None:
        """Fill the area between two lines."""
        outline = self._places(low) + self._places(high)[::-1]
        self._marks.append(element("path", class_=f"{kind} f{series}", d=_path_data(outline) + "Z"))
        self._name(series, name, kind)

    def bars(
        self, edges: Sequence[float], heights: Sequence[float], series: int, name: str = "", *, hanging: bool = False
    ) -> None:
        """Draw a histogram with ``heights`` between consecutive ``edges``, from the axis, or, if ``hanging``, from the top."""
        corners = [(x, h) for a, b, h in zip(edges, edges[1:], heights, strict=False) for x in (a, b)]
        end = self._y.high if hanging else self._y.low
        floor = [(edges[0], end), (edges[-1], end)]
        self.band(floor, corners, series, name, kind="bars")

    def level(self, value: float, text: str, *, below: bool = False) -> None:
        """Draw a horizontal line with text above or below its left end, where falling curves do not pass."""
        y = self._y.locate(value)
        self._marks.append(element("line", class_="level", x1=LEFT, x2=RIGHT, y1=y, y2=y))
        self._notes.append(element("text", text, class_="note", x=LEFT + 4, y=y + (13 if below else -5)))

    def upright(self, value: float) -> None:
        """Draw a vertical line."""
        x = self._x.locate(value)
        self._marks.append(element("line", class_="level", x1=x, x2=x, y1=TOP, y2=BOTTOM))

    def render(self, *more: Markup) -> Markup:
        """Return the chart as a figure with title and legend, followed by further elements."""
        legend = [element("ul", *self._legend, class_="legend")] if self._legend else []
        return element("figure", element("figcaption", self.title), *legend, self._svg(), *more)

    def _svg(self) -> Markup:
        x, y, width, height = LEFT - 3, TOP - 3, RIGHT - LEFT + 6, BOTTOM - TOP + 4
        place = {"x": x, "y": y, "width": width, "height": height}
        inner = element("svg", *self._marks, viewBox=f"{x} {y} {width} {height}", class_="plot", **place)
        marks = [*self._frame(), inner, *self._notes]
        return element("svg", *marks, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=self._says)

    def _frame(self) -> list[Markup]:
        """Return the grid, the ticks and the titles of the axes."""
        parts = [element("text", _add_unit(self._labels[1], self._y), class_="axis", x=4, y=15)]
        for tick in self._y.ticks:
            y = self._y.locate(tick.value)
            parts.append(element("line", class_="grid", x1=LEFT, x2=RIGHT, y1=y, y2=y))
            parts.append(element("text", tick.text, class_="tick y", x=LEFT - 7, y=y + 4))
        for tick in self._x.ticks:
            x = self._x.locate(tick.value)
            parts.append(element("line", class_="mark", x1=x, x2=x, y1=BOTTOM, y2=BOTTOM + 4))
            parts.append(element("text", tick.text, class_="tick x", x=x, y=BOTTOM + 18))
        parts.append(element("line", class_="base", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM))
        title = _add_unit(self._labels[0], self._x)
        parts.append(element("text", title, class_="axis x", x=(LEFT + RIGHT) / 2, y=HEIGHT - 5))
        return parts

    def _places(self, points: Points) -> list[tuple[float, float]]:
        return [(self._x.locate(x), self._y.locate(y)) for x, y in points]

    def _name(self, series: int, name: str, kind: str) -> None:
        if name:
            self._legend.append(element("li", element("i", class_=f"key {kind} b{series}"), name))


def chart_of_shares(title: str, says: str, labels: tuple[str, str], *, diagonal: str | None = None) -> Chart:
    """Return a chart whose axes go from 0 to 100 %. ``diagonal``: its name in the legend, empty for none; None: no diagonal."""
    chart = Chart(title, says, share_axis(ACROSS), share_axis(UPWARDS), labels)
    if diagonal is not None:
        chart.line([(0.0, 0.0), (1.0, 1.0)], REFERENCE, diagonal, kind="dashed")
    return chart


def choose_ordered_color(place: int, count: int) -> int:
    """Return the series whose color represents the value at position ``place`` among ``count`` ordered values."""
    return ORDERED + (round(place * (SERIES - 1) / (count - 1)) if count > 1 else SERIES - 1)


def _path_data(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _add_unit(label: str, axis: Axis) -> str:
    return f"{label}, {axis.unit}" if axis.unit else label


def side_by_side(*figures: Markup | None) -> Markup:
    """Return figures in a row if the page is wide enough, else in a column."""
    return element("div", join([figure for figure in figures if figure is not None]), class_="row")


INK, REFERENCE = 9, 8
"""Series with the color of text, for the model, and series in gray, for what the model is compared with."""
ORDERED = 10
"""The first of ``SERIES`` series with colors from light to dark, for ordered values."""
