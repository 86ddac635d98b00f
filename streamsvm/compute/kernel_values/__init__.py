"""Passes that compute kernel values, and functions that are linear in them."""

from streamsvm.compute import cache_files  # noqa: F401  before any pass is compiled
