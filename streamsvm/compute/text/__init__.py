"""Passes over text: ``decimals`` (decimal numbers, correctly rounded) and ``svmlight`` (lines of the svmlight form)."""

from streamsvm.compute import compiled  # noqa: F401  installs our cache before any pass is compiled
