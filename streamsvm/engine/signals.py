"""Handle signals (Ctrl-C, SIGTERM): ask a job that can save a checkpoint to do so, and end any other job with an
exception. A time limit ends a job in the same way (``time_limit``).

A compiled pass may take seconds, and Python runs signal handlers only between two instructions of the main thread.
Therefore signal numbers also go through a socket to a watcher thread (``watch_signals``). The thread ends the process if
the job has not ended within GRACE_SECONDS of the first signal, and immediately at a second signal. Nothing is lost,
because at every moment the files of an earlier checkpoint are complete on disk.
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
EXPIRED = int(signal.SIGALRM)
"""The signal that ends a job whose time limit has expired."""
TIME_LIMIT = "time limit"
"""The name of that signal in messages."""
GRACE_SECONDS = 4.5
"""A job has this much time from the first signal to its end; then the process is ended."""
SAVING_GRACE_SECONDS = 60.0
"""The same while a checkpoint is being written."""
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
        self.last_checkpoint = "There is no earlier one"
        """Sentence about the last checkpoint, printed if there is no time to save another."""
        self.resume_command = ""
        """Command that continues from the files on disk, for jobs without checkpoints; empty if there is none."""
        self.wakeup_socket: socket.socket | None = None
        """Socket to which signal numbers are sent; None while no job of the command line runs."""
        self.expiry_grace_seconds = GRACE_SECONDS
        """Seconds from the time limit to the end of the process."""
        self.is_deferred = False
        """Whether the job checks ``name`` itself, between visits; otherwise a signal raises an exception at once."""
        self.raised_error: InterruptedRun | None = None
        """The last exception raised by a signal handler."""

    @property
    def seconds_since_signal(self) -> float:
        """Seconds since the first signal."""
        return time.monotonic() - self.received_at

    def error(self, details: str) -> InterruptedRun:
        """Return the exception that ends a run that was asked to stop."""
        return InterruptedRun(f"{self.name}: {details}")


current = Interruption()
"""The only object of its class: all signals of a process go to its main thread."""


class ThreadLimit(threading.local):
    """The time limit of a job that cannot use an alarm: it runs outside the main thread, or the program uses alarms."""

    def __init__(self) -> None:
        self.expires_at = float("inf")
        """The time on ``time_limit.job_clock`` at which the job must end."""
        self.resume_command = ""
        """Command that continues from the files on disk; empty if there is none."""
        self.is_deferred = False
        """Whether the job checks its time itself."""


thread_limit = ThreadLimit()


def describe_leftovers(resume_command: str) -> str:
    """Say what is kept of a job that ends early. ``resume_command``: the command that continues it; empty if none."""
    if resume_command:
        return f"finished output is kept. Resume: {resume_command}"
    return "unfinished output was removed; completed files were kept"


def record_signal(number: int) -> None:
    """Record the name and the time of the first signal."""
    current.received_at = time.monotonic()
    current.name = TIME_LIMIT if number == EXPIRED else signal.Signals(number).name


def watch_signals(receiver: socket.socket) -> None:
    """Watch for signals, in a thread of its own, until the other end of ``receiver`` is closed."""
    first = _wait_for_signal(receiver, None, {*SIGNALS, EXPIRED})
    if first:
        if not current.name:
            record_signal(first)
        second = _wait_for_signal(receiver, current.expiry_grace_seconds if first == EXPIRED else GRACE_SECONDS)
        while second == 0 and current.is_saving and current.seconds_since_signal < SAVING_GRACE_SECONDS:
            second = _wait_for_signal(receiver, POLL_SECONDS)
        if second is not None:
            exit_process(second)
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


def exit_process(second: int) -> None:
    """End the process immediately, without cleanup, because the files on disk are complete.

    ``second``: number of the second signal; 0: the grace period is over.
    """
    if second:
        os._exit(128 + second)
    command = current.resume_command
    kept = f"Finished output is kept. Resume: {command}" if command else current.last_checkpoint
    sys.stderr.write(f"error[E-INTERRUPTED]: {current.name}: no time for a checkpoint. {kept}\n")
    sys.stderr.flush()
    os._exit(InterruptedRun.exit_code)


@contextmanager
def listen() -> Iterator[None]:
    """Handle signals while a job of the command line runs. Outside the main thread, do nothing."""
    if not is_main_thread():
        yield
        return
    current.__init__()  # type: ignore[misc]
    receiver, current.wakeup_socket = socket.socketpair()
    current.wakeup_socket.setblocking(False)
    handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    former_handlers = {number: signal.signal(number, handle_signal) for number in handled}
    former_wakeup = signal.set_wakeup_fd(current.wakeup_socket.fileno(), warn_on_full_buffer=False)
    try:
        with postpone_signals():
            threading.Thread(target=watch_signals, args=(receiver,), name="streamsvm-signals", daemon=True).start()
        yield
    finally:
        with postpone_signals():
            signal.set_wakeup_fd(former_wakeup)
            for number, handler in former_handlers.items():
                signal.signal(number, handler)
            current.wakeup_socket.close()
            current.wakeup_socket = None


@contextmanager
def allow_interrupt() -> Iterator[None]:
    """Let Ctrl-C stop a job called from Python without ending the program. Outside the main thread, do nothing.

    A second Ctrl-C raises KeyboardInterrupt immediately, without a checkpoint.
    """
    former_handler = signal.getsignal(signal.SIGINT)
    if not is_main_thread() or former_handler in (signal.SIG_IGN, None, handle_interrupt):
        yield
        return
    current.__init__()  # type: ignore[misc]
    signal.signal(signal.SIGINT, handle_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former_handler)
        current.__init__()  # type: ignore[misc]


def is_main_thread() -> bool:
    """Return whether this is the thread that receives signals; jobs in other threads leave the signal handlers alone."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def set_resume_command(command: str) -> Iterator[None]:
    """Set the command that continues a job without checkpoints, such as an embedding, from the files on disk."""
    interruptions = _interruptions()
    for interruption in interruptions:
        interruption.resume_command = command
    try:
        yield
    finally:
        for interruption in interruptions:
            interruption.resume_command = ""


@contextmanager
def defer_signals() -> Iterator[None]:
    """Let the job check for signals and for its time limit itself, between visits, instead of being interrupted."""
    interruptions = _interruptions()
    for interruption in interruptions:
        interruption.is_deferred = True
    try:
        yield
    finally:
        for interruption in interruptions:
            interruption.is_deferred = False


def _interruptions() -> list[ThreadLimit | Interruption]:
    """Return the objects that can ask the job of this thread to stop."""
    return [thread_limit, current] if is_main_thread() else [thread_limit]


def handle_signal(number: int, _: Any) -> None:
    """Handle a signal in the main thread: raise InterruptedRun, unless the job checks for signals itself."""
    if current.is_deferred or _is_unwinding() or postpone(partial(handle_signal, number, None)):
        return
    if not current.name:
        record_signal(number)
    current.raised_error = current.error(describe_leftovers(current.resume_command))
    raise current.raised_error


def _is_unwinding() -> bool:
    """Return whether a handler's exception is propagating through cleanup code, or a generator is being closed."""
    error = sys.exc_info()[1] if current.raised_error is not None else None
    while error is not None and error is not current.raised_error and not isinstance(error, GeneratorExit):
        error = error.__context__
    return error is not None


def handle_interrupt(number: int, frame: Any) -> None:
    """Handle Ctrl-C, or an alarm, of a job called from Python; the process continues after the job."""
    if current.name and number != EXPIRED:
        raise KeyboardInterrupt
    if not current.name:
        record_signal(number)
    handle_signal(number, frame)
