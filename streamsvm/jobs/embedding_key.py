"""What makes two embeddings the same: a sha256 of all their bytes depend on - store, landmarks, kernel, scaling, type."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from streamsvm.compute.gram import Points
from streamsvm.features.scaling import Standardised
from streamsvm.jobs.nystrom import NystromRequest
from streamsvm.store import manifest, open_store
from streamsvm.types import Store

FORMAT = 1


def key_of(store: Store, points: Points, request: NystromRequest, dtype: str, chunk_bytes: int) -> str:
    """sha256 of all that decides an embedding's bytes."""
    inner = request.inner
    scaling = [inner.shift, inner.scale] if isinstance(inner, Standardised) else []
    arrays = [hashlib.sha256(a.tobytes()).hexdigest() for a in (points.columns, *scaling)]
    kernel = {"kernel": request.kernel, **{name: float(value) for name, value in request.record._asdict().items()}}
    parts = [FORMAT, store.digest, points.size, arrays, kernel, dtype, chunk_bytes, request.cutoff]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def committed_key(target: Path) -> str | None:
    """The key of a finished embedding; "" for another store, None where there is none. Raises DataError."""
    if not (target / manifest.FILE).exists():
        return None
    return str(open_store(target).facts.get("embedding", {}).get("key", ""))
