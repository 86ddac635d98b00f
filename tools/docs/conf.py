"""Sphinx: ``sphinx-build -W -n -q -b html tools/docs build/docs`` builds these documents, without a network."""

import tomllib
from pathlib import Path

_ROOT = Path(__file__).parent.parent.parent
_DECLARED = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = _DECLARED["name"]
author = _DECLARED["authors"][0]["name"]
release = (_ROOT / "streamsvm" / "__init__.py").read_text(encoding="utf-8").split('__version__ = "')[1].split('"')[0]
extensions = ["myst_parser"]
exclude_patterns = ["measured"]
myst_enable_extensions = ["attrs_inline", "deflist"]
myst_heading_anchors = 3
highlight_language = "text"
smartquotes = False
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_title = f"streamsvm {release}"
html_theme_options = {
    "navigation_with_keys": True,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "header_links_before_dropdown": 5,
}
html_sidebars: dict[str, list[str]] = {
    page: []
    for page in ("index", "install", "tutorial", "benchmarks", "gallery", "papers", "reproductions", "CHANGELOG")
}
html_copy_source = False
