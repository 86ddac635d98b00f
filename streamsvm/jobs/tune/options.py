"""What a search is asked to try: maps, that is landmarks and widths, by values of C."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from streamsvm.features.nystrom import CUT


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
