"""What is done in memory over the vertices of the l1 ball between two readings: some iterations at a time, of all vertices or from samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.rows import Float64
from streamsvm.solvers.kernel.frank_wolfe_steps import Iterations
from streamsvm.solvers.l1_ball.vertices import SampledVertices
from streamsvm.tags import saved_as

ITERATIONS_IN_STEP = 2048
"""Iterations between two looks whether the run is to be saved, or to stop."""
AGREEMENTS_TO_STOP = 2
"""Sampled gaps that are small enough, one after the other, that stop the randomized regime: twice as many after each stop at which a
reading finds that the gap over all columns is not."""
MOST_DOUBLINGS = 16
"""More looks than these are not to be had between two passes."""


@saved_as("l1_ball.allowed")
class Allowed(NamedTuple):
    """When the gap is small enough."""

    epsilon: float
    """A gap that will do whatever f is; 0: none will."""
    relative: float
    """A gap of this share of f will do."""


@saved_as("l1_ball.work")
@dataclass(slots=True)
class BallWork:
    """A method under way between two passes."""

    method: Iterations | SampledVertices
    """The method, with all that its steps need."""
    allowed: Allowed
    """When its gap is small enough."""
    left: int
    """Iterations, or samples, that there may still be."""
    sample: int = 0
    """Vertices drawn each time; 0: none are."""
    agreements: int = AGREEMENTS_TO_STOP
    """Of samples: gaps that are to be small enough, one after the other, before it stops."""
    agreed: int = 0
    """How many were, the last ones."""
    gap: float = np.inf
    """The last gap it saw."""

    def done(self) -> bool:
        """Whether the last gap is small enough."""
        return self.gap <= max(self.allowed.epsilon, self.allowed.relative * self.method.f)


def agreements_after(begun: int) -> int:
    """Return how many samples have to agree where the method has begun so often before: each of its ends but the last came too soon."""
    return AGREEMENTS_TO_STOP << min(max(0, begun - 1), MOST_DOUBLINGS)


def advance(work: BallWork, seed: int) -> bool:
    """Make some iterations; return whether the gap is small enough, or was in so many samples. Changes ``work``."""
    if isinstance(work.method, SampledVertices):
        return _from_samples(work, work.method, seed)
    for _ in range(min(ITERATIONS_IN_STEP, work.left)):
        work.gap = work.method.gap()
        if work.done():
            return True
        work.method.advance()
        work.left -= 1
    return False


def _from_samples(work: BallWork, method: SampledVertices, seed: int) -> bool:
    size, draw = len(method.vertices.diagonal), np.random.default_rng((seed, method.count, work.left))
    for _ in range(min(ITERATIONS_IN_STEP, work.left)):
        work.gap = method.find_vertices(draw.integers(0, size, work.sample), draw)
        work.left -= 1
        work.agreed = work.agreed + 1 if work.done() else 0
        if work.agreed >= work.agreements:
            return True
        if work.agreed == 0:
            method.advance()
    return False


def weights_of_vertices(work: BallWork) -> Float64:
    """Return the weights of all vertices (2 m,), which sum to 1."""
    if isinstance(work.method, SampledVertices):
        return work.method.weights()
    result: Float64 = work.method.a / work.method.a.sum()
    return result


def weights_at(w: Float64, v: Float64, t: float) -> Float64:
    """Weights of the vertices (2 m,) that make w (m,); what is left of 1 is on both vertices of the column with the largest |v_j|."""
    a = np.concatenate([np.maximum(w, 0.0), np.maximum(-w, 0.0)]) / t
    j, rest = int(np.abs(v).argmax()), max(0.0, 1.0 - float(a.sum()))
    a[[j, j + len(w)]] += 0.5 * rest
    result: Float64 = a / a.sum()
    return result
