"""Passes over text: decimal numbers and the svmlight form."""

from streamsvm.compute import compiled  # noqa: F401  installs our cache before any pass is compiled
