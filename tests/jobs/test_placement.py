"""Features on disk or on the fly: the estimate by numbers, with rates that are given instead of measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamsvm.features.nystrom import part_rows
from streamsvm.features.scaling import Raw
from streamsvm.jobs.embed import placement
from streamsvm.jobs.embed.feature_writer import Sink
from streamsvm.jobs.embed.kernel_request import NystromRequest
from streamsvm.jobs.embed.placement import PROBE_ROWS, Choice, MapCost, choose_embedding, measured_map
from streamsvm.jobs.inspect import doctor
from streamsvm.kernels import RBF
from streamsvm.schedule import budget

REQUEST = NystromRequest("rbf", RBF(1.0), 5, Raw(1.0))
STORE: Any = SimpleNamespace(layout=SimpleNamespace(rows=1000, columns=7))


@pytest.mark.parametrize(("there", "each"), [(3.0, 6.0), (8.0, 8.0)])
def test_what_is_paid_once_a_part_is_not_paid_for_each_row(
    there: float, each: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the pair, less lifting one row's weights, and no less than with features that are there; then in full."""
    seconds = iter([10.0, 4.0, 9.0, there])
    monkeypatch.setattr(placement, "_seconds", lambda action: (action(), next(seconds))[1])
    found = measured_map(7, REQUEST)
    assert found == pytest.approx((each / PROBE_ROWS + 4.0 / part_rows(5), 9.0 / PROBE_ROWS, there / PROBE_ROWS))


def test_the_best_of_three_runs_counts_after_one_that_may_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 5.0, 10.0, 12.0, 20.0, 29.0])
    runs: list[int] = []
    monkeypatch.setattr(placement.time, "thread_time", lambda: next(moments))
    assert placement._seconds(lambda: runs.append(1)) == 2.0
    assert len(runs) == 4


def chosen(monkeypatch: pytest.MonkeyPatch, expected: tuple[int, int] | None, **changed: Any) -> Choice:
    """A choice for 1000 rows of 5 features, which are 20,000 bytes."""
    given: dict[str, Any] = {"read": 100.0, "write": 1000.0, "cache": 0, "free": 40_001, "embedding": "auto"}
    given |= {"dtype": "float32", "cost": MapCost(0.5, 0.25, 0.125)} | changed
    monkeypatch.setattr(placement, "measured_map", lambda *_: given["cost"])
    monkeypatch.setattr(doctor, "disk_speed", lambda _: {"read": given["read"], "write": given["write"]})
    monkeypatch.setattr(budget, "page_cache_bytes", lambda _: given["cache"])
    monkeypatch.setattr(placement.shutil, "disk_usage", lambda _: SimpleNamespace(free=given["free"]))
    job: Any = SimpleNamespace(embedding=given["embedding"], embedding_dtype=given["dtype"], model="m", memory=None)
    return choose_embedding(job, STORE, REQUEST, expected)


@pytest.mark.parametrize(
    ("expected", "changed", "where", "seconds"),
    [
        # on the fly 4 passes of 1000 rows at 0.5 and 600 features at 0.25; on disk 1000 at 0.25, and 4 times 200 s
        ((4, 600), {}, "disk", (2150.0, 200.0, 20.0)),
        ((2, 0), {}, "disk", (1000.0, 200.0, 20.0)),
        ((1, 0), {}, "disk", (500.0, 200.0, 20.0)),
        ((1, 0), {"cost": MapCost(0.45, 0.25, 0.125)}, "fly", (450.0, 200.0, 20.0)),  # a tie is for the fly
        ((4, 600), {"cache": 20_000}, "disk", (2150.0, 125.0, 20.0)),  # cached: four times as fast, and then computing
        ((4, 600), {"cache": 19_999}, "disk", (2150.0, 200.0, 20.0)),
        ((4, 600), {"write": 10.0}, "fly", (2150.0, 200.0, 2000.0)),  # writing takes longer than making features
        ((4, 600), {"free": 40_000}, "fly", (2150.0, 200.0, 20.0)),  # no room
        ((4, 600), {"dtype": "int8"}, "disk", (2150.0, 125.0, 5.0)),
        (None, {}, "disk", (11_250.0, 200.0, 20.0)),  # thirty passes with features in full
    ],
)
def test_the_quicker_way_is_chosen(
    expected: tuple[int, int] | None,
    changed: Any,
    where: str,
    seconds: tuple[float, float, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = chosen(monkeypatch, expected, **changed)
    passes = 30 if expected is None else expected[0]
    assert (found.where, found.passes, found.dtype) == (where, passes, changed.get("dtype", "float32"))
    each, read, write = seconds
    map_seconds = each / passes
    assert (found.map_seconds, found.read_seconds, found.write_seconds) == pytest.approx((map_seconds, read, write))
    assert (": no room" in found.why) == ("free" in changed)
    assert f"in {passes} passes an estimated {each:.3g} s on the fly" in found.why


def test_what_is_asked_for_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for where in ("disk", "fly"):
        assert chosen(monkeypatch, (4, 600), embedding=where) == Choice(where, "asked for", "float32")


def test_who_writes_features_keeps_no_process_alive() -> None:
    writer: Any = None
    assert Sink(writer, 1, 1, {}, numeric=False)._thread.daemon


def test_a_map_that_is_more_than_the_memory_is_not_made_to_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 5 landmarks of 7 columns: twice 35 numbers, 25, and of 512 rows 7 and twice 5."""
    need = 4 * (2 * 35 + 25 + 512 * (7 + 10))
    monkeypatch.setattr(budget, "anonymous_bytes", lambda: 1000)
    for limit, measured in ((need + 1000, True), (need + 999, False)):
        monkeypatch.setattr(budget, "memory_limit", lambda _, limit=limit: limit)
        choice = chosen(monkeypatch, (4, 600))
        assert (choice.passes > 0) == measured
        assert measured or (choice.where, choice.map_seconds) == ("disk", 0.0)
