"""The long description of the package on an index: README.md without links and pictures that an index cannot resolve.

Paths of the repository become URLs if ``project.urls`` in pyproject.toml names it (``Repository``, the URL of its files). As long as it
does not, a link is its text, and pictures are left out. hatchling calls this when it builds the package.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")
PICTURE = re.compile(r"<picture>.*?</picture>\n*", re.DOTALL)
SOURCE_OF_PICTURE = re.compile(r'(src(?:set)?=")(?!https?://)')


class LongDescription(MetadataHookInterface):
    """The hook of hatchling that sets the readme."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme of the project."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        metadata["readme"] = {"content-type": "text/markdown", "text": resolve_paths(text, repository)}


def resolve_paths(text: str, repository: str | None) -> str:
    """Return Markdown in which paths of the repository are URLs; without a repository, links are text and pictures are left out."""
    if repository is None:
        return LINK.sub(lambda match: "" if match[1] else match[2], PICTURE.sub("", text))
    base = repository.rstrip("/")
    return LINK.sub(rf"\1[\2]({base}/\3)", SOURCE_OF_PICTURE.sub(rf"\g<1>{base}/", text))
