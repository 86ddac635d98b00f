"""What a worker runs: a task under its limits, and what the scheduler is told of its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dask.sizeof import sizeof
from threadpoolctl import threadpool_limits

from streamsvm import __version__
from streamsvm.compute import freed_memory, threading
from streamsvm.engine.executors.executor import (
    Joins,
    Part,
    PeakAware,
    Result,
    Shared,
    Task,
)
from streamsvm.engine.groups.work import Partial
from streamsvm.engine.state.state_transfer import bytes_of
from streamsvm.errors import ClusterError, MissingError
from streamsvm.schedule.peak import PeakWatch

_LIMITS: list[threadpool_limits] = []
"""Held as long as the process lives: the limit ends with the object."""


def _partial_bytes(found: Partial) -> int:
    """What the scheduler goes by when it decides where two results are joined."""
    return bytes_of(found.states)


sizeof.register(Partial, _partial_bytes)


def as_task(value: Shared) -> Shared:
    """Return a value: as a task, so that a worker that had it can be lost, and it is sent again."""
    return value


def run_task(function: Callable[..., Result], version: str, part: Part, *shared: Shared) -> Result:
    """Run a task on a worker, and note what memory it took.

    Raises what it raises; ClusterError when driver and worker are not the same streamsvm.
    """
    if version != __version__:
        message = f"a worker runs streamsvm {__version__}, this is {version}"
        raise ClusterError(message, hint="install the same version everywhere")
    if not _LIMITS:  # for good: tasks of several threads would undo each other's limits, and bits depend on threads
        _LIMITS.append(threadpool_limits(1))
        threading.CORES.count = 1
        freed_memory.fix_thresholds()
    try:
        with PeakWatch() as watch:
            found = function(part, *shared)
            return found.at_peak(watch.most) if isinstance(found, PeakAware) else found
    except MissingError as error:
        hint = "all workers must see the files under the same names as the program that starts the job"
        raise MissingError(f"on a worker: {error.message}", hint=hint, code=error.code) from error


def run_span(task: Task, join: Callable[[Result, Result], Result], parts: Sequence[Part], *shared: Shared) -> Result:
    """Make some neighboring parts one after the other, and return what comes of them, joined."""
    return Joins(join).of_span(task, parts, shared)
