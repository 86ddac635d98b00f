"""info: facts about a store or a model; verify: a check that it is intact; doctor: facts about this machine."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np

from streamsvm import __version__
from streamsvm import model as models
from streamsvm.engine.progress import Stopwatch
from streamsvm.errors import DataError, MissingError
from streamsvm.input_files import find_url, is_folder, is_there
from streamsvm.jobs.ingest.notices import label_drift
from streamsvm.model.model import CURVES
from streamsvm.object_store import is_object, object_facts
from streamsvm.schedule import budget
from streamsvm.schedule.machine import count_wanted_threads, disk_speed
from streamsvm.store import open_store
from streamsvm.store.disk_reads import count_retries
from streamsvm.store.foreign import foreign_format
from streamsvm.store.format import manifest
from streamsvm.store.sources.offsets import offsets_of_store
from streamsvm.type_aliases import JsonMapping, JsonObject
from streamsvm.types import Report, Store, StoredFiles, silent

PROBE_SECONDS = 0.5
"""Seconds for which the read rate is measured."""
PACKAGES = ("numpy", "scipy", "numba", "h5py", "zarr", "dask", "pyarrow", "msgspec", "crc32c", "safetensors")
CLUSTER = (
    "local:N is as fast as N threads, but takes some seconds to start; workers on other machines pay off for jobs that take at "
    "least half a minute on the threads of this machine"
)
"""The size of jobs from which a cluster pays off; workers take 4 to 14 s to start and to load compiled code."""


def info(path: Path, *, columns: bool = False) -> JsonObject:
    """Return facts about a store or a model; ``columns`` adds the statistics of every column. Raises StreamSVMError."""
    if (url := find_url(path)) is not None:
        return model_facts(url) if _is_model(url) else store_facts(url, columns=columns)
    if not is_there(path):
        raise MissingError(f"there is nothing at {path}", hint="name a store or a model")
    stored = is_folder(path) or foreign_format(path) is not None
    return store_facts(path, columns=columns) if stored else model_facts(path)


def _is_model(url: str) -> bool:
    """Return whether there is an object at a URL, and no store; a web server can answer for a folder, too."""
    return not is_object(f"{url}/{manifest.FILE}") and is_object(url)


def store_facts(path: Path | str, *, columns: bool = False) -> JsonObject:
    """Return facts about a store as plain JSON, without reading its chunks."""
    store = open_store(path)
    layout, facts = store.layout, store.facts
    nonzeros = None if layout.nonzeros is None else sum(layout.nonzeros)
    description = {
        "kind": "store",
        "path": str(path),
        "rows": layout.rows,
        "columns": layout.columns,
        "layout": layout.kind,
        "nonzeros": nonzeros,
        "chunks": len(layout.chunks),
        "largest_chunk": layout.largest_chunk,
        "bytes_per_pass": layout.bytes_per_pass,
        "weighted": layout.weighted,
        "task": layout.task,
        "classes": {} if layout.numeric else dict(zip(layout.classes, layout.counts, strict=True)),
        "target": facts.get("target"),
        "label_drift": label_drift(store.census, layout.counts),
        "index_base": facts.get("index_base"),
        "sources": facts.get("sources", []),
        "offsets": _offsets(facts),
        "synth": facts.get("synth"),
        "digest": store.digest,
        "versions": store.versions,
    }
    if "table" in facts:
        description["table"] = facts["table"]
    return description | {"statistics": _statistics(store)} if columns else description


def _offsets(facts: JsonMapping) -> dict[str, float]:
    """Return the offsets that were subtracted from columns before they were stored, by name or number.

    ``facts``: those of a store or of a model.
    """
    names, offsets = facts.get("names"), offsets_of_store(facts)
    return {str(names[j] if names else j): float(o) for j, o in zip(*offsets, strict=True)}


def _statistics(store: StoredFiles) -> list[JsonObject]:
    """Return name, mean, standard deviation, minimum and maximum of each column, in its original units."""
    moments, rows = store.statistics(), store.layout.rows
    offsets = offsets_of_store(store.facts)
    for values in (moments.mean, moments.minimum, moments.maximum):
        values[offsets.columns] += offsets.values
    names = store.facts.get("names") or [str(j) for j in range(store.layout.columns)]
    deviation = np.sqrt(moments.M2 / rows)
    arrays = (moments.mean, deviation, moments.minimum, moments.maximum)
    keys = ("name", "mean", "std", "min", "max")
    return [dict(zip(keys, row, strict=True)) for row in zip(names, *(a.tolist() for a in arrays), strict=True)]


def model_facts(path: Path | str) -> JsonObject:
    """Return facts about a model and how it was made, as plain JSON."""
    model, url = models.load(Path(path)), find_url(path)
    provenance = model.provenance
    return {
        "kind": "model",
        "path": str(path),
        "classes": list(model.classes),
        "columns": model.columns,
        "offsets": _offsets(provenance),
        "function": model.kind,
        "expansion": None
        if model.expansion is None
        else model.expansion.header()
        if model.kind == CURVES
        else {**model.expansion.header(), "points": model.weights.shape[1] - 1},
        "threshold": model.provenance.get("threshold"),
        "calibration": None if model.calibration is None else model.calibration.header(),
        "bytes": Path(path).stat().st_size if url is None else object_facts(url).size,
        "certificates": provenance.get("certificates", []),
        "changes": provenance.get("changes", []),
        "settings": provenance.get("settings", {}),
        "store": provenance.get("store", {}),
        "streamsvm": provenance.get("streamsvm"),
    }


def verify(path: Path, report: Report = silent) -> JsonObject:
    """Read all of a store or a model and return the damage found. Raises the errors of opening it; damaged chunks are
    listed in the result and raise no error.
    """
    url = find_url(path)
    if url is None and not is_there(path):
        raise MissingError(f"there is nothing at {path}", hint="name a store or a model")
    if _is_model(url) if url is not None else not is_folder(path) and foreign_format(path) is None:
        models.load(path)
        return {"path": url or str(path), "kind": "model", "bad": []}
    store = open_store(path)
    stopwatch, repeated = Stopwatch(), count_retries()
    buffers, layout, bad, rows = store.buffers(), store.layout, [], 0
    for chunk, count in enumerate(layout.chunks):
        try:
            store.fetch(chunk, buffers)
            store.check(chunk, buffers)
        except DataError as error:
            bad.append({"chunk": chunk, "code": error.code, "message": error.message})
        store.forget(chunk)
        rows += count
        if stopwatch.due():
            report({"event": "verify", "rows": rows, "of": layout.rows, "seconds": stopwatch.seconds})
    bad += [{"chunk": None, "code": error.code, "message": error.message} for error in store.faults()]
    facts = {"chunks": len(layout.chunks), "rows": layout.rows, "bytes": layout.bytes_per_pass}
    facts["reads_repeated"] = count_retries() - repeated
    return {"path": url or str(path), "kind": "store", "seconds": stopwatch.seconds, **facts, "bad": bad}


def read_rate(store: Store) -> float:
    """Return the rate in bytes per second at which the first chunks of the store are read now, from disk or page
    cache.
    """
    from streamsvm.schedule.stream import Stream, epoch_visits

    layout = store.layout
    per_row = layout.bytes_per_pass / layout.rows
    began, rows = time.perf_counter(), 0
    with Stream(store, epoch_visits(layout, 0, 0, shuffled=False), depth=0) as stream:
        for loaded in stream:
            rows += len(loaded.chunk.codes)
            if time.perf_counter() - began > PROBE_SECONDS:
                break
    return rows * per_row / max(time.perf_counter() - began, 1e-9)


def doctor(directory: Path) -> JsonObject:
    """Return facts about this machine as plain JSON; writes and removes 64 MiB in ``directory`` to measure the disk."""
    return {
        "streamsvm": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "cpus": len(os.sched_getaffinity(0)),
        "threads": count_wanted_threads(None),
        "cluster": CLUSTER,
        "blas": _blas(),
        "memory": _memory(),
        "disk": {"directory": str(directory.resolve()), **disk_speed(directory)},
        "passes": _compiled_passes(),
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

    memory = psutil.virtual_memory()
    return {
        "total": memory.total,
        "available": memory.available,
        "limit": budget.memory_limit(None),
        "process": budget.anonymous_bytes(),
    }


def _compiled_passes() -> JsonObject:
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
