"""A drawing with two axes as inline SVG: colors are classes, which the style of the page gives a light and a dark meaning.

Drawings are 440 units wide, about as many pixels as half a page or a whole telephone has: their text is as large as that
around them on both.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from streamsvm.display.page.drawing.axis import Axis
from streamsvm.display.page.drawing.markup import Markup, element, joined

WIDTH, HEIGHT = 440, 270
LEFT, RIGHT, TOP, BOTTOM = 54.0, 426.0, 30.0, 228.0
ACROSS, UPWARDS = (LEFT, RIGHT), (BOTTOM, TOP)
"""Where the axes of a drawing begin and end: for x, and for y, which counts from above."""
SERIES = 6
"""Colors that people who are color-blind can tell apart; more than that need another drawing."""
Points: TypeAlias = Iterable[tuple[float, float]]


class Chart:
    """A drawing that is being made; what is drawn later lies above."""

    def __init__(self, title: str, says: str, x: Axis, y: Axis, labels: tuple[str, str]) -> None:
        self.title, self._says, self._x, self._y, self._labels = title, says, x, y, labels
        self._marks: list[Markup] = []
        self._notes: list[Markup] = []
        self._legend: list[Markup] = []

    def line(self, points: Points, series: int, name: str = "", *, dots: bool = False, kind: str = "line") -> None:
        """Draw a line through points in the order of x, perhaps with a dot at each."""
        places = self._places(points)
        self._marks.append(element("path", class_=f"{kind} s{series}", d=_path(places)))
        if dots:
            self._marks += [element("circle", class_=f"dot f{series}", cx=x, cy=y, r=2.6) for x, y in places]
        self._name(series, name, "line")

    def steps(self, points: Points, series: int, name: str = "") -> None:
        """Draw a line that stays at a value until the next one."""
        given = list(points)
        corners = [(b[0], a[1]) for a, b in itertools.pairwise(given)]
        self.line([p for pair in zip(given, [*corners, given[-1]], strict=True) for p in pair], series, name)

    def band(self, low: Points, high: Points, series: int, name: str = "", kind: str = "band") -> None:
        """Fill what lies between two lines."""
        outline = self._places(low) + self._places(high)[::-1]
        self._marks.append(element("path", class_=f"{kind} f{series}", d=_path(outline) + "Z"))
        self._name(series, name, kind)

    def bars(
        self, edges: Sequence[float], heights: Sequence[float], series: int, name: str = "", *, hanging: bool = False
    ) -> None:
        """Fill the outline of a histogram: ``heights`` between neighbors of ``edges``, to the axis or to the top."""
        corners = [(x, h) for a, b, h in zip(edges, edges[1:], heights, strict=False) for x in (a, b)]
        end = self._y.high if hanging else self._y.low
        floor = [(edges[0], end), (edges[-1], end)]
        self.band(floor, corners, series, name, kind="bars")

    def level(self, value: float, text: str, *, below: bool = False) -> None:
        """Draw a horizontal line with words at its left end, where falling curves are not, above it or below."""
        y = self._y.at(value)
        self._marks.append(element("line", class_="level", x1=LEFT, x2=RIGHT, y1=y, y2=y))
        self._notes.append(element("text", text, class_="note", x=LEFT + 4, y=y + (13 if below else -5)))

    def upright(self, value: float) -> None:
        """Draw a vertical line."""
        x = self._x.at(value)
        self._marks.append(element("line", class_="level", x1=x, x2=x, y1=TOP, y2=BOTTOM))

    def drawn(self, *more: Markup) -> Markup:
        """Return the drawing as a figure with its title, its legend and what else belongs to it."""
        legend = [element("ul", *self._legend, class_="legend")] if self._legend else []
        return element("figure", element("figcaption", self.title), *legend, self._svg(), *more)

    def _svg(self) -> Markup:
        x, y, width, height = LEFT - 3, TOP - 3, RIGHT - LEFT + 6, BOTTOM - TOP + 4
        place = {"x": x, "y": y, "width": width, "height": height}
        inner = element("svg", *self._marks, viewBox=f"{x} {y} {width} {height}", class_="plot", **place)
        marks = [*self._frame(), inner, *self._notes]
        return element("svg", *marks, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=self._says)

    def _frame(self) -> list[Markup]:
        """Grid, ticks and titles of the axes."""
        found = [element("text", _with_unit(self._labels[1], self._y), class_="axis", x=4, y=15)]
        for tick in self._y.ticks:
            y = self._y.at(tick.value)
            found.append(element("line", class_="grid", x1=LEFT, x2=RIGHT, y1=y, y2=y))
            found.append(element("text", tick.text, class_="tick y", x=LEFT - 7, y=y + 4))
        for tick in self._x.ticks:
            x = self._x.at(tick.value)
            found.append(element("line", class_="mark", x1=x, x2=x, y1=BOTTOM, y2=BOTTOM + 4))
            found.append(element("text", tick.text, class_="tick x", x=x, y=BOTTOM + 18))
        found.append(element("line", class_="base", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM))
        title = _with_unit(self._labels[0], self._x)
        found.append(element("text", title, class_="axis x", x=(LEFT + RIGHT) / 2, y=HEIGHT - 5))
        return found

    def _places(self, points: Points) -> list[tuple[float, float]]:
        return [(self._x.at(x), self._y.at(y)) for x, y in points]

    def _name(self, series: int, name: str, kind: str) -> None:
        if name:
            self._legend.append(element("li", element("i", class_=f"key {kind} b{series}"), name))


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _with_unit(label: str, axis: Axis) -> str:
    return f"{label}, {axis.unit}" if axis.unit else label


def row(*figures: Markup | None) -> Markup:
    """Return figures side by side where there is room, else below each other."""
    return element("div", joined([figure for figure in figures if figure is not None]), class_="row")
