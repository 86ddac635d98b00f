"""Passes over the rows of one block, in every form: dense, CSR, factored kernel features, features not formed yet.

- ``operators``: products: X w, X' a, and X' diag(a) X, the Hessian
- ``sums``: sums over rows of which certificates are made
- ``columns``: sums, means, variances and counts of columns; ``column_scaling``: scaling, int8 and float16
- ``selection``: rows by number, as a dense matrix, and their norms
"""

from streamsvm.compute import compiled  # noqa: F401  installs our cache before any pass is compiled
