"""Assign the chunks of a store to the folds of cross-validation.

A fold is a set of chunks, so that one pass over the data serves all folds and all values of C: each problem skips the
chunks of its own fold. After the training one more pass evaluates each problem on these chunks. The rows of a store with
few chunks are copied into smaller chunks in memory. Chunks are assigned at random. Rows of the same chunk stay together,
which is desirable if they were measured together, and makes no difference if rows are in random order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from streamsvm.compute.blocks.selection import take_rows
from streamsvm.errors import UsageError
from streamsvm.jobs.common_options import LossWeight
from streamsvm.rows import Int32
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.store.views import MemoryStore
from streamsvm.type_aliases import Array
from streamsvm.types import Layout, Problem, Store, Term
from streamsvm.types.problem import class_factors

CHUNKS_PER_FOLD = 8
"""Minimum number of chunks per fold."""


def needs_cutting(layout: Layout, folds: int) -> bool:
    """Return whether the store has too few chunks for the folds, so that smaller chunks are needed."""
    return len(layout.chunks) < CHUNKS_PER_FOLD * folds


def cut_terms(layout: Layout, folds: int) -> list[Term]:
    """Return the memory of a copy of the rows in smaller chunks; empty if none is needed."""
    if not needs_cutting(layout, folds):
        return []
    return [
        Term(
            "all rows", 2 * layout.bytes_in_memory, f"fewer than {CHUNKS_PER_FOLD * folds} chunks: cut finer, in memory"
        )
    ]


def check_rows(layout: Layout, folds: int, least: int = CHUNKS_PER_FOLD) -> None:
    """Raise UsageError if there are fewer than ``least`` rows per fold."""
    if needs_cutting(layout, folds) and layout.rows < least * folds:
        most = layout.rows // least
        hint = f"at least {least} rows a fold: --folds {most} at most" if most > 1 else f"at least {least} rows a fold"
        raise UsageError(f"{layout.rows} rows are too few for {folds} folds", hint=hint)


def cut_finer(store: Store, folds: int, depth: int, least: int = CHUNKS_PER_FOLD) -> Store:
    """Return the store, or if it has too few chunks a copy in memory with smaller chunks.

    Raises UsageError if there are fewer than ``least`` rows per fold.
    """
    layout = store.layout
    if not needs_cutting(layout, folds):
        return store
    check_rows(layout, folds, least)
    finer = MemoryStore(piece_bytes(layout, folds), name=store.name)
    with Stream(store, epoch_visits(layout, 0, 0, shuffled=False), depth=depth) as stream:
        for loaded in stream:
            X, codes, weight = loaded.chunk
            everything = np.arange(len(codes))
            finer.append(take_rows(X, everything), codes.copy(), None if weight is None else weight.copy())
    return finer.commit(layout.classes, layout.columns)


def piece_bytes(layout: Layout, folds: int) -> int:
    """Return the size in bytes of the smaller chunks."""
    nbytes = 4 * layout.rows * layout.columns if layout.nonzeros is None else 8 * sum(layout.nonzeros)
    return max(1, nbytes // (CHUNKS_PER_FOLD * folds))


def cut_sizes(store: Store, folds: int) -> tuple[int, ...]:
    """Return the number of rows of each chunk that is assigned to a fold, after ``cut_finer``.

    Raises UsageError if there are not enough rows.
    """
    return cut_finer(store, folds, 1).layout.chunks


def deal_chunks(layout: Layout, folds: int, seed: int) -> Int32:
    """Return the fold of each chunk of a store, (chunks,) int32, assigned by ``deal``."""
    return assign_at_random(len(layout.chunks), folds, seed)


def assign_at_random(chunks: int, folds: int, seed: int) -> Int32:
    """Return the fold of each chunk, assigned at random with almost equal numbers per fold. Raises UsageError."""
    if not 2 <= folds <= chunks:
        raise UsageError(f"{folds} folds of {chunks} chunks", hint="at least 2 folds, and a chunk for each")
    return np.random.default_rng((seed, folds)).permutation(np.arange(chunks, dtype=np.int32) % folds)


class Trial(NamedTuple):
    """The problems of one model that hold out the chunks of a fold."""

    problems: tuple[Problem, ...]
    """One problem for each class, or a single one for two classes."""
    chunks: tuple[int, ...]
    """The numbers of the held-out chunks."""

    @property
    def values(self) -> int:
        """The number of decision values of the model."""
        return sum(len(problem.kind.positives) for problem in self.problems)

    def outcomes(self, codes: Array) -> Array:
        """Return the true outcomes (n,) of rows with these class codes, in the codes of ``model.predict_codes``.

        In regression they are the targets. In one-class problems they are 1 for rows of the learned class, 0 for others.
        """
        first = self.problems[0]
        positives = [code for problem in self.problems for code in problem.kind.positives]
        return first.kind.outcomes(codes, positives, class_factors(codes, first.weights))


def build_trial(problems: Sequence[Problem], weight: LossWeight, layout: Layout, fold: Int32, number: int) -> Trial:
    """Return the trial of fold ``number``: ``problems`` with this C or nu, which hold out the chunks of the fold.

    ``fold`` (chunks,): the fold of each chunk.
    """
    chunks = tuple(np.flatnonzero(fold == number).tolist())
    rows = sum(layout.chunks[chunk] for chunk in chunks)
    C = 1.0 if weight.C is None else float(weight.C)
    trial_problems = [replace(problem, C=C, rows=layout.rows - rows, held_out=chunks) for problem in problems]
    if weight.nu is not None:
        trial_problems = [
            replace(problem, regularizer=problem.regularizer.with_nu(weight.nu)) for problem in trial_problems
        ]
    return Trial(tuple(trial_problems), chunks)
