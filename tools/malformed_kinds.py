"""Count the kinds of malformed and odd source files that tests read: ``python -m tools.malformed_kinds [--list]``.

The kinds are the tables ACCEPTED (read as meant) and REFUSED (with a code, file and line) of the tests of each format; each
entry is a test of its own. The page on promises gives the sum that is printed here, and a test holds them to it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

FORMATS = ("svmlight", "csv", "npy", "parquet")
TABLES = ("ACCEPTED", "REFUSED")


class Kind(NamedTuple):
    """One kind of file."""

    format: str
    outcome: str
    name: str


def kinds() -> Iterator[Kind]:
    """Every kind, by format."""
    for format_name in FORMATS:
        tables = vars(import_module(f"tests.store.test_{format_name}"))
        for outcome in TABLES:
            yield from (Kind(format_name, outcome.lower(), str(name)) for name in tables.get(outcome, ()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the kinds of malformed files that tests read.")
    parser.add_argument("--list", action="store_true", help="name every kind")
    found = list(kinds())
    if parser.parse_args().list:
        print("\n".join(f"{kind.format}\t{kind.outcome}\t{kind.name}" for kind in found))
    for format_name in FORMATS:
        counts = [sum(k.format == format_name and k.outcome == t.lower() for k in found) for t in TABLES]
        print(f"{format_name}: {counts[0]} accepted, {counts[1]} refused")
    print(f"kinds: {len(found)}")


if __name__ == "__main__":
    main()
