"""Compiled passes over blocks of rows. Import this package before numba: it sets the directory of numba's cache.

- ``passes``: the inner loops of solvers, one file for each method
- ``blocks``: products with the rows of a block (Hessians too), sums, statistics and scaling of columns
- ``kernel_values``: kernel matrices and expansions, the exponential, and the arithmetic in which they are evaluated
- ``svmlight_text``: the parser of svmlight lines, and of the decimal numbers in them
- ``compiled``, ``pass_cache``: how passes are compiled, and the cache of machine code, named by a hash of the sources;
  ``compile_clock``: the time spent compiling
- ``numba_bridge``: makes methods of records callable in passes; prefetch instructions
- ``threading``: distributes rows to idle threads; ``freed_memory``: returns freed memory to the system
- ``random``: splitmix64, shuffles, samples; ``targets``: margins and dual terms of a target
"""

from streamsvm.compute.pass_cache import cache_directory, passes_loaded, use_cache

__all__ = ["cache_directory", "passes_loaded", "use_cache"]

use_cache()
