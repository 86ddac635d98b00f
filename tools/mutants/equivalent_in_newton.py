"""Changes of Newton's method and of descent in memory that make no other program, with the reason of each; see ``equivalent``."""

from __future__ import annotations

IN_NEWTON = {
    ("streamsvm/solvers/newton/explicit.py", "if share >= 0.5:"): "shares grow a hundredfold, from a hundredth to 1",
    (
        "streamsvm/solvers/newton/in_memory/proximal_metric.py",
        "place = np.full(p, -2, np.int32)",
    ): "any number below 0 is no place",
    ("streamsvm/solvers/newton/memory.py", "sampled = sampled if rows < problem.rows else 1"): "all rows are more",
    (
        "streamsvm/solvers/newton/memory.py",
        "entries = p if layout.dense else 2 * sum(layout.nonzeros or ()) // max(2, layout.rows) + 4",
    ): "a fit has a row of each class",
    (
        "streamsvm/solvers/newton/memory.py",
        "block = block_size(problem.columns, problem.nonzeros or (problem.rows / p), dense=layout.dense)",
    ): "of dense rows the block is all columns, or the Hessian is larger",
    (
        "streamsvm/solvers/newton/memory.py",
        "q = min(p, most) if layout.dense or (p < most) else 0",
    ): "the block of so many columns is larger",
    (
        "streamsvm/solvers/newton/row_sample.py",
        "return 8 * (1 + -(-problem.nonzeros // max(2, problem.rows)))",
    ): "a fit has a row of each class",
    (
        "streamsvm/solvers/newton/in_memory/newton_steps.py",
        "smoothing = (losses - linear - quadratic) + float(self._slopes @ f)",
    ): "asked for where a corner is rounded: the conjugate of a loss with a corner has no parabola",
    (
        "streamsvm/solvers/newton/in_memory/linear_systems/block_matrix.py",
        "change[(np.abs(change) < SAME * h)] = 0.0",
    ): "but for a difference that is 1e-12 of h to the last bit; what is 0 stays 0",
    (
        "streamsvm/solvers/newton/exact_steps.py",
        "if value <= change - FALLS * length * promised or (length <= SHORTEST):",
    ): "no power of 1/2 is 1e-6",
    ("streamsvm/solvers/newton/exact_steps.py", "if (length <= SHORTEST):"): "as above",
    (
        "streamsvm/solvers/newton/row_sample.py",
        "if (self.held >= self.limit):",
    ): "of as many rows as there is room for none is thrown out",
    (
        "streamsvm/solvers/newton/row_sample.py",
        "blocks, order = [part.X for part in samplers[0].parts], np.empty(1, np.int64)",
    ): "there is a sampler, whose rows say the order",
    (
        "streamsvm/solvers/newton/row_sample.py",
        "keys = np.concatenate([part.keys for part in self.parts] or [np.empty(1)])",
    ): "no sample is of less than a row, and of nothing nothing is thrown out",
    (
        "streamsvm/solvers/newton/memory.py",
        "q = min(p, most) if layout.dense or p <= most else 1",
    ): "any block is larger than a matrix of one number",
}
"""Lines as they are then, by file."""
