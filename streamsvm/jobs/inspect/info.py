"""info and verify: what a store or a model is, as plain JSON values, and whether it is still what was written."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from streamsvm import model as models
from streamsvm.aliases import JsonMapping, JsonObject
from streamsvm.engine.progress import Stopwatch
from streamsvm.errors import DataError, MissingError
from streamsvm.jobs.ingest.notices.drift import label_drift
from streamsvm.regular import is_folder, is_there
from streamsvm.schedule.plan import epoch_visits
from streamsvm.schedule.stream import Stream
from streamsvm.store import open_store
from streamsvm.store.foreign import foreign_format
from streamsvm.store.read.retry import retries
from streamsvm.store.sources.offsets import offsets_of_store
from streamsvm.types import Report, Store, StoredFiles, silent

PROBE_SECONDS = 0.5
"""How long the rate of reading is measured."""


def info(path: Path, *, columns: bool = False) -> JsonObject:
    """Return facts about a store or a model; ``columns`` adds the statistics of every column. Raises StreamSVMError."""
    if not is_there(path):
        raise MissingError(f"there is nothing at {path}", hint="name a store or a model")
    stored = is_folder(path) or foreign_format(path) is not None
    return store_facts(path, columns=columns) if stored else model_facts(path)


def store_facts(path: Path, *, columns: bool = False) -> JsonObject:
    """Return what is known of a store without reading its chunks, as plain JSON."""
    store = open_store(path)
    layout, facts = store.layout, store.facts
    nonzeros = None if layout.nonzeros is None else sum(layout.nonzeros)
    found = {
        "kind": "store",
        "path": str(path),
        "rows": layout.rows,
        "columns": layout.columns,
        "layout": "dense" if layout.dense else "csr",
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
    return found | {"statistics": _statistics(store)} if columns else found


def _offsets(facts: JsonMapping) -> dict[str, float]:
    """What was taken from columns before they were stored, by name or number; ``facts`` of a store or of a model."""
    names, offsets = facts.get("names"), offsets_of_store(facts)
    return {str(names[j] if names else j): float(o) for j, o in zip(*offsets, strict=True)}


def _statistics(store: StoredFiles) -> list[JsonObject]:
    """Name, mean, standard deviation, minimum and maximum of every column, as the sources have it."""
    moments, rows = store.statistics(), store.layout.rows
    offsets = offsets_of_store(store.facts)
    for ends in (moments.mean, moments.minimum, moments.maximum):
        ends[offsets.columns] += offsets.values
    names = store.facts.get("names") or [str(j) for j in range(store.layout.columns)]
    deviation = np.sqrt(moments.M2 / rows)
    arrays = (moments.mean, deviation, moments.minimum, moments.maximum)
    keys = ("name", "mean", "std", "min", "max")
    return [dict(zip(keys, row, strict=True)) for row in zip(names, *(a.tolist() for a in arrays), strict=True)]


def model_facts(path: Path) -> JsonObject:
    """Return what a model is and how it was made, as plain JSON."""
    model = models.load(path)
    known = model.provenance
    return {
        "kind": "model",
        "path": str(path),
        "classes": list(model.classes),
        "columns": model.columns,
        "offsets": _offsets(known),
        "function": model.kind,
        "expansion": None
        if model.expansion is None
        else {**model.expansion.header(), "points": model.weights.shape[1] - 1},
        "calibration": None if model.calibration is None else model.calibration.header(),
        "bytes": path.stat().st_size,
        "certificates": known.get("certificates", []),
        "settings": known.get("settings", {}),
        "store": known.get("store", {}),
        "streamsvm": known.get("streamsvm"),
    }


def verify(path: Path, report: Report = silent) -> JsonObject:
    """Read everything and return all that is wrong. Raises what opening raises; the list is the caller's to judge."""
    if not is_there(path):
        raise MissingError(f"there is nothing at {path}", hint="name a store or a model")
    if not is_folder(path) and foreign_format(path) is None:
        models.load(path)
        return {"path": str(path), "kind": "model", "bad": []}
    store = open_store(path)
    stopwatch, repeated = Stopwatch(), retries()
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
    facts["reads_repeated"] = retries() - repeated
    return {"path": str(path), "kind": "store", "seconds": stopwatch.seconds, **facts, "bad": bad}


def read_rate(store: Store) -> float:
    """Return the bytes a second at which the store is read now, from its first chunks: cached pages included, as a pass
    would.
    """
    layout = store.layout
    per_row = layout.bytes_per_pass / layout.rows
    began, rows = time.perf_counter(), 0
    with Stream(store, epoch_visits(layout, 0, 0, shuffled=False), depth=0) as stream:
        for loaded in stream:
            rows += len(loaded.chunk.codes)
            if time.perf_counter() - began > PROBE_SECONDS:
                break
    return rows * per_row / max(time.perf_counter() - began, 1e-9)
