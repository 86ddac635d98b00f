"""What a fit is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from streamsvm.features.nystrom import CUT


@dataclass(frozen=True, slots=True)
class FitJob:
    """What ``streamsvm fit`` is asked for; the keys of a job file are these fields."""

    store: str
    model: str
    solver: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)
    """Settings of the solver, by the names of its fields."""
    loss: str = "squared_hinge"
    loss_options: dict[str, float] = field(default_factory=dict)
    C: float | tuple[float, ...] | None = None
    """Weight of the loss sum, or several: one model each. 1 when neither C nor lambda_ is given."""
    lambda_: float | None = None
    """The other spelling: lambda/2 ||w||^2 + mean loss, C = 1 / (lambda n)."""
    bias: float = 1.0
    standardize: bool = False
    features_key: str = "X"
    """Of HDF5 and Zarr arrays others wrote, which are read in place: the array of features."""
    labels_key: str = "y"
    """And the array of labels."""
    kernel: str = "linear"
    kernel_options: dict[str, float] = field(default_factory=dict)
    """Settings of the kernel beside gamma: coef0, degree."""
    gamma: float | str = "scale"
    """Width of the kernel: a number, 'scale' for 1 / (columns x variance), or 'mean-distance'."""
    landmarks: int | None = None
    """Nystrom features from so many rows of the store; without them a kernel is solved exactly."""
    landmark_file: str | None = None
    """A .npy file of landmarks, rows as they are stored."""
    sampling: str = "uniform"
    """How landmarks are drawn: 'uniform', 'leverage' (one pass more), 'kmeans++' (far from each other), 'greedy' (by labels)."""
    cutoff: float = CUT
    """Directions of the landmarks' kernel matrix with less than this share of its largest eigenvalue are left out."""
    embedding: str = "auto"
    """Keep the features on 'disk', make them on the 'fly' in every pass, or whichever is estimated to be faster."""
    embedding_dtype: str = "float32"
    """Of features on disk: float32, float16 or int8 (with a scale a column)."""
    max_support: int | None = None
    """Of a kernel solved exactly: at most so many rows in the model. The gap then includes what that cost."""
    positive: str | None = None
    class_weight: str | dict[str, float] | None = None
    """"balanced", or a factor per class; classes not named have 1."""
    warm_start: str | None = None
    """A model to start from: linear, of the same columns and classes; C, loss and scaling may differ."""
    validation: float | str | None = None
    """Rows held out, to choose the pass and the C by their error: a part of the chunks (0.1), or a store."""
    patience: int | None = None
    """End when that error has not fallen for so many passes."""
    tolerance: float = 1e-3
    max_passes: int = 1000
    time_limit: float = float("inf")
    """Seconds."""
    at_limit: str = "certify"
    """At the time limit: 'certify' with one more pass and end with a model, or 'stop' with a checkpoint, exit code 75."""
    checkpoint_every: float = 60.0
    """How often to save what --resume goes on from; 0: only when the run is stopped from outside."""
    resume: bool = False
    """Go on from the last checkpoint of an interrupted run with the same settings; from the start if there is none."""
    memory: int | None = None
    """Bytes of anonymous memory the process may use."""
    seed: int = 0
    prefetch: int = 2
    dual: str | None = None
    """Where to write the dual variables as .npy, so that anyone can recompute the certificate.

    Float64 (rows,), of several problems (problems, rows).
    """
    overwrite: bool = False
    cluster: str | None = None
    """Dask workers to do it on: tcp://127.0.0.1:8786, tls://HOST:8786, local:N (started here), scheduler-file:PATH."""
    insecure_network: bool = False
    """Allow a cluster that is neither encrypted nor on this machine."""
    groups: int | None = None
    """On a cluster: parts of the data that are worked on side by side; the result depends on it, not on the workers."""

    def __post_init__(self) -> None:
        # of a caller's 1 for 1.0: to the compiler a whole number is another type, and every pass one more to compile
        object.__setattr__(self, "bias", float(self.bias))
