"""The grid of a search: maps, that is landmarks and widths, by values of C."""

from __future__ import annotations

from dataclasses import fields

from streamsvm.errors import UsageError
from streamsvm.jobs.fit.problems import checked_cost
from streamsvm.jobs.tune.options import TuneJob

OWN = {"out", "C", "gamma", "landmarks", "folds", "cluster", "insecure_network"}
SHARED = tuple(f.name for f in fields(TuneJob) if f.name not in OWN)
"""Settings a fit has too."""


def grid_of(job: TuneJob) -> list[tuple[int | None, float | str]]:
    """Landmarks and gamma of each map to try. Raises UsageError for a grid that means nothing."""
    for name in ("C", "gamma", "landmarks"):
        values = getattr(job, name)
        if len(set(values)) < len(values) or (not values and name != "landmarks"):
            raise UsageError(f"{name} must be different values to try, not {values}")
    for C in job.C:
        checked_cost(C)
    if job.kernel != "linear" and not job.landmarks:
        raise UsageError("how many landmarks?", hint="--landmarks 300,1000; exact kernel machines are not tuned")
    if job.sampling == "greedy":
        raise UsageError("sampling 'greedy' looks at labels, also of rows held out", hint="uniform, leverage, kmeans++")
    return [(m, gamma) for m in job.landmarks for gamma in job.gamma] or [(None, "scale")]
