"""What every writer does around its steps: an observer is told of each, and a refusal of the system names the file.

A test's observer kills the process at a step, or notes the order of things. STREAMSVM_FAULT=kill@N kills at the N-th.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from streamsvm.errors import ExistsError, StorageError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def _killing(at: int) -> Callable[..., None]:
    """An observer that kills this process at step ``at``."""
    steps = count(1)

    def observer(*_: object) -> None:
        if next(steps) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return observer


_FAULT = os.environ.get("STREAMSVM_FAULT", "")
observe: Callable[..., None] | None = _killing(int(_FAULT[5:])) if _FAULT.startswith("kill@") else None
"""Called with (what was just done, path, other path) while something is being written; None outside tests."""


def step(done: str, *paths: Path) -> None:
    """Tell the observer that a step is done."""
    if observe is not None:
        observe(done, *paths)


@contextmanager
def explained(action: str, path: Path | str) -> Iterator[None]:
    """Turn the operating system's refusal into an error that names the file."""
    try:
        yield
    except FileExistsError as error:
        raise ExistsError(f"{path} exists already", hint="choose another name, or pass --overwrite") from error
    except OSError as error:
        full = error.errno in NO_SPACE
        raise StorageError(
            f"{action} {path} failed: {error.strerror}",
            code="E-NOSPACE" if full else "E-IO",
            hint="free space and run the same command again" if full else "check the disk and its permissions",
        ) from error
