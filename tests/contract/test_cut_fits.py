"""A fit that is stopped wherever somebody looks at the clock has a true certificate of the model it ends with."""

from __future__ import annotations

from typing import Any

import pytest

from streamsvm.solvers import SOLVERS
from tools.fuzz.certificates import Solvers, case_of, cut_short, jumping, registered, spread

SECONDS = 1.0
STOPS = 3
"""Looks at which each fit is stopped, and its time limit if it is not."""


def findings(case: Any, stops: int) -> list[str]:
    """With more time than any takes that is stopped, but those of a million steps."""
    case = case._replace(settings=case.settings | {"time_limit": SECONDS})
    return [text for text in cut_short(case, stops) if "blunt: " not in text]


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_the_certificate_is_that_of_the_model_wherever_the_time_was_over(solver: str) -> None:
    """An exact kernel, or kernel features and columns as they are."""
    everything = registered()
    if solver in everything.exact:
        seeds, drawn = [5, 7], everything._replace(exact=(solver,))
        cases = [case_of(seed, drawn) for seed in seeds]
    else:
        cases = [case_of(seed, everything._replace(linear=(solver,), landmarks=(solver,))) for seed in (0, 8)]
    assert {case.settings["solver"] for case in cases} == {solver}
    assert [findings(case, STOPS) for case in cases] == [[], []]


@pytest.mark.parametrize(
    ("seed", "drawn", "passes"),
    [
        # rows that were let in after the certificate, of kernel values of 1e10
        (93108, Solvers((), (), ("kernel_active_set",)), 40),
        # w = 0, where no margin says what float32 makes of features
        (110251, Solvers((), ("interior_point", "cutting_plane", "assg"), ()), 1),
        # slopes at one end of a segment that were the difference of 1e25 times larger ones
        (110224, Solvers(("interior_point", "active_set", "cutting_plane", "mpu", "sgd_qn"), (), ()), 8),
    ],
)
def test_certificate_fits_that_had_false_certificates_once(seed: int, drawn: Solvers, passes: int) -> None:
    case = case_of(seed, drawn)
    assert findings(case._replace(settings=case.settings | {"max_passes": passes}), 6) == []


def test_certificate_clock_jumps_once_and_looks_are_spread() -> None:
    import time

    real = time.perf_counter
    with jumping(3) as clock:
        times = [time.perf_counter() for _ in range(4)]
    assert clock.looks == 4
    assert [moment - times[0] > 1e6 for moment in times] == [False, False, True, True]
    assert time.perf_counter is real
    assert spread(3, 5) == [1, 2, 3]
    assert spread(1000, 6) == [1, 2, 3, 335, 667, 1000]
