"""Elements of HTML and SVG. Text becomes harmless where it is put into an element, and nowhere else.

A name from a file - a column, a class, a path - may hold markup, control characters, or characters that turn the writing
around. ``element`` takes text and ``Markup``; text is escaped, and only what ``element`` has made is ``Markup``.
"""

from __future__ import annotations

import html

from streamsvm.errors import printable

VOID = frozenset({"br", "meta", "line", "path", "rect", "circle", "polygon", "use", "hr", "link"})
"""Elements without content."""


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """Return text as markup that shows it; of what is no character, an escape is shown. A number stays beside its %."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(printable(text), quote=True).replace(" %", "\u00a0%"))


def joined(parts: list[Markup] | tuple[Markup, ...], between: str = "") -> Markup:
    """Return pieces of markup one after the other."""
    return Markup(between.join(parts))


def element(tag: str, *children: str, **attributes: str | float | None) -> Markup:
    """Return an element. Of an attribute's name a final _ is dropped, others are dashes; None: there is no such one."""
    shown = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in VOID:
        return Markup(f"<{tag}{shown}/>")
    return Markup(f"<{tag}{shown}>{''.join(escaped(child) for child in children)}</{tag}>")


def _value(value: str | float) -> str:
    """An attribute's value; coordinates have two decimals at most."""
    return escaped(value) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def shortened(text: str, most: int = 48) -> str:
    """Return the text, its middle left out where it is long: names of columns differ at their ends."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"
