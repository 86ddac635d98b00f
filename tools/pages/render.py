"""Look at pages as people do: in a browser without a window, at the widths of a desk, a tablet and a telephone.

    python -m tools.pages.render page.html --out shots

For each page and width: a picture, and what is wrong - the page wider than the window, text outside of its drawing, words that
lie on each other. Needs Chromium; without one it says so and ends with 0.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WIDTHS = (1280, 768, 380)
HEIGHT = 9000
NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--allow-file-access-from-files",
]
LOOK = """<!doctype html><style>body{{margin:0}}iframe{{border:0;width:{width}px;height:{height}px}}</style>
<iframe src="{page}"></iframe><script>
onload = () => {{
  const page = document.querySelector("iframe").contentDocument, found = [], root = page.documentElement;
  const near = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  if (root.scrollWidth > {width}) found.push("the page is " + root.scrollWidth + " px wide");
  for (const drawing of page.querySelectorAll("figure > svg")) {{
    const frame = drawing.getBoundingClientRect(), words = [...drawing.querySelectorAll("text")].filter(w => w.textContent);
    const places = words.map(word => word.getBoundingClientRect());
    places.forEach((place, k) => {{
      const text = words[k].textContent;
      if (place.right > {width} + 1 || place.left < -1) found.push("'" + text + "' reaches out of the window");
      if (place.bottom > frame.bottom + 2 || place.top < frame.top - 2) found.push("'" + text + "' leaves its drawing");
      for (let other = 0; other < k; other++)
        if (near(place, places[other])) found.push("'" + text + "' lies on '" + words[other].textContent + "'");
    }});
  }}
  const pre = document.createElement("pre"); pre.id = "found"; pre.textContent = JSON.stringify(found);
  document.body.append(pre);
}};
</script>"""


def browser() -> str | None:
    """The path of a Chromium; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _run(program: str, width: int, *arguments: str) -> str:
    with tempfile.TemporaryDirectory() as profile:
        window = [f"--user-data-dir={profile}", f"--window-size={width},{HEIGHT}"]
        done = subprocess.run(
            [program, *QUIET, *window, *arguments], capture_output=True, text=True, timeout=120, check=True
        )
    return done.stdout


def faults(program: str, page: Path, width: int) -> list[str]:
    """What is wrong with a page in a window of this width."""
    with tempfile.TemporaryDirectory() as folder:
        around = Path(folder) / "look.html"
        around.write_text(LOOK.format(width=width, height=HEIGHT, page=page.resolve().as_uri()), encoding="utf-8")
        shown = _run(program, max(width, 800), "--virtual-time-budget=4000", "--dump-dom", around.as_uri())
    found = re.search(r'<pre id="found">(.*?)</pre>', shown, re.DOTALL)
    if found is None:
        raise RuntimeError(f"the browser has not looked at {page}")
    return list(json.loads(html.unescape(found[1])))


def picture(program: str, page: Path, width: int, out: Path) -> Path:
    """A picture of the page in a window of this width."""
    target = out / f"{page.stem}-{width}.png"
    _run(program, width, f"--screenshot={target.resolve()}", page.resolve().as_uri())
    return target


def printed(program: str, page: Path, out: Path) -> Path:
    """The page as it is printed."""
    target = out / f"{page.stem}.pdf"
    _run(program, 1280, "--no-pdf-header-footer", f"--print-to-pdf={target.resolve()}", page.resolve().as_uri())
    return target


def main() -> int:
    """Look at every page at every width."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, help="a folder for pictures; without, pages are only checked")
    asked = parser.parse_args()
    program = browser()
    if program is None:
        print("skipped: there is no Chromium to look with")
        return 0
    wrong = 0
    for page in asked.pages:
        for width in WIDTHS:
            found = faults(program, page, width)
            wrong += len(found)
            print(f"{page.name} at {width}: {'; '.join(found[:8]) or 'fine'}")
            if asked.out is not None:
                asked.out.mkdir(parents=True, exist_ok=True)
                picture(program, page, width, asked.out)
        if asked.out is not None:
            printed(program, page, asked.out)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
