"""Lines of mutants that differ of two numbers equal to the last bit alone, or divide by a sign: the same program."""

from __future__ import annotations

TIES = {
    "streamsvm/compute/passes/dcd.py": ("if (last < ROOT_PRECISION * (1.0 + abs(m))):",),
    "streamsvm/jobs/tune/results.py": ("dark = (error <= (low + high) / 2)",),
    "streamsvm/compute/passes/in_memory/column_descent.py": (
        "t = following if (low <= following < high) else 0.5 * (low + high)",
    ),
    "streamsvm/solvers/elastic_net/model.py": (
        "crossing = np.where((at * d <= 0.0), -at / np.where(d == 0.0, 1.0, d), np.inf)",
        "if (above_minimum(w, -g, model.l1) < target):",
        "if (above_minimum(w, -g, model.l1) < target) or time.perf_counter() > deadline:",
    ),
    "streamsvm/solvers/elastic_net/solver.py": (
        "if (found.primal <= state.primal):",
        "if (state.primal - state.dual >= problem.tolerance * abs(state.primal)):",
    ),
    "streamsvm/solvers/l1_ball/solver.py": (
        "if (found.primal <= state.primal):",
        "done = final or state.certifying or (state.primal - state.dual < problem.tolerance * state.primal)",
    ),
    "streamsvm/engine/final_evaluation.py": ("near = (m <= threshold(problem.loss) + off[k])",),
    "streamsvm/solvers/newton/next_point.py": (
        "state.pending = state.pending - 1 if (rows.lacks <= NOTHING * before) else 0",
    ),
    "streamsvm/solvers/newton/in_memory/proximal_descent.py": ("if not (lacks <= CORRECTED * before) or rows.late:",),
    "streamsvm/solvers/newton/out_of_core.py": (
        "if self.promised > NEAR * abs(found.value) or (found.smoothing >= WIDTHS * problem.tolerance * abs(found.primal)):",
        "if (self.promised >= NEAR * abs(found.value)) or found.smoothing > WIDTHS * problem.tolerance * abs(found.primal):",
    ),
    "streamsvm/solvers/interior_point/nearest_rows.py": ("chosen = ((key <= self.threshold)) & (block.s > 0.0)",),
    "streamsvm/solvers/one_class.py": (
        "return (dual > -0.5 * DEGENERATE * self.mass * self.mass * self.rows.usual)",
        "return -0.5 * lack * lack / square if (lack >= 0.0) and square > 0.0 else 0.0",
    ),
    "streamsvm/solvers/newton/in_memory/linear_systems/block_matrix.py": ("certain = (h >= t)",),
    "streamsvm/solvers/newton/in_memory/memory_rows.py": ("if (self._drift < FELT * allowed):",),
    "streamsvm/solvers/newton/solver.py": (
        "if (found.primal <= state.primal):",
        "if (found.dual >= state.dual):",
    ),
    "streamsvm/solvers/elastic_net/regularizer.py": (
        "found: NDArray[np.bool_] = (np.abs(v) + reach <= (1.0 - SLACK) * l1)",
    ),
    "streamsvm/solvers/newton/exact_steps.py": ("if (promised < enough):",),
    "streamsvm/solvers/newton/inner_solver.py": (
        "if smoothing <= goal or (following <= 0.99 * floor):",
        "if (smoothing < goal) or following < 0.99 * floor:",
        "if (value <= least):",
    ),
    "streamsvm/solvers/newton/row_sample.py": ("chosen = (keys <= self.threshold)",),
    "streamsvm/solvers/kernel/decomposition/candidates.py": (
        "chosen = np.union1d(np.flatnonzero(violating & ((draws <= state.rate))), worst(rows, WORST_ROWS))",
    ),
    "streamsvm/solvers/kernel/decomposition/closing.py": (
        "if (found.gap < state.problem.tolerance) or found.final:",
        "if not (dual >= state.weight * (1.0 - p.loss.conjugate_slope(0.0, p.C)) + rounding):",
    ),
    "streamsvm/solvers/kernel/decomposition/multilevel.py": (
        "fresh = np.flatnonzero((depth(pool, threshold(pool)) >= NEGLIGIBLE_SHARE * (top - bottom)))",
    ),
    "streamsvm/solvers/kernel/decomposition/solver.py": (
        "if state.anew is not None and late(state.deadline) and (state.seconds_anew(state.anew) >= GRACE):",
    ),
    "streamsvm/solvers/kernel/rounding.py": (
        "blurred = (problem.C * max(problem.weights, default=1.0) * error_of(kernel, reach, SINGLE) >= BLUNT)",
    ),
    "streamsvm/solvers/kernel/simplex/blended.py": (
        "violated = np.flatnonzero((v >= -2.0 * state.f))",
        "if (found.gap >= allowed) and not begun and not known.over(state.deadline):",
    ),
    "streamsvm/solvers/kernel/simplex/certificate.py": (
        "blurred = (abs(f - state.f) >= SHARE * state.problem.tolerance * f)",
    ),
    "streamsvm/solvers/kernel/simplex/frank_wolfe.py": (
        "if (gap < work.target.allowed(iterations.f)):",
        "known.agreed = known.agreed + 1 if (known.gap < asked.allowed(iterations.f)) else 0",
    ),
    "streamsvm/solvers/kernel/simplex/iterations.py": (
        "if (self.g[v] - 2.0 * self.f < 2.0 * self.f - self.g[self.i]):",
    ),
    "streamsvm/solvers/kernel/simplex/sampled_steps.py": (
        'if self.variant == "mfw" and a_v > 0.0 and (g_v - 2.0 * f >= 2.0 * f - g_i):',
    ),
    "streamsvm/solvers/kernel/simplex/solver.py": (
        "elif (certificate.gap >= state.problem.tolerance) and not (certificate.final or state.certifying):",
    ),
    "streamsvm/solvers/kernel/simplex/state.py": (
        "self.stopped = self.stopped or (self.gaps[-1] >= STALLED * earlier)",
    ),
    "streamsvm/solvers/active_set/exchange.py": (
        "if (top - bottom < self._rounding()):",
        "return row if (gain[row] >= self._rounding()) else None",
    ),
    "streamsvm/solvers/active_set/finite_newton.py": (
        "if (size <= smallest):",
        "flat = flat + 1 if (value > least * (1.0 - FLAT)) else 0",
    ),
    "streamsvm/solvers/active_set/kernel.py": (
        "if not (state.solved or state.ending) and (found.gap >= state.problem.tolerance):",
    ),
    "streamsvm/solvers/active_set/linear_problem.py": (
        "a = np.where((np.abs(a) < next_to), 0.0, a)",
        "return np.where((high - a < next_to), high, np.where(a - low <= next_to, low, a))",
        "return np.where(high - a <= next_to, high, np.where((a - low < next_to), low, a))",
        "a = np.where((share <= at.below / terms.z), 0.0, at.a)",
        "return np.where(np.isfinite(terms.upper) & ((room <= at.above / terms.z)), terms.upper, a)",
    ),
    "streamsvm/solvers/active_set/solver.py": (
        "if (found.primal <= state.primal):",
        "if not state.solved and (state.primal - state.dual >= state.problem.tolerance * abs(state.primal)):",
    ),
    "streamsvm/solvers/stochastic/averaged_certificate.py": (
        "due = (certificate.gap < EVALUATION_MARGIN * averaged.problem.tolerance)",
        "if (primal <= averaged.primal):",
    ),
    "streamsvm/solvers/dcd/cocoa.py": (
        "if (mean >= LONG_STEPS)",
        "if (mean <= SHORT_STEPS)",
        "if (moved < STEP_TOLERANCE):",
    ),
    "streamsvm/solvers/dcd/dual_ascent.py": (
        "if (primals[best] <= state.primal):",
        "state.certifying = (certificate.gap < state.problem.tolerance) and state.passes >= state.next_check",
    ),
}
"""Lines as they are then, by file."""

SIGNS = {
    "streamsvm/solvers/newton/in_memory/all_rows.py": (
        "found[self.sample.row[low:high] - start] = (self.slopes[low:high] / self.problem.task.signs(self.sample.y[low:high]))",
    ),
    "streamsvm/solvers/elastic_net/model.py": (
        "d = solve_factorized(np.linalg.cholesky(matrix), -(at + g[free] + (model.l1 / np.sign(at))))",
    ),
    "streamsvm/solvers/one_class.py": (
        "self.v = self.v + operators.adjoint(block.X, (s / problem.task.signs(block.y)), problem.columns)",
    ),
    "streamsvm/solvers/l1_ball/vertices.py": (
        "own = ((t * t / sign)) * self.gram[k % m] - t * self.moments",
        "offset = self.square - (t / sign) * float(self.moments[k % m])",
    ),
    "streamsvm/solvers/kernel/kernel_cache.py": (
        "column = ((block[:, k] + block.dtype.type(self.form.constant)) / (sign * sign[i]))",
        "column = (block[:, k] + block.dtype.type(self.form.constant)) * ((sign / sign[i]))",
    ),
    "streamsvm/solvers/kernel/simplex/sampled_iterations.py": (
        "sign = (self.pool.sign[self._i] / self.pool.sign[self._v])",
    ),
    "streamsvm/solvers/kernel/simplex/solver.py": (
        "values = (-state.dual_scale() / support.sign) * (support.v + support.ridge * support.x)",
        "weights = support.x if support is state.reduced else (scale / support.sign) * support.x",
    ),
    "streamsvm/solvers/kernel/working_set.py": (
        "M /= z",
        "M /= z[:, None]",
    ),
    "streamsvm/solvers/active_set/exchange.py": (
        "column = ((self._space.column(row)[self._block.rows] + self._tau) * y[row] / self._block.signs)",
        "column = ((self._space.column(row)[self._block.rows] + self._tau) / y[row]) * self._block.signs",
    ),
    "streamsvm/solvers/active_set/linear_problem.py": ("found: Float64 = (slopes / problem.task.signs(rows.y))",),
    "streamsvm/solvers/active_set/solver.py": ("entries = (alpha / state.problem.task.signs(block.y))",),
    "streamsvm/solvers/dcd/cocoa.py": (
        "found: Float64 = (np.maximum(room, 0.0) / problem.task.signs(block.y))",
        "joint.vectors += operators.adjoint(block.X, (ways / problem.task.signs(block.y)[:, None]), problem.columns).T",
    ),
    "streamsvm/solvers/dcd/dual_ascent.py": ('block.rows["alpha"][:] = (slopes / p.task.signs(block.y))',),
}
"""Lines by file in which a sign, 1 or -1, divides what it multiplied."""
