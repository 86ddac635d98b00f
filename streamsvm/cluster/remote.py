"""What runs on a worker around a task."""

from __future__ import annotations

from collections.abc import Callable

from dask.sizeof import sizeof
from threadpoolctl import threadpool_limits

from streamsvm import __version__
from streamsvm.engine.executor import Part, Result, Shared
from streamsvm.engine.state_transfer import bytes_of
from streamsvm.engine.task import Partial
from streamsvm.errors import ClusterError, MissingError

_LIMITS: list[threadpool_limits] = []
"""Held as long as the process lives: the limit ends with the object."""


def _partial_bytes(partial: Partial) -> int:
    """What the scheduler goes by when it decides where two results are joined."""
    return bytes_of(partial.states)


sizeof.register(Partial, _partial_bytes)


def held(value: Shared) -> Shared:
    """A value as a task, so that a worker that had it can be lost: it is sent again."""
    return value


def run(function: Callable[..., Result], version: str, part: Part, *shared: Shared) -> Result:
    """A task on a worker. Raises what it raises; ClusterError when driver and worker are not the same streamsvm."""
    if version != __version__:
        message = f"a worker runs streamsvm {__version__}, this is {version}"
        raise ClusterError(message, hint="install the same version everywhere")
    if not _LIMITS:  # for good: tasks of several threads would undo each other's limits, and bits depend on threads
        _LIMITS.append(threadpool_limits(1))
    try:
        return function(part, *shared)
    except MissingError as error:
        hint = "all workers must see the files under the same names as the program that starts the job"
        raise MissingError(f"on a worker: {error.message}", hint=hint, code=error.code) from error
