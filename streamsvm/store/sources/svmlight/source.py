"""svmlight (libsvm) text: ``label index:value ...`` lines, parsed by a compiled pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamsvm.aliases import Array, JsonObject
from streamsvm.config.fields import field_values
from streamsvm.errors import DataError
from streamsvm.rows import CSR, Float64
from streamsvm.store.sources.options import bad_share
from streamsvm.store.sources.reading.ahead import ahead
from streamsvm.store.sources.reading.in_order import in_order
from streamsvm.store.sources.reading.input import Input
from streamsvm.store.sources.reading.lines import BLOCK, line_blocks, note_form
from streamsvm.store.sources.source import SourceFile
from streamsvm.store.sources.source_options import SourceOptions
from streamsvm.store.sources.svmlight.faults import LARGEST_INDEX, Expected, explain
from streamsvm.store.sources.svmlight.repair import Words, repaired, repairs
from streamsvm.types import Batch

if TYPE_CHECKING:
    from streamsvm.compute.text.svmlight import Parsed, Scratch

QID = re.compile(rb"^([ \t]*[^ \t\n:]+)[ \t]+qid:[0-9]+(?=[ \t\r\n])", re.MULTILINE)
NO_QUERY = rb"\1"
READING = ("ignore_qid", "sort", "on_duplicate", "text_labels")
"""The options that other files of the same kind are read with too."""


class _CleanRows(NamedTuple):
    """The rows of a block in which nothing is wrong."""

    X: CSR
    labels: Float64
    lines: int
    blank: int
    """Lines without a row."""
    empty: int
    """Rows without an entry."""
    largest: int
    """The largest column; -1 where there is no entry."""


class SvmlightSource:
    """Svmlight files; see ``Source``.

    ``columns`` is known at the end, or from the start when ``features`` is given.
    """

    sparse = True
    names = None
    id_column = None
    exact = False

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        recorded = options.encoding or {}
        self.columns: int | None = recorded.get("columns", options.features)
        self.sources: list[SourceFile] = []
        self.proposals: list[str] = []
        self.notices: dict[str, int] = Counter()
        self._paths = paths
        self._options = options
        self._base: int | None = recorded.get("index_base", options.index_base)
        self._features = self.columns
        self._largest = -1
        self._scratch: Scratch | None = None
        self._parsed: Any = None
        self._spare: list[Scratch] = []
        """Arrays that no thread is parsing into."""
        self._words = Words() if options.text_labels else None

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; see ``Source.batches``."""
        self._options.rejects.clear()
        for path in self._paths:
            with Input(path) as stream:
                file = SourceFile(str(path), stream.size, compression=stream.compression)
                self.sources.append(file)
                yield from self._file(stream, file)
                file.sha256 = stream.sha256
        if not any(file.rows for file in self.sources):
            raise DataError(f"{self._paths[0]} holds no rows", code="E-EMPTY", hint="check that it is the right file")
        self.columns = self._features or self._largest + 1

    def encoding(self) -> JsonObject:
        """Return what other files must be read by to give the same columns, as plain JSON; see ``Source.encoding``."""
        return {
            "format": "svmlight",
            "index_base": 1 if self._base is None else self._base,
            "columns": self.columns,
            "options": field_values(self._options, READING),
        }

    def _file(self, stream: Input, file: SourceFile) -> Iterator[Batch]:
        allowed = self._options.allow_no_final_newline
        blocks = line_blocks(stream, allow_no_final_newline=allowed)
        blocks = ahead(blocks) if stream.compression else blocks
        lines = 0
        for block, clean in in_order(self._clean, blocks):
            if clean is None:
                text = QID.sub(NO_QUERY, block) if self._options.ignore_qid else block
                batch, taken = self._batch(text, stream.name, lines)
            else:
                batch, taken = self._counted(clean, stream.name), clean.lines
            lines += taken
            file.read = stream.disk_position
            self._options.rejects.read += taken
            self._options.rejects.check(bad_share(self._options.max_bad))
            if len(batch.labels) or batch.X.indptr.size > 1:  # type: ignore[union-attr]
                file.rows += len(batch.X.indptr) - 1  # type: ignore[union-attr]
                yield batch
        self._options.rejects.check(bad_share(self._options.max_bad), last=True)
        note_form(stream, self.notices)

    def _batch(self, text: bytes, name: str, lines: int) -> tuple[Batch, int]:
        """The rows of a block, and how many lines it has; ``lines``: lines of the file before it."""
        if self._words is not None:
            text = self._words.numbered(text)
        out, left_out, mended = self._room(text), 0, False
        while (bad := self._parse(text, out)) is not None:
            if repairs(self._options) and not mended:
                text, mended = text[:bad] + repaired(text[bad:], self._options), True
                out = self._room(text)
                continue
            error = self._fault(text, bad, name, lines)
            if self._options.on_bad_line != "skip" or error.code == "E-INDEX":
                raise error
            self._options.rejects.add(name, lines + text.count(b"\n", 0, bad) + 1, error)
            end = text.index(b"\n", bad)
            text, left_out = text[:bad] + b"#" * (end - bad) + text[end:], left_out + 1
        self.notices["blank lines"] -= left_out
        found = _rows(self._parsed, out)
        return self._counted(found, name), found.lines

    def _clean(self, text: bytes) -> _CleanRows | None:
        """The rows of a block, of which any thread may ask; None where one must be read in the order of the blocks: the
        first one, and those in which something is wrong.
        """
        if self._base is None or self._words is not None or len(text) > 2 * BLOCK:
            return None
        text = QID.sub(NO_QUERY, text) if self._options.ignore_qid else text
        with self._lent() as out:
            parsed = self._tried(text, out, self._base)
            return None if isinstance(parsed, int) else _rows(parsed, out)

    @contextmanager
    def _lent(self) -> Iterator[Scratch]:
        """Arrays of a thread's own for a usual block."""
        from streamsvm.compute.text.svmlight import scratch

        try:
            out = self._spare.pop()
        except IndexError:
            out = scratch(BLOCK, BLOCK // 2, exact=self.exact)
        yield out
        self._spare.append(out)

    def _parse(self, text: bytes, out: Scratch) -> int | None:
        """Parse a block into ``out``; where a line begins that cannot be read, None when all can."""
        from streamsvm.compute.text.svmlight import parse

        if self._base is None:
            array = np.frombuffer(text, np.uint8)
            first: Parsed = parse(array, array.size, 0, LARGEST_INDEX, self._unlabeled, out)
            self._base = 0 if first.smallest == 0 else 1
        found = self._tried(text, out, self._base)
        if isinstance(found, int):
            return found
        self._parsed = found
        return None

    def _tried(self, text: bytes, out: Scratch, base: int) -> Parsed | int:
        """Parse a block into ``out``, indices from ``base`` on; where a line begins that cannot be read."""
        from streamsvm.compute.text.svmlight import parse

        array = np.frombuffer(text, np.uint8)
        top = LARGEST_INDEX if self._features is None else base + self._features - 1
        parsed: Parsed = parse(array, array.size, base, top, self._unlabeled, out)
        if parsed.bad:
            return int(parsed.consumed)
        for entry, start, stop in out.unfinished[: parsed.unfinished].tolist():
            if not _finish(out, entry, text[start:stop]):
                return text.rfind(b"\n", 0, start) + 1
        return parsed

    def _counted(self, found: _CleanRows, name: str) -> Batch:
        """The rows as they are handed on, what was met in them noted."""
        self._largest = max(self._largest, found.largest)
        self.notices["blank lines"] += found.blank
        self.notices["empty rows"] += found.empty
        return Batch(found.X, self._labels(found.labels, name))

    def _labels(self, labels: Float64, name: str) -> Array:
        missing = int(np.count_nonzero(np.isnan(labels))) if self._unlabeled else 0
        if 0 < missing < len(labels):
            raise DataError(f"only some rows of {name} have a label", code="E-LABEL", hint="label all rows or none")
        if missing:
            return labels[:0]
        return labels if self._words is None else self._words.named(labels)

    def _fault(self, text: bytes, start: int, name: str, lines: int) -> DataError:
        line = text[start : text.index(b"\n", start)]
        number = lines + text.count(b"\n", 0, start) + 1
        assert self._base is not None
        expected = Expected(self._base, self._features, self._options.index_base is not None)
        return explain(line, f"{name} line {number}", expected)

    @property
    def _unlabeled(self) -> bool:
        return self._options.encoding is not None

    def _room(self, text: bytes) -> Scratch:
        """Arrays for the worst text of a usual block; for a larger one (a very long line) what it needs."""
        from streamsvm.compute.text.svmlight import scratch

        if len(text) > 2 * BLOCK:
            self._scratch = None
            return scratch(text.count(b"\n"), text.count(b":"), exact=self.exact)
        if self._scratch is None or self._scratch.data.itemsize != (8 if self.exact else 4):
            self._scratch = scratch(BLOCK, BLOCK // 2, exact=self.exact)
        return self._scratch


def _rows(parsed: Parsed, out: Scratch) -> _CleanRows:
    """Copies of the rows that were parsed."""
    rows, entries = parsed.rows, parsed.entries
    indptr, indices = out.indptr[: rows + 1].copy(), out.indices[:entries].copy()
    empty = int(np.count_nonzero(indptr[1:] == indptr[:-1]))
    X = CSR(out.data[:entries].copy(), indices, indptr)
    return _CleanRows(X, out.labels[:rows].copy(), parsed.lines, parsed.blank, empty, int(indices.max(initial=-1)))


def _finish(out: Scratch, entry: int, token: bytes) -> bool:
    """Put the value of a number there that the pass left to us; False when it does not fit float32."""
    value = float(token)
    if entry < 0:
        out.labels[-1 - entry] = value
        return True
    with np.errstate(over="ignore"):
        out.data[entry], single = value, np.float32(value)
    return bool(np.isfinite(single))
