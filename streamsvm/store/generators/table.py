"""A random table after encoding: a few numeric columns of very different scales, and many one-hot columns, most of them
rare.

Each row has ``numeric`` values exp(0.8 z_j) scale_j, with z standard normal and scale log-uniform in [1e-2, 1e6], and
one level of every categorical variable. The levels follow Zipf's law, P(level >= k) ~ k^-0.3: the first levels occur in
a tenth of the rows, most levels of a large variable in one row or in none. The label is the sign of a noisy linear
rule,

score = 0.5 z.beta + 0.4 sum_c effect_c[level_c] + 1.5 logistic noise,      y = +1 where score > threshold,

where the threshold is the quantile of a fixed pilot draw above which the fraction ``positive`` of its rows lies. A
plane separates the classes about as well as those of real tables (flight delays, clicks). The columns are neither
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
from streamsvm.store.generators.simple import CLASSES, cut_batches, rule_generator, signs
from streamsvm.types import Batch

SMALL_VARIABLES = (8, 50, 300, 2_000, 8_000)
"""The numbers of levels of the small categorical variables; those that are too large for the table are left out."""
LARGE_SHARES = (4, 5, 10)
"""The proportions in which the three large variables share the remaining columns."""
LARGEST_SMALL_SHARE = 8
"""A small variable has at most 1 / LARGEST_SMALL_SHARE of the one-hot columns."""
TAIL = 0.3
"""P(level >= k) ~ k^-TAIL: Zipf's law with exponent 1.3."""
PILOT_ROWS = 65_536


class Rule(NamedTuple):
    """The parameters that all draws of a table share."""

    scale: Float64
    """The scale of each numeric column, float64 (numeric,)."""
    beta: Float64
    """The weight of each numeric column in the score, float64 (numeric,)."""
    effects: tuple[Float32, ...]
    """The weight of each level in the score, float32 (levels,) per categorical variable."""
    threshold: float
    """The score above which a row is positive."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of at least 3 columns. The module's docstring describes the distribution."""

    rows: int
    """The number of rows to make."""
    seed: int = 0
    """The seed of the random numbers; equal seeds give equal bits."""
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
    """None: the columns have no names."""
    draw_rows: ClassVar[int] = 65_536
    """Rows of one draw, the unit of random numbers."""
    sparse: ClassVar[bool] = True
    """Whether batches are CSR."""
    classes: ClassVar[tuple[str, ...]] = CLASSES
    """The labels as text, in the order of their numbers."""
    dtype: ClassVar[str] = "float32"
    """The type that holds all numbers."""

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
        """The number of numeric columns: ``numeric``, but at most a third of the columns."""
        return min(self.numeric, max(1, self.columns // 3))

    @property
    def levels(self) -> tuple[int, ...]:
        """The number of levels of each categorical variable; each level is one column."""
        columns = self.columns - self.numeric_columns
        small = [size for size in SMALL_VARIABLES if size <= columns // LARGEST_SMALL_SHARE]
        columns -= sum(small)
        large = [columns * share // sum(LARGE_SHARES) for share in LARGE_SHARES[:-1]]
        return tuple(size for size in (*small, *large, columns - sum(large)) if size)

    def rule(self) -> Rule:
        """Return the rule of the labels, which depends on the settings and the seed."""
        return _rule(self)

    def draw(self, k: int) -> Batch:
        """Return the ``draw_rows`` rows of draw ``k``; they depend on the seed and ``k`` alone."""
        rng, rule = np.random.default_rng((self.seed, k)), self.rule()
        z, levels = _draw(rng, self.draw_rows, self)
        score = _score(rng, z, levels, rule)
        return Batch(self._encode(z, levels, rule), signs(score > rule.threshold))

    def batches(self, batch_rows: int = 0) -> Iterator[Batch]:
        """Yield all rows in order, in batches of at most ``batch_rows`` rows (0: one batch per draw)."""
        return cut_batches(self, batch_rows)

    def _encode(self, z: Float64, levels: Int32, rule: Rule) -> CSR:
        """Return the rows as CSR, with one entry per numeric column and one per categorical variable in every row."""
        n, q = z.shape
        entries = q + levels.shape[1]
        data, indices = np.ones((n, entries), np.float32), np.empty((n, entries), np.int32)
        data[:, :q] = np.round(np.exp(0.8 * z) * rule.scale, 4)
        indices[:, :q] = np.arange(q)
        indices[:, q:] = levels + (q + np.cumsum([0, *self.levels[:-1]]))
        return CSR(data.ravel(), indices.ravel(), entries * np.arange(n + 1, dtype=np.int64))


def _draw(rng: np.random.Generator, n: int, table: Table) -> tuple[Float64, Int32]:
    """Draw z of the numeric columns (n, q), and a level of every categorical variable (n, variables)."""
    z = rng.standard_normal((n, table.numeric_columns))
    sizes = np.array(table.levels)
    # the inverse of P(level >= k) = (k^-TAIL - K^-TAIL) / (1 - K^-TAIL), k = 1 ... K
    u = rng.random((n, len(sizes)))
    least = (sizes + 1.0) ** -TAIL
    drawn = (least + u * (1.0 - least)) ** (-1.0 / TAIL)
    return z, np.minimum(drawn.astype(np.int32) - 1, sizes - 1).astype(np.int32)


def _score(rng: np.random.Generator, z: Float64, levels: Int32, rule: Rule) -> Float64:
    # einsum, not @: its sums do not depend on the number of BLAS threads
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
