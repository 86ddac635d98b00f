"""A raw table after encoding: a few numeric columns of very different scales beside many one-hot columns, most of them
rare.

Row i has ``numeric`` values exp(0.8 z_j) scale_j, z standard normal and scale log-uniform in [1e-2, 1e6], and one level
of every categorical variable. Levels are Zipf distributed, P(level >= k) ~ k^-0.3: the first ones are in a tenth of the
rows, most of a large variable's in one row or none. The label is the sign of a noisy linear rule,

score = 0.5 z.beta + 0.4 sum_c effect_c[level_c] + 1.5 logistic noise,      y = +1 where score > threshold,

and the threshold is the quantile of a fixed pilot draw that makes a share ``positive`` of the rows +1. A plane
separates the classes about as well as it does real tables (flight delays, clicks); the columns of a fit are neither
centered nor of one scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from streamsvm.config.options import Bounds, Option
from streamsvm.errors import UsageError
from streamsvm.rows import CSR, Float32, Float64, Int32
from streamsvm.store.generators.simple import cut, rule_generator, signs
from streamsvm.types import Batch

SMALL_VARIABLES = (8, 50, 300, 2_000, 8_000)
"""Levels of the categorical variables every table has, as far as its columns allow."""
LARGE_SHARES = (4, 5, 10)
"""The three largest variables share the remaining columns in these proportions."""
LARGEST_SMALL_SHARE = 8
"""A small variable has at most one in so many of the one-hot columns."""
TAIL = 0.3
"""P(level >= k) ~ k^-TAIL: Zipf's law with exponent 1.3."""
PILOT_ROWS = 65_536


class Rule(NamedTuple):
    """What all draws of a table share."""

    scale: Float64
    """The scale of each numeric column, float64 (numeric,)."""
    beta: Float64
    """The weight of each numeric column in the score, float64 (numeric,)."""
    effects: tuple[Float32, ...]
    """For each categorical variable, the weight of each of its levels, float32."""
    threshold: float
    """The score above which a row is positive."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of any number of rows and of 3 columns or more. The module describes the distribution."""

    rows: int
    """The number of rows to make."""
    seed: int = 0
    """What the random numbers are drawn from: equal seeds give equal bits."""
    columns: Annotated[int, Option("The number of features.", bounds=Bounds(least=3))] = 70_000
    numeric: Annotated[
        int,
        Option(
            "The number of columns with numbers; of a narrow table at most a third of the columns.",
            bounds=Bounds(least=1),
        ),
    ] = 20
    positive: Annotated[float, Option("The share of the rows that are +1.", bounds=Bounds(above=0, below=1))] = 0.2

    names: ClassVar[None] = None
    """The names of the columns; None where they have none."""
    draw_rows: ClassVar[int] = 65_536
    """Rows of one draw, the unit of random numbers."""
    sparse: ClassVar[bool] = True
    """Whether batches are CSR."""

    def __post_init__(self) -> None:
        if self.columns < 3:
            raise UsageError(
                f"a table of {self.columns} columns: at least 3 are needed", hint="say --columns 3 or more"
            )
        if not 1 <= self.numeric:
            raise UsageError(f"{self.numeric} numeric columns: at least one is needed")
        if not 0.0 < self.positive < 1.0:
            raise UsageError(f"a share of {self.positive} positive rows is not in (0, 1)")

    @property
    def numeric_columns(self) -> int:
        """The number of columns with numbers, as far as the table is wide enough."""
        return min(self.numeric, max(1, self.columns // 3))

    @property
    def levels(self) -> tuple[int, ...]:
        """The number of levels of each categorical variable, each of which is one column."""
        left = self.columns - self.numeric_columns
        found = [size for size in SMALL_VARIABLES if size <= left // LARGEST_SMALL_SHARE]
        left -= sum(found)
        large = [left * share // sum(LARGE_SHARES) for share in LARGE_SHARES[:-1]]
        return tuple(size for size in (*found, *large, left - sum(large)) if size)

    def rule(self) -> Rule:
        """The rule of the labels, drawn from the seed alone."""
        return _rule(self)

    def draw(self, k: int) -> Batch:
        """Return the ``draw_rows`` rows of draw ``k``; they depend on the seed and ``k`` alone."""
        rng, rule = np.random.default_rng((self.seed, k)), self.rule()
        z, levels = _draw(rng, self.draw_rows, self)
        score = _score(rng, z, levels, rule)
        return Batch(self._encode(z, levels, rule), signs(score > rule.threshold))

    def batches(self, batch_rows: int = 0) -> Iterator[Batch]:
        """Yield all rows in order, at most ``batch_rows`` at a time; see ``Generator.batches``."""
        return cut(self, batch_rows)

    def _encode(self, z: Float64, levels: Int32, rule: Rule) -> CSR:
        """One entry per numeric column and one per categorical variable, in every row."""
        n, q = z.shape
        entries = q + levels.shape[1]
        data, indices = np.ones((n, entries), np.float32), np.empty((n, entries), np.int32)
        data[:, :q] = np.round(np.exp(0.8 * z) * rule.scale, 4)
        indices[:, :q] = np.arange(q)
        indices[:, q:] = levels + (q + np.cumsum([0, *self.levels[:-1]]))
        return CSR(data.ravel(), indices.ravel(), entries * np.arange(n + 1, dtype=np.int64))


def _draw(rng: np.random.Generator, n: int, table: Table) -> tuple[Float64, Int32]:
    """The numbers behind the numeric columns (n, q), and a level of every categorical variable (n, variables)."""
    z = rng.standard_normal((n, table.numeric_columns))
    sizes = np.array(table.levels)
    # the inverse of P(level >= k) = (k^-TAIL - K^-TAIL) / (1 - K^-TAIL), k = 1 ... K
    u = rng.random((n, len(sizes)))
    least = (sizes + 1.0) ** -TAIL
    drawn = (least + u * (1.0 - least)) ** (-1.0 / TAIL)
    return z, np.minimum(drawn.astype(np.int32) - 1, sizes - 1).astype(np.int32)


def _score(rng: np.random.Generator, z: Float64, levels: Int32, rule: Rule) -> Float64:
    # einsum, not @: its sums do not depend on how many threads BLAS has
    score: Float64 = 0.5 * np.einsum("ij,j->i", z, rule.beta) + 1.5 * rng.logistic(size=len(z))
    for effect, level in zip(rule.effects, levels.T, strict=True):
        score += 0.4 * effect[level]
    return score


@lru_cache(4)
def _rule(table: Table) -> Rule:
    rng = rule_generator(table.seed)
    scale = 10.0 ** rng.uniform(-2.0, 6.0, table.numeric_columns)
    beta = rng.standard_normal(table.numeric_columns)
    effects = tuple(rng.standard_normal(size, np.float32) for size in table.levels)
    rule = Rule(scale, beta, effects, 0.0)
    score = _score(rng, *_draw(rng, PILOT_ROWS, table), rule)
    return rule._replace(threshold=float(np.quantile(score, 1.0 - table.positive)))
