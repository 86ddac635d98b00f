"""What ``embed`` is asked for."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from streamsvm.config.fields import Option
from streamsvm.jobs.model_options import Dtype, KernelName, LandmarkOptions, ScalingOptions
from streamsvm.jobs.option_groups import (
    AT_LEAST_ONE,
    CHUNK_BYTES,
    ChunkBytes,
    ClusterOptions,
    OutputOptions,
    ReadingOptions,
    TimeLimit,
)


@dataclass(frozen=True)
class EmbedJob(OutputOptions, ClusterOptions, ReadingOptions, LandmarkOptions, ScalingOptions):
    """What ``streamsvm embed`` is asked for; the keys of a job file are these fields and those of the groups."""

    store: Annotated[str, Option("The store of the rows.")]
    embedding: Annotated[str, Option("Where the store of their features is written.")]
    _: KW_ONLY
    kernel: KernelName = "rbf"
    landmarks: Annotated[
        int | None,
        Option(
            "How many rows of the store to make features of; each gives one at most.", "kernel", bounds=AT_LEAST_ONE
        ),
    ] = 1000
    dtype: Annotated[str, Dtype] = "float32"
    chunk_bytes: ChunkBytes = CHUNK_BYTES
    time_limit: TimeLimit = float("inf")
