"""The end of a round: what was found in all groups becomes a certificate and the state the next round begins with.

It is a task like the others, for what is joined can be large and what is left of it is not: to the driver comes no more
than the model.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamsvm.jobs.spread.copies import packed, unpacked
from streamsvm.jobs.spread.visit import Partial, Round, Work
from streamsvm.schedule.budget import anonymous_bytes
from streamsvm.types import Certificate


class Closed(NamedTuple):
    """A round that is over; states and certificates in the order of the problems it was begun with."""

    states: list[Any]
    certificates: list[Certificate]
    waited: float
    peak: int


def close_round(found: Partial, work: Work, begun: Round) -> Closed:
    """Close the pass of every problem. Raises DataError, StorageError."""
    numbers = [k for k, _ in begun.states]
    states = {k: unpacked(state) for k, state in zip(numbers, found.states, strict=True)}
    if work.home is not None:
        work.home.load(begun.version, states)
    certificates = [work.solver.finish(state) for state in states.values()]
    left = list(states.values())
    if work.home is not None:
        work.home.save(begun.version + 1, states, begun.drop)
        left = [work.home.without(state) for state in left]
    return Closed([packed(state) for state in left], certificates, found.waited, max(found.peak, anonymous_bytes()))
