"""Blocks of CSV text as record batches.

pyarrow is given memory and no file, because it reads files ahead in threads of its own: one that still called Python
code when the program ended, after an error, would abort it. Wide tables are converted some columns at a time, because
for each column it converts pyarrow holds tables of all the ways to write a missing value, some 5 KiB.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from streamsvm.aliases import ByName
from streamsvm.store.sources.csv.dialect import Dialect
from streamsvm.store.sources.reading.in_order import in_order
from streamsvm.store.sources.table.cells import Arrow, is_text
from streamsvm.store.sources.table.missing_words import MissingWords

TEXT = pa.dictionary(pa.int32(), pa.string())
"""The type of a column that is read as it is written."""
GROUP = 4096
"""Columns that are converted at a time."""


def reading(dialect: Dialect, block: int, *, multiline: bool, skip: bool = False) -> ByName:
    """Return how pyarrow reads lines of a dialect; ``skip``: lines of another length are left out."""
    parsing = pacsv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=multiline)
    if skip:
        parsing.invalid_row_handler = lambda _: "skip"
    return {
        "read_options": pacsv.ReadOptions(
            use_threads=False, block_size=block, skip_rows=dialect.skipped, column_names=list(dialect.names)
        ),
        "parse_options": parsing,
    }


class Conversion(NamedTuple):
    """How pyarrow makes some columns of text, and the words in them that are no text."""

    options: pacsv.ConvertOptions
    """The columns and their types."""
    words: pa.Array
    """The words for a missing value in columns of text."""


def conversions(
    names: Sequence[str], types: Mapping[str, pa.DataType] | None = None, words: MissingWords | None = None
) -> list[Conversion]:
    """Return how pyarrow makes columns of text, for ``GROUP`` of them each; without ``types`` it tells what they are."""
    groups = [list(names[start : start + GROUP]) for start in range(0, len(names), GROUP)]
    words = words or MissingWords()
    in_text = pa.array(words.in_text, pa.string())
    return [
        Conversion(
            pacsv.ConvertOptions(
                include_columns=group,
                column_types=None if types is None else {name: types[name] for name in group},
                null_values=words.in_numbers,
                strings_can_be_null=False,  # words for missing numbers may be values of text
            ),
            in_text,
        )
        for group in groups
    ]


def parse(block: bytes, options: ByName, converting: Sequence[Conversion]) -> pa.Table:
    """Return the rows of a block of whole rows, which may begin with the lines that ``options`` skip.

    Raises pyarrow's ArrowInvalid.
    """
    given = options["read_options"]
    mine = pacsv.ReadOptions(  # of its own: other threads parse other blocks
        use_threads=False, block_size=len(block) + 1, skip_rows=given.skip_rows, column_names=given.column_names
    )
    options = {**options, "read_options": mine}
    tables = [_read(block, group, options) for group in converting]
    if len(tables) == 1:
        return tables[0]
    columns = [column for table in tables for column in table.columns]
    return pa.table(columns, names=[name for table in tables for name in table.column_names])


def _read(block: bytes, group: Conversion, options: ByName) -> pa.Table:
    """Some columns of a block, text without the blanks around it and null where it says that a value is missing."""
    table = pacsv.read_csv(pa.BufferReader(block), convert_options=group.options, **options)
    for place, field in enumerate(table.schema):
        if is_text(field.type):
            column = table.column(place)
            trimmed = [_trimmed(chunk, group.words) for chunk in column.chunks]
            if any(new is not old for new, old in zip(trimmed, column.chunks, strict=True)):
                table = table.set_column(place, field, pa.chunked_array(trimmed, field.type))
    return table


def _trimmed(values: Arrow, words: pa.Array) -> Arrow:
    """Text without the blanks around it; null where that leaves a word for a missing value."""
    texts = values.dictionary if pa.types.is_dictionary(values.type) else values
    trimmed = pc.utf8_trim_whitespace(texts)
    missing = pc.is_in(trimmed, value_set=words)
    if trimmed.equals(texts) and not pc.any(missing).as_py():
        return values
    trimmed = pc.if_else(missing, pa.scalar(None, pa.string()), trimmed)
    if texts is values:
        return trimmed
    distinct = trimmed.drop_null().unique()
    places = pc.index_in(trimmed, value_set=distinct, skip_nulls=True)
    return pa.DictionaryArray.from_arrays(places.take(values.indices), distinct)


def parsed(
    blocks: Generator[bytes], options: ByName, converting: Sequence[Conversion], *, together: bool
) -> Generator[pa.RecordBatch]:
    """Yield the rows of a file's blocks, in order; ``together``: idle threads parse some of them in advance.

    Raises pyarrow's ArrowInvalid in the place of its block, and what the blocks raise.
    """
    skipped, multiline = options["read_options"].skip_rows, options["parse_options"].newlines_in_values
    rest = {**options, "read_options": pacsv.ReadOptions(column_names=options["read_options"].column_names)}

    def make(item: tuple[int, bytes]) -> pa.Table:
        number, block = item
        table = parse(block, rest if number else options, converting)
        if not multiline and b'"' in block:
            _check_lines(block, table.num_rows + (0 if number else skipped))
        return table

    with closing(blocks):
        numbered = enumerate(blocks)
        tables = in_order(make, numbered) if together else ((item, make(item)) for item in numbered)
        with closing(tables):
            for _, table in tables:
                yield from table.to_batches()


def _check_lines(block: bytes, rows: int) -> None:
    """Raise ArrowInvalid when a row has more lines than one: whether that is noticed must not depend on the block."""
    if block.count(b"\n") == rows:
        return
    if sum(1 for line in block.split(b"\n") if line.strip(b"\r")) > rows:
        raise pa.ArrowInvalid("a value in quotes holds a line feed")
