"""The CSV source: the malformed corpus case by case, bad lines, one-hot encoding, several files, values against Python's float."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamsvm as sv
from streamsvm.errors import DataError, StreamSVMError
from streamsvm.rows import in_layout
from streamsvm.store.sources import SourceOptions, csv_parsing, open_source
from streamsvm.store.sources import csv as csv_source
from streamsvm.store.sources.byte_stream import Input
from streamsvm.store.sources.csv_dialect import Dialect, split
from streamsvm.store.sources.csv_faults import BadLineFilter, ExpectedColumns, check_line
from streamsvm.store.sources.csv_parsing import TEXT, group_conversions
from streamsvm.store.sources.rejects import Rejects
from tests.axes import each_value

GOOD = b"a,b,y\n1,2,1\n3,4,-1\n"


def read(*paths: Path, **options: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], Any]:
    """All rows of the files as one dense matrix, the labels, and the source."""
    source = open_source(paths, SourceOptions(**({"format": "csv", "label": "last"} | options)))
    batches = list(source.batches())
    X = [in_layout(b.X, sparse=False, columns=source.columns).values for b in batches]
    return np.concatenate(X), np.concatenate([b.labels for b in batches]), source


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def make(content: bytes, name: str = "a.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return make


ACCEPTED: dict[str, tuple[bytes, dict[str, Any], list[list[float]]]] = {
    "plain": (GOOD, {}, [[1, 2], [3, 4]]),
    "C11 byte order mark": (b"\xef\xbb\xbf" + GOOD, {}, [[1, 2], [3, 4]]),
    "C11 without header": (b"\xef\xbb\xbf1,2,1\n", {"header": False}, [[1, 2]]),
    "C26 spaces": (b"a, b ,y\n 1 , 2 , 1\n", {}, [[1, 2]]),
    "C27 number forms": (b"a,b,y\n1e5,1E+05,1\n.5,5.,1\n-0,1e-30,1\n", {}, [[1e5, 1e5], [0.5, 5], [-0.0, 1e-30]]),
    "C32 mixed line ends": (b"a,b,y\r\n1,2,1\n3,4,1\r\n", {}, [[1, 2], [3, 4]]),
    "tabs": (b"a\tb\ty\n1\t2\t1\n", {}, [[1, 2]]),
    "semicolons": (b"a;b;y\n1;2;1\n", {}, [[1, 2]]),
    "quoted": (b'"a","b,c","y"\n"1","2","1"\n', {}, [[1, 2]]),
    "blank lines": (b"\na,b,y\n\n1,2,1\n\n3,4,1\n", {}, [[1, 2], [3, 4]]),
    "label first": (b"y,a,b\n1,2,3\n", {"label": "first"}, [[2, 3]]),
    "label by name": (b"a,y,b\n1,2,3\n", {"label": "y"}, [[1, 3]]),
    "dropped": (b"id,a,y\nx,2,3\n", {"drop": ("id",)}, [[2]]),
    "C23 gzip by content": (gzip.compress(GOOD), {}, [[1, 2], [3, 4]]),
    "C19 several gzip members": (gzip.compress(GOOD[:10]) + gzip.compress(GOOD[10:]), {}, [[1, 2], [3, 4]]),
    "padded gzip": (gzip.compress(GOOD) + bytes(512), {}, [[1, 2], [3, 4]]),
    "ints that turn to floats": (b"a,y\n1,1\n2.5,1\n", {}, [[1], [2.5]]),
    "labels that turn to floats": (b"a,y\n1,1\n", {}, [[1]]),
}


@pytest.mark.parametrize(("content", "options", "expected"), ACCEPTED.values(), ids=ACCEPTED)
def test_csv_reads_what_the_grammar_allows(
    write: Callable[..., Path], content: bytes, options: dict[str, Any], expected: list[list[float]]
) -> None:
    X, labels, source = read(write(content), **options)
    assert X.tolist() == np.array(expected, np.float32).tolist()
    assert len(labels) == len(X) == source.sources[0].rows


HEADER = b"a,b,y\n1,2,1\n"


REFUSED: dict[str, tuple[bytes, dict[str, Any], str, str]] = {
    "C01": (b"1,2,1\n3,4,-1\n", {}, "E-HEADER", "--no-header"),
    "C02": (HEADER * 2, {}, "E-PARSE", "line 3: the header line again"),
    "C03": (HEADER + b"3\n", {}, "E-ROWLEN", "line 3: expected 3 values, got 1"),
    "C04": (HEADER + b"3,4,5,6\n", {}, "E-ROWLEN", "line 3: expected 3 values, got 4"),
    "C05": (HEADER + b'3,"4,1\n5,6,1\n', {}, "E-QUOTE", "line 3"),
    "C07": (b"a;b;y\n1;2;1\n", {"delimiter": ","}, "E-DIALECT", "';' would give 3"),
    "C08": (HEADER + b'1,"0,5",1\n', {}, "E-PARSE", "decimal point"),
    "C09 NA": (HEADER + b"1,NA,1\n", {}, "E-MISSING", "line 3, column 'b'"),
    "C09 ?": (HEADER + b"?,1,1\n", {}, "E-MISSING", "line 3, column 'a'"),
    "C09 NULL": (HEADER + b"NULL,1,1\n", {}, "E-MISSING", "line 3"),
    "C09 empty": (HEADER + b",1,1\n", {}, "E-MISSING", "line 3"),
    "missing label": (HEADER + b"1,1,\n", {}, "E-LABEL", "line 3"),
    "C10": (HEADER + b"1,\xe9,1\n", {}, "E-ENCODING", "line 3: byte 0xE9"),
    "C10 header": (b"a,\xe9,y\n1,2,1\n", {}, "E-ENCODING", "byte 0xE9"),
    "C12": (HEADER.decode().encode("utf-16"), {}, "E-ENCODING", "UTF-16"),
    "C13": (b"a,a,y\n1,2,1\n", {}, "E-HEADER", "'a' twice"),
    "C14": (HEADER, {"label": "z"}, "E-LABEL", "'a', 'b', 'y'"),
    "C15": (b"a,y\n" + b"1,1\n" * 400_000 + b"x,1\n", {}, "E-PARSE", "line 400002"),
    "C17": (HEADER + b"3,4,0.12", {}, "E-TRUNCATED", "no line feed"),
    "C17 within a row": (HEADER + b"3,4", {}, "E-TRUNCATED", "no line feed"),
    "C20": (gzip.compress(HEADER) + b"garbage", {}, "E-TRUNCATED", "a.csv"),
    "C25": (HEADER + b"1,2,1,\n", {}, "E-ROWLEN", "ends with a delimiter"),
    "C27 infinity": (HEADER + b"1,Infinity,1\n", {}, "E-NONFINITE", "line 3, column 'b'"),
    "nan": (HEADER + b"nan,1,1\n", {}, "E-MISSING", "line 3, column 'a'"),
    "range": (HEADER + b"1e39,1,1\n", {}, "E-RANGE", "line 3, column 'a'"),
    "C28 text": (b"a,b,y\n1,red,1\n", {}, "E-PARSE", "--categorical"),
    "C28 bool": (b"a,b,y\n1,true,1\n", {}, "E-PARSE", "--column b=category"),
    "C30": (b"", {}, "E-EMPTY", "a.csv"),
    "C30 header only": (b"a,b,y\n", {}, "E-EMPTY", "a.csv"),
    "C28 typed": (b"a,b,y\n1,red,1\n", {}, "E-PARSE", "line 2, column 'b'"),
    "C33": (b"a,b,y\n1,2001-01-01,1\n", {}, "E-PARSE", "--calendar"),
    "NUL": (HEADER + b"1,\x002,1\n", {}, "E-PARSE", "line 3"),
    "ANSI": (HEADER + b"1,\x1b[31m2,1\n", {}, "E-PARSE", "line 3"),
    "only a label": (b"y\n1\n", {}, "E-SCHEMA", "a.csv"),
    "unknown categorical": (HEADER, {"categorical": ("z",)}, "E-SCHEMA", "--categorical"),
}


@pytest.mark.parametrize(("content", "options", "code", "text"), REFUSED.values(), ids=REFUSED)
def test_csv_refuses_a_malformed_file_with_its_line(
    write: Callable[..., Path], content: bytes, options: dict[str, Any], code: str, text: str
) -> None:
    with pytest.raises(StreamSVMError) as caught:
        read(write(content), **options)
    assert caught.value.code == code
    assert text in str(caught.value)
    assert caught.value.hint
    assert "\x1b" not in str(caught.value)


PACKED = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}


@each_value(("share", [0.3, 0.9, 0.999]), ("pack", PACKED.values()))
def test_csv_refuses_a_cut_compressed_file(
    write: Callable[..., Path], pack: Callable[[bytes], bytes], share: float
) -> None:
    """C18, C24."""
    rows = np.random.default_rng(0).normal(size=(20_000, 3))
    packed = pack(b"a,b,y\n" + b"".join(b"%.6f,%.6f,%.0f\n" % tuple(r) for r in rows))
    with pytest.raises(StreamSVMError) as caught:
        read(write(packed[: int(len(packed) * share)]))
    assert caught.value.code == "E-TRUNCATED"


def test_csv_refuses_a_damaged_compressed_file(write: Callable[..., Path]) -> None:
    """C21."""
    packed = bytearray(gzip.compress(GOOD * 1000))
    packed[-6] ^= 1
    with pytest.raises(StreamSVMError) as caught:
        read(write(bytes(packed)))
    assert caught.value.code == "E-CRC"


def test_csv_asks_which_column_is_the_label(write: Callable[..., Path]) -> None:
    with pytest.raises(StreamSVMError) as caught:
        read(write(GOOD), label=None)
    assert caught.value.exit_code == 2
    assert "'a', 'b', 'y'" in caught.value.hint


@pytest.mark.parametrize("head", [b"", b"a,b,y\n1,2,1\n"])
def test_csv_refuses_a_line_without_an_end(write: Callable[..., Path], head: bytes) -> None:
    """C22."""
    bomb = gzip.compress(head + b"1" * (80 << 20), compresslevel=1)
    with pytest.raises(StreamSVMError) as caught:
        read(write(bomb))
    assert caught.value.code == "E-LIMIT"


class TestSeveralFiles:
    def test_csv_files_are_matched_by_column_name(self, write: Callable[..., Path]) -> None:
        X, labels, source = read(write(b"a,b,y\n1,2,1\n"), write(b"y,b,a\n-1,4,3\n", "b.csv"))
        assert (X.tolist(), labels.tolist(), source.names) == ([[1, 2], [3, 4]], [1, -1], ("a", "b"))
        assert [f.rows for f in source.sources] == [1, 1]

    def test_csv_files_with_other_columns_are_refused(self, write: Callable[..., Path]) -> None:
        """C31."""
        with pytest.raises(StreamSVMError, match=r"'b' is only in .*a\.csv; 'c' is only in .*b\.csv") as caught:
            read(write(b"a,b,y\n1,2,1\n"), write(b"a,c,y\n3,4,-1\n", "b.csv"))
        assert caught.value.code == "E-SCHEMA"

    def test_csv_errors_count_lines_per_file(self, write: Callable[..., Path]) -> None:
        with pytest.raises(StreamSVMError, match=r"b\.csv line 2, column 'a'"):
            read(write(b"a,y\n1,1\n"), write(b"a,y\nx,1\n", "b.csv"))


class TestCategories:
    CONTENT = b"color,size,y\nred,1,p\nblue,2,q\nred,3,p\n"

    def test_csv_categories_are_one_hot_in_sorted_order(self, write: Callable[..., Path]) -> None:
        X, labels, source = read(write(self.CONTENT), categorical=("color",))
        assert source.names == ("color=blue", "color=red", "size")
        assert X.tolist() == [[0, 1, 1], [1, 0, 2], [0, 1, 3]]
        assert labels.tolist() == ["p", "q", "p"]

    def test_csv_star_makes_all_text_categorical(self, write: Callable[..., Path]) -> None:
        assert read(write(self.CONTENT), categorical=("*",))[2].names == ("color=blue", "color=red", "size")

    def test_csv_numbers_can_be_categories(self, write: Callable[..., Path]) -> None:
        names = read(write(self.CONTENT), categorical=("*", "size"))[2].names
        assert names[2:] == ("size=1", "size=2", "size=3")

    def test_csv_many_categories_make_sparse_rows(self, write: Callable[..., Path]) -> None:
        rows = b"".join(b"c%d,%d,1\n" % (i, i % 3) for i in range(50))
        X, _, source = read(write(b"c,n,y\n" + rows), categorical=("c",))
        assert source.sparse
        assert X[:, :-1].sum(1).tolist() == [1] * 50
        assert X[:, -1].tolist() == [i % 3 for i in range(50)]

    def test_csv_refuses_too_many_categories(self, write: Callable[..., Path]) -> None:
        rows = b"".join(b"c%d,1\n" % i for i in range(10_001))
        with pytest.raises(StreamSVMError) as caught:
            read(write(b"c,y\n" + rows), categorical=("c",))
        assert caught.value.code == "E-LIMIT"

    def test_csv_refuses_a_missing_category(self, write: Callable[..., Path]) -> None:
        with pytest.raises(StreamSVMError, match="line 5, column 'color'") as caught:
            read(write(self.CONTENT + b",4,p\n"), categorical=("color",))
        assert caught.value.code == "E-MISSING"


def test_csv_reads_row_weights(write: Callable[..., Path]) -> None:
    source = open_source([write(b"a,w,y\n1,0.5,1\n2,2,-1\n")], SourceOptions(label="y", weight="w"))
    (batch,) = source.batches()
    assert batch.weight is not None
    assert (source.names, batch.weight.tolist()) == (("a",), [0.5, 2])


def test_csv_negative_weights_are_refused(write: Callable[..., Path]) -> None:
    with pytest.raises(StreamSVMError, match="negative") as caught:
        read(write(b"a,w,y\n1,0.5,1\n2,-2,-1\n"), weight="w")
    assert caught.value.code == "E-RANGE"


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=30))
def test_csv_values_are_those_of_float(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    path = tmp_path_factory.mktemp("values") / "a.csv"
    path.write_text("a,y\n" + "".join(f"{v!r},1\n" for v in values))
    assert read(path, offsets=())[0][:, 0].tobytes() == np.array(values, np.float32).tobytes()


def test_csv_batches_are_bounded(write: Callable[..., Path]) -> None:
    path = write(b"a,b,y\n" + b"1.5,2.5,1\n" * 500_000)
    source = open_source([path], SourceOptions(label="y"))
    sizes = [len(batch.labels) for batch in source.batches()]
    assert sum(sizes) == 500_000
    assert max(sizes) <= 2 * csv_parsing.BLOCK // 10


@pytest.mark.data
def test_csv_kdd_against_the_standard_library(data_file: Callable[[str], Path]) -> None:
    path = data_file("corrected.gz")
    X, labels, source = read(path, header=False, categorical=("*",))
    assert (len(X), len(set(labels.tolist()))) == (311_029, 38)
    with gzip.open(path, "rt") as file:
        for i, row in zip(range(2000), csv.reader(file), strict=False):
            values = dict(zip(source.names, X[i].tolist(), strict=True))
            assert labels[i] == row[-1]
            assert values["f1"] == float(row[0])
            assert values[f"f3={row[2]}"] == 1
            assert sum(v for name, v in values.items() if name.startswith("f3=")) == 1


@pytest.mark.data
def test_csv_covtype_against_numpy(data_file: Callable[[str], Path]) -> None:
    path = data_file("covtype.csv.gz")
    X, labels, source = read(path)
    assert np.bincount(labels.astype(int)).tolist() == [0, 211840, 283301, 35754, 2747, 9493, 17367, 20510]
    expected = np.loadtxt(path, delimiter=",", skiprows=1, max_rows=5000, dtype=np.float32)
    assert np.array_equal(X[:5000], expected[:, :-1])
    assert source.sources[0].rows == len(X) == 581_012


def test_csv_some_columns_at_a_time_are_the_same_columns(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many pyarrow converts at once decides nothing: not kinds, nor values, labels or what is said of them."""
    lines = [f"{k}.5,{'red' if k % 3 else 'blue'},{k},,$1{k}.20,{2**60 + k % 2},{10**9 + k}" for k in range(300)]
    path = write("\n".join(["a,color,n,empty,price,y,when", *lines, ""]).encode())
    asked: dict[str, Any] = {"label": "y", "recognize": True, "missing": "zero"}
    X, y, source = read(path, **asked)
    for module in (csv_parsing, csv_source):
        monkeypatch.setattr(module, "GROUP", 2)
    few, labels, other = read(path, **asked)
    np.testing.assert_array_equal(few, X)
    assert labels.tolist() == y.tolist() == [str(2**60 + k % 2) for k in range(300)]
    assert (other.proposals, other.encoding()) == (source.proposals, source.encoding())
    assert any("seconds since 1970" in line for line in other.proposals)


NAMES = ("a", "b", "y")
DIALECT = Dialect(",", True, NAMES, skipped=1)
NUMBERS = ExpectedColumns(frozenset({"a"}), frozenset({"b"}), "y")
WORDS = ExpectedColumns(frozenset(), frozenset({"a", "b"}), "y")
LINES_GOOD = [b"1,u,p", b"2.5,v,q", b'-3,"u,v",p', b'4,"a ""b""",q', b"", b"\r", b"5,w,p\r"]


# -- bad lines ---------------------------------------------------------------------------------------------------------

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
def test_csv_bad_lines_are_left_out_and_no_others(
    tmp_path: Path, columns: ExpectedColumns, share: float, missing: bool
) -> None:
    columns, rng = columns._replace(missing=missing), np.random.default_rng(int(1000 * share))
    for _ in range(3):
        odd = rng.random(600) < share
        lines = [ODD[rng.integers(len(ODD))] if is_odd else LINES_GOOD[rng.integers(len(LINES_GOOD))] for is_odd in odd]
        good = [is_good(line, columns) for line in lines]
        left, rejected = filter_lines(tmp_path / "a.csv", lines, columns)
        assert left == [line for line, kept in zip(lines, good, strict=True) if kept]
        assert rejected == [number for number, kept in enumerate(good, 2) if not kept]


def test_csv_line_ends_with_a_line_feed_and_nothing_else() -> None:
    assert split("1,u\u2028v\x0cw,p", ",") == ["1", "u\u2028v\x0cw", "p"]
    assert split('1,"u\nv",p', ",") == ["1", "u\nv", "p"]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_csv_bad_lines_of_all_files_are_counted_and_listed(tmp_path: Path, form: str) -> None:
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
    assert (options.rejects.count, options.rejects.lines_read) == (2, 84 if form == "csv" else 82)


@pytest.mark.parametrize("at", [5, 100_000], ids=["at the beginning", "beyond the first block"])
def test_csv_value_over_two_lines_is_refused_wherever_it_is(at: int, tmp_path: Path) -> None:
    lines = [f"{k}.5,{('red', 'blue')[k % 2]},{k // 2 % 2}" for k in range(120_000)]
    lines[at] = '1.5,"r\ned",1'
    (tmp_path / "t.csv").write_text("x,color,y\n" + "\n".join(lines) + "\n")
    with pytest.raises(DataError) as caught:
        sv.ingest(tmp_path / "t.csv", tmp_path / "s.zarr", label="y")
    assert (caught.value.code, f"line {at + 2}:" in caught.value.message) == ("E-QUOTE", True)
