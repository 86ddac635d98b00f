"""The compiled loops of the solvers, each over one block."""

from streamsvm.compute import cache_files  # noqa: F401  before any pass is compiled
