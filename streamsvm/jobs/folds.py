"""Folds of a store: chunks that are held out together.

A fold is a mask over chunks, so that one reading serves all folds and all values of C: a problem is simply not shown
the chunks of its own fold, and when all are solved, one reading more shows each only those. A store of few chunks is
cut finer, in memory. Chunks are dealt to the folds at random; rows of one chunk stay together, which is what one wants
of rows that were measured together, and makes no difference when they lie in random order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.errors import UsageError
from streamsvm.jobs.tune.options import LossWeight
from streamsvm.rows import Int32
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.store.views import MemoryStore
from streamsvm.types import Layout, Problem, Store, Term
from streamsvm.types.problem import class_factors

CHUNKS_PER_FOLD = 8
"""The least number of chunks of a fold."""


def needs_cutting(layout: Layout, folds: int) -> bool:
    """Return whether there are too few chunks to make folds of."""
    return len(layout.chunks) < CHUNKS_PER_FOLD * folds


def cut_terms(layout: Layout, folds: int) -> list[Term]:
    """Return the memory of a store that is cut finer."""
    if not needs_cutting(layout, folds):
        return []
    return [
        Term(
            "all rows", 2 * layout.bytes_per_pass, f"fewer than {CHUNKS_PER_FOLD * folds} chunks: cut finer, in memory"
        )
    ]


def cut_finer(store: Store, folds: int, depth: int, least: int = CHUNKS_PER_FOLD) -> Store:
    """Return the store, or its rows in memory in chunks enough. Raises UsageError when there are not ``least`` rows a
    fold.
    """
    layout = store.layout
    if not needs_cutting(layout, folds):
        return store
    if layout.rows < least * folds:
        raise UsageError(f"{layout.rows} rows are too few for {folds} folds", hint=f"at least {least} rows a fold")
    finer = MemoryStore(piece_bytes(layout, folds), name=store.name)
    with Stream(store, epoch_visits(layout, 0, 0, shuffled=False), depth=depth) as stream:
        for loaded in stream:
            X, codes, weight = loaded.chunk
            everything = np.arange(len(codes))
            finer.append(take_rows(X, everything), codes.copy(), None if weight is None else weight.copy())
    return finer.commit(layout.classes, layout.columns)


def piece_bytes(layout: Layout, folds: int) -> int:
    """Return the size of the chunks that a store is cut into where it has too few."""
    nbytes = 4 * layout.rows * layout.columns if layout.nonzeros is None else 8 * sum(layout.nonzeros)
    return max(1, nbytes // (CHUNKS_PER_FOLD * folds))


def cut_sizes(store: Store, folds: int) -> tuple[int, ...]:
    """Return the rows of each chunk of the store as it is dealt to folds: cut finer, where that is needed.

    Raises UsageError when there are not enough rows.
    """
    return cut_finer(store, folds, 1).layout.chunks


def deal_chunks(layout: Layout, folds: int, seed: int) -> Int32:
    """Return the fold of each chunk of a store, (chunks,) int32; see ``deal``."""
    return deal(len(layout.chunks), folds, seed)


def deal(chunks: int, folds: int, seed: int) -> Int32:
    """Return the fold of each of so many chunks, dealt at random, about as many to each fold. Raises UsageError."""
    if not 2 <= folds <= chunks:
        raise UsageError(f"{folds} folds of {chunks} chunks", hint="at least 2 folds, and a chunk for each")
    return np.random.default_rng((seed, folds)).permutation(np.arange(chunks, dtype=np.int32) % folds)


class Trial(NamedTuple):
    """Problems, one for each class or one for two classes, that are not shown the chunks of a fold."""

    problems: tuple[Problem, ...]
    """Each is that of one class."""
    chunks: tuple[int, ...]
    """The numbers of the chunks they are not shown."""

    @property
    def values(self) -> int:
        """How many decision values its models have."""
        return sum(len(problem.kind.positives) for problem in self.problems)

    def outcomes(self, codes: Array) -> Array:
        """Return the outcomes (n,) of the problems that are right about rows of these classes, as
        ``model.predict_codes`` has them.

        Numbers are what they are. Of one class 1 stands for rows that it is learned from, 0 for all others.
        """
        first = self.problems[0]
        positives = [code for problem in self.problems for code in problem.kind.positives]
        return first.kind.outcomes(codes, positives, class_factors(codes, first.weights))


def build_trial(problems: Sequence[Problem], weight: LossWeight, layout: Layout, fold: Int32, number: int) -> Trial:
    """Return ``problems`` of all rows, for this C or nu and without a fold."""
    chunks = tuple(np.flatnonzero(fold == number).tolist())
    rows = sum(layout.chunks[chunk] for chunk in chunks)
    C = 1.0 if weight.C is None else float(weight.C)
    shown = [replace(one, C=C, rows=layout.rows - rows, held_out=chunks) for one in problems]
    if weight.nu is not None:
        shown = [replace(one, regularizer=one.regularizer.with_nu(weight.nu)) for one in shown]
    return Trial(tuple(shown), chunks)
