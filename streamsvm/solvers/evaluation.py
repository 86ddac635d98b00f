"""The sums a second-order method takes over blocks at one point, and the same method on rows that fit in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from streamsvm.compute import operators
from streamsvm.compute.certificate import scaled_dual
from streamsvm.compute.newton import slopes_pass, trial_pass
from streamsvm.rows import Float32, Float64
from streamsvm.types import Block, Problem

HALVINGS = 0.5 ** np.arange(12)
DECREMENT = 1e-6
"""An in-memory problem is solved when a step promises less than this share of its value."""


class Found(NamedTuple):
    """What a pass says of its point."""

    primal: float
    dual: float
    raw_dual: float
    """The dual without scaling: primal - raw_dual = smoothing + 1/2 ||gradient||^2."""
    value: float
    """The rounded objective."""
    gradient: Float64


@dataclass(slots=True)
class Evaluation:
    """Sums over the blocks of a pass: ``v`` (p,) = X' slopes, ``hessian`` (p, p) = X' diag(bends) X."""

    components: int
    v: Float64 = field(init=False)
    hessian: Float64 = field(init=False)
    losses: float = 0.0
    smoothed: float = 0.0
    linear: float = 0.0
    quadratic: float = 0.0
    corner: int = 0
    """Rows that bend the objective."""

    def __post_init__(self) -> None:
        self.v = np.zeros(self.components)
        self.hessian = np.zeros((self.components, self.components))

    def clear(self) -> None:
        self.v[:] = 0.0
        self.hessian[:] = 0.0
        self.losses = self.smoothed = self.linear = self.quadratic = 0.0
        self.corner = 0

    def add(self, problem: Problem, smooth: Any, block: Block, w: Float64, share: float) -> None:
        """Count a block at w; ``share`` of its bending rows make the Hessian, each counting 1 / share times."""
        f = operators.margins(block.X, w)
        slopes, bends = np.empty(len(f)), np.empty(len(f))
        sums = slopes_pass(block.y, block.s, f, problem.C, problem.loss, smooth, slopes, bends)
        self.losses += sums[0]
        self.smoothed += sums[1]
        self.linear += sums[2]
        self.quadratic += sums[3]
        self.v += operators.adjoint(block.X, slopes, problem.columns)
        self.corner += int(np.count_nonzero(bends))
        if share < 1.0:
            chosen = np.random.default_rng(block.seed).random(len(bends), np.float32) < share
            bends *= chosen / share
        self.hessian += operators.gram(block.X, bends, problem.columns)

    def try_steps(
        self, problem: Problem, smooth: Any, block: Block, base: Float64, step: Float64, steps: Float64, out: Float64
    ) -> None:
        """Add the rounded losses at base + t step for every t of ``steps`` to ``out``."""
        f, df = operators.margins(block.X, np.stack([base, step], axis=1)).T
        trial_pass(block.y, block.s, np.ascontiguousarray(f), np.ascontiguousarray(df), problem.C, smooth, steps, out)

    def merge(self, other: Evaluation) -> None:
        self.v += other.v
        self.hessian += other.hessian
        self.losses += other.losses
        self.smoothed += other.smoothed
        self.linear += other.linear
        self.quadratic += other.quadratic
        self.corner += other.corner

    def close(self, problem: Problem, smooth: Any, w: Float64) -> Found:
        """The values at w, all blocks counted."""
        half, square = 0.5 * float(w @ w), float(self.v @ self.v)
        dual = scaled_dual(problem.loss, self.linear, self.quadratic, square)
        raw = self.linear - self.quadratic - 0.5 * square
        return Found(half + self.losses, dual, raw, half + self.smoothed, w - self.v)


@dataclass(slots=True)
class Sample:
    """Rows put aside on the way, each with probability ``rate``; ``total`` is the weight of all rows seen."""

    rate: float
    total: float = 0.0
    parts: list[tuple[Any, Float32, Float32]] = field(default_factory=list)

    def add(self, block: Block) -> None:
        chosen = np.random.default_rng((block.seed, 1)).random(len(block.y), np.float32) < self.rate
        self.total += float(block.s.sum(dtype=np.float64))
        self.parts.append((operators.where(block.X, chosen), block.y[chosen], block.s[chosen]))

    def merge(self, other: Sample) -> None:
        self.total += other.total
        self.parts += other.parts

    def block(self) -> Block:
        """The rows as one block."""
        X = operators.stack([part[0] for part in self.parts])
        y, s = (np.concatenate([part[k] for part in self.parts]) for k in (1, 2))
        self.parts.clear()
        return Block(X, y, s, 0, 0, np.arange(len(y), dtype=np.int32), 0)


def newton_step(gradient: Float64, hessian: Float64) -> Float64:
    """-(I + hessian)^-1 gradient; where rounding has made the matrix indefinite, its eigenvalues are lifted to 1."""
    matrix = hessian.copy()
    matrix[np.diag_indices_from(matrix)] += 1.0
    try:
        step: Float64 = scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix), -gradient)
    except scipy.linalg.LinAlgError:
        values, vectors = scipy.linalg.eigh(matrix)
        step = vectors @ ((vectors.T @ -gradient) / np.maximum(values, 1.0))
    return step


def minimise(problem: Problem, C: float, smooth: Any, block: Block, w: Float64) -> Float64:
    """Newton's method with step halving on one block, from w."""
    scaled = Problem(problem.loss, C, problem.rows, problem.columns, problem.positive, problem.bias)
    here = Evaluation(w.size)
    for _ in range(50):
        here.clear()
        here.add(scaled, smooth, block, w, 1.0)
        found = here.close(scaled, smooth, w)
        step = newton_step(found.gradient, here.hessian)
        promise = -float(found.gradient @ step)
        if promise <= DECREMENT * abs(found.value):
            break
        values = np.zeros(len(HALVINGS))
        here.try_steps(scaled, smooth, block, w, step, HALVINGS, values)
        values += [0.5 * float(x @ x) for x in (w + t * step for t in HALVINGS)]
        best = int(np.argmin(values))
        if values[best] >= found.value:
            break
        w = w + HALVINGS[best] * step
    return w
