"""Newton's method for linear problems whose rows fit in memory or do not.

- ``solver``: the passes over the data, and the choice of the next point
- ``in_memory``: problems with all rows in memory: the choice of the method, and Newton's method
- ``small_problems``: problems of a few thousand rows in memory, each solved at once, without passes
- ``dual_and_proximal_descent``: dual coordinate descent, and its proximal form, on rows in memory
- ``interior_point_in_memory``: a primal-dual interior-point method on rows in memory
- ``trust_region``: out of core: a model built from a sample, and its damping
- ``full_hessian``: out of core, few columns: passes accumulate the Hessian of all rows
- ``sampled_steps``: out of core, many columns: a sampled model, solved like rows in memory
- ``priority_sampling``: the sample of a pass: which rows, and how many
- ``preconditioner``, ``conjugate_gradients``: the linear systems of the steps
- ``row_products``: products with rows in memory, and minimization over rare columns
"""
