"""Text as numbers: cut into words or runs of characters, each hashed to a column.

A column of text becomes 2^bits feature columns. Of every word, or of every run of 2 to 4 characters ('chars:2-4'), a
hash says its column and a sign; what falls on a column is added up to a count c. The value is sign(c) (1 + ln |c|) idf,
idf = 1 + ln((1 + rows) / (1 + rows in which the column is not 0)) counted over all rows that were ingested, and the
values of a row have length 1 (Salton and Buckley 1988; signs: Weinberger and others 2009). Case does not count. Words
are of letters, digits and '_'; runs of characters are taken of the text between two spaces, so that beginnings and ends
of words are told apart.

A row's values depend on its text and on the counts alone, not on the rows around it: to the last bit.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamsvm.aliases import JsonMapping, JsonObject
from streamsvm.errors import DataError
from streamsvm.rows import Float64
from streamsvm.store.sources.cell_parsing import Arrow, to_text
from streamsvm.store.sources.schema import CHARS, TEXT, WORDS, Column

UInt64 = NDArray[np.uint64]
MOST_BITS = 26
"""The largest exponent of the number of feature columns of text."""
RESTORE = "restore the file: it was changed since it was written"
LONGEST_RUN = 8
"""The most characters of a run."""
BASE = np.uint64(0x9E3779B97F4A7C15)
"""Odd: what the place of a character in a run multiplies its hash by."""
_FORM = re.compile(rf"{WORDS}|{CHARS}(?::([1-9])-([1-9]))?")


def is_form(text: str) -> bool:
    """Return whether this is a way to cut text: 'words', 'chars' or 'chars:2-4'."""
    found = _FORM.fullmatch(text)
    return found is not None and (not found[1] or int(found[1]) <= int(found[2]) <= LONGEST_RUN)


@dataclass(frozen=True, slots=True)
class DocumentCounts:
    """In how many rows each feature column of a column of text is not 0."""

    rows: int
    counts: NDArray[np.uint32]
    """(2^bits,) rows in which the feature column is not 0."""

    def add(self, terms: Terms, times: NDArray[np.int64]) -> DocumentCounts:
        """Return the counts with those of some texts, each of which so many rows have."""
        which = np.repeat(np.arange(len(times)), np.diff(terms.indptr))
        more = np.bincount(terms.places, times[which], minlength=len(self.counts))
        return DocumentCounts(self.rows + int(times.sum()), (self.counts + more).astype(np.uint32))

    def idf(self) -> Float64:
        """Return 1 + ln((1 + rows) / (1 + count)) of each feature column, float64."""
        distinct, which = np.unique(self.counts, return_inverse=True)
        weights = np.array([1.0 + math.log((1 + self.rows) / (1 + count)) for count in distinct.tolist()])
        found: Float64 = weights[which]
        return found

    def to_json(self) -> JsonObject:
        """Return the counts as plain JSON: little-endian uint32, deflated, in base 64."""
        packed = base64.b64encode(zlib.compress(self.counts.astype("<u4").tobytes(), 9)).decode("ascii")
        return {"rows": self.rows, "columns": len(self.counts), "counts": packed}


def document_counts_from(recorded: JsonMapping) -> DocumentCounts:
    """Return the counts that ``DocumentCounts.to_json`` wrote. Raises DataError E-META for what is none."""
    rows, columns = int(recorded["rows"]), int(recorded["columns"])
    if not (0 <= rows and 1 <= columns <= 1 << MOST_BITS):
        raise DataError(f"counts of text of {columns} columns and {rows} rows", code="E-META", hint=RESTORE)
    try:
        raw = zlib.decompressobj().decompress(base64.b64decode(recorded["counts"]), 4 * columns)
    except (ValueError, zlib.error) as error:
        raise DataError(f"counts of text cannot be read: {error}", code="E-META", hint=RESTORE) from error
    if len(raw) != 4 * columns:
        raise DataError(f"counts of text have {len(raw)} bytes, expected {4 * columns}", code="E-META", hint=RESTORE)
    return DocumentCounts(rows, np.frombuffer(raw, "<u4").astype(np.uint32))


class Terms(NamedTuple):
    """Texts as counts of hashed words or runs of characters: CSR without a width."""

    indptr: NDArray[np.int64]
    """Where the entries of each text begin, (n + 1,)."""
    places: NDArray[np.int64]
    """The feature column of each entry, ascending within a text."""
    counts: Float64
    """The sum of the signs of what fell there; never 0."""


def terms_of(texts: Arrow, column: Column) -> Terms:
    """Return the terms of distinct texts, (n,) strings, of which one that is null has none."""
    codes, starts = _characters(texts, framed=column.form != WORDS)
    cut = _words if column.form == WORDS else _runs
    rows, hashed = cut(codes, starts, column)
    size = np.int64(1 << column.text_bits)
    places = (hashed & np.uint64(size - 1)).astype(np.int64)
    keys, which = np.unique(rows * size + places, return_inverse=True)
    counts = np.bincount(which, np.where(hashed >> np.uint64(63), -1.0, 1.0), len(keys))
    kept = counts != 0
    row, place = np.divmod(keys[kept], size)
    return Terms(np.searchsorted(row, np.arange(len(texts) + 1)).astype(np.int64), place, counts[kept])


def weigh(terms: Terms, idf: Float64) -> Float64:
    """Return the values of terms, float64: sublinear in the counts, by how rare they are, of length 1 a text."""
    sizes = np.abs(terms.counts).astype(np.int64)
    values: Float64 = np.sign(terms.counts) * _sublinear(int(sizes.max(initial=1)))[sizes] * idf[terms.places]
    texts = len(terms.indptr) - 1
    which = np.repeat(np.arange(texts), np.diff(terms.indptr))
    lengths = np.sqrt(np.bincount(which, values * values, texts))
    return values / lengths[which]


@lru_cache(4)
def _sublinear(most: int) -> Float64:
    return np.array([0.0, *(1.0 + math.log(count) for count in range(1, most + 1))])


def _characters(texts: Arrow, *, framed: bool) -> tuple[UInt64, NDArray[np.int64]]:
    """The code points of all texts in lower case one after the other, and where each text begins."""
    lower = pc.fill_null(pc.utf8_lower(to_text(texts)), "")
    if framed:
        inner = pc.replace_substring_regex(pc.utf8_trim_whitespace(lower), r"\s+", " ")
        lower = pc.binary_join_element_wise(" ", inner, " ", "")
    starts = np.append(0, np.cumsum(pc.utf8_length(lower).to_numpy(zero_copy_only=False), dtype=np.int64))
    joined = "".join(lower.to_pylist())
    return np.frombuffer(joined.encode("utf-32-le"), "<u4").astype(np.uint64), starts


def _mix_bits(values: UInt64) -> UInt64:
    """Bits well mixed, by splitmix64's last step."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _runs(codes: UInt64, starts: NDArray[np.int64], column: Column) -> tuple[NDArray[np.int64], UInt64]:
    """The text and the hash of every run of the lengths that are asked for."""
    found = _FORM.fullmatch(column.form)
    assert found is not None
    least, most = (int(found[1]), int(found[2])) if found[1] else (2, 4)
    text = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    left = np.repeat(starts[1:], np.diff(starts)) - np.arange(len(codes))  # characters to the end of the text
    known, seed = _mix_bits(codes + BASE), np.uint64(text_hash(column.name, TEXT))
    sums, power = np.zeros(len(codes), np.uint64), 1
    rows, hashes = [], []
    for length in range(1, most + 1):
        sums[: max(0, len(codes) - length + 1)] += known[length - 1 :] * np.uint64(power)
        power = power * int(BASE) % 2**64
        if length >= least:
            whole = np.flatnonzero(left >= length)
            rows.append(text[whole])
            hashes.append(_mix_bits(sums[whole] ^ seed ^ np.uint64(length)))
    return np.concatenate(rows), np.concatenate(hashes)


def _words(codes: UInt64, starts: NDArray[np.int64], column: Column) -> tuple[NDArray[np.int64], UInt64]:
    """The text and the hash of every word."""
    text = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    inside = _of_words()[np.minimum(codes, np.uint64(0xFFFF)).astype(np.int64)]
    first = inside.copy()
    first[1:] &= ~inside[:-1] | (text[1:] != text[:-1])
    begins, within = np.flatnonzero(first), np.flatnonzero(inside)
    if not len(begins):
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    word = np.cumsum(first)[within] - 1
    place = within - begins[word]
    powers = _powers(int(place.max(initial=0)) + 1)
    sums = np.add.reduceat(_mix_bits(codes[within] + BASE) * powers[place], np.flatnonzero(first[within]))
    return text[begins], _mix_bits(sums ^ np.uint64(text_hash(column.name, TEXT)))


@lru_cache(1)
def _of_words() -> NDArray[np.bool_]:
    """Which of the first 65,536 code points words are made of; all others are taken for letters."""
    known = [chr(code).isalnum() or code == ord("_") for code in range(0xFFFF)]
    return np.array([*known, True])


def _powers(count: int) -> UInt64:
    """The first powers of ``BASE`` modulo 2^64."""
    powers = np.full(count, BASE)
    powers[0] = 1
    return np.multiply.accumulate(powers)


def text_hash(column: str, text: str) -> int:
    """Return 64 bits that are the same for the same text everywhere and always."""
    return int.from_bytes(hashlib.blake2b(f"{column}={text}".encode(), digest_size=8).digest(), "little")


def distinct_texts(values: Arrow) -> tuple[Arrow, NDArray[np.int64]]:
    """Return the distinct texts of a column and which of them each row has, -1 for none."""
    encoded = values if pa.types.is_dictionary(values.type) else to_text(values).dictionary_encode()
    places = encoded.indices.cast(pa.int64())  # polars counts without a sign, and -1 is none of its numbers
    rows = pc.fill_null(places, -1).to_numpy(zero_copy_only=False)
    if len(encoded.dictionary) <= len(rows):
        return encoded.dictionary, rows
    used, which = np.unique(rows, return_inverse=True)  # a slice brings the texts of all rows it was cut from
    absent = int(len(used) > 0 and used[0] < 0)
    return encoded.dictionary.take(pa.array(used[absent:])), which.astype(np.int64) - absent
