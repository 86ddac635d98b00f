"""What jobs ask for, in bytes, term by term, against what the terms' names and reasons say; that they suffice is measured elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.calibration.scores import BINS, sample_rows, table_bytes
from streamsvm.compute import threading
from streamsvm.features.expansion import WORKING_BYTES
from streamsvm.features.expansion import working_bytes as expansion_bytes
from streamsvm.features.greedy import greedy_bytes
from streamsvm.features.landmarks import sampler_bytes, spread_bytes
from streamsvm.features.part_sizes import part_rows, working_bytes
from streamsvm.features.scaling import Raw
from streamsvm.jobs.apply.opening import rows_of_source
from streamsvm.jobs.apply.row_batches import BATCH_BYTES, DEPTH, RowBatches, model_terms
from streamsvm.jobs.calibrate.choice import calibration_passes, calibration_terms, folds_of
from streamsvm.jobs.embed.kernel_request import (
    CHUNK_BYTES,
    NystromRequest,
    memory_terms,
    pieces_term,
    seen_layout,
    spread_candidates,
)
from streamsvm.jobs.embed.options import EmbedJob
from streamsvm.jobs.embed.run import embed_plan
from streamsvm.jobs.fit import distributed
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning import memory_plan
from streamsvm.jobs.fit.planning.memory_plan import fitted, most_landmarks, plan_memory, shared_bytes
from streamsvm.jobs.fit.planning.problems import warm_terms
from streamsvm.jobs.ingest import preflight
from streamsvm.jobs.ingest.preflight import PARSER_BYTES, SHUFFLE_BYTES, SOURCE_BYTES, memory_for_source
from streamsvm.jobs.tune import cell
from streamsvm.jobs.tune.folds import cut_terms, needs_cutting
from streamsvm.jobs.tune.functions import function_bytes
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.kernels import RBF
from streamsvm.losses import Hinge, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MIB, MemoryPlan
from streamsvm.solvers.leave_one_out import leave_one_out_bytes
from streamsvm.solvers.newton.memory import cost_of
from streamsvm.store import open_store
from streamsvm.store.sources.rejects import Rejects
from streamsvm.store.views.memory import MemoryStore
from streamsvm.types import Cost, Layout, Problem, Term
from tools.fuzz.artifacts import small_store

LAYOUT = Layout(6, (10, 30), None, ("a", "b"), (20, 20))
"""A pass moves 40 rows of 28 bytes: 6 columns and a label."""
BASE = budget.NOMINAL


ASKED = Cost(fixed=1000, per_row=8, per_block_row=3)


@dataclass(frozen=True)
class Asking:
    """A solver that asks for given bytes."""

    shuffled: bool = True
    asked: Cost = ASKED

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        return self.asked


@dataclass(frozen=True)
class Uneven(Asking):
    """Problems of a larger C share more."""

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        return replace(self.asked, shared=int(problem.C))


ASKING: Any = Asking()


def stored() -> MemoryStore:
    store = MemoryStore(chunk_bytes=240)
    store.append(Dense(np.zeros((40, 6), np.float32)), (np.arange(40) % 2).astype(np.int32))
    return store.commit(("a", "b"), 6)


def problems(count: int = 2, **changed: Any) -> list[Problem]:
    return [Problem(changed.pop("loss", SquaredHinge()), 1.0, 40, 6, 1, **changed) for _ in range(count)]


def sizes(terms: Any) -> dict[str, int]:
    return {term.name: term.nbytes for term in terms}


@pytest.fixture
def fixed_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "anonymous_bytes", lambda: BASE)
    monkeypatch.setattr(budget, "passes_loaded", lambda: True)
    monkeypatch.setattr(budget, "_group_limits", list)


def planned(solver: Any = None, memory: int = 1 << 40, threads: int = 1, **settings: Any) -> MemoryPlan:
    job = FitJob("s", "m", **({"memory": memory, "standardize": True, "prefetch": 1} | settings))
    with threading.using(threads):
        return plan_memory(job, stored(), solver or ASKING, problems())


def test_a_fit_asks_for_its_problems_and_their_state(fixed_base: None) -> None:
    store, plan = stored(), planned()
    found = sizes(plan.terms)
    block = max(store.layout.block_bytes, store.buffers().nbytes) + 4 * 10
    assert found == {
        "interpreter and imports": BASE,
        "margin": 8 * MIB,
        "blocks in flight": 2 * block,
        "block views": 16 * 10,
        "solver": 2000,
        "solver, per block row": 6 * 10,
        "column statistics": 48 * 6,
        "per-row state": 16 * 40,
        "all rows": 2 * 40 * 28 + 40 * (16 + 4 * 3 + 6),
    }
    assert (plan.resident, plan.cached) == (True, True)


def test_what_problems_share_is_asked_for_once_for_each_set_of_chunks_they_see(fixed_base: None) -> None:
    solver: Any = Asking(True, replace(ASKED, shared=700))
    assert sizes(planned(solver).terms)["solver"] == 2000 + 700
    folds = [*problems(2, held_out=(0,)), *problems(3, held_out=(1,))]
    assert shared_bytes([solver.asked] * 4 + [replace(ASKED, shared=900)], folds) == 700 + 900


@pytest.mark.parametrize(("left", "retain"), [(40 * 28, True), (40 * 28 - 1, False)])
def test_a_store_stays_in_the_page_cache_where_a_pass_of_it_does(
    left: int, retain: bool, fixed_base: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "page_cache_bytes", lambda limit: left)
    assert planned().retain == retain


def test_what_is_left_decides_what_stays_in_memory(fixed_base: None) -> None:
    """Exactly enough is enough, of the state of rows first, then of the rows themselves."""
    ample = planned()
    rest = ample.total - sizes(ample.terms)["all rows"]
    for memory, resident, cached in (
        (ample.total, True, True),
        (ample.total - 1, True, False),
        (rest, True, False),
        (rest - 1, False, False),
    ):
        plan = planned(memory=memory)
        assert (plan.resident, plan.cached) == (resident, cached)
        assert sizes(plan.terms)["per-row state"] == (16 * 40 if resident else 16 * 10)


@pytest.mark.parametrize(
    ("settings", "asked"), [({}, False), ({"standardize": True}, True), ({"kernel": "rbf", "landmarks": 3}, True)]
)
def test_columns_are_counted_where_they_are_centered(settings: dict[str, Any], asked: bool, fixed_base: None) -> None:
    assert ("column statistics" in sizes(planned(**({"standardize": False} | settings)).terms)) == asked


@pytest.mark.parametrize(
    ("shuffled", "threads", "groups", "visiting"),
    [(True, 3, None, 1), (True, 3, 2, 2), (True, 3, 9, 3), (False, 2, None, 2), (False, 9, None, 4)],
)
def test_every_thread_that_visits_has_blocks_scratch_and_a_part(
    shuffled: bool, threads: int, groups: int | None, visiting: int, fixed_base: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes that are summed up are cut into four groups here: as many parts at work as threads, and log2 that wait."""
    monkeypatch.setattr(memory_plan, "pass_groups", lambda layout: [None] * 4)
    solver: Any = Asking(shuffled, Cost(fixed=1000, per_row=8, per_block_row=3, per_part=50))
    found = sizes(planned(solver, threads=threads, groups=groups).terms)
    one = sizes(planned(threads=1).terms)
    assert found["blocks in flight"] == visiting * one["blocks in flight"]
    assert found["block views"] == visiting * one["block views"]
    assert found["solver, per block row"] == visiting * 60
    assert found["parts of a pass"] == (visiting + 3) * 2 * 50
    monkeypatch.setattr(memory_plan, "pass_groups", lambda layout: [None])
    assert "parts of a pass" not in sizes(planned(solver, threads=threads, groups=groups).terms)


@dataclass(frozen=True)
class Shrinking(Asking):
    """Asks for less when it is told to, down to a hundred bytes."""

    def smaller(self, problem: Problem, asked: Any) -> Shrinking | None:
        return None if self.asked.fixed <= 100 else replace(self, asked=Cost(fixed=self.asked.fixed - 100))

    def memory_settings(self) -> dict[str, int | None]:
        return {"fixed": self.asked.fixed}


def test_a_solver_gives_up_no_more_than_it_must(fixed_base: None) -> None:
    solver: Any = Shrinking(asked=Cost(fixed=1000))
    ample = planned(solver).total - sizes(planned(solver).terms)["all rows"]
    for less, fixed in ((0, 1000), (1, 900), (200, 900), (201, 800), (10**6, 100)):
        job = FitJob("s", "m", memory=ample - less, standardize=True, prefetch=1, threads=1)
        assert fitted(job, stored(), solver, problems(), None)[0] == replace(solver, asked=Cost(fixed=fixed))
    assert fitted(job, stored(), solver, problems(1), None)[0] == replace(solver, asked=Cost(fixed=100))
    smaller, memory = fitted(replace(job, memory=ample - 1, threads=3), stored(), solver, problems(), None)
    assert (smaller, memory.threads) == (replace(solver, asked=Cost(fixed=900)), 1)  # with less in memory on one thread


def test_a_cell_of_a_search_holds_weights_and_decision_values_of_all_that_is_trained_at_once(fixed_base: None) -> None:
    """Rows are not kept: what is held out are chunks, of which there are too few here."""
    job = TuneJob("s", "found", folds=3, C=(1.0, 2.0))
    fit_job = FitJob("s", "m", memory=1 << 40, prefetch=1)
    plan: Any = SimpleNamespace(problems=problems(2), memory=planned(), solver=ASKING, request=None)
    memory = cell._memory(job, stored(), fit_job, plan, 5)
    found = sizes(memory.terms)
    assert found["functions found"] == 8 * 10 * (7 + 10)
    assert found["solver"] == 10 * 1000
    assert found["all rows"] == 2 * 40 * 28
    assert [term.name for term in memory.terms].count("all rows") == 1


def test_held_out_rows_have_two_blocks_and_a_decision_value_of_each_model(fixed_base: None) -> None:
    """Two numbers for each of two models at every row of a block."""
    assert "held-out rows" not in sizes(planned().terms)
    for threads in (1, 3):  # one group of chunks is read by one of them
        found = sizes(planned(validation=0.2, threads=threads).terms)["held-out rows"]
        assert found == 2 * (10 * 28 + 4 * 10) + 16 * 10 + 16 * 2 * 10


def test_held_out_rows_of_another_store_are_as_many_as_that_has_and_of_a_file_as_many_as_are_trained_on(
    fixed_base: None, tmp_path: Path
) -> None:
    other = small_store(tmp_path / "s.zarr", sparse=False)
    layout = open_store(other).layout
    (tmp_path / "rows.csv").write_text("1,2\n", encoding="utf-8")
    terms = [planned(validation=given).terms for given in (other, str(tmp_path / "rows.csv"), 0.2)]
    store, file, share = (sizes(found)["held-out rows"] for found in terms)
    blocks = sum(term.nbytes for term in budget.block_terms(layout, DEPTH))
    assert store == blocks + 16 * 2 * layout.largest_chunk
    assert store != share == file


def test_a_warm_start_has_its_weights_twice() -> None:
    assert warm_terms(problems()) == []
    (term,) = warm_terms([*problems(2, warm=np.zeros(7)), *problems(1)])
    assert term.nbytes == 2 * 2 * 56


def test_calibration_by_leaving_one_out_holds_scores_and_matrices() -> None:
    job, solver = FitJob("s", "m", calibrate="isotonic"), ASKING
    found = problems(2)
    for threads in (1, 3):
        (term,) = calibration_terms(job, solver, found, LAYOUT, threads)
        tables = table_bytes(2) + 8 * 30 * (2 + 8)
        assert term.nbytes == threads * tables + leave_one_out_bytes(found, threads)
    assert calibration_passes(job, solver, found) == 2.0
    assert calibration_terms(replace(job, calibrate=None), solver, found, LAYOUT, 1) == []
    assert calibration_passes(replace(job, calibrate=None), solver, found) == 0.0


def test_calibration_by_folds_holds_the_solver_once_more() -> None:
    job, found = FitJob("s", "m", calibrate="isotonic", calibration_folds=3), problems(2)
    term, cut = calibration_terms(job, ASKING, found, LAYOUT, 2)
    tables = table_bytes(2) + 8 * 30 * (2 + 8)
    assert term.nbytes == tables + 2 * (1000 + 8 * 40) + 8 * 3 * 2 * 7
    assert (cut.name, cut.nbytes) == ("all rows", 2 * 40 * 28)
    sharing: Any = Asking(asked=replace(ASKED, shared=70))  # what problems have together is there once
    assert calibration_terms(job, sharing, found, LAYOUT, 2)[0].nbytes == term.nbytes + 70
    uneven: Any = Uneven()
    asked = [replace(one, C=C) for one, C in zip(found, (7.0, 90.0), strict=True)]
    assert calibration_terms(job, uneven, asked, LAYOUT, 2)[0].nbytes == term.nbytes + 90
    assert calibration_passes(job, ASKING, found) == 0.0


def test_folds_are_made_where_matrices_would_be_too_large() -> None:
    job, solver = FitJob("s", "m", calibrate="isotonic"), ASKING
    wide = replace(problems(1)[0], columns=4095)
    assert 8 * 4096**2 * 2 == 256 * MIB
    assert folds_of(job, solver, [wide] * 2) is None
    assert folds_of(job, solver, [wide] * 3) == 5
    assert folds_of(job, solver, [replace(wide, columns=4096)] * 2) == 5
    assert folds_of(replace(job, calibration_folds=7), solver, [wide]) == 7
    few = replace(wide, loss=Hinge(), rows=10)  # a loss of two lines, and fewer rows than components
    assert folds_of(job, solver, [few]) == 5


def test_a_table_of_scores_is_counted_while_two_are_joined() -> None:
    assert sample_rows(1) == 1 << 17
    assert sample_rows(1000) == (16 << 20) // (8 * 1003)
    assert sample_rows(1 << 30) == 1
    assert table_bytes(2) == 2 * 2 * 3 * 8 * BINS + 3 * sample_rows(2) * 8 * 5


@pytest.mark.parametrize(("chunks", "cut"), [(15, True), (16, False)])
def test_a_store_of_few_chunks_is_held_twice_while_it_is_cut(chunks: int, cut: bool) -> None:
    layout = Layout(6, (2,) * chunks, None, ("a", "b"), (chunks, chunks))
    assert needs_cutting(layout, 2) == cut
    assert [term.nbytes for term in cut_terms(layout, 2)] == [2 * 2 * chunks * 28] * cut


REQUEST = NystromRequest("rbf", RBF(1.0), 5, Raw(1.0))


def test_a_map_holds_landmarks_projection_and_buffers_of_each_thread() -> None:
    points, rows = 4 * 5 * 7, part_rows(5)
    assert rows == 8192
    for threads, later, factorization in ((1, 0, 0), (2, 10**9, 0)):
        found = sizes(memory_terms(REQUEST, LAYOUT, later, threads))
        assert found == {
            "landmarks": 3 * points,
            "projection": 4 * 25,
            "feature buffers": threads * 4 * rows * (5 + 5),
            "factorization": factorization,
        }
    assert working_bytes(5, 3, factored=False) == 4 * rows * (5 + 3)


def test_rows_are_kept_as_they_are_stored_where_that_is_an_eighth_of_their_kernel_values() -> None:
    fly = replace(REQUEST, factored=True, stored_bytes=72)
    for landmarks, exact, kept in ((143, False, 0), (144, False, 72), (71, True, 0), (72, True, 72)):
        asked = replace(fly, landmarks=landmarks, exact=exact)
        assert (asked.kept_bytes, asked.seen(LAYOUT).kept_bytes) == (kept, kept)
    assert (
        replace(fly, landmarks=1000, factored=False).kept_bytes == 0
    )  # of rows that a solver sees as features these are kept


def test_a_sample_of_rows_as_they_are_stored_takes_half_of_one_of_kernel_values() -> None:
    problem, layout = (
        Problem(SquaredHinge(), 1.0, 500_000, 1000, 0),
        Layout(18, (58_000,) * 9, None, ("a",), (522_000,)),
    )
    fly = replace(REQUEST, factored=True, landmarks=1000)
    one, other = (cost_of(problem, replace(fly, stored_bytes=b).seen(layout), 20_000) for b in (72, 784 * 4))
    assert other.fixed - one.fixed == 2 * 20_000 * (4 * 1001 + 48)
    assert (other.shared, other.per_part) == (one.shared, 3 * 8 * 1001)
    assert one.per_part - other.per_part == 2 * 20_000 * (72 + 56)
    asked_for_none = cost_of(problem, replace(fly, stored_bytes=72).seen(layout), None)
    assert (
        asked_for_none == one
    )  # all rows are never gathered in the end: features that are formed are not those of the pass


def test_a_map_is_made_in_what_it_takes_beyond_what_comes_later() -> None:
    m = 4000
    large, points, buffers = replace(REQUEST, landmarks=m), 4 * m * 7, 4 * part_rows(m) * 2 * m
    making = 36 * m * m + 3 * points
    assert part_rows(m) == 1024
    assert sizes(memory_terms(large, LAYOUT))["factorization"] == making - buffers
    assert sizes(memory_terms(large, LAYOUT, 1000))["factorization"] == making - buffers - 1000


@pytest.mark.parametrize(
    ("sampling", "landmarks", "making"),
    [
        ("uniform", 5, 36 * 25 + 3 * 140),
        ("leverage", 5, sampler_bytes(5) + 140),
        ("leverage", 2000, 36 * 2000**2 + 3 * 56_000),  # a sample of 1024 takes less than making the map of 2000
        ("leverage", 1024, sampler_bytes(1024) + 28_672),
        ("kmeans++", 5, spread_bytes(40, 6, 5) + 140),
        ("greedy", 5, greedy_bytes(5, 40, 6) + 140),
    ],
)
def test_drawing_landmarks_takes_what_making_the_map_may_not(sampling: str, landmarks: int, making: int) -> None:
    """As if there were no buffers yet, which are larger here."""
    request = replace(REQUEST, sampling=sampling, landmarks=landmarks)
    assert sizes(memory_terms(request, LAYOUT, threads=0))["factorization"] == making


def test_what_drawing_holds_is_counted() -> None:
    assert sampler_bytes(5) == 28 * 25 + 8 * 2048 * 5
    assert spread_bytes(40, 6, 70) == 40 * (24 + 20 * 3 + 40)  # 70 in 32 rounds: three at a time
    c = 21  # four candidates for each landmark, and one
    assert greedy_bytes(5, 40, 6) == 24 * (2 * c + 1024) + 20 * 1024 * c + 16 * c * c + 8 * c * 6


def test_a_fit_of_features_asks_for_the_map_too(fixed_base: None) -> None:
    job = FitJob("s", "m", memory=1 << 40, prefetch=1, kernel="rbf", landmarks=5)
    with threading.using(1):
        plan = plan_memory(job, stored(), ASKING, problems(), REQUEST)
    found, store = sizes(plan.terms), stored()
    assert {term.name: term.nbytes for term in memory_terms(REQUEST, store.layout, 2000)}.items() <= found.items()
    assert found["solver, per block row"] == 6 * 10
    assert "all rows" not in found
    assert not plan.cached


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("kept", [False, True])
def test_applying_a_model_holds_rows_and_results_of_each_thread(threads: int, kept: bool, fixed_base: None) -> None:
    """Two results wait for each thread, decision values and what was made of them; other threads have rows of their own."""
    model: Any = SimpleNamespace(weights=np.zeros((3, 7)), expansion=None, numeric=False)
    store, terms = (stored(), [Term("blocks", 1000, "")]) if kept else (None, [])
    rows, each = (10, 1000) if kept else (65_536, BATCH_BYTES)
    batches = RowBatches(model, ["a", "b"], 40, terms, store=store)
    plan = batches.fitted(1 << 40, 24, threads)
    found = sizes(plan.terms)
    assert found["model"] == 168
    assert found["results"] == 24 * rows * (threads + 1) // 2
    assert found["results in their order"] == ((8 * 3 + 24 // 8) * 2 * threads * rows if threads > 1 else 0)
    assert found.get("rows of other threads") == ((threads - 1) * each if threads > 1 else None)
    assert (plan.resident, plan.cached, plan.retain, plan.threads) == (True, False, True, threads)
    assert batches.notices == []


def test_a_model_of_points_has_kernel_values_on_each_thread() -> None:
    points: Any = SimpleNamespace(tensors=lambda: {"points": np.zeros(50), "scale": np.zeros(6)})
    model: Any = SimpleNamespace(weights=np.zeros((3, 7)), expansion=points)
    assert [term.nbytes for term in model_terms(model, 3)] == [168 + 448, 3 * WORKING_BYTES]


def test_an_embedding_on_disk_has_chunks_in_flight_and_pieces() -> None:
    found = sizes(memory_terms(replace(REQUEST, on_disk=True), LAYOUT, threads=2))
    assert found["embedding in flight"] == 8 * CHUNK_BYTES == 32 * MIB
    assert found["pieces being embedded"] == pieces_term(CHUNK_BYTES, LAYOUT, 5, 2).nbytes


def test_pieces_wait_for_their_turn_where_there_are_several_threads() -> None:
    """Two wait for each thread; of the rows a piece is made of there are as many as fill a chunk, or a chunk of the store."""
    for chunk, rows in ((100, 5), (10**6, 30)):
        assert pieces_term(chunk, LAYOUT, 5, 1).nbytes == chunk + rows * 28
        assert pieces_term(chunk, LAYOUT, 5, 2).nbytes == 6 * chunk + 2 * rows * 28
    assert pieces_term(1, LAYOUT, 5, 1).nbytes == 1 + 28


def test_the_map_is_seen_in_parts() -> None:
    layout = Layout(6, (5000, 900), (50, 50), ("a", "b"), (3000, 2900))
    assert part_rows(2000) == 2048
    assert seen_layout(layout, 2000) == Layout(2000, (2048, 2048, 904, 900), None, ("a", "b"), (3000, 2900))
    assert (part_rows(10**6), part_rows(1)) == (256, 8192)


def test_landmarks_far_from_each_other_are_chosen_from_so_many_rows() -> None:
    cases = [(10, 10**6, 80), (10, 50, 50), (5000, 10**6, 20_000), (30_000, 10**6, 30_000), (30_000, 25_000, 25_000)]
    assert [spread_candidates(landmarks, rows) for landmarks, rows, _ in cases] == [count for *_, count in cases]


def test_an_embedding_asks_for_kernel_values_and_chunks(fixed_base: None) -> None:
    job, store = EmbedJob("s", "e", landmarks=5, prefetch=1, memory=1 << 40), stored()
    request = REQUEST
    for threads in (1, 2):
        plan = embed_plan(job, store, request, threads)
        assert (plan.resident, plan.cached, plan.retain, plan.threads) == (True, False, True, threads)
        found = sizes(plan.terms)
        assert "feature buffers" not in found
        assert found["kernel values"] == threads * 4 * part_rows(5) * 5
        assert found["chunks being written"] == 3 * max(job.chunk_bytes, 20)
        assert "column scales" not in found
    narrow = sizes(embed_plan(replace(job, dtype="int8"), store, request).terms)
    assert narrow["column scales"] == 4 * part_rows(5) * 5


def test_the_most_landmarks_that_fit_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(job: Any, store: Any, solver: Any, seen: Any, request: Any) -> tuple[Any, MemoryPlan]:
        assert seen[0].columns == request.landmarks
        return solver, MemoryPlan((Term("all", request.landmarks, ""),), job, resident=True, cached=True, retain=True)

    monkeypatch.setattr(memory_plan, "fitted", plan)
    for limit, most in ((7, 7), (1, 1), (0, 0), (99, 9), (9, 9)):
        job: Any = limit
        assert most_landmarks(job, stored(), ASKING, problems(), replace(REQUEST, landmarks=10)) == most


def test_an_ingest_asks_for_parsers_and_chunks_and_gives_a_table_the_rest(fixed_base: None) -> None:
    least = BASE + 8 * MIB + SOURCE_BYTES + 3 * 4 * MIB * 2
    for shuffle, more in ((False, 0), (True, 2 * SHUFFLE_BYTES)):
        asked: dict[str, Any] = {"chunk_bytes": 4 * MIB, "stores": 2, "shuffle": shuffle, "threads": 3}
        found = memory_for_source(least + more + PARSER_BYTES, **asked)
        assert (found.limit, found.threads) == (SOURCE_BYTES + PARSER_BYTES, 2)
        assert found.notices == ("memory is short: 2 of 3 threads",)
        enough = memory_for_source(least + more + 2 * PARSER_BYTES, **asked)
        assert (enough.threads, enough.notices) == (3, ())
        with pytest.raises(budget.BudgetError):
            memory_for_source(least + more - 1, **asked)
        files = [Path("x" * 10), Path("y" * 30)]
        held = 2 * 4096 + 8 * (10 + 30)
        assert memory_for_source(least + more + held, **asked, files=files).limit == SOURCE_BYTES
        with pytest.raises(budget.BudgetError, match="files"):
            memory_for_source(least + more + held - 1, **asked, files=files)


@pytest.mark.parametrize(
    ("changed", "whole"),
    [
        ({}, True),
        ({"groups": 3}, False),  # 40 rows of 28 bytes, twice, are 746 bytes a group: more than is left
        ({"groups": 3, "cached": True}, True),
        ({"groups": 3, "left": 746}, True),
        ({"most": 560}, True),
        ({"most": 559}, False),
        ({"shuffled": False}, False),
        ({"features": None}, False),
    ],
)
def test_a_group_is_one_block_where_it_fits(
    changed: dict[str, Any], whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, as it is put together; only rows as they are stored, and of solvers that want them in random order."""
    given: dict[str, Any] = {"groups": 4, "left": 560, "most": 1 << 20, "cached": False} | changed
    monkeypatch.setattr(distributed, "WHOLE_GROUP_BYTES", given["most"])
    memory = SimpleNamespace(cached=given["cached"], limit=1000 + given["left"], total=1000)
    solver, features = Asking(given.get("shuffled", True)), given.get("features", Raw(1.0))
    plan: Any = SimpleNamespace(solver=solver, features=features, memory=memory)
    assert distributed.in_whole_groups(plan, LAYOUT, given["groups"]) == whole


@pytest.mark.parametrize(("nonzeros", "row"), [(None, 24), ((25, 55), 8 + 16)])
def test_functions_of_a_search_hold_every_row_twice_for_all_kernel_machines_and_its_coefficients_in_each(
    nonzeros: tuple[int, ...] | None, row: int
) -> None:
    """Beside their values on a chunk; those of a linear search hold weights alone."""
    layout = replace(LAYOUT, nonzeros=nonzeros)
    values = 8 * 2 * 30
    assert function_bytes(problems(2), layout) == values + 8 * 2 * 7
    machines = function_bytes(problems(2, kernel=RBF(0.5)), layout)
    assert machines == values + 40 * (2 * row + 8 * 2) + expansion_bytes(6)


def test_files_that_are_read_are_counted_with_their_paths() -> None:
    named = [SimpleNamespace(name="a.csv"), SimpleNamespace(name="folder/b.csv")]
    source: Any = SimpleNamespace(columns=None, sparse=True, sources=named, id_column=None)
    model: Any = SimpleNamespace(classes=("a", "b"), numeric=False)
    assert sizes(rows_of_source(model, source, "X", Rejects()).terms)["files"] == 2 * 4096 + 8 * (5 + 12)


@pytest.mark.parametrize(
    ("weighted", "columns", "row"), [(False, 6, 28), (True, 6, 32), (False, None, 28), (True, None, 32)]
)
def test_the_disk_is_asked_for_what_rows_take_by_those_that_were_read(
    weighted: bool, columns: int | None, row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth of the bytes held 30 rows: features, a label, and a weight. Rows of CSR have 8 bytes, and 8 for an entry, two here."""
    asked: list[float] = []
    monkeypatch.setattr(preflight, "require_space", lambda _, nbytes: asked.append(nbytes))
    X = np.zeros((4, 6), np.float32)
    X[:, :2] = 1.0
    first: Any = SimpleNamespace(X=Dense(X), weight=np.ones(4) if weighted else None)
    read: Any = SimpleNamespace(sources=[SimpleNamespace(rows=10, read=60), SimpleNamespace(rows=20, read=40)])
    preflight.check_disk(Path("s"), 1000, read, first, columns)
    assert asked == [pytest.approx(row * 300, rel=1e-12)]
