"""Weights on kernel values that stand for weights on features, W w for w: made once for all blocks that are seen at one point.

A block of a thousand rows and as many landmarks takes as long for f = K v as v = W w does, and a pass sees hundreds of them at the same w.
Each thread keeps what it made last; what it gives out is what it would make anew, to the bit.
"""

from __future__ import annotations

from threading import local
from typing import NamedTuple
from weakref import ReferenceType, ref

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.blocks.margins import decision_values
from streamsvm.rows import Dense, Float64

KEPT_BYTES = 256 << 10
"""What a thread keeps, about: the weights of some ten classes on a thousand landmarks."""


class _Lifted(NamedTuple):
    projection: ReferenceType[Array]
    weights: Float64


class _Kept(local):
    """Of each thread, by the identity of the projection, the constant and the bytes of the weights."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, float, bytes], _Lifted] = {}
        self.nbytes = 0


_KEPT = _Kept()


def lifted(projection: Array, bias: float, W: Float64) -> Float64:
    """Return weights (q, m + 1) on kernel values for weights (q, r + 1) on features; the constant is folded in. Not to be changed."""
    key = (id(projection), bias, W.tobytes())
    known = _KEPT.found.get(key)
    if known is not None and known.projection() is projection:  # and not another one that came to lie where it was
        return known.weights
    made = np.empty((len(projection), len(W)))
    decision_values(Dense(projection, 0.0), W, made)
    weights = np.ascontiguousarray(np.concatenate([made.T, bias * W[:, -1:]], axis=1))
    _keep(key, _Lifted(ref(projection), weights))
    return weights


def _keep(key: tuple[int, float, bytes], known: _Lifted) -> None:
    nbytes = len(key[-1]) + known.weights.nbytes
    if _KEPT.nbytes + nbytes > KEPT_BYTES:
        _KEPT.found.clear()
        _KEPT.nbytes = 0
    if nbytes <= KEPT_BYTES:
        _KEPT.found[key] = known
        _KEPT.nbytes += nbytes
