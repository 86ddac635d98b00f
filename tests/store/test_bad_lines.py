"""CSV text without its bad lines: what is left does not depend on where blocks are halved, and good lines cost nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streamsvm.errors import DataError
from streamsvm.store.sources import SourceOptions, csv_faults, open_source
from streamsvm.store.sources.csv_dialect import Dialect, split
from streamsvm.store.sources.csv_faults import FEW_LINES, BadLineFilter, ExpectedColumns, check_line
from streamsvm.store.sources.csv_parsing import TEXT, group_conversions
from streamsvm.store.sources.input import Input
from streamsvm.store.sources.source import Rejects
from tests.axes import each_value

NAMES = ("a", "b", "y")
DIALECT = Dialect(",", True, NAMES, skipped=1)
NUMBERS = ExpectedColumns(frozenset({"a"}), frozenset({"b"}), "y")
WORDS = ExpectedColumns(frozenset(), frozenset({"a", "b"}), "y")
GOOD = [b"1,u,p", b"2.5,v,q", b'-3,"u,v",p', b'4,"a ""b""",q', b"", b"\r", b"5,w,p\r"]
ODD = [
    *(b"x,u,p", b"1,u", b"1,u,p,q", b"nan,u,p", b"inf,u,p", b"1e99,u,p", b",u,p", b"1,,p", b"1,u,", b"+1,u,p", b"NA,u,p"),
    *(b"a,b,y", b' "a" ,b,y', b'1,"u,p', b'u",1,p', b'1,u,"p', b"1,\xff,p", b"1,\0,p", b"1,u\x0cv,p", "1,u\u2028v,p".encode()),
]  # fmt: skip


def filter_lines(path: Path, lines: list[bytes], columns: ExpectedColumns) -> tuple[list[bytes], list[int]]:
    """The lines that are left, and the numbers of the others."""
    path.write_bytes(b"".join(line + b"\n" for line in [b"a,b,y", *lines]))
    types = {name: pa.float32() if name in columns.numbers else TEXT for name in NAMES}
    rejects = Rejects()
    with Input(path) as stream:
        found = b"".join(BadLineFilter(stream, DIALECT, columns, group_conversions(NAMES, types), rejects).blocks())
    return found.split(b"\n")[1:-1], [number for _, number, _, _ in rejects.lines]


def is_good(line: bytes, columns: ExpectedColumns) -> bool:
    """Whether a line is in order by itself."""
    try:
        check_line(line.removesuffix(b"\r"), "", DIALECT, columns)
    except DataError:
        return not line.strip(b"\r")
    return True


@each_value(("missing", [False, True]), ("columns", [NUMBERS, WORDS]), ("share", [0.002, 0.05, 0.8]))
def test_the_lines_left_are_those_in_order(
    tmp_path: Path, columns: ExpectedColumns, share: float, missing: bool
) -> None:
    columns, rng = columns._replace(missing=missing), np.random.default_rng(int(1000 * share))
    for _ in range(3):
        odd = rng.random(600) < share
        lines = [ODD[rng.integers(len(ODD))] if is_odd else GOOD[rng.integers(len(GOOD))] for is_odd in odd]
        good = [is_good(line, columns) for line in lines]
        left, rejected = filter_lines(tmp_path / "a.csv", lines, columns)
        assert left == [line for line, kept in zip(lines, good, strict=True) if kept]
        assert rejected == [number for number, kept in enumerate(good, 2) if not kept]


@pytest.mark.parametrize("columns", [NUMBERS, WORDS], ids=["numbers", "words"])
def test_few_lines_are_looked_at_for_a_bad_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: ExpectedColumns
) -> None:
    looked: list[str] = []

    def look(line: bytes, where: str, dialect: Dialect, columns: ExpectedColumns) -> None:
        looked.append(where)
        check_line(line, where, dialect, columns)

    monkeypatch.setattr(csv_faults, "check_line", look)
    lines = [b"%d,u,p" % k for k in range(150_000)]
    lines[10] = lines[90_000] = lines[140_000] = b"1,u"
    assert len(b"\n".join(lines)) > 1 << 20
    assert filter_lines(tmp_path / "a.csv", lines, columns)[1] == [12, 90_002, 140_002]
    assert 3 <= len(looked) <= 3 * FEW_LINES


def test_a_line_ends_with_a_line_feed_and_nothing_else() -> None:
    assert split("1,u\u2028v\x0cw,p", ",") == ["1", "u\u2028v\x0cw", "p"]
    assert split('1,"u\nv",p', ",") == ["1", "u\nv", "p"]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_bad_lines_of_all_files_are_counted_and_listed(tmp_path: Path, form: str) -> None:
    """Those of the last JSON lines file were, and no others; a census of categories reads the files once more."""
    paths = [tmp_path / f"{k}.{form}" for k in range(2)]
    for path in paths:
        lines = ["1.5,red,0", "2.5,blue,1"] * 20 + ["bad,red,1"]
        if form == "jsonl":
            rows = (line.split(",") for line in lines)
            lines = [f'{{"a": {a if a != "bad" else "[]"}, "b": "{b}", "y": {y}}}' for a, b, y in rows]
        path.write_text("\n".join(["a,b,y", *lines] if form == "csv" else lines) + "\n")
    options = SourceOptions(label="y", categorical=("b",), on_bad_line="skip", max_bad="50%")
    count = sum(len(batch.labels) for batch in open_source(paths, options).batches())
    assert count == 80
    assert [Path(name) for name, *_ in options.rejects.lines] == paths
    assert (options.rejects.count, options.rejects.read) == (2, 84 if form == "csv" else 82)
