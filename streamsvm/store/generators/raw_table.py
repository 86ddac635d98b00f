"""Random tables as text, before any encoding, as in files of other programs.

A row of ``RawTable`` is an order: its number, a day (28-Feb-97), a price ($1,234.50), a discount (12.5 %), whether the
buyer is a member (true, false), a weight, a region, one of some thousand products, a remark of a few words, and whether
the order was returned. Prices, weights and memberships are missing in some rows. A row of ``Names`` is a name of a few
syllables and one of two classes.

In both tables the class is drawn with probability 1 / (1 + exp(-score)), where the score is a sum of effects of the
parts of the row. The best classifier is therefore linear in the encoded columns, and its error is not 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from streamsvm.rows import Float64
from streamsvm.store.generators.simple import rule_generator

DRAW_ROWS = 65_536
"""Rows of one draw; each draw has its own random numbers."""
ONSETS, VOWELS, ENDS = (
    ["b", "c", "d", "f", "g", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "dr", "kr", "st", "tr"],
    ["a", "e", "i", "o", "u", "ai", "ea"],
    ["n", "r", "s", "l", "m"],
)
REGIONS = ("North", "South", "East", "West", "Isles", "Lakes", "Hills", "Coast", "Plains", "Delta", "Forest", "Capital")
PRODUCTS, WORDS = 3_000, 5_000
FIRST_DAY, DAYS = 10_957, 8_000
"""Days from 1970-01-01 to the first day, 2000-01-01, and the number of days."""


class FileGenerator(Protocol):
    """A random data set whose rows are text."""

    header: tuple[str, ...]

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows in order; a row depends on the seed, not on the number of rows."""
        ...


def csv_lines(table: pa.Table) -> bytes:
    """Return rows as lines of CSV without a header; missing values are empty fields."""
    sink = pa.BufferOutputStream()
    pacsv.write_csv(table, sink, pacsv.WriteOptions(include_header=False, quoting_style="needed"))
    return sink.getvalue().to_pybytes()


def syllables() -> list[str]:
    """Return syllables, each once, in a fixed order."""
    return [onset + vowel for onset in ONSETS for vowel in VOWELS]


@lru_cache(1)
def vocabulary() -> tuple[str, ...]:
    """Return the words of remarks, the most frequent first."""
    parts = syllables()
    return tuple(parts[k % len(parts)] + parts[k // len(parts)] + ENDS[k % len(ENDS)] for k in range(WORDS))


@dataclass(frozen=True, slots=True)
class RawTable:
    """Orders, as the module's docstring describes them."""

    rows: int
    """The number of rows to make."""
    seed: int = 0
    """The seed of the random numbers; equal seeds give equal files."""

    header: ClassVar[tuple[str, ...]] = (
        "order",
        "day",
        "price",
        "discount",
        "member",
        "weight",
        "region",
        "product",
        "remark",
        "fate",
    )
    """The names of the columns."""

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows in order; a row depends on the seed, not on the number of rows."""
        for k in range(-(-self.rows // DRAW_ROWS)):
            yield self._draw(k).slice(0, self.rows - k * DRAW_ROWS)

    def _draw(self, k: int) -> pa.Table:
        rng, rule = np.random.default_rng((self.seed, k)), _rule(self.seed)
        n = DRAW_ROWS
        z, day, member = rng.standard_normal((n, 3)), rng.integers(0, DAYS, n), rng.random(n) < 0.4
        region, product = rng.integers(0, len(REGIONS), n), (PRODUCTS * rng.random(n) ** 3).astype(int)
        length = rng.integers(2, 9, n)
        words = (WORDS * rng.random((n, 8)) ** 4).astype(int)
        is_used = np.arange(8) < length[:, None]
        score = 0.8 * z[:, 0] - 0.6 * z[:, 1] + 0.4 * z[:, 2] + 0.5 * member + 0.1 * (day / 365.25 - 11)
        score += rule["region"][region] + rule["product"][product] + 0.5 * (rule["word"][words] * is_used).sum(axis=1)
        is_returned = rng.random(n) < 1 / (1 + np.exp(1.0 - score))
        return pa.table(
            {
                "order": [f"R{number:09d}" for number in range(k * n, (k + 1) * n)],
                "day": pc.strftime(pa.array(FIRST_DAY + day, pa.int32()).cast(pa.date32()), format="%d-%b-%y"),
                "price": _missing(rng, 0.03, [f"${v:,.2f}" for v in np.exp(5 + z[:, 0]).tolist()]),
                "discount": [f"{v:.1f} %" for v in np.clip(15 + 8 * z[:, 1], 0, 60).tolist()],
                "member": _missing(rng, 0.02, pa.array(member).cast(pa.string())),
                "weight": _missing(rng, 0.1, [f"{v:.3f}" for v in (4 + z[:, 2]).tolist()]),
                "region": np.array(REGIONS)[region],
                "product": [f"P{number:04d}" for number in product.tolist()],
                "remark": _remarks(words, length),
                "fate": np.where(is_returned, "returned", "kept"),
            }
        )


def _missing(rng: np.random.Generator, share: float, values: object) -> pa.Array:
    """Return the values, a random ``share`` of them replaced by null."""
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return pc.if_else(pa.array(rng.random(len(array)) >= share), array, pa.scalar(None, array.type))


def _remarks(
    words: np.ndarray[tuple[int, ...], np.dtype[np.int64]], length: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> list[str]:
    vocabulary_words = vocabulary()
    return [
        " ".join([vocabulary_words[w] for w in row[:n]]) for row, n in zip(words.tolist(), length.tolist(), strict=True)
    ]


@lru_cache(4)
def _rule(seed: int) -> dict[str, Float64]:
    """Return the effects of categories and words, which all draws of a seed share."""
    rng = rule_generator(seed)
    sizes = {"region": len(REGIONS), "product": PRODUCTS, "word": WORDS, "syllable": len(ONSETS) * len(VOWELS)}
    return {name: rng.standard_normal(size) for name, size in sizes.items()}


@dataclass(frozen=True, slots=True)
class MessyTable:
    """The orders of ``RawTable`` with the faults that tables of people have.

    The faults are: a column of row numbers without a name, zip codes that begin with zeros, memberships that are
    neither true nor false, regions with blanks or in other cases, prices that are not numbers, infinite weights, dates
    in the future, days that do not exist, and rows without a label (fate).
    """

    rows: int
    """The number of rows to make."""
    seed: int = 0
    """The seed of the random numbers; equal seeds give equal files."""

    header: ClassVar[tuple[str, ...]] = ("", *RawTable.header[:-1], "zip", RawTable.header[-1])
    """The names of the columns."""

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows in order; a row depends on the seed, not on the number of rows."""
        first = 0
        for k, table in enumerate(RawTable(self.rows, self.seed).tables()):
            yield self._spoil(table, np.random.default_rng((self.seed, k, 1)), first)
            first += table.num_rows

    @staticmethod
    def _spoil(table: pa.Table, rng: np.random.Generator, first: int) -> pa.Table:
        """Return the rows of one draw with faults; ``first``: the number of its first row."""
        n = table.num_rows
        columns = {"": pa.array(np.arange(first, first + n))}
        columns |= {name: table.column(name).combine_chunks() for name in RawTable.header[:-1]}
        columns["zip"] = pa.array([f"{code:05d}" for code in (300 * rng.random(n)).astype(int).tolist()])
        columns["fate"] = _missing(rng, 0.002, table.column("fate").combine_chunks())
        for name, share, bad_values in FAULTS:
            texts = columns[name].cast(pa.string())
            drawn = pa.array(np.array(bad_values)[rng.integers(0, len(bad_values), n)])
            columns[name] = pc.if_else(pa.array(rng.random(n) < share), drawn, texts)
        return pa.table(list(columns.values()), names=list(columns))


FAULTS = (
    ("day", 0.0005, ("28-Feb-29", "31-Feb-12")),
    ("price", 0.001, ("on request",)),
    ("member", 0.3, ("0", "1", "R", "?")),
    ("weight", 0.0005, ("inf", "heavy")),
    ("region", 0.1, ("North ", "south", "EAST")),
)
"""Columns, the share of their rows that get a bad value, and the bad values."""


@dataclass(frozen=True, slots=True)
class Names:
    """Short names and one of two classes, as the module's docstring describes them."""

    rows: int
    """The number of rows to make."""
    seed: int = 0
    """The seed of the random numbers; equal seeds give equal files."""

    header: ClassVar[tuple[str, ...]] = ("name", "class")
    """The names of the columns."""

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows in order; a row depends on the seed, not on the number of rows."""
        for k in range(-(-self.rows // DRAW_ROWS)):
            yield self._draw(k).slice(0, self.rows - k * DRAW_ROWS)

    def _draw(self, k: int) -> pa.Table:
        rng, effects, parts = np.random.default_rng((self.seed, k)), _rule(self.seed)["syllable"], syllables()
        length = rng.integers(2, 5, DRAW_ROWS)
        drawn = rng.integers(0, len(parts), (DRAW_ROWS, 4))
        last = drawn[np.arange(DRAW_ROWS), length - 1]
        score = 1.2 * effects[drawn[:, 0]] + 2.5 * effects[::-1][last]
        first = rng.random(DRAW_ROWS) < 1 / (1 + np.exp(-2 * score))
        rows = zip(drawn.tolist(), length.tolist(), strict=True)
        names = ["".join([parts[p] for p in row[:n]]).capitalize() for row, n in rows]
        return pa.table({"name": names, "class": np.where(first, "f", "m")})
