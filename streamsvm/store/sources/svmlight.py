"""svmlight (libsvm) text: ``label index:value ...`` lines, parsed by a compiled pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.errors import DataError
from streamsvm.rows import CSR, Float64
from streamsvm.store.sources.ahead import ahead
from streamsvm.store.sources.compression import Input
from streamsvm.store.sources.lines import BLOCK, line_blocks
from streamsvm.store.sources.options import SourceFile, SourceOptions
from streamsvm.store.sources.svmlight_faults import LARGEST_INDEX, Expected, explain
from streamsvm.types import Batch

if TYPE_CHECKING:
    from streamsvm.compute.svmlight import Parsed, Scratch

QID = re.compile(rb"^([ \t]*[^ \t\n:]+)[ \t]+qid:[0-9]+(?=[ \t\r\n])", re.MULTILINE)
NO_QUERY = rb"\1"


class SvmlightSource:
    """See ``Source``. ``columns`` is known at the end, or from the start when ``features`` is given."""

    sparse = True
    names = None

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        recorded = options.encoding or {}
        self.columns: int | None = recorded.get("columns", options.features)
        self.sources: list[SourceFile] = []
        self.notices: dict[str, int] = Counter()
        self._paths = paths
        self._options = options
        self._base: int | None = recorded.get("index_base", options.index_base)
        self._features = self.columns
        self._largest = -1
        self._scratch: Scratch | None = None

    def batches(self) -> Iterator[Batch]:
        for path in self._paths:
            with Input(path) as stream:
                file = SourceFile(str(path), stream.size, compression=stream.compression)
                self.sources.append(file)
                yield from self._file(stream, file)
                file.sha256 = stream.sha256
        self.columns = self._features or self._largest + 1

    def encoding(self) -> dict[str, Any]:
        return {
            "format": "svmlight",
            "index_base": 1 if self._base is None else self._base,
            "columns": self.columns,
            "options": {"ignore_qid": self._options.ignore_qid},
        }

    def _file(self, stream: Input, file: SourceFile) -> Iterator[Batch]:
        allowed = self._options.allow_no_final_newline
        blocks = line_blocks(stream, allow_no_final_newline=allowed)
        lines = 0
        for block in ahead(blocks) if stream.compression else blocks:
            text = QID.sub(NO_QUERY, block) if self._options.ignore_qid else block
            batch, taken = self._batch(text, stream.name, lines)
            lines += taken
            file.read = stream.disk_position
            if len(batch.labels) or batch.X.indptr.size > 1:  # type: ignore[union-attr]
                file.rows += len(batch.X.indptr) - 1  # type: ignore[union-attr]
                yield batch
        if file.rows == 0:
            raise DataError(f"{stream.name} holds no rows", code="E-EMPTY", hint="check that it is the right file")

    def _batch(self, text: bytes, name: str, lines: int) -> tuple[Batch, int]:
        """The rows of a block, and how many lines it has; ``lines``: lines of the file before it."""
        from streamsvm.compute.svmlight import parse

        array = np.frombuffer(text, np.uint8)
        out = self._room(text)
        if self._base is None:
            first: Parsed = parse(array, array.size, 0, LARGEST_INDEX, self._unlabelled, out)
            self._base = 0 if first.smallest == 0 else 1
        top = LARGEST_INDEX if self._features is None else self._base + self._features - 1
        parsed: Parsed = parse(array, array.size, self._base, top, self._unlabelled, out)
        if parsed.bad:
            raise self._fault(text, parsed.consumed, name, lines)
        for entry, start, stop in out.unfinished[: parsed.unfinished].tolist():
            self._finish(out, entry, text, slice(start, stop), (name, lines))
        return self._rows(parsed, out, name), parsed.lines

    def _rows(self, parsed: Parsed, out: Scratch, name: str) -> Batch:
        rows, entries = parsed.rows, parsed.entries
        indptr, indices = out.indptr[: rows + 1].copy(), out.indices[:entries].copy()
        X = CSR(out.data[:entries].copy(), indices, indptr)
        self._largest = max(self._largest, int(indices.max(initial=-1)))
        self.notices["blank lines"] += parsed.blank
        self.notices["empty rows"] += int(np.count_nonzero(indptr[1:] == indptr[:-1]))
        return Batch(X, self._labels(out.labels[:rows].copy(), name))

    def _labels(self, labels: Float64, name: str) -> Float64:
        missing = int(np.count_nonzero(np.isnan(labels))) if self._unlabelled else 0
        if 0 < missing < len(labels):
            raise DataError(f"only some rows of {name} have a label", code="E-LABEL", hint="label all rows or none")
        return labels[:0] if missing else labels

    def _finish(self, out: Scratch, entry: int, text: bytes, token: slice, at: tuple[str, int]) -> None:
        """Put the value of a number there that the pass left to us."""
        value = float(text[token])
        if entry < 0:
            out.labels[-1 - entry] = value
            return
        with np.errstate(over="ignore"):
            out.data[entry] = value
        if not np.isfinite(out.data[entry]):
            raise self._fault(text, text.rfind(b"\n", 0, token.start) + 1, *at)

    def _fault(self, text: bytes, start: int, name: str, lines: int) -> DataError:
        line = text[start : text.index(b"\n", start)]
        number = lines + text.count(b"\n", 0, start) + 1
        assert self._base is not None
        expected = Expected(self._base, self._features, self._options.index_base is not None)
        return explain(line, f"{name} line {number}", expected)

    @property
    def _unlabelled(self) -> bool:
        return self._options.encoding is not None

    def _room(self, text: bytes) -> Scratch:
        """Arrays for the worst text of a usual block; for a larger one (a very long line) what it needs."""
        from streamsvm.compute.svmlight import scratch

        if len(text) > 2 * BLOCK:
            self._scratch = None
            return scratch(text.count(b"\n"), text.count(b":"))
        if self._scratch is None:
            self._scratch = scratch(BLOCK, BLOCK // 2)
        return self._scratch
