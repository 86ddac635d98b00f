"""The number of kinds of malformed files that the page on promises gives is the number of tests."""

from __future__ import annotations

import re
from pathlib import Path

from tools.malformed_kinds import kinds

REPOSITORY = Path(__file__).resolve().parents[1]


def test_the_number_of_kinds_that_is_told_is_counted() -> None:
    count, page = len(set(kinds())), REPOSITORY / "tools" / "docs" / "explanation" / "promises.md"
    told = re.findall(r"(\d+) kinds.*\| (\d+) \| \d+ \|$", page.read_text(), re.MULTILINE)
    assert told == [(str(count), str(count))], f"python -m tools.malformed_kinds says {count}"
