"""Landmarks of a plan: what a solver expects of their features, where these are, and how many of them memory leaves room for."""

from __future__ import annotations

from dataclasses import replace

from streamsvm.jobs.embed.kernel_request import NystromRequest
from streamsvm.jobs.embed.placement import AUTO, DISK, FLY
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.able_solver import solver_of
from streamsvm.jobs.fit.planning.memory_plan import most_landmarks
from streamsvm.jobs.fit.planning.solver_choice import MANY, choose_solver
from streamsvm.types import AnySolver, Problem, Store


def expected_passes(solver: AnySolver, problems: list[Problem]) -> tuple[int, int] | None:
    """Passes, and rows whose features they ask for in all; every problem asks for its own. None: for those of all rows."""
    expected = solver.expected(problems[0])
    if expected is None:
        return None
    passes, formed = expected
    return passes, len(problems) * formed


def placed(request: NystromRequest, where: str, expected: tuple[int, int] | None) -> NystromRequest:
    """The request for features that are on disk, or made in every pass for a solver that expects so much of them."""
    return replace(request, factored=where == FLY and expected is not None, on_disk=where == DISK)


def landmarks_that_fit(
    job: FitJob, store: Store, solver_name: str, problems: list[Problem], request: NystromRequest
) -> int:
    """How many landmarks memory leaves room for, with the solver that is taken for so many; 0 when there is none.

    Where features will be is measured for each number of them: if it is not said, there is room for both.
    """
    places = (DISK, FLY) if job.embedding == AUTO else (job.embedding,)

    def most(name: str, landmarks: int) -> int:
        solver = solver_of(job, name, problems[0].loss, problems[0].classes)
        asked = replace(request, landmarks=landmarks)
        requests = [placed(asked, place, expected_passes(solver, problems)) for place in places]
        return min(most_landmarks(job, store, solver, problems, one) for one in requests)

    found = most(solver_name, request.landmarks)
    if job.landmarks is None or not 0 < found <= MANY:
        return found
    taken, _ = choose_solver(replace(job, landmarks=found), store.layout)
    return found if taken == solver_name else most(taken, found + 1)
