"""doctor: what this machine gives a job - packages, threads, memory limits, disk, the cache of compiled passes."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from streamsvm import __version__, durable
from streamsvm.aliases import JsonObject
from streamsvm.schedule import budget
from streamsvm.schedule.cores import wanted_threads

PACKAGES = ("numpy", "scipy", "numba", "h5py", "zarr", "dask", "pyarrow", "msgspec", "crc32c", "safetensors")
PROBE_BYTES = 64 << 20
CLUSTER = (
    "local:N does what N threads do, some seconds later; workers on other machines pay for jobs that take the threads of "
    "this one half a minute or more"
)
"""From which size a cluster pays: workers take 4 to 14 s to be started and to load what is compiled."""


def doctor(directory: Path) -> JsonObject:
    """Return facts about this machine as plain JSON; writes and removes 64 MiB in ``directory`` to measure the disk."""
    return {
        "streamsvm": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "cpus": len(os.sched_getaffinity(0)),
        "threads": wanted_threads(None),
        "cluster": CLUSTER,
        "blas": _blas(),
        "memory": _memory(),
        "disk": {"directory": str(directory.resolve()), **disk_speed(directory)},
        "passes": _passes(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _blas() -> list[JsonObject]:
    import numpy as np
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))
    return [{"library": i["internal_api"], "threads": i["num_threads"]} for i in threadpool_info()]


def _memory() -> JsonObject:
    import psutil

    found = psutil.virtual_memory()
    return {
        "total": found.total,
        "available": found.available,
        "limit": budget.memory_limit(None),
        "process": budget.anonymous_bytes(),
    }


def disk_speed(directory: Path) -> dict[str, float]:
    """Return the bytes a second that are written durably and read back, past the page cache where the system allows it."""
    block = os.urandom(1 << 20)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".streamsvm-") as scratch:
        path = Path(scratch) / "probe"
        began = time.perf_counter()
        durable.write_file(path, *[block] * (PROBE_BYTES >> 20))
        written = time.perf_counter() - began
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            began = time.perf_counter()
            while file.read(1 << 20):
                pass
            read = time.perf_counter() - began
    return {"write": PROBE_BYTES / written, "read": PROBE_BYTES / read}


def _passes() -> JsonObject:
    from streamsvm.compute import cache_directory

    directory = cache_directory()
    files = list(directory.rglob("*.nbc")) if directory.is_dir() else []
    return {
        "directory": str(directory),
        "compiled": len(files),
        "bytes": sum(p.stat().st_size for p in files),
        "writable": os.access(directory if directory.exists() else directory.parent, os.W_OK),
        "interpreter": sys.implementation.cache_tag,
    }
