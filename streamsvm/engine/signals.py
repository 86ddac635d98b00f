"""Handle signals (Ctrl-C, SIGTERM): ask a job that can save a checkpoint to do so, and end any other job with an
exception. A time limit ends a job in the same way (``time_limit``).

A compiled pass may take seconds, and Python runs signal handlers only between two instructions of the main thread.
Therefore signal numbers also go through a socket to a watcher thread (``watch_signals``). The thread ends the process if
the job has not ended within GRACE_SECONDS of the first signal, and immediately at a second signal. No saved work is lost:
the previous checkpoint, if any, stays complete on disk until the next one replaces it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from streamsvm.compute.threading import postpone, postpone_signals
from streamsvm.errors import InterruptedRun

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
EXPIRY_SIGNAL = int(signal.SIGALRM)
"""The signal that ends a job whose time limit has expired."""
EXPIRY_NAME = "time limit"
"""What messages call EXPIRY_SIGNAL."""
GRACE_SECONDS = 4.5
"""Seconds that a job is given to finish after the first signal; then the process is ended."""
SAVING_GRACE_SECONDS = 60.0
"""Seconds that a job is given if it is writing a checkpoint at the first signal."""
POLL_SECONDS = 0.05


class Interruption:
    """The signals that this process has received during a job."""

    def __init__(self) -> None:
        self.name = ""
        """Name of the first signal; empty before it."""
        self.received_at = 0.0
        """``time.monotonic()`` of the first signal."""
        self.is_saving = False
        """Whether a checkpoint is being written."""
        self.last_checkpoint_message = "There is no earlier one"
        """Sentence about the last checkpoint, printed if there is no time to save another."""
        self.resume_command = ""
        """Command that continues from the files on disk, for jobs without checkpoints; empty if there is none."""
        self.wakeup_socket: socket.socket | None = None
        """Socket to which signal numbers are sent; None while no job started by the CLI is running."""
        self.expiry_grace_seconds = GRACE_SECONDS
        """Seconds from the time limit to the end of the process."""
        self.job_polls = False
        """Whether the job checks ``name`` itself, between two chunks or batches; otherwise a signal raises an exception at
        once."""
        self.raised_error: InterruptedRun | None = None
        """The last exception raised by a signal handler."""

    @property
    def seconds_since_signal(self) -> float:
        """Seconds since the first signal."""
        return time.monotonic() - self.received_at

    def error(self, details: str) -> InterruptedRun:
        """Return the exception that ends a run that was asked to stop."""
        return InterruptedRun(f"{self.name}: {details}")


interruption = Interruption()
"""A singleton, because Python runs the handlers of all signals in the main thread."""


class ThreadLimit(threading.local):
    """The time limit of a job that cannot use an alarm, because the job runs outside the main thread, or the calling
    program has its own SIGALRM handler.
    """

    def __init__(self) -> None:
        self.expires_at = float("inf")
        """The time on ``time_limit.job_clock`` at which the job must end."""
        self.resume_command = ""
        """Command that continues from the files on disk; empty if there is none."""
        self.job_polls = False
        """Whether the job checks its time itself."""


thread_limit = ThreadLimit()


def describe_leftovers(resume_command: str) -> str:
    """Say what is kept of a job that ends early. ``resume_command``: the command that continues it; empty if none."""
    if resume_command:
        return f"finished output is kept. Resume: {resume_command}"
    return "unfinished output was removed; completed files were kept"


def record_signal(number: int) -> None:
    """Record the name and the time of the first signal."""
    interruption.received_at = time.monotonic()
    interruption.name = EXPIRY_NAME if number == EXPIRY_SIGNAL else signal.Signals(number).name


def watch_signals(receiver: socket.socket) -> None:
    """Watch for signals, in a thread of its own, until the other end of ``receiver`` is closed."""
    first = _wait_for_signal(receiver, None, {*SIGNALS, EXPIRY_SIGNAL})
    if first:
        if not interruption.name:
            record_signal(first)
        second_signal = _wait_for_signal(
            receiver, interruption.expiry_grace_seconds if first == EXPIRY_SIGNAL else GRACE_SECONDS
        )
        while (
            second_signal == 0 and interruption.is_saving and interruption.seconds_since_signal < SAVING_GRACE_SECONDS
        ):
            second_signal = _wait_for_signal(receiver, POLL_SECONDS)
        if second_signal is not None:
            exit_process(second_signal)
    receiver.close()


def _wait_for_signal(receiver: socket.socket, seconds: float | None, numbers: Collection[int] = SIGNALS) -> int | None:
    """Wait for one of the signals ``numbers`` and return its number: 0 if none arrives within ``seconds``, None if the
    job has ended.
    """
    until = time.monotonic() + (seconds or 0.0)
    while select.select([receiver], [], [], None if seconds is None else max(0.0, until - time.monotonic()))[0]:
        received = receiver.recv(1)
        if not received or received[0] in numbers:
            return received[0] if received else None
    return 0


def exit_process(second_signal: int) -> None:
    """End the process immediately, without cleanup, because the files on disk are complete.

    ``second_signal``: its number; 0: the grace period is over.
    """
    if second_signal:
        os._exit(128 + second_signal)
    command = interruption.resume_command
    if command:
        details = f"interrupted before it could finish. Finished output is kept. Resume: {command}"
    else:
        details = f"no time for a checkpoint. {interruption.last_checkpoint_message}"
    sys.stderr.write(f"error[E-INTERRUPTED]: {interruption.name}: {details}\n")
    sys.stderr.flush()
    os._exit(InterruptedRun.exit_code)


@contextmanager
def install_signal_handlers() -> Iterator[None]:
    """Handle signals while a job started by the CLI is running. Outside the main thread, do nothing."""
    if not is_main_thread():
        yield
        return
    interruption.__init__()  # type: ignore[misc]
    receiver, interruption.wakeup_socket = socket.socketpair()
    interruption.wakeup_socket.setblocking(False)
    handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    former_handlers = {number: signal.signal(number, handle_signal) for number in handled}
    former_wakeup = signal.set_wakeup_fd(interruption.wakeup_socket.fileno(), warn_on_full_buffer=False)
    try:
        with postpone_signals():
            threading.Thread(target=watch_signals, args=(receiver,), name="streamsvm-signals", daemon=True).start()
        yield
    finally:
        with postpone_signals():
            signal.set_wakeup_fd(former_wakeup)
            for number, handler in former_handlers.items():
                signal.signal(number, handler)
            interruption.wakeup_socket.close()
            interruption.wakeup_socket = None


@contextmanager
def allow_interrupt() -> Iterator[None]:
    """Let Ctrl-C stop a job called from Python without ending the program. Outside the main thread, do nothing.

    A second Ctrl-C raises KeyboardInterrupt immediately, without a checkpoint.
    """
    former_handler = signal.getsignal(signal.SIGINT)
    if not is_main_thread() or former_handler in (signal.SIG_IGN, None, handle_interrupt):
        yield
        return
    interruption.__init__()  # type: ignore[misc]
    signal.signal(signal.SIGINT, handle_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former_handler)
        interruption.__init__()  # type: ignore[misc]


def is_main_thread() -> bool:
    """Return whether this is the thread that receives signals; jobs in other threads leave the signal handlers alone."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def set_resume_command(command: str) -> Iterator[None]:
    """Set the command that continues a job without checkpoints, such as an embedding, from the files on disk."""
    sources = _stop_sources()
    for source in sources:
        source.resume_command = command
    try:
        yield
    finally:
        for source in sources:
            source.resume_command = ""


@contextmanager
def defer_signals() -> Iterator[None]:
    """Let the job check for signals and for its time limit itself, between two chunks or batches, instead of being
    interrupted.
    """
    sources = _stop_sources()
    for source in sources:
        source.job_polls = True
    try:
        yield
    finally:
        for source in sources:
            source.job_polls = False


def _stop_sources() -> list[ThreadLimit | Interruption]:
    """Return the objects that can ask the job of this thread to stop."""
    return [thread_limit, interruption] if is_main_thread() else [thread_limit]


def handle_signal(number: int, _: Any) -> None:
    """Handle a signal in the main thread: raise InterruptedRun, unless the job checks for signals itself."""
    if interruption.job_polls or _is_unwinding() or postpone(partial(handle_signal, number, None)):
        return
    if not interruption.name:
        record_signal(number)
    interruption.raised_error = interruption.error(describe_leftovers(interruption.resume_command))
    raise interruption.raised_error


def _is_unwinding() -> bool:
    """Return whether an exception of a signal handler is already propagating (directly, or as the GeneratorExit that
    it causes).
    """
    error = sys.exc_info()[1] if interruption.raised_error is not None else None
    while error is not None and error is not interruption.raised_error and not isinstance(error, GeneratorExit):
        error = error.__context__
    return error is not None


def handle_interrupt(number: int, frame: Any) -> None:
    """Handle SIGINT or SIGALRM while a job called from Python runs; the process continues after the job."""
    if interruption.name and number != EXPIRY_SIGNAL:
        raise KeyboardInterrupt
    if not interruption.name:
        record_signal(number)
    handle_signal(number, frame)
