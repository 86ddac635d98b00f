"""Kernel machines with exact kernels: kernel values are computed when they are needed, without a feature map.

- ``decomposition``: classification, regression and one-class problems with a free bias: the choice of the rows of a
  pool
- ``pool``: rows in memory and their quadratic problem; ``smo``: its solution by pairs of variables and by linear
  systems in all free ones
- ``simplex``: the L2-SVM on the unit simplex: passes and pools of ``blended`` (pairs in an active set) and
  ``frank_wolfe`` (Frank-Wolfe, away steps, swaps, PARTAN)
- ``small_problems``: problems of a few thousand rows in memory, each solved at once, without passes
- ``active_set``: an exact solver for few rows, with their Gram matrix in memory
- ``cache``: a cache of kernel columns; ``rounding``: bounds of the rounding errors of P and D
- ``reduced_set``: a machine with fewer support vectors
"""
