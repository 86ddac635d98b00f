"""Limit the time of a job (--time-limit), by a clock that stops while numba compiles.

When the time is over, a command receives a signal from a timer thread. A job called from Python uses the process's
alarm; if the calling program needs the alarm, or the job runs in another thread, the job checks the time itself
(``check_time``).
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from streamsvm.compute.compile_clock import CLOCK
from streamsvm.compute.threading import postpone_signals
from streamsvm.engine import signals
from streamsvm.errors import InterruptedRun

MIN_ALARM_SECONDS = 1e-6
"""The shortest time of an alarm in seconds; a time of 0 would disable the alarm."""
ALARM_REPEAT_SECONDS = 0.1
"""Seconds between two alarms. They repeat until the job has ended: an exception raised in a C callback or in
``__del__`` is lost."""
FINISHING_SECONDS = 2.0
"""Seconds by which any job may exceed its limit to finish with a result."""
FINISHING_SHARE = 0.4
"""Share of its limit by which a job may exceed the limit, if that is more than FINISHING_SECONDS."""
MIN_GRACE_SECONDS = 1.0
"""Minimum seconds from the moment at which a job must have finished to the forced end of the process. With a limit of
5 s the process therefore ends within 10 s."""
GRACE_SHARE = 0.1
"""Share of the limit that takes the place of MIN_GRACE_SECONDS if it is more; at most ``signals.GRACE_SECONDS``."""


class JobClock:
    """The clock by which time limits are measured; inside ``without_compiler`` it stops while numba compiles."""

    def __init__(self) -> None:
        self._excluded_seconds = 0.0
        self._began: float | None = None  # on the clock of the compiler

    def now(self) -> float:
        """Return the time of this clock in seconds."""
        began = self._began
        return time.monotonic() - self._excluded_seconds - (0.0 if began is None else CLOCK.seconds() - began)

    @contextmanager
    def without_compiler(self) -> Iterator[None]:
        """Stop the clock while numba compiles. If two jobs use this context at the same time, only the first
        one stops the clock.
        """
        if self._began is not None:
            yield
            return
        self._began = began = CLOCK.seconds()
        try:
            yield
        finally:
            self._excluded_seconds += CLOCK.seconds() - began
            self._began = None


job_clock = JobClock()


def check_time() -> None:
    """Raise InterruptedRun if the time limit of this thread's job has expired. It is called where a job waits, or reads
    for some time.
    """
    limit = signals.thread_limit
    if not limit.job_polls and job_clock.now() >= limit.expires_at:
        raise InterruptedRun(f"{signals.EXPIRY_NAME}: {signals.describe_leftovers(limit.resume_command)}")


def finishing_seconds(limit: float) -> float:
    """Return the seconds by which a job may exceed a time limit of ``limit`` seconds to finish with a result."""
    return max(FINISHING_SECONDS, FINISHING_SHARE * limit)


def limit_time(limit: float, spent: float = 0.0, *, finish: bool = False) -> AbstractContextManager[None]:
    """Return a context that asks its job to stop after ``limit`` seconds, of which ``spent`` have passed already.

    ``finish``: allow some time after the limit to finish with a result (``finishing_seconds``).
    """
    seconds = limit + (finishing_seconds(limit) if finish else 0.0) - spent
    if not math.isfinite(seconds):
        return nullcontext()
    if not signals.is_main_thread():
        return _check_time_in_thread(seconds)
    if signals.interruption.wakeup_socket is not None:
        min_seconds = MIN_GRACE_SECONDS if finish else FINISHING_SECONDS + MIN_GRACE_SECONDS
        return expire_after(seconds, min(signals.GRACE_SECONDS, max(min_seconds, GRACE_SHARE * limit)))
    alarm_is_free = signal.getsignal(signals.EXPIRY_SIGNAL) in (signal.SIG_DFL, None)
    return _set_alarm(seconds) if alarm_is_free else _check_time_in_thread(seconds)


@contextmanager
def expire_after(seconds: float, grace_seconds: float) -> Iterator[None]:
    """Signal to a command after ``seconds`` that its time limit has expired. It then has ``grace_seconds`` to save a
    checkpoint.
    """
    former_handler = signal.signal(signals.EXPIRY_SIGNAL, signals.handle_signal)
    former_grace = signals.interruption.expiry_grace_seconds
    job_ended = threading.Event()
    timer = threading.Thread(
        target=_expire, args=(job_clock.now() + seconds, job_ended), name="streamsvm-limit", daemon=True
    )
    signals.interruption.expiry_grace_seconds = grace_seconds
    try:
        with postpone_signals():
            timer.start()
        yield
    finally:
        with postpone_signals():
            job_ended.set()
            timer.join()  # before the handler is removed, so that every signal of the timer is handled
            signal.signal(signals.EXPIRY_SIGNAL, former_handler)
            signals.interruption.expiry_grace_seconds, signals.interruption.raised_error = former_grace, None


def _expire(moment: float, job_ended: threading.Event) -> None:
    """Send the alarm at ``moment`` from the timer thread, and repeat it, because its exception may have been lost."""
    main = threading.main_thread().ident
    while (seconds := moment - job_clock.now()) > 0.0:
        if job_ended.wait(max(seconds, signals.POLL_SECONDS)):
            return
    if main is None or job_ended.is_set() or signals.interruption.name:
        return
    signal.pthread_kill(main, signals.EXPIRY_SIGNAL)  # it also wakes the watcher thread (signals)
    while not job_ended.wait(ALARM_REPEAT_SECONDS):
        if signals.interruption.raised_error is not None:
            signal.pthread_kill(main, signals.EXPIRY_SIGNAL)


@contextmanager
def _set_alarm(seconds: float) -> Iterator[None]:
    """Raise InterruptedRun in a job called from Python after ``seconds``; remove the alarm at the end."""
    try:
        with postpone_signals():
            signal.signal(signals.EXPIRY_SIGNAL, partial(_interrupt_from, job_clock.now() + seconds))
            signal.setitimer(signal.ITIMER_REAL, max(seconds, MIN_ALARM_SECONDS), ALARM_REPEAT_SECONDS)
        yield
    finally:
        with postpone_signals():
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signals.EXPIRY_SIGNAL, signal.SIG_DFL)
        signals.interruption.raised_error = None
        if signals.interruption.name == signals.EXPIRY_NAME:  # the next job of the program has its own time limit
            signals.interruption.name = ""


def _interrupt_from(moment: float, number: int, frame: Any) -> None:
    """Handle an alarm of a job called from Python; do nothing before ``moment`` on ``job_clock``."""
    if job_clock.now() >= moment:
        signals.handle_interrupt(number, frame)


@contextmanager
def _check_time_in_thread(seconds: float) -> Iterator[None]:
    """Let ``check_time`` raise in this thread after ``seconds``."""
    limit = signals.thread_limit
    former = limit.expires_at
    limit.expires_at = min(former, job_clock.now() + seconds)
    try:
        yield
    finally:
        limit.expires_at = former
