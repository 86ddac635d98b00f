"""Columns of text: words and runs of characters against a slow reading of the definition; the rows around do not matter."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.errors import BudgetError, DataError, StreamSVMError, UsageError
from streamsvm.rows import to_matrix
from streamsvm.store.sources import SourceOptions, open_source, options_from
from streamsvm.store.sources.schema import TEXT, Column
from streamsvm.store.sources.text_features import DocumentCounts, document_counts_from, terms_of, text_hash, weigh

BITS, WHOLE = 7, 2**64
BASE = 0x9E3779B97F4A7C15


def mixed(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % WHOLE
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % WHOLE
    return value ^ (value >> 31)


def hashed(run: str, name: str, length: int) -> int:
    total = sum(mixed((ord(c) + BASE) % WHOLE) * pow(BASE, k, WHOLE) for k, c in enumerate(run)) % WHOLE
    return mixed(total ^ text_hash(name, TEXT) ^ length)


def slow_counts(text: str, form: str, name: str) -> dict[int, int]:
    """What the definition says, one run at a time."""
    lower, found = text.lower(), []
    if form == "words":
        found = [hashed(word, name, 0) for word in re.findall(r"\w+", lower)]
    else:
        framed = " " + re.sub(r"[ \t\n\r\f\v]+", " ", lower.strip()) + " "
        least, most = map(int, form.partition(":")[2].split("-"))
        found = [hashed(framed[a : a + n], name, n) for n in range(least, most + 1) for a in range(len(framed) - n + 1)]
    counts: Counter[int] = Counter()
    for code in found:
        counts[code % 2**BITS] += -1 if code >> 63 else 1
    return {place: count for place, count in sorted(counts.items()) if count}


TEXTS = st.lists(st.text("abÄß_9 -éÉ\t€", max_size=12), min_size=1, max_size=6)


@settings(deadline=None, max_examples=60)
@given(texts=TEXTS, form=st.sampled_from(["words", "chars:2-4", "chars:1-1", "chars:3-8"]))
def test_text_columns_terms_are_what_the_definition_says(texts: list[str], form: str) -> None:
    column = Column("t", TEXT, form=form, text_bits=BITS)
    terms = terms_of(pa.array(texts, pa.string()), column)
    for k, text in enumerate(texts):
        here = slice(int(terms.indptr[k]), int(terms.indptr[k + 1]))
        assert dict(zip(terms.places[here].tolist(), terms.counts[here].tolist(), strict=True)) == slow_counts(
            text, form, "t"
        )


@settings(deadline=None, max_examples=40)
@given(texts=TEXTS)
def test_text_columns_values_have_length_1_and_fall_with_frequency(texts: list[str]) -> None:
    column = Column("t", TEXT, form="words", text_bits=BITS)
    terms = terms_of(pa.array(texts, pa.string()), column)
    counts = DocumentCounts(0, np.zeros(2**BITS, np.uint32)).add(terms, np.ones(len(texts), np.int64))
    values = weigh(terms, counts.idf())
    for k, text in enumerate(texts):
        found = slow_counts(text, "words", "t")
        rows = {p: sum(p in slow_counts(other, "words", "t") for other in texts) for p in found}
        raw = {
            p: math.copysign(1 + math.log(abs(c)), c) * (1 + math.log((1 + len(texts)) / (1 + rows[p])))
            for p, c in found.items()
        }
        length = math.sqrt(sum(v * v for v in raw.values()))
        here = values[terms.indptr[k] : terms.indptr[k + 1]]
        assert here.tolist() == pytest.approx([v / length for v in raw.values()], rel=1e-12)
        assert terms_of(pa.array([text]), column).places.tolist() == list(found)
    again = document_counts_from(json.loads(json.dumps(counts.to_json())))
    assert np.array_equal(again.idf(), counts.idf())


ROWS = [
    {"name": f"Anna-{k % 7} Lee {k % 3}", "note": f"was {k % 5} Times, {k % 5} times", "a": k / 4} for k in range(90)
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif ".jsonl" in path.name:
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    else:
        lines = [",".join(rows[0]), *(",".join(f'"{value}"' for value in row.values()) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return path


def read(path: Path, **options: Any) -> tuple[Any, Any]:
    encoding = options.pop("encoding", None)
    source = open_source([path], SourceOptions(**options) if encoding is None else options_from(encoding, **options))
    assert source.columns is not None
    parts = [batch.X for batch in source.batches()]
    X = np.concatenate([to_matrix(X, source.columns) for X in parts])
    return X, source


SETTINGS: dict[str, Any] = {
    "label": "y",
    "text": ("name=chars:2-3", "note=words"),
    "text_bits": 6,
    "recognize": True,
}


def test_text_is_the_same_in_every_form_of_table(tmp_path: Path) -> None:
    rows = [row | {"y": k % 2} for k, row in enumerate(ROWS)]
    found, source = read(write(tmp_path / "a.csv", rows), **SETTINGS)
    assert found.shape == (90, 2 * 64 + 1)
    assert np.array_equal(found[:, -1], np.arange(90, dtype=np.float32) / 4)
    assert np.linalg.norm(found[:, :64], axis=1) == pytest.approx(1, abs=1e-6)
    for name in ("b.parquet", "b.jsonl", "b.jsonl.gz"):
        again, other = read(write(tmp_path / name, rows), **SETTINGS)
        assert np.array_equal(again, found)
        assert other.encoding()["schema"]["documents"] == source.encoding()["schema"]["documents"]
    for name in ("c.csv", "c.parquet", "c.jsonl"):  # a row alone has the values it had among all
        alone, _ = read(write(tmp_path / name, [rows[7]]), encoding=source.encoding())
        assert np.array_equal(alone[0], found[7])


@pytest.mark.parametrize("on_bad_line", ["error", "skip"])
def test_text_columns_missing_text_has_no_words(tmp_path: Path, on_bad_line: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("name,y\nNone,1\nAnn,2\n,1\nNone Null,2\n")
    found, source = read(path, label="y", text=("name=words",), text_bits=5, on_bad_line=on_bad_line)
    assert np.count_nonzero(found, axis=1).tolist() == [0, 1, 0, 2]
    assert source.schema.documents["name"].rows == 2


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_text_columns_need_memory(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [row | {"y": k % 2} for k, row in enumerate(ROWS)])
    with pytest.raises(BudgetError, match="need about 160MiB") as caught:
        read(path, label="y", text=("name=words",), drop=("note",), text_bits=22, memory_limit=64 << 20)
    assert "--text-bits" in caught.value.hint


def test_text_columns_crosses_are_values_together(tmp_path: Path) -> None:
    rows = [{"a": "pq"[k % 2], "b": str("xyz"[k % 3]), "c": k % 2 == 0, "y": k % 2} for k in range(12)]
    options: dict[str, Any] = {"label": "y", "recognize": True, "cross": ("a*b",)}
    found, source = read(write(tmp_path / "a.csv", rows), **options)
    assert source.names[-6:] == tuple(f"a*b={a} x {b}" for a in "pq" for b in "xyz")
    for j, name in enumerate(source.names[-6:], len(source.names) - 6):
        assert found[:, j].tolist() == [f"a*b={row['a']} x {row['b']}" == name for row in rows]
    again, _ = read(write(tmp_path / "b.jsonl", rows), encoding=source.encoding())
    assert np.array_equal(again, found)
    for wrong, error in ((("a",), UsageError), (("a*a",), UsageError), (("a*z",), DataError), (("a*y",), UsageError)):
        with pytest.raises(error, match="--cross"):
            read(tmp_path / "a.csv", **(options | {"cross": wrong}))


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("{", "E-PARSE", "line 3: no JSON"),
        ("[1, 2]", "E-PARSE", "is no object"),
        ('{"a": "x", "y": 1}', "E-PARSE", "line 3, column 'a': expected a number, found"),
        ('{"a": {"b": 1}, "y": 1}', "E-PARSE", "line 3, column 'a'"),
        ('{"y": 1}', "E-MISSING", "row 3, column 'a'"),
        ('{"a": 1, "y": "z"}', "E-PARSE", "line 3, column 'y': expected a whole number"),
        ('{"a": 1, "y": null}', "E-LABEL", "row 3"),
    ],
)
def test_text_columns_line_that_is_not_in_order(tmp_path: Path, line: str, code: str, text: str) -> None:
    good = "".join(f'{{"a": {k}, "y": {k % 2}}}\n' for k in range(2))
    path = tmp_path / "a.jsonl"
    path.write_text(good + line + "\n")
    with pytest.raises(StreamSVMError, match=text) as caught:
        read(path, label="y")
    assert (caught.value.code, bool(caught.value.hint)) == (code, True)
    if text not in ("line 3: no JSON", "row 3, column 'a'"):
        return
    pad = good + "".join(f'{{"a": {k}.5, "y": 0}}\n' for k in range(100_000))  # the bad line is beyond the first block
    path.write_text(pad + line + "\n")
    with pytest.raises(StreamSVMError) as caught:
        read(path, label="y")
    assert caught.value.code == code
    assert "100003" in str(caught.value)
    if code == "E-PARSE":
        found, _ = read(path, label="y", on_bad_line="skip")
        assert len(found) == 100_002
