"""Which options of an ingest changed nothing, and why: those of other formats, and those that what was found has no use for."""

from __future__ import annotations

from collections.abc import Sequence

from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.without_effect import other_formats
from streamsvm.store.sources import Source
from streamsvm.store.sources.schema import CATEGORY, HASHED, TEXT


def idle_options(job: IngestJob, source: Source) -> dict[str, Sequence[str]]:
    """Return which fields nothing looked at in a source that was read to its end, by the reason; see ``without_effect``."""
    beside = () if job.sources else ("label", "weight")  # which are given with arrays of a program
    encoding = source.encoding()
    schema = encoding.get("schema")
    kinds = None if schema is None else {column["kind"] for column in schema["columns"]}
    idle = {
        "no rows are held out": not job.holds_out and ("test_store",),
        "nothing is drawn": not (job.shuffle or job.test_fraction) and ("seed",),
        "no cluster is named": job.cluster is None and ("insecure_network",),
        "every line that cannot be read is an error": job.on_bad_line == "error" and ("max_bad",),
        "no column is a category": kinds is not None and CATEGORY not in kinds and ("min_count",),
        "no column is hashed": kinds is not None and HASHED not in kinds and ("hash_bits",),
        "no column is text": kinds is not None and TEXT not in kinds and ("text_bits",),
    }
    of_others = other_formats(job, encoding["format"]).items()
    told = {why: [name for name in names if name not in beside] for why, names in of_others}
    return told | {why: names for why, names in idle.items() if names}
