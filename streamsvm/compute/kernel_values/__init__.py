"""Kernel values, and functions that are linear in them.

- ``kernel_matrix``: K[i, j] = k(x_i, z_j) of a block: a matrix product, then one pass that applies the kernel function
- ``kernel_products``: sums of coefficients times kernel values, in tiles
- ``elementary``: the exponential and other functions, written to be vectorized
- ``whole_numbers``: squared distances of rows of pixels or counts, in integers
- ``arithmetic``: integers, float32, float64 or differences: bounds of the error of a kernel value, and the choice
"""

from streamsvm.compute import compiled  # noqa: F401  installs our cache before any pass is compiled
