"""The compiled loops of the solvers, each over one block."""

from streamsvm.compute import compiled  # noqa: F401  installs our cache before any pass is compiled
