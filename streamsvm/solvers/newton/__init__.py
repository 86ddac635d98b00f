"""Newton's method for linear problems, whose rows fit in memory or do not.

- ``solver``: the passes, and which way leads from a point to the next one
- ``in_memory``: all rows in memory: which method solves the problem, and Newton's method on it
- ``dual_and_proximal_descent``: dual coordinate descent, and its proximal form, on rows in memory
- ``interior_point_in_memory``: a primal-dual interior point, predictor and corrector, on rows in memory
- ``trust_region``: out of core: a model of a sample, and how far it is trusted
- ``full_hessian``: out of core, few columns: the second derivatives of all rows are summed up
- ``sampled_steps``: out of core, many columns: a sample's model, solved like rows in memory
- ``priority_sampling``: the sample of a pass: which rows, and how many
- ``preconditioner``, ``conjugate_gradients``: linear systems of the steps
- ``row_products``: products with rows in memory, and columns that few rows have
"""
