"""Random orders, filled in place. Same seed, same order, on every machine.

The generator is splitmix64, the bounded draw Lemire's multiply-and-shift, the permutation Fisher and Yates'. About 3 ns
a row, so that an order is never what an epoch waits for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.compute.compiled import compiled
from streamsvm.compute.splitmix import MIX1, STEP, mixed
from streamsvm.rows import Int32, Int64

mix: Any = njit(nogil=True, inline="always")(mixed)
"""One number at a time."""


@compiled()
def shuffle(order: Int32, count: int, seed: int) -> None:
    """Permutes the first ``count`` entries of ``order``."""
    state = np.uint64(seed)
    for i in range(count - 1, 0, -1):
        state += STEP
        z = mix(state)
        j = np.int64(((z >> np.uint64(32)) * np.uint64(i + 1)) >> np.uint64(32))
        order[i], order[j] = order[j], order[i]


@compiled()
def permutation(order: Int32, seed: int) -> None:
    """Fills ``order`` with a permutation of its indices."""
    for i in range(order.size):
        order[i] = i
    shuffle(order, order.size, seed)


def lots(index: Int64, seed: int) -> NDArray[np.uint64]:
    """Return a number for each row number: the rows with the smallest are a random sample, however they are dealt to
    blocks.
    """
    return mixed((index.astype(np.uint64) + np.array(seed).astype(np.uint64) * MIX1) * STEP)


def smallest(keys: Array, count: int) -> Int64:
    """Return the places of the ``count`` smallest keys."""
    return np.argpartition(keys, count - 1)[:count] if count < len(keys) else np.arange(len(keys))
