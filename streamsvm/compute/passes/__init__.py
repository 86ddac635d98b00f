"""The compiled loops of the solvers, each over one block.

- ``dcd``: dual coordinate descent, shrinking, all classes in one problem, CoCoA+, the margin perceptron (MPU)
- ``proximal_descent``: dual coordinate descent with a proximal term on frequent columns
- ``stochastic``: SGD, Pegasos, ASSG; ``sgd_qn``
- ``certificate``: P, and a dual point formed from the slopes at w
- ``newton``: sums and second derivatives at a point; ``priority_sampling``: scores and keys of sampled rows
- ``rows_in_memory``: products with the Hessian, line searches and columns of rows in memory
- ``interior_point``: Newton steps of all rows, predictor and corrector, the longest feasible step
- ``line_search``: sums at several points of a segment (OCAS)
- ``elastic_net``: coordinate descent with an l1 term
- ``cholesky``: updates of a Cholesky factor
- ``kernel_rows``: rows as coordinates of a kernel solver; ``smo``: pairs of variables; ``frank_wolfe``: steps on the
  simplex
"""

from streamsvm.compute import compiled  # noqa: F401  installs our cache before any pass is compiled
