"""Passes over text: decimal numbers and the svmlight form."""

from streamsvm.compute import cache_files  # noqa: F401  before any pass is compiled
