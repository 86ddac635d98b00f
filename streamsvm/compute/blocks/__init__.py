"""Passes over the rows of one block: products, sums of losses, moments, scaling, selection."""

from streamsvm.compute import compiled  # noqa: F401  installs our cache before any pass is compiled
