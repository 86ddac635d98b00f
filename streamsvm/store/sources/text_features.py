"""Features of text: words or character n-grams, each hashed to a column.

A column of text becomes 2^bits feature columns. The hash of each word, or of each run of 2 to 4 characters
('chars:2-4'), gives a feature column and a sign; the signs that fall on a feature column are added to a count c. The
value is sign(c) (1 + ln |c|) idf, where idf = 1 + ln((1 + rows) / (1 + rows in which the column is not 0)) is counted
over all ingested rows, and the values of a row are scaled to length 1 (Salton and Buckley 1988; signs: Weinberger and
others 2009). Text is converted to lower case. Words consist of letters, digits and '_'. Before it is cut into runs of
characters, the text gets a space at both ends, so that the beginnings and ends of words are distinguished.

The values of a row depend on its text and on the counts alone, not on other rows, to the last bit.
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

from streamsvm.errors import DataError
from streamsvm.rows import Float64
from streamsvm.store.sources.cell_parsing import Arrow, null_out_nan, to_canonical_text, to_text
from streamsvm.store.sources.schema import CHARS, TEXT, WORDS, Column
from streamsvm.type_aliases import JsonMapping, JsonObject

UInt64 = NDArray[np.uint64]
MOST_BITS = 26
"""The largest exponent of the number of feature columns of text."""
RESTORE = "restore the file: it was changed since it was written"
LONGEST_RUN = 8
"""The most characters of a run."""
BASE = np.uint64(0x9E3779B97F4A7C15)
"""An odd number; the hash of a character is multiplied by its power to the place in the run."""
_FORM = re.compile(rf"{WORDS}|{CHARS}(?::([1-9])-([1-9]))?")


def is_form(text: str) -> bool:
    """Return whether this is a way to cut text: 'words', 'chars' or 'chars:2-4'."""
    match = _FORM.fullmatch(text)
    return match is not None and (not match[1] or int(match[1]) <= int(match[2]) <= LONGEST_RUN)


@dataclass(frozen=True, slots=True)
class DocumentCounts:
    """The number of rows in which each feature column of a column of text is not 0."""

    rows: int
    counts: NDArray[np.uint32]
    """The rows in which each feature column is not 0, (2^bits,)."""

    def add(self, terms: Terms, times: NDArray[np.int64]) -> DocumentCounts:
        """Return the counts with those of distinct texts added; ``times``: the number of rows with each text."""
        text = np.repeat(np.arange(len(times)), np.diff(terms.indptr))
        more = np.bincount(terms.places, times[text], minlength=len(self.counts))
        return DocumentCounts(self.rows + int(times.sum()), (self.counts + more).astype(np.uint32))

    def idf(self) -> Float64:
        """Return 1 + ln((1 + rows) / (1 + count)) of each feature column, float64."""
        distinct, inverse = np.unique(self.counts, return_inverse=True)
        weights = np.array([1.0 + math.log((1 + self.rows) / (1 + count)) for count in distinct.tolist()])
        column_weights: Float64 = weights[inverse]
        return column_weights

    def to_json(self) -> JsonObject:
        """Return the counts as plain JSON: little-endian uint32, deflated, in base 64."""
        packed = base64.b64encode(zlib.compress(self.counts.astype("<u4").tobytes(), 9)).decode("ascii")
        return {"rows": self.rows, "columns": len(self.counts), "counts": packed}


def document_counts_from(recorded: JsonMapping) -> DocumentCounts:
    """Return the counts that ``DocumentCounts.to_json`` wrote. Raises DataError E-META for a damaged record."""
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
    """The start of the entries of each text, (n + 1,)."""
    places: NDArray[np.int64]
    """The feature column of each entry, ascending within a text."""
    counts: Float64
    """The sum of the signs that fell on the feature column; never 0."""


def terms_of(texts: Arrow, column: Column) -> Terms:
    """Return the terms of distinct texts, an Arrow array (n,) of strings; null has no terms."""
    codes, starts = _characters(texts, framed=column.form != WORDS)
    hash_terms = _hash_words if column.form == WORDS else _hash_runs
    rows, hashed = hash_terms(codes, starts, column)
    size = np.int64(1 << column.text_bits)
    places = (hashed & np.uint64(size - 1)).astype(np.int64)
    keys, inverse = np.unique(rows * size + places, return_inverse=True)
    counts = np.bincount(inverse, np.where(hashed >> np.uint64(63), -1.0, 1.0), len(keys))
    kept = counts != 0
    row, place = np.divmod(keys[kept], size)
    return Terms(np.searchsorted(row, np.arange(len(texts) + 1)).astype(np.int64), place, counts[kept])


def weigh(terms: Terms, idf: Float64) -> Float64:
    """Return the values of terms, float64: sign(c) (1 + ln |c|) idf, scaled to length 1 per text."""
    sizes = np.abs(terms.counts).astype(np.int64)
    values: Float64 = np.sign(terms.counts) * _log_counts(int(sizes.max(initial=1)))[sizes] * idf[terms.places]
    texts = len(terms.indptr) - 1
    text = np.repeat(np.arange(texts), np.diff(terms.indptr))
    lengths = np.sqrt(np.bincount(text, values * values, texts))
    return values / lengths[text]


@lru_cache(4)
def _log_counts(most: int) -> Float64:
    """Return 1 + ln c for the counts c = 0 ... ``most``, and 0 for c = 0."""
    return np.array([0.0, *(1.0 + math.log(count) for count in range(1, most + 1))])


def _characters(texts: Arrow, *, framed: bool) -> tuple[UInt64, NDArray[np.int64]]:
    """Return the code points of all texts, in lower case and concatenated, and the start of each text (n + 1,).

    ``framed``: whether a space is added at both ends of each text, and runs of blanks become one space.
    """
    lower = pc.fill_null(pc.utf8_lower(to_text(texts)), "")
    if framed:
        inner = pc.replace_substring_regex(pc.utf8_trim_whitespace(lower), r"\s+", " ")
        lower = pc.binary_join_element_wise(" ", inner, " ", "")
    starts = np.append(0, np.cumsum(pc.utf8_length(lower).to_numpy(zero_copy_only=False), dtype=np.int64))
    joined = "".join(lower.to_pylist())
    return np.frombuffer(joined.encode("utf-32-le"), "<u4").astype(np.uint64), starts


def to_lower_case(texts: list[str]) -> list[str]:
    """Return texts in lower case, as they are before they are hashed."""
    lower: list[str] = pc.utf8_lower(pa.array(texts, pa.string())).to_pylist()
    return lower


def _mix_bits(values: UInt64) -> UInt64:
    """Mix the bits of values by the last step of splitmix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _hash_runs(codes: UInt64, starts: NDArray[np.int64], column: Column) -> tuple[NDArray[np.int64], UInt64]:
    """Return the text and the hash of every run of characters of the lengths that the column asks for."""
    least, most = run_lengths(column)
    text = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    remaining = np.repeat(starts[1:], np.diff(starts)) - np.arange(len(codes))  # characters to the end of the text
    code_hashes, seed = _mix_bits(codes + BASE), np.uint64(text_hash(column.name, TEXT))
    sums, power = np.zeros(len(codes), np.uint64), 1
    rows, hashes = [], []
    for length in range(1, most + 1):
        sums[: max(0, len(codes) - length + 1)] += code_hashes[length - 1 :] * np.uint64(power)
        power = power * int(BASE) % 2**64
        if length >= least:
            run_starts = np.flatnonzero(remaining >= length)
            rows.append(text[run_starts])
            hashes.append(_mix_bits(sums[run_starts] ^ seed ^ np.uint64(length)))
    return np.concatenate(rows), np.concatenate(hashes)


def run_lengths(column: Column) -> tuple[int, int]:
    """Return the least and the most characters of the runs into which a column of text is cut."""
    match = _FORM.fullmatch(column.form)
    assert match is not None
    return (int(match[1]), int(match[2])) if match[1] else (2, 4)


def _hash_words(codes: UInt64, starts: NDArray[np.int64], column: Column) -> tuple[NDArray[np.int64], UInt64]:
    """Return the text and the hash of every word."""
    text = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    in_word = word_characters()[np.minimum(codes, np.uint64(0xFFFF)).astype(np.int64)]
    is_first = in_word.copy()
    is_first[1:] &= ~in_word[:-1] | (text[1:] != text[:-1])
    word_starts, places = np.flatnonzero(is_first), np.flatnonzero(in_word)
    if not len(word_starts):
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    word = np.cumsum(is_first)[places] - 1
    place_in_word = places - word_starts[word]
    powers = _powers(int(place_in_word.max(initial=0)) + 1)
    sums = np.add.reduceat(_mix_bits(codes[places] + BASE) * powers[place_in_word], np.flatnonzero(is_first[places]))
    return text[word_starts], _mix_bits(sums ^ np.uint64(text_hash(column.name, TEXT)))


@lru_cache(1)
def word_characters() -> NDArray[np.bool_]:
    """Return whether each of the code points 0 ... 0xFFFE belongs to words; the last item, True, is for all others."""
    is_word = [chr(code).isalnum() or code == ord("_") for code in range(0xFFFF)]
    return np.array([*is_word, True])


def _powers(count: int) -> UInt64:
    """Return the first ``count`` powers of ``BASE`` modulo 2^64."""
    powers = np.full(count, BASE)
    powers[0] = 1
    return np.multiply.accumulate(powers)


def text_hash(column: str, text: str) -> int:
    """Return a 64-bit hash of a text of a column; it is the same on every machine and in every version."""
    return int.from_bytes(hashlib.blake2b(f"{column}={text}".encode(), digest_size=8).digest(), "little")


def to_hashed_text(values: Arrow) -> Arrow:
    """Return the texts of a hashed column as they are hashed."""
    return pc.utf8_trim_whitespace(to_canonical_text(values))


def hash_place_and_sign(column: str, text: str, bits: int) -> tuple[int, int]:
    """Return to which of the 2^``bits`` columns that hashed columns share a text is hashed, and with which sign."""
    code = text_hash(column, text.strip())
    return code & ((1 << bits) - 1), -1 if code >> 63 else 1


def distinct_texts(values: Arrow) -> tuple[Arrow, NDArray[np.int64]]:
    """Return the distinct texts of a column, and the index of the text of each row (n,) int64, -1 for null and NaN."""
    encoded = values if pa.types.is_dictionary(values.type) else to_text(null_out_nan(values)).dictionary_encode()
    codes = encoded.indices.cast(pa.int64())  # the codes of polars are unsigned and cannot hold -1
    rows = pc.fill_null(codes, -1).to_numpy(zero_copy_only=False)
    if len(encoded.dictionary) <= len(rows):
        return encoded.dictionary, rows
    used, inverse = np.unique(rows, return_inverse=True)  # a slice has the dictionary of all rows it was cut from
    has_null = int(len(used) > 0 and used[0] < 0)
    return encoded.dictionary.take(pa.array(used[has_null:])), inverse.astype(np.int64) - has_null
