"""Changes that make no other program: no test can tell them, and no draw counts them."""

from __future__ import annotations

from tools.mutants.equivalent_in_jobs import IN_JOBS
from tools.mutants.equivalent_in_newton import IN_NEWTON
from tools.mutants.ties import SIGNS, TIES

EQUIVALENT = (
    IN_JOBS
    | IN_NEWTON
    | {
        (
            "streamsvm/solvers/l1_ball/solver.py",
            "S = (problem.C * problem.loss.second_derivative(1.0)) * block.s.astype(np.float64)",
        ): "of a squared loss it is the same everywhere",
        (
            "streamsvm/solvers/interior_point/nearest_rows.py",
            "keys = np.concatenate([part.key for part in self.parts] or [np.empty(1)])",
        ): "no limit is below a row, and of nothing nothing is thrown out",
        (
            "streamsvm/solvers/l1_ball/vertices.py",
            "self._place = np.full(len(weights), -2, np.int64)",
        ): "any number below 0 is no place",
        (
            "streamsvm/solvers/elastic_net/regularizer.py",
            "size = size[(size >= 0.0)]",
        ): "of a component that is 0 the piece has no end",
        (
            "streamsvm/solvers/elastic_net/regularizer.py",
            "if (linear < 0.0) or bend <= 0.0:",
        ): "where nothing is gained the best multiple is 0 in any case",
        (
            "streamsvm/solvers/elastic_net/regularizer.py",
            "k = int(np.argmax(slopes <= 0.0)) if ((slopes < 0.0)).any() else len(ends)",
        ): "where a piece ends at the best multiple the next one begins there",
        (
            "streamsvm/solvers/elastic_net/regularizer.py",
            "k = int(np.argmax((slopes < 0.0))) if (slopes <= 0.0).any() else len(ends)",
        ): "as above",
        (
            "streamsvm/solvers/l1_ball/regularizer.py",
            "if (gain < 0.0) or quadratic <= 0.0:",
        ): "of no gain the best multiple is 0 in any case",
        ("streamsvm/compute/passes/stochastic/sgd.py", "X.axpy(i, (count * weight / y[i]), a)"): "y is 1 or -1",
        ("streamsvm/schedule/budget.py", "return max(1, free - limit) // 2"): "half of 1 is 0",
        ("streamsvm/compute/passes/certificate.py", "if (C_i < 0.0):"): "of 0 nothing is added",
        ("streamsvm/compute/passes/certificate.py", "if (linear < 0.0) or curvature <= 0.0:"): "t is 0 there as well",
        ("streamsvm/solvers/point_evaluation.py", "entering = (alpha / problem.task.signs(block.y))"): "y is 1 or -1",
        (
            "streamsvm/solvers/point_evaluation.py",
            "v[1][:] += operators.adjoint(X, slopes, problem.columns)",
        ): "the sum and what rounding took from it are added in the end",
        (
            "streamsvm/solvers/point_evaluation.py",
            "return (dual_point.t * slopes / problem.task.signs(block.y))",
        ): "y is 1 or -1",
        (
            "streamsvm/solvers/dcd/joining.py",
            "joint = cocoa.begun(len(copies), first.w, joints[1].sigma)",
        ): "copies of one state have one sigma",
        (
            "streamsvm/schedule/stream.py",
            "chunk_bytes = store.layout.bytes_per_pass / max(2, len(store.layout.chunks))",
        ): "of a store of one chunk nothing else is announced",
        (
            "streamsvm/solvers/kernel/simplex/sampled_steps.py",
            "if (step.fall >= toward_step(f, g_i, K_ii).fall):",
        ): "but for two falls that are equal to the last bit",
        (
            "streamsvm/solvers/dcd/shrinking.py",
            "agreed = (self.highest - self.lowest <= tolerance)",
        ): "but for a difference that is the tolerance to the last bit",
        (
            "streamsvm/solvers/cutting_plane/simplex_program.py",
            "scale = min(float(np.abs(G).max()), float(np.abs(g).max())) or 1.0",
        ): "what is divided and multiplied by it is the same program, up to rounding",
        (
            "streamsvm/solvers/elastic_net/solver.py",
            "no_slope = (state.slope >= -SHARE * ROUNDING * abs(found.value))",
        ): "but for a slope that is rounding to the last bit",
        ("streamsvm/schedule/peak.py", "self._most = 1"): "a process holds more than a byte",
        (
            "streamsvm/schedule/stream.py",
            "return arrivals.get(timeout=POLL_SECONDS if alive else 1.0)",
        ): "of readers that are gone nothing comes: the error comes a second later",
        (
            "streamsvm/engine/final_evaluation.py",
            "return self.own.vector() if self.own is not None and (self.own.value() >= best) else found",
        ): "but for two D that are equal to the last bit",
        (
            "streamsvm/solvers/kernel/decomposition/multilevel.py",
            "if (size < working):",
        ): "of equal sizes the logarithm is 0, and there is no level between",
        (
            "streamsvm/solvers/interior_point/solver.py",
            "if (found.dual >= state.dual):",
        ): "but for two passes that prove the same to the last bit",
        (
            "streamsvm/solvers/l1_ball/solver.py",
            "if (norm >= _radius(problem)):",
        ): "weights of just that norm are multiplied by 1",
        (
            "streamsvm/solvers/kernel/simplex/iterations.py",
            "if (toward.fall > swap.fall):",
        ): "but for two falls that are equal to the last bit: with all weight on one row both steps are one",
        (
            "streamsvm/compute/passes/in_memory/central_path.py",
            "if (z < 0.0):  # the root where there is no curvature",
        ): "at z = 0 that root is half of the bound, where one begins in any case",
        (
            "streamsvm/compute/passes/mpu.py",
            "new = min(max(a - k * length if (G >= 0.0) else a + k * length, 0.0), top)",
        ): "at G = 0 there are no steps",
        ("streamsvm/compute/passes/coordinates.py", "if (y[i] >= 0.0):"): "y is 1 or -1",
        (
            "streamsvm/compute/passes/coordinates.py",
            "jump = loss.conjugate_slope(0.0, 0.5) - left_slope(loss, 0.0, 1.0)",
        ): "at 0 the slopes of a conjugate are the same for every C",
        (
            "streamsvm/compute/passes/coordinates.py",
            "jump = loss.conjugate_slope(0.0, 1.0) - left_slope(loss, 0.0, 0.5)",
        ): "as above",
        (
            "streamsvm/solvers/kernel/decomposition/block_update.py",
            "if (state.pool is None and state.moved is None):",
        ): "neither is there without the other: both are set, and both forgotten, at once",
        ("streamsvm/compute/text/svmlight.py", "if (end <= 0):"): "the line feed of a row is not the first byte",
        (
            "streamsvm/compute/passes/stochastic/sgd.py",
            "if excess <= (times - 1) * growth and (weight >= 0.0):",
        ): "of 0 nothing is added",
        (
            "streamsvm/solvers/interior_point/reduced_problem.py",
            "own = float(sum(b - loss.conjugate(b, problem.C * c) for b, c in zip(a, s, strict=True) if (c >= 0.0)))",
        ): "rows without weight are not kept",
        (
            "streamsvm/solvers/active_set/kernel.py",
            "solve_box(M, x, v, Interval(low, high), START_VIOLATION * float(z.min()), most=PAIRS, deadline=deadline)",
        ): "of classes z is the same for every row, and others do not come here",
        (
            "streamsvm/compute/blocks/formed_rows.py",
            "if (values.nbytes >= freed_memory.LEAST):",
        ): "memory is given back or not, of one size",
        (
            "streamsvm/solvers/kernel/decomposition/closing.py",
            "state.stalled = state.stalled or (len(state.gaps) > passes and (gap >= STALLED * state.gaps[-1 - passes]))",
        ): "but for a gap that is that share to the last bit",
        (
            "streamsvm/solvers/active_set/exchange.py",
            "self.at.a[row] = 0.0 if (d[place] <= 0.0) else self._terms.upper[row]",
        ): "what meets a bound moves: its direction is not 0",
        (
            "streamsvm/solvers/active_set/exchange.py",
            "self.at.a[row] = 0.0 if (d <= 0.0) else self._terms.upper[row]",
        ): "as above",
        (
            "streamsvm/solvers/kernel/simplex/state.py",
            "if (every.size >= self.capacity):",
        ): "of just as many all are chosen, and in their order",
        ("streamsvm/solvers/kernel/simplex/state.py", "if (len(among) >= self.capacity):"): "as above",
        (
            "streamsvm/solvers/kernel/decomposition/closing.py",
            "close = (found.primal - found.dual < tolerance * abs(found.primal)) if doubtful else found.gap <= tolerance",
        ): "but for a gap that is the tolerance to the last bit",
        (
            "streamsvm/solvers/kernel/decomposition/closing.py",
            "close = found.primal - found.dual <= tolerance * abs(found.primal) if doubtful else (found.gap < tolerance)",
        ): "as above",
        (
            "streamsvm/solvers/kernel/decomposition/candidates.py",
            "if (state.problem.rows < state.capacity):",
        ): "of a pool of all rows every row of a block is offered in any case",
        (
            "streamsvm/solvers/kernel/decomposition/solver.py",
            "if (len(known) >= 1) and worthwhile(moved, X):",
        ): "for a single problem it is never worthwhile",
        ("streamsvm/solvers/kernel/reduced_set.py", "if (len(index) < count):"): "of just as many rows all are drawn",
        (
            "streamsvm/solvers/kernel/simplex/blended.py",
            "if state.support is None or (len(violated) < count):",
        ): "of just as many all are chosen",
        (
            "streamsvm/solvers/kernel/simplex/solver.py",
            "if (len(known) >= 1) and worthwhile(supports, X):",
        ): "for a single problem it is never worthwhile",
        ("streamsvm/solvers/kernel/working_set.py", "if ((z <= 0)).any():"): "signs are 1 or -1",
        (
            "streamsvm/solvers/active_set/exchange.py",
            "if (length > 1.0):",
        ): "a row whose minimum is on its bound is there either way",
        (
            "streamsvm/solvers/active_set/exchange.py",
            "rising = np.where((y >= 0.0), a < upper, a > 0.0)",
        ): "y is 1 or -1",
        (
            "streamsvm/solvers/active_set/exchange.py",
            "falling = np.where((y >= 0.0), a > 0.0, a < upper)",
        ): "y is 1 or -1",
        (
            "streamsvm/solvers/active_set/exchange.py",
            "d = -d if (float(g[rows] @ d) >= 0.0) else d",
        ): "along a line that is level both ways end at a bound",
        (
            "streamsvm/solvers/active_set/kernel.py",
            "x, low, high = np.zeros(len(y)), np.where((y >= 0.0), 0.0, -upper), np.where(y > 0.0, upper, 0.0)",
        ): "y is 1 or -1",
        (
            "streamsvm/solvers/active_set/kernel.py",
            "x, low, high = np.zeros(len(y)), np.where(y > 0.0, 0.0, -upper), np.where((y >= 0.0), upper, 0.0)",
        ): "y is 1 or -1",
        ("streamsvm/solvers/stochastic/assg.py", "if (state.left <= 0.5):"): "half a row is as near to none as to one",
        ("streamsvm/solvers/dcd/joining.py", "first = copies[1]"): "copies of one state are in a pass of one kind",
        (
            "streamsvm/compute/text/decimals.py",
            "dropped = (dropped and digit != 0)",
        ): "what drops a digit has nineteen, more than are exact",
        (
            "streamsvm/solvers/leave_one_out.py",
            "active = np.flatnonzero(((pulls >= 0.0)) & (units > 0.0))",
        ): "a row that does not pull moves nothing",
        (
            "streamsvm/compute/text/decimals.py",
            "if not dropped and mantissa <= EXACT_MANTISSA and (-EXACT_POWER < exponent <= EXACT_POWER):",
        ): "the slow way finds the same number",
        (
            "streamsvm/solvers/active_set/linear_problem.py",
            "sample = Sample(rows.X, rows.y, rows.s, np.ones(n), operators.margins(rows.X, w), rows.row, complete=False)",
        ): "nobody asks who works on all rows in memory",
        (
            "streamsvm/solvers/kernel/decomposition/multilevel.py",
            "return len(moved) > 1",
        ): "as the sum of x stays no row moves alone",
        (
            "streamsvm/solvers/kernel/decomposition/multilevel.py",
            "levels = math.ceil(math.log(size / working) / math.log(LEVEL_RATIO) - 5e-10)",
        ): "any number a little above rounding will do",
        (
            "streamsvm/solvers/stochastic/pegasos.py",
            "return 1.01 * max(-loss.slope(m) * m for m in np.linspace(0.0, end, 1026).tolist())",
        ): "one point more of a thousand will do as well",
        (
            "streamsvm/solvers/stochastic/assg.py",
            "stop = min(rows, start + max(2, round(state.left)))",
        ): "where a row is left: but for half a row, of which none or two is as near",
        (
            "streamsvm/solvers/kernel/reduced_set.py",
            "keys = np.log(np.modf((index + 0.5) * GOLDEN_RATIO)[0]) / np.maximum(np.abs(weights), 5e-301)",
        ): "any number hardly above 0 will do",
        (
            "streamsvm/solvers/kernel/reduced_set.py",
            "kept.x = np.linalg.solve(K, right).astype(np.float64, copy=True)",
        ): "a copy of the same numbers",
        (
            "streamsvm/solvers/active_set/kernel.py",
            "K = gram(rows.X, form.kernel, form.columns, form.arithmetic).astype(np.float64, copy=True)",
        ): "a copy of the same numbers, for which there is room in the plan",
        (
            "streamsvm/solvers/dcd/mpu.py",
            "steps = Steps(state.length or 0.5, self.multiplicity)",
        ): "rows that have no say, or nothing in them, are moved by any length",
        (
            "streamsvm/solvers/dcd/multinomial.py",
            "C = np.where(block.s > 0.0, problem.C * block.s.astype(np.float64), 0.5)  # rows of weight 0 stay at 0",
        ): "rows of weight 0 stay at 0",
        (
            "streamsvm/solvers/kernel/simplex/sampled_steps.py",
            'h = self._gradient(K[:, k : k + 1], asked[k : k + 2], self.before)[0] if self.variant == "partan" else 0.0',
        ): "the first of what is computed is taken",
        (
            "streamsvm/solvers/kernel/simplex/sampled_steps.py",
            'h = self._gradient(K[:, k : k + 2], asked[k : k + 1], self.before)[0] if self.variant == "partan" else 0.0',
        ): "the first of what is computed is taken",
        (
            "streamsvm/solvers/stochastic/pegasos.py",
            "end = FAR / loss.second_derivative(1.0) if isinf(threshold(loss)) else threshold(loss)",
        ): "any end that is far beyond the top will do",
        (
            "streamsvm/solvers/elastic_net/solver.py",
            "state.passes += 2",
        ): "whether there was a pass is all that is asked",
        ("streamsvm/solvers/l1_ball/solver.py", "state.passes += 2"): "nobody asks; it has a place in checkpoints",
        ("streamsvm/solvers/l1_ball/solver.py", "state.passes -= 1"): "nobody asks; it has a place in checkpoints",
        (
            "streamsvm/solvers/active_set/linear_problem.py",
            "share = at.a / terms.upper if np.isfinite(terms.upper).any() else at.a * terms.curvature",
        ): "a loss bounds all rows or none",
        (
            "streamsvm/solvers/cutting_plane/line_search.py",
            "squares = 0.25 * float(w @ w) + GRID * float(w @ d) + 0.5 * GRID**2 * float(d @ d)",
        ): "what is the same at all points does not say which is the least",
        (
            "streamsvm/solvers/interior_point/nu_classes.py",
            "return replace(states[1], signed=self.inner.merge([state.signed for state in states]))",
        ): "the states are of one problem",
        (
            "streamsvm/solvers/interior_point/nu_classes.py",
            "entries = 24 * (-(-sum(layout.nonzeros or ()) // max(2, layout.rows)) + 1)",
        ): "a fit of two classes has two rows",
        (
            "streamsvm/solvers/point_evaluation.py",
            "half, dual = objective.value(w), objective.dual(1.0, v)",
        ): "one class has no gain, and does not look at it",
        (
            "streamsvm/solvers/point_evaluation.py",
            "if (problem.nu is not None or self.rows is not None):",
        ): "there are sums over rows where there is nu",
        (
            "streamsvm/solvers/interior_point/state.py",
            "if (self.problem.nu is None and self.rows is None):",
        ): "there are sums over rows where there is nu",
        (
            "streamsvm/solvers/l1_ball/solver.py",
            "used = 1 if state.best is None else int(np.count_nonzero(state.best[:-1]))",
        ): "the first reading is the best so far",
        ("streamsvm/engine/state/row_state.py", "self._descriptor = -2"): "any number below 0 is no descriptor",
        (
            "streamsvm/engine/state/row_state.py",
            "if self._descriptor >= 1:",
        ): "descriptor 0 is standard input, which is never closed",
        (
            "streamsvm/engine/state/row_state.py",
            "if (self._descriptor > 0):",
        ): "descriptor 0 is standard input, which is never closed",
    }
    | {
        (path, line): why
        for why, files in (("but for numbers that are equal to the last bit", TIES), ("a sign is 1 or -1", SIGNS))
        for path, lines in files.items()
        for line in lines
    }
)
