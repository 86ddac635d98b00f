"""Copies of the state of dual ascent, joined at the end of a pass of many workers: of one for each kind of pass.

A pass either turns warm weights into dual variables, or evaluates candidates, or moves. The first two only sum up. Of the third
the groups go as far as is best for the dual (``solvers.dcd.cocoa``), and the mean of w is that of their means.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm.solvers.dcd import cocoa
from streamsvm.solvers.dcd.shrinking import merged
from streamsvm.solvers.dcd.state import DCDState


def joined_states(copies: list[DCDState]) -> DCDState:
    """Return what several copies of one state, each with the blocks of its own group, come to together."""
    first = copies[0]
    if first.warm_sums is not None:
        return _of_warm_starts(copies)
    return _of_evaluations(copies) if first.certifying else _of_moves(copies)


def _of_warm_starts(copies: list[DCDState]) -> DCDState:
    """Sum up what warm weights come to; rows have their dual variables."""
    first, sums = copies[0], [copy.warm_sums for copy in copies if copy.warm_sums is not None]
    assert len(sums) == len(copies), "some copies have ended their warm start and others have not"
    for other in sums[1:]:
        sums[0].merge(other)
    return first


def _of_evaluations(copies: list[DCDState]) -> DCDState:
    """Sum up the losses of the candidates; the next pass begins where this one did."""
    first, joints = copies[0], _joints(copies)
    evaluated = sum((copy.evaluated for copy in copies[1:]), first.evaluated)
    joint = cocoa.begun(len(copies), first.w, joints[0].sigma)
    return replace(first, losses=sum(copy.losses for copy in copies), evaluated=evaluated, joint=joint)


def _of_moves(copies: list[DCDState]) -> DCDState:
    """Go as far along each group's proposals as is best for the dual."""
    first, found = copies[0], cocoa.joined(_joints(copies))
    shrinking = [copy.shrinking for copy in copies if copy.shrinking is not None]
    return replace(
        first,
        w=found.w,
        mean=np.asarray(sum(copy.mean / max(copy.samples, 1) for copy in copies) / len(copies)),
        samples=1,
        duals=found.dual,
        losses=sum(copy.losses for copy in copies),
        joint=found.joint,
        shrinking=merged(shrinking) if shrinking else None,
    )


def _joints(copies: list[DCDState]) -> list[cocoa.Joint]:
    """Return what each copy has proposed."""
    return [copy.joint for copy in copies if copy.joint is not None]
