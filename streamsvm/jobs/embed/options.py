"""What ``embed`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamsvm.errors import UsageError
from streamsvm.features.nystrom import CUT
from streamsvm.jobs.embed.placement import DTYPES


@dataclass(frozen=True, slots=True)
class EmbedJob:
    """What ``streamsvm embed`` is asked for; the keys of a job file are these fields."""

    store: str
    embedding: str
    kernel: str = "rbf"
    kernel_options: dict[str, float] = field(default_factory=dict)
    """Settings of the kernel beside gamma: coef0, degree."""
    gamma: float | str = "scale"
    """Width of the kernel: a number, 'scale' for 1 / (columns x variance), or 'mean-distance'."""
    landmarks: int | None = 1000
    landmark_file: str | None = None
    """A .npy file of landmarks, rows as they are stored."""
    sampling: str = "uniform"
    """How landmarks are drawn: 'uniform', 'leverage' (one pass more), 'kmeans++' (far from each other), 'greedy' (by labels)."""
    cutoff: float = CUT
    """Directions of the landmarks' kernel matrix with less than this share of its largest eigenvalue are left out."""
    standardize: bool = False
    dtype: str = "float32"
    """Of the features on disk: float32, float16, or int8 with a scale a column."""
    chunk_bytes: int = 4 << 20
    memory: int | None = None
    """Bytes of anonymous memory the process may use."""
    seed: int = 0
    prefetch: int = 2
    overwrite: bool = False
    cluster: str | None = None
    """Dask workers to do it on: tcp://127.0.0.1:8786, tls://HOST:8786, local:N (started here), scheduler-file:PATH."""
    insecure_network: bool = False
    """Allow a cluster that is neither encrypted nor on this machine."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"there is no dtype '{self.dtype}'", hint=f"choose from {', '.join(DTYPES)}")
