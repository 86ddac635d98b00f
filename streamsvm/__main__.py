"""The program ``streamsvm``, also ``python -m streamsvm``.

Before anything else is imported, signal handlers are installed and closed standard streams are replaced. A signal during the imports must
not look like a crash, and a file that is opened later must not get the descriptor of a closed standard stream: libraries would then
write their messages for standard error into that file.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys

STANDARD_STREAMS = 3
"""Descriptors 0, 1 and 2: standard input, output and error."""
STOPPED, INTERRUPTED = 75, 130
EXIT_CODES = {signal.SIGTERM: STOPPED, signal.SIGHUP: STOPPED, signal.SIGUSR1: STOPPED, signal.SIGINT: INTERRUPTED}
"""The exit code after each signal that arrives while no job runs."""


def _end(number: int, _: object) -> None:
    name = signal.Signals(number).name
    os.write(2, f"error[E-INTERRUPTED]: {name}: no job was running; finished output is kept\n".encode())
    os._exit(EXIT_CODES[signal.Signals(number)])


def _ignore() -> None:
    """Ignore signals at exit: Python restores the default handlers before the process ends, and a signal then would look like a crash."""
    for number in EXIT_CODES:
        signal.signal(number, signal.SIG_IGN)


def prepare() -> None:
    """Install signal handlers, and replace every closed standard stream by the null device."""
    atexit.register(_ignore)  # registered first, called last
    for number in EXIT_CODES:
        if signal.getsignal(number) is not signal.SIG_IGN:  # it is ignored under nohup
            signal.signal(number, _end)
    for descriptor in range(STANDARD_STREAMS):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  open until the process ends


def main() -> None:
    """Run the command line."""
    prepare()
    atexit.register(gc.freeze)  # so that the garbage collection at exit skips the objects of all modules
    from streamsvm.cli.main import main

    main()


if __name__ == "__main__":
    main()
