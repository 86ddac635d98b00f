"""HTML for pages: elements, the style, tables, and the document that holds them.

Text is escaped when it becomes part of an element, and nowhere else, because names from files - of columns, classes, paths - may contain
markup, control characters or characters that change the direction of writing. The children of ``element`` are text, which is escaped, or
``Markup``, which only ``element`` creates. The content security policy of a page allows only its own style sheet: a page loads and executes
nothing.

The style sheet has light and dark colors, chosen by the setting of the reader's system, and prints black on white. A color has one meaning
on the whole page: the colors of Okabe and Ito (2008), which can be distinguished with any kind of color vision, are for classes, or for
the runs that are compared; black is for the model, gray for what it is compared with (chance, a bound, a budget), purple from light to
dark for ordered values. The edge of a verdict is green, yellow or red, that of a notice gray. Dark mode uses lighter colors. The contrast
of text with its background is at least 4.5 to 1.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streamsvm import __version__
from streamsvm.errors import printable
from streamsvm.outputs import PAGE_HEADER

VOID_ELEMENTS = frozenset({"br", "meta", "line", "path", "rect", "circle", "polygon", "use", "hr", "link"})
"""Elements without content."""
LIGHT = """
--paper:#ffffff;--panel:#f6f7f9;--ink:#1a1d21;--soft:#575e68;--rule:#d9dde3;--link:#0a5aa6;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b0568f;--c4:#b07d00;--c5:#3a8fc7;
--c8:#7d8590;--c10:#9b7ad6;--c11:#8560c4;--c12:#6f49b0;--c13:#5a3598;--c14:#45237e;--c15:#311463;
--good:#00704f;--mild:#8a6200;--bad:#b3123f;--heat:45,50,58;--deep:#ffffff;
""".strip()
DARK = """
--paper:#14171b;--panel:#1d2127;--ink:#e8eaed;--soft:#a3abb6;--rule:#343a43;--link:#7cbcf0;
--c0:#56b4e9;--c1:#ff9255;--c2:#3ccfa0;--c3:#e39bc8;--c4:#f0c24b;--c5:#9ad0f5;
--c8:#8b94a0;--c10:#7b5fc0;--c11:#8f75d2;--c12:#a48de0;--c13:#b9a6ec;--c14:#cfc1f5;--c15:#e6defd;
--good:#4fd6ab;--mild:#e0b84a;--bad:#ff8299;--heat:130,138,150;--deep:#e8eaed;
""".strip()


def element(tag: str, *children: str, **attributes: str | float | None) -> Markup:
    """Return an element. In names of attributes, a final _ is dropped and others become dashes; attributes that are None are left out."""
    text = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_format_attribute(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in VOID_ELEMENTS:
        return Markup(f"<{tag}{text}/>")
    return Markup(f"<{tag}{text}>{''.join(escape(child) for child in children)}</{tag}>")


def escape(text: str) -> Markup:
    """Convert text to markup. Unprintable characters are shown as escapes, and a number is not separated from its %."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(printable(text), quote=True).replace(" %", "\u00a0%"))


def join(parts: list[Markup] | tuple[Markup, ...], between: str = "") -> Markup:
    """Concatenate pieces of markup."""
    return Markup(between.join(parts))


def shorten(text: str, limit: int = 48) -> str:
    """Return the text, without its middle if it is longer than ``limit``, because names of columns often differ at the end."""
    half = (limit - 1) // 2
    return text if len(text) <= limit else f"{text[:half]}…{text[-half:]}"


def _format_attribute(value: str | float) -> str:
    """Return the value of an attribute as text, numbers with at most two decimals."""
    return escape(value) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, kind: str = "", caption: str = "") -> Markup:
    """Return a table. If it is wider than the page, it scrolls, also by the keyboard.

    A cell is text, or an element ``td`` or ``th`` (``Markup``).
    """
    top = element("tr", *(element("th", cell, scope="col") for cell in head))
    lines = [
        element("tr", *(cell if isinstance(cell, Markup) else element("td", cell) for cell in row)) for row in rows
    ]
    captions = [element("caption", caption)] if caption else []
    inner = element("table", *captions, element("thead", top), element("tbody", *lines), class_=kind or None)
    return element(
        "div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption or ", ".join(head[:3])
    )


def build_card(title: str, facts: Mapping[str, str], *more: Markup) -> Markup:
    """Return the display of an object in a notebook: a table of facts by name, followed by further elements."""
    rows = (element("tr", element("th", name), element("td", text)) for name, text in facts.items())
    return element("div", element("table", element("caption", title), *rows), *more)


def fold(summary: str, *content: Markup, is_open: bool = False) -> Markup:
    """Return content that is shown when its summary is clicked, and always in print."""
    return element("details", element("summary", summary), *content, open="" if is_open else None)


def build_tiles(figures: list[tuple[str, str, str]]) -> Markup:
    """Return figures side by side, each with its name, its value and a value to compare it with."""
    return element(
        "dl",
        *(
            element("div", element("dt", name), element("dd", value, element("small", more)))
            for name, value, more in figures
        ),
        class_="tiles",
    )


class PagePart(NamedTuple):
    """A section of a page."""

    key: str
    """The anchor."""
    title: str
    """The heading, also in the list of contents."""
    lead: str
    """One or two sentences on what it shows and how to read it."""
    body: Markup
    """The drawings and tables."""

    def render(self) -> Markup:
        """Return the section as an element, with its heading."""
        lead = [element("p", self.lead, class_="lead")] if self.lead else []
        return element("section", element("h2", self.title), *lead, self.body, id=self.key)


def build_document(title: str, subtitle: str, opening: Markup, parts: Sequence[PagePart]) -> str:
    """Return an HTML page with a title, an opening, a list of contents and its parts."""
    policy = f"default-src 'none'; style-src '{_hash_style(STYLE)}'; base-uri 'none'; form-action 'none'"
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
    body = element("main", join([part.render() for part in parts]), id="content")
    footer = element("footer", f"Made by streamsvm {__version__}. This page loads nothing and executes nothing.")
    return PAGE_HEADER.decode() + element("html", head, element("body", header, body, footer), lang="en") + "\n"


def _hash_style(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _series_colors() -> str:
    """Return the style classes of series of data: sK for strokes, fK for fills, bK for backgrounds.

    K is 0 to 5 for series, 8 for gray, 9 for the color of text, 10 to 15 for ordered values.
    """
    colors = {k: "var(--ink)" if k == 9 else f"var(--c{k})" for k in (*range(6), *range(8, 16))}
    return "".join(f".s{k}{{stroke:{c}}}.f{k}{{fill:{c}}}.b{k}{{background:{c}}}" for k, c in colors.items())


def _heat_colors() -> str:
    """Return the style classes of cells of a heat map, from light, q0, to dark, q9."""
    depths = [0.02 + 0.06 * k for k in range(9)] + [0.72]
    shades = "".join(f".q{k}{{background:rgba(var(--heat),{depth:.3f})}}" for k, depth in enumerate(depths))
    return shades + ".q9{color:var(--deep)}"


STYLE = (
    f":root{{color-scheme:light dark;{LIGHT}}}"
    f"@media(prefers-color-scheme:dark){{:root{{{DARK}}}}}"
    """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums}
main,header,footer{max-width:1040px;margin:0 auto;padding:0 20px}
header{padding-top:36px}
h1{font-size:1.55rem;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere;letter-spacing:-.01em}
h2{font-size:1.18rem;margin:44px 0 4px;padding-top:14px;border-top:1px solid var(--rule)}
h3{font-size:1rem;margin:20px 0 4px}
p{margin:6px 0 12px;max-width:72ch}
.sub,.lead,footer{color:var(--soft)}
.sub{margin:0 0 18px;overflow-wrap:anywhere}
a{color:var(--link)}
a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-999px}.skip:focus{position:static}
.verdict{font-size:1.05rem;line-height:1.5;max-width:none;margin:14px 0 8px;padding:14px 18px;background:var(--panel);border-left:5px solid var(--good);border-radius:0 6px 6px 0}
.verdict.open{border-color:var(--bad)}.verdict.mild{border-color:var(--mild)}.verdict.unknown{border-color:var(--c8)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(148px,1fr));gap:10px;margin:16px 0 4px;padding:0}
.tiles div{background:var(--panel);border-radius:6px;padding:10px 12px}
.tiles dt{font-size:.8rem;color:var(--soft)}
.tiles dd{margin:0;font-size:1.16rem;white-space:nowrap;font-weight:600;line-height:1.3;overflow-wrap:anywhere}
.tiles dd small{display:block;white-space:normal;font-size:.78rem;font-weight:400;color:var(--soft)}
nav ul{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;margin:14px 0 0;padding:0;font-size:.92rem}
.row{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:18px 36px;align-items:start}
figure{margin:14px 0 6px;min-width:0}
figcaption{font-weight:600;font-size:.95rem;margin-bottom:2px}
.legend{display:flex;flex-wrap:wrap;gap:0 16px;list-style:none;margin:0 0 2px;padding:0;font-size:.84rem;color:var(--soft);overflow-wrap:anywhere}
.key{display:inline-block;width:16px;height:3px;vertical-align:middle;margin-right:6px;border-radius:2px}
.key.band,.key.bars,.key.stack{height:11px;opacity:.5}.key.stack{opacity:.45}.key.dashed{mask:repeating-linear-gradient(90deg,#000 0 5px,transparent 5px 8px)}.key.dotted{mask:repeating-linear-gradient(90deg,#000 0 2px,transparent 2px 5px)}
svg{display:block;width:100%;height:auto;max-width:480px;font-family:inherit;overflow:visible}
svg.wide{max-width:none}
text{fill:var(--ink);font-size:12.5px}
.tick{fill:var(--soft);font-size:11.5px}.tick.y{text-anchor:end}.x{text-anchor:middle}
.axis{fill:var(--soft);font-size:12px}
.note{paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round;fill:var(--soft);font-size:11.5px}
.grid{stroke:var(--rule);stroke-width:.8}.base,.mark{stroke:var(--soft);stroke-width:1}
.level{stroke:var(--soft);stroke-width:1.2;stroke-dasharray:5 4}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.thin{fill:none;stroke-width:1;opacity:.55}
.dashed{fill:none;stroke-width:1.6;stroke-dasharray:6 4}.dotted{fill:none;stroke-width:2;stroke-dasharray:.1 4;stroke-linecap:round}
.plot{overflow:hidden;max-width:none}.band{opacity:.25;stroke:none}.bars{opacity:.5;stroke:none}.stack{stroke:none;opacity:.45}
.range{stroke-width:1.5}.cloud{opacity:.35}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.88rem;margin:8px 0}
th,td{padding:3px 10px;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
th{font-weight:600;color:var(--soft)}
th:first-child,td:first-child,.words td,.words th{text-align:left}
.words td{white-space:normal;overflow-wrap:anywhere;vertical-align:top;min-width:6em}
.words.worst td:nth-child(-n+4),.words.settings td:first-child{white-space:nowrap;min-width:0;overflow-wrap:normal}.words.worst td:nth-child(5){min-width:17em}.points td:nth-child(2),.points th:nth-child(2){text-align:left}.bar{width:34%;min-width:110px;padding:3px 4px}
.bar svg{max-width:none;height:14px}
.full,.spread{width:100%}
caption{text-align:left;color:var(--soft);padding-bottom:4px}
.heat td{text-align:center;min-width:3.1em}.many td,.many thead th{min-width:0;padding:2px 4px;font-size:.74rem;text-align:center}.compare thead th,.compare td:nth-last-child(-n+2){white-space:normal}.compare th:first-child .key{width:11px;height:11px}.compare .best,.heat .best{outline:2px solid var(--ink);outline-offset:-2px;font-weight:600}
pre{background:var(--panel);padding:12px 14px;border-radius:6px;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.86rem}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
details{margin:8px 0}summary{cursor:pointer;color:var(--link)}summary::marker{color:var(--soft)}
.col{margin:0;border-bottom:1px solid var(--rule)}
.col>summary{display:grid;grid-template-columns:minmax(9em,17em) 1fr 5.2em;gap:0 14px;align-items:center;padding:5px 4px;list-style:none;color:var(--ink);font-size:.92rem}
.col>summary::-webkit-details-marker{display:none}
.col>summary>span:first-child{overflow-wrap:anywhere;padding-left:1.1em;text-indent:-1.1em}.col>summary>span:first-child::before{content:"▸\\a0 ";color:var(--link)}
.col[open]>summary>span:first-child::before{content:"▾\\a0 "}
.col>summary>span:last-child{text-align:right;white-space:nowrap}
.col>summary svg{max-width:none;height:14px}.col>div{margin:0 0 10px 18px}
.warn{border-left:5px solid var(--bad);padding:8px 14px;background:var(--panel);margin:8px 0;border-radius:0 6px 6px 0;overflow-wrap:anywhere}
.warn.mild{border-color:var(--mild)}.warn.notice{border-color:var(--c8)}
.fill-good{fill:var(--good)}.fill-bad{fill:var(--bad)}.fill-kept{fill:var(--ink)}
footer{margin-top:48px;padding-bottom:40px;font-size:.85rem}
@media(max-width:480px){.col>summary{grid-template-columns:minmax(7em,8.5em) 1fr 5em}.col>div{margin-left:0}body{font-size:15px}main,header,footer{padding-left:14px;padding-right:14px}th,td{padding:3px 6px}.bar{min-width:70px}.full th:nth-child(4),.full td:nth-child(4),.measures th:nth-child(4),.measures td:nth-child(4){display:none}.words td{min-width:4em}}
@media print{
@page{margin:14mm}
"""
    f":root{{color-scheme:light;{LIGHT}}}"
    """
body{font-size:10.5pt}main,header,footer{max-width:none;padding:0}
nav,.skip{display:none}details::details-content{content-visibility:visible;display:block}summary{color:var(--ink);font-weight:600}figure,.row,.lead,.many,.tiles div,.warn,.verdict,tr{break-inside:avoid}h2,h3,.lead,figcaption,caption,summary,thead,thead tr{break-after:avoid}tbody tr:first-child{break-before:avoid}.tiles{grid-template-columns:repeat(auto-fit,minmax(120px,1fr))}.row table{font-size:.8rem}.row td:first-child{min-width:5.5em}
.row{grid-template-columns:1fr 1fr}.scroll{overflow:visible}th,td{white-space:normal;padding:3px 6px}.worst td:nth-child(5){min-width:0}.many td,.many th{padding:1px 2px;font-size:6.5pt}.many thead th:not(:first-child){writing-mode:vertical-rl;text-align:left;vertical-align:bottom;padding:2px 1px}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
""" + _series_colors() + _heat_colors()
).replace("\n", "")


class Markup(str):
    """Text that is markup, so that ``escape`` returns it unchanged."""

    __slots__ = ()
