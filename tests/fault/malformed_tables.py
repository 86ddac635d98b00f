"""Tables that are not in order, one kind of fault each: what is said of them, and what cures them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 300
Write = Callable[[Path], object]


class Malformed(NamedTuple):
    """A file with a fault, and the refusal that is expected of it."""

    write: Write
    """Writes the file."""
    code: str
    """The code of the error."""
    says: str
    """A part of what is said."""
    options: str = "--label y"
    """What the command is given beside the file."""
    cure: str = "hint"
    """'hint': every option that the hint names makes the command work; 'one': at least one of them does; 'all': all together do; 's/OLD/NEW/': the
    command with other words; 'none': the hint names nothing to do by command; else a command for a shell that makes the
    file NEW of FILE, and options after '&&'."""
    name: str = "t.csv"
    """The name of the file."""


def rows(cells: Callable[[int], str], header: str = "y,a,b") -> list[str]:
    return [header, *(cells(k) for k in range(ROWS))]


GOOD = rows(lambda k: f"{k % 2},{k}.5,{k * k % 7}")
WORDS = rows(lambda k: f"{k % 2},{k}.5,{['red', 'blue'][k % 2]}")


def lines(found: list[str], end: str = "\n") -> Write:
    return lambda path: path.write_bytes((end.join(found) + end).encode())


def raw(content: bytes) -> Write:
    return lambda path: path.write_bytes(content)


def changed(at: int, line: str, base: list[str] = GOOD) -> Write:
    return lines([*base[:at], line, *base[at + 1 :]])


def array(values: object) -> Write:
    return lambda path: np.save(path, np.array(values))


def idx(path: Path) -> None:
    """Images without labels, with labels in a file beside them."""
    images, labels = np.arange(ROWS * 4, dtype=np.uint8), (np.arange(ROWS) % 2).astype(np.uint8)
    path.write_bytes(b"\0\0\x08\x03" + struct.pack(">3i", ROWS, 2, 2) + images.tobytes())
    name = path.name.replace("images", "labels").replace("idx3", "idx1")
    path.with_name(name).write_bytes(b"\0\0\x08\x01" + struct.pack(">i", ROWS) + labels.tobytes())


def arrays(path: Path) -> None:
    np.save(path, np.arange(ROWS * 3.0).reshape(-1, 3))
    np.save(path.with_name(path.name.replace("X", "y")), np.arange(ROWS) % 2)


def table(**columns: object) -> Write:
    return lambda path: pq.write_table(pa.table({"y": [k % 2 for k in range(ROWS)], **columns}), path)


def objects(change: dict[int, str], **more: object) -> Write:
    found = [json.dumps({"y": k % 2, "a": k + 0.5, **more}) for k in range(ROWS)]
    for at, line in change.items():
        found[at] = line
    return lines(found)


MALFORMED: dict[str, Malformed] = {
    # -- lines of another length
    "a value too few": Malformed(changed(9, "1,2"), "E-ROWLEN", "line 10: expected 3 values, got 2", cure="one"),
    "a value too many": Malformed(changed(9, "1,2,3,4"), "E-ROWLEN", "line 10: expected 3 values, got 4", cure="one"),
    "a delimiter at the end": Malformed(changed(9, "1,2,3,"), "E-ROWLEN", "line 10", cure="one"),
    "delimiters at all ends": Malformed(
        lines([GOOD[0], *(line + "," for line in GOOD[1:])]), "E-ROWLEN", "line 2", cure="sed s/,$// FILE > NEW"
    ),
    "a semicolon instead": Malformed(changed(9, "1;2;3"), "E-ROWLEN", "line 10", cure="one"),
    "a tab instead": Malformed(changed(9, "1\t2\t3"), "E-ROWLEN", "line 10", cure="one"),
    "a decimal comma unquoted": Malformed(changed(9, "1,2,5,3"), "E-ROWLEN", "line 10", cure="one"),
    # -- quotes
    "a quote not closed": Malformed(changed(9, '1,"2,3'), "E-QUOTE", "line 10", cure="one"),
    # -- numbers that are none
    "a word among numbers": Malformed(changed(9, "1,oops,3"), "E-PARSE", "line 10, column 'a'", cure="hint"),
    "a unit after a number": Malformed(changed(9, "1,12kg,3"), "E-PARSE", "'12kg'", cure="hint"),
    "two points": Malformed(changed(9, "1,1.2.3,3"), "E-PARSE", "'1.2.3'", cure="hint"),
    "hexadecimal": Malformed(changed(9, "1,0x1F,3"), "E-PARSE", "'0x1F'", cure="hint"),
    "an underscore": Malformed(changed(9, "1,1_000,3"), "E-PARSE", "'1_000'", cure="hint"),
    "a fraction": Malformed(changed(9, "1,1/2,3"), "E-PARSE", "'1/2'", cure="hint"),
    "a dash for nothing": Malformed(changed(9, "1,-,3"), "E-MISSING", "'-'", cure="hint"),
    "a formula's error": Malformed(changed(9, "1,#DIV/0!,3"), "E-MISSING", "#DIV/0!", cure="hint"),
    "a letter O for zero": Malformed(changed(9, "1,1O,3"), "E-PARSE", "'1O'", cure="hint"),
    "infinity": Malformed(changed(9, "1,inf,3"), "E-NONFINITE", "line 10, column 'a'", cure="hint"),
    "not a number": Malformed(changed(9, "1,nan,3"), "E-MISSING", "line 10, column 'a'", cure="hint"),
    "beyond float32": Malformed(changed(9, "1,1e300,3"), "E-RANGE", "line 10, column 'a'", cure="hint"),
    # -- missing values
    "a missing number": Malformed(changed(9, "1,,3"), "E-MISSING", "line 10, column 'a'", cure="hint"),
    "NA": Malformed(changed(9, "1,NA,3"), "E-MISSING", "'NA'", cure="hint"),
    "a question mark": Malformed(changed(9, "1,?,3"), "E-MISSING", "'?'", cure="hint"),
    "a missing word": Malformed(changed(9, "1,2,", WORDS), "E-MISSING", "column 'b'", cure="one"),
    "a missing label": Malformed(changed(9, ",2,3"), "E-LABEL", "line 10, column 'y'", cure="hint"),
    "text beside --missing": Malformed(
        lines([*WORDS[:9], "1,,red", *WORDS[10:]]),
        "E-PARSE",
        "line 2, column 'b': expected a number",
        "--label y --missing mean --no-recognize",
        cure="one",
    ),
    # -- the head
    "no header": Malformed(lines(GOOD[1:]), "E-HEADER", "header names", "--label last", cure="hint"),
    "a name twice": Malformed(changed(0, "y,a,a"), "E-HEADER", "'a' twice", cure="sed 1s/a,a/a,b/ FILE > NEW"),
    "the header again": Malformed(changed(9, GOOD[0]), "E-PARSE", "the header line again", cure="hint"),
    "class for Class": Malformed(
        changed(0, "Class,a,b"), "E-LABEL", "'class' for the label", "--label class", cure="hint"
    ),
    "a label in another case": Malformed(changed(0, "Y,a,b"), "E-LABEL", "'y' for the label", cure="hint"),
    "a label that is not there": Malformed(
        lines(GOOD), "E-LABEL", "'z' for the label", "--label z", cure="s/$/ --label y/"
    ),
    "no label said": Malformed(lines(GOOD), "E-USAGE", "which column", "", cure="s/$/ --label y/"),
    "a dropped column that is none": Malformed(
        lines(GOOD), "E-SCHEMA", "has no column 'q', named by --drop", "--label y --drop q", cure="s/--drop q/--drop a/"
    ),
    # -- delimiters
    "spaces between values": Malformed(
        lines([line.replace(",", " ") for line in GOOD]), "E-DIALECT", "spaces would give 3", cure="hint"
    ),
    "several spaces": Malformed(
        lines([line.replace(",", "   ") for line in GOOD]),
        "E-DIALECT",
        "spaces would give 3",
        cure="tr -s ' ' < FILE > NEW && --delimiter ' '",
    ),
    "another delimiter than said": Malformed(
        lines([line.replace(",", ";") for line in GOOD]),
        "E-DIALECT",
        "';' would give 3",
        "--label y --delimiter ,",
        cure="hint",
    ),
    # -- the end and the bytes
    "no line feed at the end": Malformed(raw("\n".join(GOOD).encode()), "E-TRUNCATED", "no line feed", cure="hint"),
    "Latin-1": Malformed(
        raw("\n".join([*WORDS[:9], "1,2,caf\xe9", *WORDS[10:], ""]).encode("latin-1")),
        "E-ENCODING",
        "0xE9",
        "--label y --categorical b",
        cure="hint",
    ),
    "UTF-16": Malformed(
        raw(("\n".join(GOOD) + "\n").encode("utf-16")),
        "E-ENCODING",
        "UTF-16",
        cure="all",
    ),
    "old Mac line ends": Malformed(lines(GOOD, "\r"), "E-PARSE", "CR alone", cure="tr '\\r' '\\n' < FILE > NEW"),
    "a NUL byte": Malformed(changed(9, "1,2\0,3"), "E-PARSE", "line 10", cure="none"),
    "an escape sequence": Malformed(changed(9, "1,\x1b[31m2,3"), "E-PARSE", "line 10, column 'a'", cure="hint"),
    # -- kinds of columns
    "a decimal comma": Malformed(
        changed(9, '1,"0,5",3'),
        "E-PARSE",
        "line 10, column 'a'",
        "--label y --no-recognize",
        cure="sed s/.0,5./0.5/ FILE > NEW",
    ),
    "words nobody declared": Malformed(lines(WORDS), "E-PARSE", "column 'b'", "--label y --no-recognize", cure="one"),
    "a category of too many values": Malformed(
        lines(["y,a", *(f"{k % 2},w{k}" for k in range(10_050))]),
        "E-LIMIT",
        "more than 10000",
        "--label y --categorical a",
        cure="one",
    ),
    "a cross of numbers": Malformed(
        lines(GOOD), "E-USAGE", "does not hold categories", "--label y --cross a*b", cure="hint"
    ),
    # -- JSON lines
    "a JSON array": Malformed(
        raw(json.dumps([{"y": k % 2, "a": k} for k in range(ROWS)]).encode()),
        "E-FORMAT",
        "JSON array",
        cure="python -c \"import json; print(*map(json.dumps, json.load(open('FILE'))), sep=chr(10))\" > NEW",
        name="t.jsonl",
    ),
    "half an object": Malformed(objects({9: '{"y": 1, "a"'}), "E-PARSE", "line 10", cure="hint", name="t.jsonl"),
    "a list for an object": Malformed(objects({9: "[1, 2]"}), "E-PARSE", "no object", cure="one", name="t.jsonl"),
    "text for a number": Malformed(
        objects({9: '{"y": 1, "a": "x"}'}), "E-PARSE", "line 10, column 'a'", cure="hint", name="t.jsonl"
    ),
    "objects within objects": Malformed(
        objects({}, b={"c": 1}), "E-DTYPE", "holds objects", cure="none", name="t.jsonl"
    ),
    "a key that is missing": Malformed(
        objects({9: '{"y": 1}'}), "E-MISSING", "row 10, column 'a'", cure="one", name="t.jsonl"
    ),
    # -- Parquet
    "a list in Parquet": Malformed(
        table(a=[[1.0, 2.0]] * ROWS, b=list(range(ROWS))), "E-DTYPE", "column 'a'", cure="hint", name="t.parquet"
    ),
    "a null in Parquet": Malformed(
        table(a=[None, *range(ROWS - 1)], b=list(range(ROWS))),
        "E-MISSING",
        "row 1, column 'a'",
        cure="hint",
        name="t.parquet",
    ),
    "dates nobody declared": Malformed(
        table(a=pa.array(range(ROWS), pa.int32()).cast(pa.date32()), b=list(range(ROWS))),
        "E-DTYPE",
        "column 'a'",
        "--label y --no-recognize",
        cure="one",
        name="t.parquet",
    ),
    # -- arrays
    "images without labels": Malformed(
        idx, "E-USAGE", "where are the labels", "", cure="hint", name="train-images-idx3-ubyte"
    ),
    "an array without labels": Malformed(
        arrays, "E-USAGE", "where are the labels", "", cure="hint", name="X_train.npy"
    ),
    "a NaN in an array": Malformed(
        array([[1.0, np.nan, 0], [2, 3, 1]] * 50), "E-NONFINITE", "row 1", "--label last", cure="hint", name="t.npy"
    ),
    "an array of text": Malformed(
        array([["a", "b"]] * 9), "E-DTYPE", "text", "--label last", cure="none", name="t.npy"
    ),
}
