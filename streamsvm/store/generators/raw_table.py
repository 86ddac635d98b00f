"""Tables as people have them, as text: what a file holds before anybody has made numbers of it.

A row of ``RawTable`` is an order: its number, a day (28-Feb-97), a price ($1,234.50), a discount (12.5 %), whether the
buyer is a member (yes, no), a weight, a region, one of some thousand products, a remark of a few words, and whether
it came back. Prices, weights and members are missing in some rows. A row of ``Names`` is a name of a few syllables and
one of two classes.

In both the class is drawn with probability 1 / (1 + exp(-score)), the score a sum of an effect of each part of the row:
a plane of the encoded columns is the best rule there is, and it errs.
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
"""Rows of one draw, the unit of random numbers."""
ONSETS, VOWELS, ENDS = (
    ["b", "c", "d", "f", "g", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "dr", "kr", "st", "tr"],
    ["a", "e", "i", "o", "u", "ai", "ea"],
    ["n", "r", "s", "l", "m"],
)
REGIONS = ("North", "South", "East", "West", "Isles", "Lakes", "Hills", "Coast", "Plains", "Delta", "Forest", "Capital")
PRODUCTS, WORDS = 3_000, 5_000
FIRST_DAY, DAYS = 10_957, 8_000
"""Days from 1970 to the first day, 2000-01-01, and how many days there are."""


class FileGenerator(Protocol):
    """A data set that is made as rows of text."""

    header: tuple[str, ...]

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows in order; they depend on the seed alone, and not on how many are asked for."""
        ...


def csv_lines(table: pa.Table) -> bytes:
    """Return rows as lines of CSV, without a header; what is missing is empty."""
    sink = pa.BufferOutputStream()
    pacsv.write_csv(table, sink, pacsv.WriteOptions(include_header=False, quoting_style="needed"))
    return sink.getvalue().to_pybytes()


def syllables() -> list[str]:
    """Return syllables, each once, in a fixed order."""
    return [onset + vowel for onset in ONSETS for vowel in VOWELS]


@lru_cache(1)
def vocabulary() -> tuple[str, ...]:
    """Return the words of remarks, the frequent ones first."""
    parts = syllables()
    return tuple(parts[k % len(parts)] + parts[k // len(parts)] + ENDS[k % len(ENDS)] for k in range(WORDS))


@dataclass(frozen=True, slots=True)
class RawTable:
    """Orders, as the module describes them."""

    rows: int
    """The number of rows to make."""
    seed: int = 0
    """What the random numbers are drawn from: equal seeds give equal files."""

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
        """Yield all rows in order; see ``FileGenerator.tables``."""
        for k in range(-(-self.rows // DRAW_ROWS)):
            yield self._draw(k).slice(0, self.rows - k * DRAW_ROWS)

    def _draw(self, k: int) -> pa.Table:
        rng, rule = np.random.default_rng((self.seed, k)), _rule(self.seed)
        n = DRAW_ROWS
        z, day, member = rng.standard_normal((n, 3)), rng.integers(0, DAYS, n), rng.random(n) < 0.4
        region, product = rng.integers(0, len(REGIONS), n), (PRODUCTS * rng.random(n) ** 3).astype(int)
        length = rng.integers(2, 9, n)
        words = (WORDS * rng.random((n, 8)) ** 4).astype(int)
        said = np.arange(8) < length[:, None]
        score = 0.8 * z[:, 0] - 0.6 * z[:, 1] + 0.4 * z[:, 2] + 0.5 * member + 0.1 * (day / 365.25 - 11)
        score += rule["region"][region] + rule["product"][product] + 0.5 * (rule["word"][words] * said).sum(axis=1)
        came_back = rng.random(n) < 1 / (1 + np.exp(1.0 - score))
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
                "fate": np.where(came_back, "returned", "kept"),
            }
        )


def _missing(rng: np.random.Generator, share: float, values: object) -> pa.Array:
    """The values, some of them missing."""
    found = values if isinstance(values, pa.Array) else pa.array(values)
    return pc.if_else(pa.array(rng.random(len(found)) >= share), found, pa.scalar(None, found.type))


def _remarks(
    words: np.ndarray[tuple[int, ...], np.dtype[np.int64]], length: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> list[str]:
    known = vocabulary()
    return [" ".join([known[w] for w in row[:n]]) for row, n in zip(words.tolist(), length.tolist(), strict=True)]


@lru_cache(4)
def _rule(seed: int) -> dict[str, Float64]:
    """The effects of categories and words, which all draws of a seed share."""
    rng = rule_generator(seed)
    sizes = {"region": len(REGIONS), "product": PRODUCTS, "word": WORDS, "syllable": len(ONSETS) * len(VOWELS)}
    return {name: rng.standard_normal(size) for name, size in sizes.items()}


@dataclass(frozen=True, slots=True)
class MessyTable:
    """Orders as people send them: those of ``RawTable`` with all that is not in order in tables.

    There is a column of row numbers without a name, zip codes that begin with zeros, members that are neither yes nor
    no, regions with blanks and in other cases, prices that are no numbers, infinite weights, dates in the future and
    days that no month has, and rows without a label (fate).
    """

    rows: int
    """The number of rows to make."""
    seed: int = 0
    """What the random numbers are drawn from: equal seeds give equal files."""

    header: ClassVar[tuple[str, ...]] = ("", *RawTable.header[:-1], "zip", RawTable.header[-1])
    """The names of the columns."""

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows in order; see ``FileGenerator.tables``."""
        first = 0
        for k, table in enumerate(RawTable(self.rows, self.seed).tables()):
            yield self._spoil(table, np.random.default_rng((self.seed, k, 1)), first)
            first += table.num_rows

    @staticmethod
    def _spoil(table: pa.Table, rng: np.random.Generator, first: int) -> pa.Table:
        n = table.num_rows
        found = {"": pa.array(np.arange(first, first + n))}
        found |= {name: table.column(name).combine_chunks() for name in RawTable.header[:-1]}
        found["zip"] = pa.array([f"{code:05d}" for code in (300 * rng.random(n)).astype(int).tolist()])
        found["fate"] = _missing(rng, 0.002, table.column("fate").combine_chunks())
        for name, share, wrong in MESS:
            texts = found[name].cast(pa.string())
            drawn = pa.array(np.array(wrong)[rng.integers(0, len(wrong), n)])
            found[name] = pc.if_else(pa.array(rng.random(n) < share), drawn, texts)
        return pa.table(list(found.values()), names=list(found))


MESS = (
    ("day", 0.0005, ("28-Feb-29", "31-Feb-12")),
    ("price", 0.001, ("on request",)),
    ("member", 0.3, ("0", "1", "R", "?")),
    ("weight", 0.0005, ("inf", "heavy")),
    ("region", 0.1, ("North ", "south", "EAST")),
)
"""Of a column, the share of rows with a value that is not in order, and what such values are."""


@dataclass(frozen=True, slots=True)
class Names:
    """Short names and one of two classes, as the module describes them."""

    rows: int
    """The number of rows to make."""
    seed: int = 0
    """What the random numbers are drawn from: equal seeds give equal files."""

    header: ClassVar[tuple[str, ...]] = ("name", "class")
    """The names of the columns."""

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows in order; see ``FileGenerator.tables``."""
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
