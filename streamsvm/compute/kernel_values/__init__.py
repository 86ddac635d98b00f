"""Kernel values, and functions that are linear in them.

- ``kernel_matrix``: K[i, j] = k(x_i, z_j) of a block: one product and one pass that finishes it
- ``expansion``: sums of coefficients times kernel values
- ``elementary``: the exponential and other functions, written to be vectorized
- ``rounding``: the error of a kernel value, and the arithmetic that is needed
"""

from streamsvm.compute import compiled  # noqa: F401  installs our cache before any pass is compiled
