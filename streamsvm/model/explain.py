"""Explain a linear model, f_k(x) = sum_j w_kj x_j + b_k: its weights by column name, and what each column adds to f."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.registry import load
from streamsvm.rows import Float64

if TYPE_CHECKING:
    import pandas as pd

CARD = "streamsvm.display.html:build_card"
"""Function that makes what a notebook shows of an object."""
COLUMNS_SHOWN = 10
"""Number of columns of each problem that the text lists."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Explanation:
    """Weights of columns in their own units, and what each column adds to the decision values of some rows."""

    outcomes: tuple[str, ...]
    """The class that each problem's decision value speaks for, (k,)."""
    names: tuple[str, ...]
    """Names of the columns, (d,); their numbers where they have none."""
    weights: Float64
    """Float64 (k, d)."""
    intercept: Float64
    """Float64 (k,)."""
    contributions: Float64 | None = None
    """w_kj x_j of each row, float64 (n, k, d), which add up with the intercept to the decision value; None without rows."""

    def largest(self, problem: int = 0, count: int = COLUMNS_SHOWN) -> list[tuple[str, float]]:
        """Return the columns of largest weight |w_kj| with their weights, the largest first."""
        w = self.weights[problem]
        return [(self.names[j], float(w[j])) for j in np.argsort(-np.abs(w), kind="stable")[:count]]

    def of_row(self, row: int, problem: int = 0, count: int = COLUMNS_SHOWN) -> list[tuple[str, float]]:
        """Return the columns that move the decision value of a row most, |w_kj x_j|, the largest first.

        Raises ValueError where no rows were explained.
        """
        if self.contributions is None:
            raise ValueError("no rows were explained: call model.explain(X)")
        parts = self.contributions[row, problem]
        return [(self.names[j], float(parts[j])) for j in np.argsort(-np.abs(parts), kind="stable")[:count]]

    def __repr__(self) -> str:
        rows = "" if self.contributions is None else f", {len(self.contributions)} rows"
        largest = ", ".join(f"{name} {value:+.3g}" for name, value in self.largest(count=3))
        return f"<Explanation: {len(self.names)} columns{rows}; for {self.outcomes[0]}: {largest}>"

    def _repr_html_(self) -> str:
        """Return the columns of largest weight of each problem, for a notebook."""
        tables = [
            load(CARD)(f"for {outcome}", {name: f"{value:+.6g}" for name, value in self.largest(k)})
            for k, outcome in enumerate(self.outcomes)
        ]
        return "".join(tables)

    def __str__(self) -> str:
        lines = []
        for k, outcome in enumerate(self.outcomes):
            lines.append(f"for {outcome}: intercept {self.intercept[k]:.6g}")
            lines += [f"  {value:+.6g}  {name}" for name, value in self.largest(k)]
        return "\n".join(lines)


def coefficient_frame(found: Explanation, sources: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Return the weights as a data frame, with the source column and the value of each; see ``Model.coefficients``."""
    import pandas as pd

    columns, values = zip(*sources, strict=True) if sources else ((), ())
    frames = []
    for k, outcome in enumerate(found.outcomes):
        w = found.weights[k]
        size = np.abs(w) if found.contributions is None else found.contributions[:, k].std(axis=0)
        table = {
            "outcome": outcome,
            "column": columns,
            "value": values,
            "coefficient": w,
            "share": size / (size.sum() or 1.0),
        }
        frames.append(pd.DataFrame(table).sort_values("share", ascending=False, kind="stable"))
    return pd.concat(frames, ignore_index=True)
