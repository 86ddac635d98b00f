"""The end of a round on a cluster, where the last results were joined: every problem's pass is closed, and its next one prepared."""

from __future__ import annotations

import time
from typing import NamedTuple

from streamsvm.engine.block_visitor import BlockVisitor
from streamsvm.engine.groups.work import Partial, Round, Work
from streamsvm.engine.state.state_transfer import clone, serialize
from streamsvm.engine.training import steps_between
from streamsvm.schedule.budget import anonymous_bytes
from streamsvm.types import Certificate, State


class Closed(NamedTuple):
    """A round that is over; states and certificates in the order of the problems it was begun with."""

    states: list[State]
    """Serialized, without what stays on disk."""
    certificates: list[Certificate]
    """What is now known of each problem."""
    witnesses: list[State | None]
    """Of each problem that takes part in no further pass, serialized, where that is wanted: see ``Work.witnesses``."""
    spent: Partial
    """What all groups took; its states are gone."""
    seconds: float = 0.0
    """How long it took to close the pass, steps in memory included."""

    def at_peak(self, peak: int) -> Closed:
        """The same, closed by a process that had as many bytes in use."""
        return self._replace(spent=self.spent.at_peak(peak))


def close_round(found: Partial, work: Work, begun: Round) -> Closed:
    """Close the pass of every problem. Raises DataError, StorageError."""
    began, numbers = time.perf_counter(), [k for k, _ in begun.states]
    states = dict(zip(numbers, clone(found.states), strict=True))  # in one go: what they share stays shared
    if work.driver_state is not None:
        work.driver_state.load(begun.version, states)
    visitor = BlockVisitor(work.solver, work.features)
    deadline = time.perf_counter() + (begun.deadline - time.time())
    visitor.gathered(list(states.values()))
    certificates = [visitor.finish(state, deadline) for state in states.values()]
    for (k, state), certificate in zip(states.items(), certificates, strict=True):
        if certificate.ends(work.problems[k]):  # no further pass looks at what steps would come to
            continue
        for _ in steps_between(work.solver, state, deadline):  # nobody saves a round before it is over
            pass
    left, witnesses = list(states.values()), _witnesses(states, certificates, work, begun)
    if work.driver_state is not None:
        work.driver_state.save(begun.version + 1, states, begun.drop)
        left = [work.driver_state.without(state) for state in left]
    spent = found._replace(states=[], peak=max(found.peak, anonymous_bytes()))
    return Closed([serialize(state) for state in left], certificates, witnesses, spent, time.perf_counter() - began)


def _witnesses(
    states: dict[int, State], certificates: list[Certificate], work: Work, begun: Round
) -> list[State | None]:
    """What is sent of whole states, which are here alone, because the dual variables are read off it."""
    solver = work.solver
    if not (work.witnesses and solver.has_dual_witness):
        return [None] * len(states)
    return [
        serialize(solver.witness(state)) if begun.ending or found.ends(work.problems[k]) else None
        for (k, state), found in zip(states.items(), certificates, strict=True)
    ]
