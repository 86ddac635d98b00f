"""What a search is asked to try: maps, that is landmarks and widths, by values of C."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from streamsvm.errors import UsageError
from streamsvm.features.nystrom import CUT
from streamsvm.jobs.fit.problems import checked_cost


@dataclass(frozen=True, slots=True)
class TuneJob:
    """What ``streamsvm tune`` is asked for; the keys of a job file are these fields."""

    store: str
    out: str
    """A directory for the table and the heat map."""
    C: tuple[float, ...] = (1.0,)
    """Weights of the loss sum to try."""
    gamma: tuple[float | str, ...] = ("scale",)
    """Widths of the kernel to try: numbers, 'scale' or 'mean-distance'."""
    landmarks: tuple[int, ...] = ()
    """Numbers of landmarks to try; none for the linear kernel and for stores that are embeddings."""
    folds: int = 5
    solver: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)
    loss: str = "squared_hinge"
    loss_options: dict[str, float] = field(default_factory=dict)
    bias: float = 1.0
    standardize: bool = False
    kernel: str = "linear"
    kernel_options: dict[str, float] = field(default_factory=dict)
    sampling: str = "uniform"
    cutoff: float = CUT
    positive: str | None = None
    class_weight: str | dict[str, float] | None = None
    tolerance: float = 1e-2
    max_passes: int = 100
    memory: int | None = None
    seed: int = 0
    prefetch: int = 2
    overwrite: bool = False
    cluster: str | None = None
    """Dask workers to do it on: tcp://127.0.0.1:8786, tls://HOST:8786, local:N (started here), scheduler-file:PATH."""
    insecure_network: bool = False
    """Allow a cluster that is neither encrypted nor on this machine."""


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
