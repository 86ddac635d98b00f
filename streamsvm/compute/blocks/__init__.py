"""Passes over the rows of one block: products, sums of losses, moments, scaling, selection."""

from streamsvm.compute import cache_files  # noqa: F401  before any pass is compiled
