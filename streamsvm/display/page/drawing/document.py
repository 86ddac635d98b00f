"""The page as a whole: a head that forbids everything but its own style, what is in it, and its parts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from streamsvm import __version__
from streamsvm.display.page.drawing.markup import Markup, element, joined
from streamsvm.display.page.drawing.style import STYLE
from streamsvm.outputs import PAGE_HEADER


class PagePart(NamedTuple):
    """A part of a page."""

    key: str
    """Its anchor."""
    title: str
    """Its heading, and its name in the list of contents."""
    lead: str
    """What it shows and how to read it, in a sentence or two."""
    body: Markup
    """The drawings and tables."""

    def shown(self) -> Markup:
        """Return the part with its heading."""
        lead = [element("p", self.lead, class_="lead")] if self.lead else []
        return element("section", element("h2", self.title), *lead, self.body, id=self.key)


def document(title: str, subtitle: str, opening: Markup, parts: Sequence[PagePart]) -> str:
    """Return a whole page: title, opening, contents and parts."""
    policy = f"default-src 'none'; style-src '{_hash(STYLE)}'; base-uri 'none'; form-action 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", **{"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{title} · streamsvm"),
        element("style", Markup(STYLE)),
    )
    links = [element("li", element("a", part.title, href=f"#{part.key}")) for part in parts]
    contents = element("nav", element("ul", *links), aria_label="Contents")
    header = element(
        "header",
        element("a", "Skip to the content", class_="skip", href="#content"),
        element("h1", title),
        element("p", subtitle, class_="sub"),
        opening,
        contents,
    )
    body = element("main", joined([part.shown() for part in parts]), id="content")
    footer = element("footer", f"Made by streamsvm {__version__}. This page loads nothing and executes nothing.")
    return PAGE_HEADER.decode() + element("html", head, element("body", header, body, footer), lang="en") + "\n"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, kind: str = "", caption: str = "") -> Markup:
    """Return a table that scrolls by itself where it is wider than the page; keyboards reach it.

    A cell is text, or markup: an element ``td`` or ``th`` of its own.
    """
    top = element("tr", *(element("th", cell, scope="col") for cell in head))
    lines = [
        element("tr", *(cell if isinstance(cell, Markup) else element("td", cell) for cell in row)) for row in rows
    ]
    said = [element("caption", caption)] if caption else []
    inner = element("table", *said, element("thead", top), element("tbody", *lines), class_=kind or None)
    return element(
        "div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption or ", ".join(head[:3])
    )


def folded(summary: str, *content: Markup) -> Markup:
    """Return what is shown only when it is asked for."""
    return element("details", element("summary", summary), *content)
