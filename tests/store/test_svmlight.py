"""The svmlight source: the grammar case by case, and against a slow parser; values against Python's float and scikit-learn."""

from __future__ import annotations

import gzip
import lzma
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.compute import svmlight_text
from streamsvm.compute.svmlight_text import NO_INDEX, Parsed, scratch
from streamsvm.errors import StreamSVMError
from streamsvm.rows import CSR
from streamsvm.store.sources import SourceOptions, open_source
from streamsvm.store.sources import byte_stream as input_module
from streamsvm.store.sources.svmlight import Expected, explain

GOOD = b"1 1:1 3:0.5\n-1 2:2\n"


def read(path: Path, **options: Any) -> tuple[CSR, np.ndarray[Any, Any], Any]:
    """All rows of a file as one CSR, its labels, and the source."""
    source = open_source([path], SourceOptions(format="svmlight", **options))
    batches = list(source.batches())
    data, indices = (np.concatenate([getattr(b.X, part) for b in batches]) for part in ("data", "indices"))
    lengths = np.concatenate([np.diff(b.X.indptr) for b in batches])
    X = CSR(data, indices, np.concatenate([[0], np.cumsum(lengths)]))
    return X, np.concatenate([b.labels for b in batches]), source


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], Path]:
    def make(content: bytes) -> Path:
        path = tmp_path / "a.svm"
        path.write_bytes(content)
        return path

    return make


ACCEPTED = {
    "S01 zero-based": b"1 0:0.5 3:2\n",
    "S28 plus sign": b"+1 1:1\n",
    "S31 label only": b"1\n-1 1:1\n",
    "S32 blank lines": b"\n1 1:1\n \n\t\n-1 1:1\n",
    "S33 comments": b"# c\n1 1:1 # c 2:2\n1 1:1#c\n1 # c\n1#c\n \t# c\n",
    "S36 byte order mark": b"\xef\xbb\xbf1 1:1\n",
    "S38 CRLF": b"1 1:1\r\n\r\n-1 2:2 \r\n",
    "tabs and spaces": b"  1\t1:1 \t 2:2\t\n",
    "number forms": b"1. 1:.5 2:5. 3:-0 4:1e5 5:1E+05 6:+2 7:1e-50\n",
    "comment is not ASCII": "1 1:1 # é\n".encode(),
}


@pytest.mark.parametrize("content", ACCEPTED.values(), ids=ACCEPTED)
def test_svmlight_reads_what_the_grammar_allows(write: Callable[[bytes], Path], content: bytes) -> None:
    X, labels, source = read(write(content))
    assert len(labels) == len(X.indptr) - 1 == source.sources[0].rows > 0


REFUSED = {
    "S03": (b"1 -1:0.5\n", "E-INDEX"),
    "S04": (b"1 2147483648:1\n", "E-LIMIT"),
    "S05": (b"1 1099511627776:1\n", "E-LIMIT"),
    "S06": (b"1 99999999999999999999:1\n", "E-LIMIT"),
    "S07": (b"1 1:1 1:2\n", "E-DUP"),
    "S08": (b"1 3:1 1:2\n", "E-ORDER"),
    "S09": (b"1 1.5:2\n", "E-PARSE"),
    "S10": (b"1 a:2\n", "E-PARSE"),
    "S11": (b"1 1:\n", "E-PARSE"),
    "S12": (b"1 :2\n", "E-PARSE"),
    "S13": (b"1 1:2:3\n", "E-PARSE"),
    "S14": (b"1 1: 2\n", "E-PARSE"),
    "S15": (b"1 1 :2\n", "E-PARSE"),
    "S16": (b"1 1:nan\n", "E-NONFINITE"),
    "S17": (b"1 1:-Inf\n", "E-NONFINITE"),
    "S18": (b"1 1:1e400\n", "E-RANGE"),
    "S19": (b"1 1:1e39\n", "E-RANGE"),
    "S20": (b"1 1:0x10\n", "E-PARSE"),
    "S21": (b"1 1:1_000\n", "E-PARSE"),
    "S22": (b"1 1:0,5\n", "E-PARSE"),
    "S23": (b"nan 1:1\n", "E-LABEL"),
    "S24": (b"1:1 2:2\n", "E-LABEL"),
    "S25": (b"cat 1:1\n", "E-LABEL"),
    "S26": (b"1,2 1:1\n", "E-LABEL"),
    "S27": (b"1 2 1:1\n", "E-PARSE"),
    "S34": (b"1 qid:3 1:1\n", "E-QID"),
    "S35": (b"1 qid:3.5 1:1\n", "E-QID"),
    "S37": ("1 1:1\n".encode("utf-16"), "E-ENCODING"),
    "S39": (b"1 1:1\r-1 2:2\r", "E-PARSE"),
    "S40": (b"1 1:1\0 2:2\n", "E-PARSE"),
    "S41": (b"1 1:1 2:", "E-TRUNCATED"),
    "S42": (b"1 1:1 2:0.12", "E-TRUNCATED"),
    "S43": ("1 1:\uff11\n".encode(), "E-PARSE"),
    "S44": ("1 \u0661:1\n".encode(), "E-PARSE"),
    "S47": (b"1 -0:1\n", "E-INDEX"),
    "S48 sign": (b"1 +1:1\n", "E-PARSE"),
    "S48 zeros": (b"1 0001:1\n", "E-PARSE"),
    "S49": (b"1,2,3\n", "E-FORMAT"),
    "S58": (b"1 | a:1 b:2\n", "E-FORMAT"),
    "S59": (b"1 \x1b[31mx:1\n", "E-PARSE"),
    "exponent without digits": (b"1 1:1e\n", "E-PARSE"),
    "point alone": (b"1 1:.\n", "E-PARSE"),
    "entries not separated": (b"1 1:1.5.2:3\n", "E-PARSE"),
    "label and entry not separated": (b"1\v1:1\n", "E-LABEL"),
}


@pytest.mark.parametrize(("content", "code"), REFUSED.values(), ids=REFUSED)
def test_svmlight_refuses_a_malformed_line_with_its_number(
    write: Callable[[bytes], Path], content: bytes, code: str
) -> None:
    path = write(content if content.startswith(b"\xff") else GOOD + content)
    with pytest.raises(StreamSVMError) as caught:
        read(path)
    assert caught.value.code == code
    assert caught.value.exit_code == 65
    assert caught.value.hint
    assert "a.svm" in caught.value.message
    assert str(caught.value).isascii()
    assert "\x1b" not in str(caught.value)
    if content.endswith(b"\n") and code != "E-ENCODING":
        assert "a.svm line 3: " in caught.value.message


@pytest.mark.parametrize("content", [b"", b"# nothing\n\n"], ids=["S45", "S46"])
def test_svmlight_refuses_a_file_without_rows(write: Callable[[bytes], Path], content: bytes) -> None:
    with pytest.raises(StreamSVMError, match="no rows") as caught:
        read(write(content))
    assert caught.value.code == "E-EMPTY"


def test_svmlight_line_number_in_a_later_block(write: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """S55: the line number is right however many blocks came before."""
    lines = [b"1 1:0.5 2:0.25\n"] * 200_000
    lines[150_000] = b"1 1:0.5 2:x\n"
    with pytest.raises(StreamSVMError, match="line 150001: "):
        read(write(b"".join(lines)))


def test_svmlight_line_that_never_ends_is_refused(
    write: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S51."""
    monkeypatch.setattr(input_module, "LINE_LIMIT", 1 << 20)
    with pytest.raises(StreamSVMError) as caught:
        read(write(b"1 1:" + b"1" * (3 << 20)))
    assert caught.value.code == "E-LIMIT"


def test_svmlight_row_of_ten_million_entries_is_refused(write: Callable[[bytes], Path]) -> None:
    """S52: as the line it is."""
    with pytest.raises(StreamSVMError, match="a line of more than 64 MiB") as caught:
        read(write(b"1" + b" 12345678:1" * 10**7 + b"\n"))
    assert caught.value.code == "E-LIMIT"


def test_svmlight_line_longer_than_a_block_is_read(write: Callable[[bytes], Path]) -> None:
    entries = b"".join(b" %d:1" % i for i in range(1, 500_001))
    X, _, _ = read(write(b"1 1:2\n-1" + entries + b"\n1 3:1\n"))
    assert np.diff(X.indptr).tolist() == [1, 500_000, 1]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_svmlight_compression_is_told_from_the_content(
    write: Callable[[bytes], Path], pack: Callable[[bytes], bytes]
) -> None:
    """S50."""
    packed = pack(GOOD * 1000)
    X, _, source = read(write(packed))
    assert len(X.indptr) == 2001
    assert source.sources[0].compression
    with pytest.raises(StreamSVMError) as caught:
        read(write(packed[:-20]))
    assert caught.value.code == "E-TRUNCATED"


def test_svmlight_final_newline_may_be_allowed(write: Callable[[bytes], Path]) -> None:
    X, _, _ = read(write(b"1 1:1\n-1 2:0.5"), allow_no_final_newline=True)
    assert X.data.tolist() == [1, 0.5]


class TestIndexBase:
    def test_svmlight_zero_in_the_first_block_means_zero(self, write: Callable[[bytes], Path]) -> None:
        X, _, source = read(write(b"1 3:1\n1 0:1\n"))
        assert (source.encoding()["index_base"], source.columns, X.indices.tolist()) == (0, 4, [3, 0])

    def test_svmlight_indices_begin_at_one(self, write: Callable[[bytes], Path]) -> None:
        X, _, source = read(write(b"1 3:1\n1 1:1\n"))
        assert (source.encoding()["index_base"], source.columns, X.indices.tolist()) == (1, 3, [2, 0])

    @pytest.mark.parametrize(("given", "columns"), [(0, 4), (1, 3)])
    def test_svmlight_index_base_can_be_given(self, write: Callable[[bytes], Path], given: int, columns: int) -> None:
        assert read(write(b"1 3:1\n"), index_base=given)[2].columns == columns

    def test_svmlight_later_zero_is_an_error_with_the_way_out(self, tmp_path: Path) -> None:
        """S02: index 0 only in the last file."""
        first, second = tmp_path / "a.svm", tmp_path / "b.svm"
        first.write_bytes(b"1 1:1\n")
        second.write_bytes(b"1 0:1\n")
        with pytest.raises(StreamSVMError) as caught:
            list(open_source([first, second]).batches())
        assert caught.value.code == "E-INDEX"
        assert "b.svm line 1" in caught.value.message
        assert "--index-base 0" in caught.value.hint

    def test_svmlight_test_file_gets_the_recorded_base(self, write: Callable[[bytes], Path]) -> None:
        """S53."""
        encoding = read(write(b"1 0:1 4:1\n"))[2].encoding()
        X, _, source = read(write(b"1 3:1\n"), encoding=encoding)
        assert (X.indices.tolist(), source.columns) == ([3], 5)

    def test_svmlight_index_beyond_the_columns(self, write: Callable[[bytes], Path]) -> None:
        """S54."""
        with pytest.raises(StreamSVMError) as caught:
            read(write(b"1 5:1\n"), features=4)
        assert caught.value.code == "E-SCHEMA"


def test_svmlight_prediction_needs_no_labels(write: Callable[[bytes], Path]) -> None:
    encoding = read(write(GOOD))[2].encoding()
    X, labels, _ = read(write(b"1:1 3:0.5\n2:2\n# c\n"), encoding=encoding)
    assert (X.indices.tolist(), X.indptr.tolist(), len(labels)) == ([0, 2, 1], [0, 2, 3], 0)


def test_svmlight_query_ids_can_be_ignored(write: Callable[[bytes], Path]) -> None:
    X, labels, _ = read(write(b"1 qid:7 1:1\n2\tqid:8\n"), ignore_qid=True)
    assert (X.indptr.tolist(), labels.tolist()) == ([0, 1, 1], [1, 2])


TOKENS = [
    "1",
    "-1",
    "+1",
    " ",
    " ",
    "\t",
    ":",
    "1:1",
    "2:0.5",
    "3:1e3",
    "4:-.5",
    "0:1",
    "7:",
    ":7",
    "#",
    "nan",
    "e",
    "1e39",
]


ODD = ["\r", "\0", ",", "qid:1", "1.5:2", "0x1", "é", "|", "99999999999", "-2:1", "1e400", "01:1", ".", "5:1e-400"]


@given(st.lists(st.sampled_from(TOKENS + ODD), max_size=8).map("".join), st.booleans())
def test_svmlight_parser_and_explanation_agree(
    tmp_path_factory: pytest.TempPathFactory, line: str, spaced: bool
) -> None:
    """A line is refused by the parser just when there is something to say about it."""
    path = tmp_path_factory.mktemp("lines") / "a.svm"
    content = line.encode() if not spaced else line.replace("1", " 1").encode()
    path.write_bytes(b"1 1:1\n" + content + b"\n")
    said = str(explain(content, "line", Expected(1, None)))
    if (
        not content.removesuffix(b"\r").partition(b"#")[0].strip(b" \t") or "cannot be read" in said
    ):  # said when nothing is found
        read(path, index_base=1)
    else:
        with pytest.raises(StreamSVMError) as caught:
            read(path, index_base=1)
        assert str(caught.value) == said.replace("line", f"{path} line 2", 1)


def decimal_texts() -> Iterator[Any]:
    digits = st.text("0123456789", max_size=25)
    mantissa = st.tuples(digits, digits).filter("".join).map(lambda parts: f"{parts[0]}.{parts[1]}".rstrip("."))
    exponent = st.one_of(st.just(""), st.integers(-340, 38).map("e{}".format))
    yield st.tuples(st.sampled_from(["", "-", "+"]), mantissa, exponent).map("".join)
    yield st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr)
    yield st.floats(-1e38, 1e38).map(repr)


@given(st.lists(st.one_of(*decimal_texts()), min_size=1, max_size=50))
def test_svmlight_values_are_those_of_float(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    with np.errstate(over="ignore"):
        expected = np.array([float(t) for t in texts]).astype(np.float32)
    texts = [t for t, value in zip(texts, expected, strict=True) if np.isfinite(value)]
    path = tmp_path_factory.mktemp("values") / "a.svm"
    path.write_text(f"0 1:0 {' '.join(f'{i}:{t}' for i, t in enumerate(texts, 2))}\n")
    X, _, _ = read(path, offsets=())
    assert X.data[1:].tobytes() == expected[np.isfinite(expected)].tobytes()


@given(st.lists(st.floats(-(2.0**53), 2.0**53), min_size=1, max_size=9))
def test_svmlight_labels_are_those_of_float(tmp_path_factory: pytest.TempPathFactory, labels: list[float]) -> None:
    path = tmp_path_factory.mktemp("labels") / "a.svm"
    path.write_text("".join(f"{label!r} 1:1\n" for label in labels))
    assert read(path)[1].tolist() == labels


def test_svmlight_number_that_is_left_to_python_stays_in_its_row_and_place(write: Callable[[bytes], Path]) -> None:
    """Of nineteen digits and more: labels and values of rows that are not the first among them."""
    long = b"0.1234567890123456789012345"
    X, y, _ = read(write(b"1 1:2\n%b 1:3 2:%b\n-2 2:%b\n%b\n" % (long, long, long, long)))
    assert y.tolist() == [1.0, float(long), -2.0, float(long)]
    assert X.data.tolist() == [2.0, 3.0, np.float32(float(long)), np.float32(float(long))]


@pytest.mark.data
@pytest.mark.parametrize("name", ["a9a.xz", "w8a.xz", "letter.xz", "ijcnn1.gz", "imdb.xz"])
def test_svmlight_real_files_are_read_as_by_sklearn(
    data_file: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    from sklearn.datasets import load_svmlight_file

    path = data_file(name)
    content = (lzma.open if name.endswith("xz") else gzip.open)(path).read()
    plain = tmp_path / "plain.svm"
    plain.write_bytes(content)
    expected, labels = load_svmlight_file(str(plain), dtype=np.float32)
    X, found, source = read(path)
    assert source.columns == expected.shape[1]
    assert X.data.tobytes() == expected.data.tobytes()
    assert np.array_equal(X.indices, expected.indices)
    assert np.array_equal(X.indptr, expected.indptr)
    assert np.array_equal(found, labels)


NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"


# -- against a slow parser ---------------------------------------------------------------------------------------------


def slowly(text: str, base: int, top: int, *, unlabeled: bool) -> tuple[Parsed, list[Any], list[Any]]:
    """What the pass is to return, labels, and (row, column, value) of the entries, all with numbers of Python."""
    labels: list[float] = []
    entries: list[Any] = []
    consumed = lines = blank = 0
    smallest = NO_INDEX
    for line in text.split("\n")[:-1]:
        content = (line[:-1] if line.endswith("\r") and "#" not in line else line).partition("#")[0]
        words = re.split(r"[ \t]+", content.strip(" \t"))
        if words == [""]:
            blank += 1
        else:
            none = unlabeled and re.fullmatch(r".*:.*", words[0]) is not None
            label, pairs = (None, words) if none else (words[0], words[1:])
            found = [re.fullmatch(rf"(0|[1-9]\d*):({NUMBER})", pair) for pair in pairs]
            good = all(found) and (label is None or re.fullmatch(NUMBER, label) is not None)
            columns = [int(pair[1]) for pair in found if pair]
            values = [float(pair[2]) for pair in found if pair]
            rising = all(a < b for a, b in zip([base - 1, *columns], columns, strict=False))
            if not (good and rising and max(columns, default=base) <= top):
                return Parsed(len(labels), len(entries), 0, consumed, lines, blank, smallest, True), labels, entries
            entries += [(len(labels), column - base, value) for column, value in zip(columns, values, strict=True)]
            labels.append(float("nan") if label is None else float(label))
            smallest = min([smallest, *columns])
        lines, consumed = lines + 1, consumed + len(line) + 1
    return Parsed(len(labels), len(entries), 0, consumed, lines, blank, smallest, False), labels, entries


TEXTS = [
    "", "\n", "1\n", "1 1:2\n", "1 1:2 3:4\n-1 2:5\n", "1\t1:2 \t 3:4\t\n", "  1 1:1  \n", "\t\n1 1:1\n \n", "#\n", "# 1 1:1\n1 1:1#2:2\n",
    "1 1:1 # 2:2\n2#\n3 #\n", "1 1:1\r\n2 2:2 \r\n\r\n", "1 1:1\r2 2:2\n", "1\r\r\n", "1 1:1\n\n\n2 2:2\n", "1:1 2:2\n", "1:1\n2 3:4\n", "0:1\n",
    "1 0:1 2:1\n", "1 1:1 0:1\n", "1 2:1 2:1\n", "1 3:1 2:1\n", "1 7:1\n", "1 8:1\n", "1 9:1\n", "1 10:1\n", "1 99999999999999999999:1\n", "1 01:1\n",
    "1 00:1\n", "1 1:+1 2:-.5 3:5.\n", "1 1:1e2 2:1E-2 3:1e+2\n", "1 1:\n", "1 :1\n", "1 1\n", "1 1:1:1\n", "1 1: 1\n", "1 1 :1\n", "1 -1:1\n", "1 +1:1\n",
    "x 1:1\n", "- 1:1\n", ". 1:1\n", "1e 1:1\n", "1 1:.\n", "1 1:1e\n", "1 1:1e+\n", "+ \n", "1.5 2:0\n",
    "1 1:12:3\n", "1 1:1 2:2\n2 1:1 x\n3 1:1\n", "1 1:1\n2 2:x\n", "1 1:0 2:-0 3:0e5\n", "-0 1:1\n", "1,2 1:1\n", "1 1:1,2:2\n", "1 1:1;2\n", "1/2 1:1\n", "1 /:1\n",
    "1 1:1/\n", "1 1:1 2\n", "1  #\n", "\r\n", "\r1 1:1\n", "1 1:1 \r \n", "5 6:7 #\r\n", "1 1:9 2:/\n",
]  # fmt: skip


@pytest.mark.parametrize("python", [False, True], ids=["compiled", "python"])
@pytest.mark.parametrize("unlabeled", [False, True])
@pytest.mark.parametrize("base", [0, 1])
def test_svmlight_pass_every_line_is_taken_or_refused_as_the_grammar_says(
    base: int, unlabeled: bool, python: bool
) -> None:
    """With nothing after the text, and with bytes behind it that are no part of it."""
    parse = svmlight_text.parse.py_func if python else svmlight_text.parse
    for content in TEXTS:
        expected, labels, entries = slowly(content, base, 8, unlabeled=unlabeled)
        text = np.frombuffer(content.encode() + b"7 7:7\n", np.uint8)
        for exact in (False, True):
            out = scratch(8, 16, exact=exact)
            found = Parsed(*parse(text, len(content), base, 8, unlabeled, out))
            assert found == expected, repr(content)
            kind = np.float64 if exact else np.float32
            assert out.data.dtype == kind
            np.testing.assert_array_equal(out.labels[: found.rows], labels, repr(content))
            rows = np.repeat(np.arange(found.rows), np.diff(out.indptr[: found.rows + 1]))
            triples = zip(rows, out.indices[: found.entries], out.data[: found.entries], strict=True)
            assert list(triples) == [(row, column, kind(value)) for row, column, value in entries], repr(content)
