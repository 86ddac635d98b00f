"""Passes over the rows of one block in every format: dense, CSR, factored kernel features, and features that are not
computed yet.

- ``operators``: products: X w, X' a, and X' diag(a) X, the Hessian
- ``sums``: sums over rows from which certificates are computed
- ``columns``: sums, means, variances and counts of columns; ``column_scaling``: scaling, int8 and float16
- ``selection``: rows by number, as a dense matrix, and their norms
"""

from streamsvm.compute import compiled  # noqa: F401  installs our cache before any pass is compiled
