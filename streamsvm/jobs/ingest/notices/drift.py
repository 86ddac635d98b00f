"""Label drift: classes that are not spread evenly over the chunks of a store, which makes solvers need more passes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamsvm.store.format.manifest import Manifest

DRIFT = 0.1
"""The distance of a class's share in a chunk from its share in all rows beyond which a user is warned."""
FEW_CHUNKS = 2
"""Fewer chunks than this say nothing about drift."""


def label_drift(chunks: Sequence[Sequence[int]], counts: Sequence[int]) -> float:
    """Return how far the share of a class in a chunk is from its share in all rows, at most; 0 when classes are well
    mixed.
    """
    table = np.zeros((len(chunks), len(counts)))
    for k, chunk in enumerate(chunks):
        table[k, : len(chunk)] = chunk
    shares = table / table.sum(axis=1, keepdims=True)
    return float(np.abs(shares - np.array(counts) / sum(counts)).max())


def drift_warning(manifest: Manifest) -> list[str]:
    """Return a warning when the classes are not spread over the chunks, else nothing.

    The last chunk may be too small to judge by.
    """
    chunks = manifest.chunks[:-1] if len(manifest.chunks) > FEW_CHUNKS else manifest.chunks
    if len(chunks) < FEW_CHUNKS:
        return []
    drift = label_drift([c.counts for c in chunks], manifest.layout().counts)
    # three standard deviations of a share that is drawn by chance do not count
    chance = 3 * 0.5 / np.sqrt(min(c.rows for c in chunks))
    if drift <= DRIFT + chance:
        return []
    shown = f"the share of a class in a chunk is up to {100 * drift:.0f} % away from its share in all rows"
    return [f"{shown}: most solvers then need more passes; ingest with --shuffle"]
