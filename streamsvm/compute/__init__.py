"""Compiled passes, and blocks of rows. Importing this package, before numba, sets the directory of machine code."""

from streamsvm.compute.pass_cache import cache_directory, passes_loaded, use_cache

__all__ = ["cache_directory", "passes_loaded", "use_cache"]

use_cache()
