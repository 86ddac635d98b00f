"""Which decision values belong to a model, in which order, and which of its classes a row is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamsvm.rows import Int32
from streamsvm.store.format.labels import sort_key
from streamsvm.types import Problem


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The problems of one C as the model has them: classes in sorted order."""

    C: float
    """The weight of the loss sum."""
    columns: tuple[int, ...]
    """The numbers of its decision values among those of all problems."""
    positives: tuple[int, ...]
    """The class code of each: its +1."""

    def truth(self, codes: Int32) -> Int32:
        """Return the number of the model's class (n,) for class codes (n,)."""
        if len(self.positives) == 1:
            return (codes == self.positives[0]).astype(np.int32)
        place = np.empty(max(self.positives) + 1, np.int32)
        place[list(self.positives)] = np.arange(len(self.positives), dtype=np.int32)
        return place[codes]


def outcomes_of(problems: Sequence[Problem], class_names: Sequence[str]) -> list[Outcomes]:
    """Return those of each C. ``class_names``: two of one decision value, else one for each."""
    found = []
    values = [(problem.C, code) for problem in problems for code in problem.positives]
    for C in dict.fromkeys(problem.C for problem in problems):
        mine = [k for k, (cost, _) in enumerate(values) if cost == C]
        if len(mine) > 1:
            mine = [mine[k] for k in sorted(range(len(mine)), key=lambda k: sort_key(class_names[k]))]
        found.append(Outcomes(C, tuple(mine), tuple(values[k][1] for k in mine)))
    return found
