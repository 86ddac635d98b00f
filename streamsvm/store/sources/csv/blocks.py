"""Blocks of CSV text as record batches.

pyarrow is given memory and no file, because it reads files ahead in threads of its own: one that still called Python
code when the program ended, after an error, would abort it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import pyarrow as pa
import pyarrow.csv as pacsv

from streamsvm.aliases import ByName
from streamsvm.store.sources.csv.dialect import Dialect


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


def parse(block: bytes, options: ByName, converting: pacsv.ConvertOptions) -> pa.Table:
    """Return the rows of a block of whole rows, which may begin with the lines that ``options`` skip.

    Raises pyarrow's ArrowInvalid.
    """
    options["read_options"].block_size = len(block) + 1
    return pacsv.read_csv(pa.BufferReader(block), convert_options=converting, **options)


def parsed(blocks: Generator[bytes], options: ByName, converting: pacsv.ConvertOptions) -> Generator[pa.RecordBatch]:
    """Yield the rows of a file's blocks. Raises pyarrow's ArrowInvalid, and what the blocks raise."""
    multiline = options["parse_options"].newlines_in_values
    with closing(blocks):
        for block in blocks:
            table = parse(block, options, converting)
            if not multiline and b'"' in block:
                _check_lines(block, table.num_rows + options["read_options"].skip_rows)
            yield from table.to_batches()
            options["read_options"].skip_rows = 0


def _check_lines(block: bytes, rows: int) -> None:
    """Raise ArrowInvalid when a row has more lines than one: whether that is noticed must not depend on the block."""
    if block.count(b"\n") == rows:
        return
    if sum(1 for line in block.split(b"\n") if line.strip(b"\r")) > rows:
        raise pa.ArrowInvalid("a value in quotes holds a line feed")
