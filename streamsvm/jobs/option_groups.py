"""Options that several jobs have of how they run and what they write, each declared here once.

A job mixes in the groups it has a use for; what is learned, and how, is asked in ``model_options``. Fields of a group are
keyword-only, so that a job's own fields (store, model, ...) stay the positional ones. An option that several jobs have
with different defaults is a type here (``TimeLimit``) and a field in each of them.
"""

from __future__ import annotations

from typing import Annotated

from streamsvm.config.checks import Checked, option_group
from streamsvm.config.fields import Bounds, Option, Quantity

AT_LEAST_ONE = Bounds(least=1)
THREADS = Bounds(least=1, most=1024)
"""Where memory is short a fit is planned with one thread less and one less again."""
POSITIVE = Bounds(above=0)
TIME = Bounds(least=0, infinite=True)
TimeLimit = Annotated[
    float,
    Option(
        "Stop after this time with exit code 75; what is finished stays, and the same command goes on with it.",
        "stopping",
        unit=Quantity.SECONDS,
        bounds=TIME,
    ),
]
CHUNK_BYTES = 4 << 20
CHUNK = Option(
    "Size of the chunks of the store, which are what is read at a time.",
    "output",
    unit=Quantity.BYTES,
    bounds=AT_LEAST_ONE,
    flag="chunk",
)
ChunkBytes = Annotated[int, CHUNK]
Seed = Annotated[int, Option("Seed of everything that is drawn at random.", bounds=Bounds(least=0))]


@option_group
class MemoryOptions(Checked):
    """How much memory the process may use."""

    memory: Annotated[
        int | None,
        Option(
            "Anonymous memory the process may use; a job that needs more is refused before it reads.",
            "memory",
            unit=Quantity.BYTES,
            bounds=AT_LEAST_ONE,
            default="the limit of the control group, or three quarters of what is available",
        ),
    ] = None
    threads: Annotated[
        int | None,
        Option(
            "Threads that compute side by side; fewer where memory is short. The result does not depend on it.",
            "memory",
            bounds=THREADS,
            default="all processors this process may use",
        ),
    ] = None


@option_group
class ReadingOptions(MemoryOptions):
    """How the chunks of a store are read, in which order and how far ahead."""

    seed: Seed = 0
    prefetch: Annotated[
        int,
        Option(
            "Chunks read ahead of the one that is worked on, and at once where reading is what takes the time.",
            "memory",
            bounds=Bounds(least=0),
        ),
    ] = 2


@option_group
class ClusterOptions(Checked):
    """Where a job runs if not in this process."""

    cluster: Annotated[
        str | None,
        Option(
            "Run on Dask workers: tcp://127.0.0.1:8786, tls://HOST:8786, local:N (N workers started here), "
            "scheduler-file:PATH, or client: (of a program: the client it has). Worth it from about half a minute of work "
            "on the threads of one machine; local:N is no faster than --threads N.",
            "cluster",
        ),
    ] = None
    insecure_network: Annotated[
        bool, Option("Allow a cluster that is neither encrypted nor on this machine.", "cluster")
    ] = False


@option_group
class PageOptions(Checked):
    """Whether a run also leaves a page to look at."""

    report: Annotated[
        str | None,
        Option("Also draw the page of the run, as 'streamsvm report' does: an HTML file.", "output", metavar="PATH"),
    ] = None


@option_group
class OutputOptions(Checked):
    """What happens to an output that exists."""

    overwrite: Annotated[bool, Option("Replace the output if it exists.", "output")] = False


@option_group
class NewStoreOptions(OutputOptions):
    """How a new store is cut into chunks and into rows for training and for testing."""

    seed: Seed = 0
    chunk_bytes: ChunkBytes = CHUNK_BYTES
    test_fraction: Annotated[
        float,
        Option(
            "Share of the rows that go to a test store, NAME.test.zarr beside NAME.zarr.",
            "output",
            bounds=Bounds(least=0, below=1),
        ),
    ] = 0.0
