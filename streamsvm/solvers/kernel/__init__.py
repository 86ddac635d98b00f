"""Kernel machines without features: kernel values are computed when they are needed.

- ``decomposition``: C-SVC, regression and one class with a free bias: which violating rows form the next pool
- ``pool``: rows in memory and the quadratic problem they make; ``smo``: that problem solved, by pairs of variables and by
  linear systems of all free ones
- ``simplex``: the L2-SVM on the unit simplex: passes and pools of ``blended`` (pairs in an active set) and
  ``frank_wolfe`` (Frank-Wolfe, away steps, swaps, PARTAN)
- ``active_set``: few rows, their Gram matrix in memory, exact
- ``cache``: a cache of kernel columns; ``rounding``: bounds of the error of P and D
- ``reduced_set``: a machine with fewer support vectors
"""
