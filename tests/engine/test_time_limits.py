"""What a fit says of its time limit, and that one which is trained is not cut off by the compiler."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.compiler_lock import global_compiler_lock

import streamsvm as sv
from streamsvm.cli.main import main
from streamsvm.compute.compile_clock import CLOCK
from streamsvm.engine import time_limit
from streamsvm.jobs.fit import certify


class Clock:
    """``time.perf_counter``, which seconds can be added to; that of alarms is another one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead, self._real = 0.0, time.perf_counter
        monkeypatch.setattr(time, "perf_counter", self)

    def __call__(self) -> float:
        return self._real() + self.ahead


def test_time_limit_fit_says_that_its_time_was_over_only_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass is made slow by who is told of it: two more do not fit the limit, which is then far from being reached."""
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(500, 5)).astype(np.float32), draw.integers(0, 2, 500)
    sv.ingest(X, str(tmp_path / "s.zarr"), y=y)
    asked: Any = {"solver": "dcd", "tolerance": 1e-12, "C": 100, "overwrite": True}
    with monkeypatch.context() as patch:
        clock = Clock(patch)

        def slow(_: Any) -> None:
            clock.ahead += 1000.0

        with pytest.warns(
            sv.StreamSVMWarning, match=r".* s were left until the time limit of 2900 s, .* take about .* s"
        ):
            sv.fit(str(tmp_path / "s.zarr"), str(tmp_path / "m.ssvm"), time_limit=2900.0, on_pass=slow, **asked)
    with pytest.warns(sv.StreamSVMWarning, match=r"the time limit of 1e-09 s was reached"):
        sv.fit(str(tmp_path / "s.zarr"), str(tmp_path / "m.ssvm"), time_limit=1e-9, **asked)


@pytest.mark.parametrize("face", ["command", "function", "thread"])
def test_time_limit_trained_fit_is_not_cut_off_because_its_evaluation_has_to_be_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, face: str
) -> None:
    """The compiler takes until after the job's limit and the time to finish; the training was over long before."""
    draw = np.random.default_rng(0)
    X, limit = draw.normal(size=(500, 5)).astype(np.float32), 2.0
    store, model = str(tmp_path / "s.zarr"), str(tmp_path / "m.ssvm")
    sv.ingest(X, store, y=(X[:, 0] > 0).astype(int))
    asked: Any = {"loss": "hinge", "standardize": True, "tolerance": 1e-6}
    sv.fit(store, str(tmp_path / "first.ssvm"), **asked)  # compiled from here on
    began, evaluate, evaluated = time.monotonic(), certify.evaluate_problems, []

    def compiling_first(*given: Any) -> Any:
        with global_compiler_lock:
            time.sleep(max(0.0, began + limit + time_limit.finishing_seconds(limit) + 0.5 - time.monotonic()))
        evaluated.append(True)
        return evaluate(*given)

    def run() -> None:
        sv.fit(store, model, time_limit=limit, **asked)

    monkeypatch.setattr(certify, "evaluate_problems", compiling_first)
    if face == "function":
        run()
    elif face == "thread":
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        options = ["--loss", "hinge", "--standardize", "--tolerance", "1e-6", "--time-limit", f"{limit}s"]
        monkeypatch.setattr(sys, "argv", ["streamsvm", "fit", store, model, *options])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, None)
    assert evaluated
    assert Path(model).exists()


def test_time_limit_seconds_of_the_compiler_are_not_expected_of_the_next_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2000 s of the first pass are said to be the compiler's: two more such would not fit the limit."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(500, 5)).astype(np.float32)
    sv.ingest(X, tmp_path / "s.zarr", y=(X[:, 0] + draw.normal(size=500) > 0).astype(int))
    asked: Any = {"solver": "dcd", "tolerance": 1e-4, "overwrite": True}
    clock = Clock(monkeypatch)

    def compile_in_first_pass(record: Any) -> None:
        if record["pass"] == 1:
            CLOCK.enter()
            clock.ahead += 2000.0
            CLOCK.leave()

    found = sv.fit(tmp_path / "s.zarr", tmp_path / "m.ssvm", time_limit=5000.0, on_pass=compile_in_first_pass, **asked)
    assert found.training.status.value == "converged"
