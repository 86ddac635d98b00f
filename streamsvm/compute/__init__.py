"""Compiled passes over blocks of rows. Importing this package, before numba, sets the directory of machine code.

- ``passes``: the inner loops of solvers, a file a method
- ``blocks``: products with the rows of a block (Hessians too), sums, statistics and scaling of columns
- ``kernel_values``: kernel matrices and expansions, the exponential, and the arithmetic they are evaluated in
- ``svmlight_text``: the parser of svmlight lines, and of the decimal numbers in them
- ``compiled``, ``pass_cache``: how passes are compiled, and the cache of machine code, named by a hash of the sources;
  ``compile_clock``: time spent in the compiler
- ``numba_bridge``: methods of records become callable in passes; prefetch instructions
- ``threading``: threads that share rows out; ``freed_memory``: what was freed goes back to the system
- ``random``: splitmix64, shuffles, samples; ``targets``: margins and dual terms of a target
"""

from streamsvm.compute.pass_cache import cache_directory, passes_loaded, use_cache

__all__ = ["cache_directory", "passes_loaded", "use_cache"]

use_cache()
