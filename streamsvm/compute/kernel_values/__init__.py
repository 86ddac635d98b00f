"""Passes that compute kernel values, and functions that are linear in them."""

from streamsvm.compute import compiled  # noqa: F401  installs our cache before any pass is compiled
