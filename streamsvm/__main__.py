"""The program: ``streamsvm``, ``python -m streamsvm``.

Signals and standard streams are seen to before anything else is imported: a signal that comes while packages are loaded
must not look like a crash, and a file must not be opened in the place of a standard stream that was closed - what
libraries write to "standard error" would go into it.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys

STREAMS = 3
"""Standard input, output and error."""
STOPPED, INTERRUPTED = 75, 130
ENDING = {signal.SIGTERM: STOPPED, signal.SIGHUP: STOPPED, signal.SIGUSR1: STOPPED, signal.SIGINT: INTERRUPTED}
"""The exit code after each signal that comes outside of any job."""


def _end(number: int, _: object) -> None:
    name = signal.Signals(number).name
    os.write(2, f"error[E-INTERRUPTED]: {name}: no job was running; finished output is kept\n".encode())
    os._exit(ENDING[signal.Signals(number)])


def _ignore() -> None:
    """The last that the program does: Python gives signals back before its process is gone, and one would seem a crash."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def prepare() -> None:
    """Answer signals from now on, and give every standard stream that is closed the null device."""
    atexit.register(_ignore)  # the first that is registered is called last
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _end)
    for descriptor in range(STREAMS):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  for as long as the process lives


def main() -> None:
    """Run the command line."""
    prepare()
    atexit.register(gc.freeze)  # Python's last search for garbage would go through every object of every module
    from streamsvm.cli.main import main

    main()


if __name__ == "__main__":
    main()
