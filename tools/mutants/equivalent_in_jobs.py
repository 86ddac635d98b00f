"""Changes of jobs that make no other program, with the reason of each; see ``equivalent``."""

from __future__ import annotations

IN_JOBS = {
    (
        "streamsvm/jobs/fit_in_memory.py",
        "reached = [number for number, gap in gaps.items() if gap <= plan.tolerance and (number <= event['pass'])]",
    ): "the pass that ends was not reached some passes ago",
    (
        "streamsvm/jobs/fit_in_memory.py",
        "return both if all(problem.tolerance < EXACT_FROM * plan.tolerance for problem in plan.problems) else report",
    ): "all problems of a fit have one tolerance",
    (
        "streamsvm/jobs/tune/run.py",
        'task = Task("tune", score_cell, max((cell.memory.total for cell in cells), default=1))',
    ): "without a cell there is no task",
    (
        "streamsvm/jobs/embed/on_threads.py",
        "visits = (v for v in epoch_visits(layout, 0, 0, shuffled=False) if (starts[v.chunk + 1] >= self.first))",
    ): "of a chunk that ends before the first row nothing is taken",
    (
        "streamsvm/jobs/fit/results/earlier_run.py",
        "else training.status == Status.ASKED or all(_differ(job, model, STOPPING) for model in models.values())",
    ): "the models of one record are of one run",
    (
        "streamsvm/jobs/calibrate/choice.py",
        "again += max((cost.shared for cost in costs), default=1)",
    ): "a fit has a problem",
    (
        "streamsvm/jobs/fit/results/earlier_run.py",
        'certificates.sort(key=lambda found: found.get("problem", 1))',
    ): "where one certificate has no number none has",
    (
        "streamsvm/jobs/tune/folds.py",
        "return max(2, nbytes // (CHUNKS_PER_FOLD * folds))",
    ): "a row has four bytes at least, and a chunk a row",
    (
        "streamsvm/jobs/leaving.py",
        "other = other or plan.problems[0].classes > 1",
    ): "of classes in one problem there are two at least",
    (
        "streamsvm/jobs/calibrate/leave_one_out.py",
        "visits = (Visit(0, chunk, 0, shuffled=True, last=False) for chunk in chunks)",
    ): "nobody looks at the order in a block",
    (
        "streamsvm/jobs/calibrate/leave_one_out.py",
        "visits = (Visit(0, chunk, 0, shuffled=False, last=True) for chunk in chunks)",
    ): "who takes all visits does not ask which is the last",
    (
        "streamsvm/jobs/fit/results/reevaluation.py",
        "sizes = np.append(column_sizes(Raw(0.5), raw, 1.0)[0][:-1] * features.scale, abs(features.bias))",
    ): "as is that of the map",
    (
        "streamsvm/jobs/fit/results/evaluations.py",
        "apart = 2.0 * np.sqrt(max(primal - before.dual, 0.0) / max(abs(primal), 5e-301))",
    ): "any number hardly above 0 will do",
    (
        "streamsvm/jobs/fit/results/reevaluation.py",
        "sizes = np.append(column_sizes(Raw(1.0), raw, 0.5)[0][:-1] * features.scale, abs(features.bias))",
    ): "the size of the constant feature is left out",
    (
        "streamsvm/jobs/fit/results/certified.py",
        "coarse.append((change >= SHARE * plan.tolerance * abs(found.primal)))",
    ): "but for a number that is a tenth of the tolerance to the last bit",
    (
        "streamsvm/jobs/fit/results/certified.py",
        "(value >= SHARE * plan.tolerance * abs(certificate_of(run).primal))",
    ): "but for a number that is a tenth of the tolerance to the last bit",
    (
        "streamsvm/jobs/ingest/preflight.py",
        "return budget.MemoryPlan(terms, limit, resident=False, cached=False, retain=True, threads=count)",
    ): "an ingest asks a plan for its size and its threads only, here and below",
    (
        "streamsvm/jobs/ingest/preflight.py",
        "return budget.MemoryPlan(terms, limit, resident=True, cached=True, retain=True, threads=count)",
    ): "as above",
    (
        "streamsvm/jobs/ingest/preflight.py",
        "return budget.MemoryPlan(terms, limit, resident=True, cached=False, retain=False, threads=count)",
    ): "as above",
    (
        "streamsvm/jobs/fit/results/certified.py",
        "sweeps = plan.solver.sweeps if isinstance(plan.solver, DualAscent) else 1",
    ): "three are counted at least",
    ("streamsvm/jobs/inspect/doctor.py", "np.ones((2, 2)) @ np.ones((2, 3))"): "of any product the library is loaded",
    (
        "streamsvm/jobs/embed/feature_writer.py",
        "self._free.put(_ChunkBuffer(0, 0, numeric=True))",
    ): "a buffer of no rows, which says that there is none",
    (
        "streamsvm/jobs/apply/row_batches.py",
        "retain = layout.bytes_per_pass <= budget.page_cache_bytes(1)",
    ): "but for a byte of what the machine happens to have",
    (
        "streamsvm/jobs/report/record.py",
        "shares = np.cumsum(rows[order]) / max(int(rows.sum()), 2)",
    ): "of a single row all shares lead to it; curves, where entries may stand for none, want two",
    (
        "streamsvm/jobs/report/record.py",
        "shares = sums / np.maximum(sums.sum(axis=1, keepdims=True), 0.5)",
    ): "rows are counted in whole numbers: what is less than 1 is 0, and its shares are 0",
    (
        "streamsvm/jobs/fit/run.py",
        "with locked(Path(this.job.model)), this.checkpoints.open(keep=False):",
    ): "what is there is removed before the end was told, not after it",
}
