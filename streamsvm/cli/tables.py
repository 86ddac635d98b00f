"""Text in columns, and shares of classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows in columns: the first flush left, the others flush right."""
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    for row in rows:
        cells = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield "  ".join([row[0].ljust(widths[0]), *cells]).rstrip()


def shares(classes: Sequence[str], counts: Sequence[int], most: int = 10) -> str:
    """'a 60.0 %, b 40.0 %', the first classes if there are many."""
    total = sum(counts)
    shown = [f"{name} {count / total:.1%}".replace("%", " %") for name, count in zip(classes, counts, strict=True)]
    return ", ".join(shown[:most]) + (f", ... ({len(shown)} in all)" if len(shown) > most else "")


def number_text(target: Mapping[str, float] | None) -> str:
    """'numbers from -1 to 3, mean 0.5, standard deviation 1.2', as far as it is known what numbers to predict are like."""
    if target is None:
        return "numbers"
    of = {name: f"{value:.6g}" for name, value in target.items()}
    return f"numbers from {of['least']} to {of['most']}, mean {of['mean']}, standard deviation {of['spread']}"
