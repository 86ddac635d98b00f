"""The rows that ``ingest`` holds out for the test store: a random share of all rows, of each class or of the groups, or
the rows after a value.

The choice depends only on the seed and the rows, so that the same rows are held out however the sources are cut into
batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamsvm.errors import DataError
from streamsvm.store.write.shuffle import hash_rows
from streamsvm.type_aliases import Array

STRATUM = 100
"""Of each STRATUM consecutive rows of a class, the number held out is exactly the share (rounded)."""


@dataclass(slots=True)
class HoldOut:
    """Chooses rows for the test store."""

    seed: int
    """Seed of the random choice."""
    fraction: float
    """Share of the rows to hold out; not used with --split-after."""
    stratify: bool = False
    """Whether the share applies to the rows of each class."""
    _rows_so_far: dict[int, int] = field(default_factory=dict)
    """Number of rows of each class so far."""

    def choose(self, first_row: int, codes: Array, split: Array | None) -> NDArray[np.bool_]:
        """Return whether each of n consecutive rows is held out, (n,) bool.

        ``first_row``: number of the first row. ``codes``: class codes (n,). ``split`` (``Batch.split``): hashes of the
        rows' groups, or bools that --split-after has decided already; None: neither option was given.
        """
        from streamsvm.compute.random import STEP, mix_bits

        if split is not None and split.dtype == np.bool_:
            decided: NDArray[np.bool_] = split
            return decided
        if self.stratify:
            return self._stratify(codes)
        if split is None:
            return _is_in_lowest_share(hash_rows(self.seed, first_row, len(codes)), self.fraction)
        start = np.uint64((self.seed * 0xD1B54A32D192ED03) % 2**64)
        return _is_in_lowest_share(mix_bits((split + start + np.uint64(1)) * STEP), self.fraction)

    def _stratify(self, codes: Array) -> NDArray[np.bool_]:
        held_out = np.zeros(len(codes), np.bool_)
        for code in np.unique(codes).tolist():
            rows = np.flatnonzero(codes == code)
            first = self._rows_so_far.get(code, 0)
            held_out[rows] = self._choose_in_class(code, first, len(rows))
            self._rows_so_far[code] = first + len(rows)
        return held_out

    def _choose_in_class(self, code: int, first: int, count: int) -> NDArray[np.bool_]:
        """Return whether each of the rows [first, first + count) of a class is held out: in every STRATUM rows a random
        choice of exactly the share.
        """
        strata = range(first // STRATUM, (first + count - 1) // STRATUM + 1)
        drawn = [np.random.default_rng((self.seed, code, k)).permutation(STRATUM) for k in strata]
        ends = np.floor(np.arange(strata.start, strata.stop + 1) * (STRATUM * self.fraction) + 0.5)
        chosen = np.concatenate([rank < n for rank, n in zip(drawn, np.diff(ends), strict=True)])
        skipped = first - strata.start * STRATUM
        return chosen[skipped : skipped + count]


def _is_in_lowest_share(values: NDArray[np.uint64], fraction: float) -> NDArray[np.bool_]:
    """Return whether each of some uniformly distributed values is in the lowest ``fraction`` of the range of uint64."""
    return (values >> np.uint64(11)) < np.uint64(int(fraction * 2**53))


def check_split(rows: int, test_rows: int, option: str) -> None:
    """Raise DataError E-SPLIT if all rows, or none, were held out by ``option``."""
    if test_rows in (0, rows):
        where = "the test store" if test_rows else "the store for training"
        message = f"{option} sends all {rows} rows to {where}"
        raise DataError(message, code="E-SPLIT", hint="'--describe' shows the values of the column: choose another one")
