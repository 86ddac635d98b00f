"""Kernel values, and functions that are linear in them.

- ``kernel_matrix``: K[i, j] = k(x_i, z_j) of a block: a matrix product, then one pass that applies the kernel function
- ``expansion``: sums of coefficients times kernel values
- ``elementary``: the exponential and other functions, written to be vectorized
- ``rounding``: bounds of the error of a kernel value, and the choice of the arithmetic
"""

from streamsvm.compute import compiled  # noqa: F401  installs our cache before any pass is compiled
