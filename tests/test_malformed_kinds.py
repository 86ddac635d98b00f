"""The number of kinds of malformed files that the documents and the notes tell of is the number there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.malformed_kinds import kinds

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("page", ["tools/docs/explanation/promises.md", "tools/notes/0006-fault-program.md"])
def test_the_number_of_kinds_that_is_told_is_counted(page: str) -> None:
    count = len(set(kinds()))
    told = re.findall(r"(\d+) kinds.*\| (\d+) \| \d+ \|$", (REPOSITORY / page).read_text(), re.MULTILINE)
    assert told == [(str(count), str(count))], f"python -m tools.malformed_kinds says {count}"
