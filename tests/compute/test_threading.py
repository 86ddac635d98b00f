"""Strips cover every row once, whatever the number of threads, and an error in one is not lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from threading import Lock

import numpy as np
import pytest

from streamsvm.compute import threading
from streamsvm.compute.kernel_values import expansion
from streamsvm.compute.kernel_values.expansion import expand
from streamsvm.kernels import RBF
from streamsvm.rows import Dense
from tests.axes import each_value


@each_value(("rows", [0, 1, 63, 64, 65, 1000]), ("threads", [1, 2, 3]))
def test_threads_every_row_is_covered_once(rows: int, threads: int) -> None:
    met = np.zeros(rows, int)

    def work(start: int, stop: int) -> None:
        met[start:stop] += 1
        assert start % 8 == 0

    with threading.use_threads(threads):
        threading.in_strips(work, rows, 8)
    assert (met == 1).all()


def test_threads_do_not_change_an_expansion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "TILE_ROWS", 16)
    rng = np.random.default_rng(0)
    X, Z = (Dense(rng.normal(size=(n, 3)).astype(np.float32)) for n in (500, 40))
    found = []
    for threads in (1, 2, 3):
        out = np.zeros(500)
        with threading.use_threads(threads):
            expand(X, Z, np.linspace(-1.0, 1.0, 40), RBF(0.5), 3, out)
        found.append(out)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_threads_no_more_work_than_may_and_all_are_given_back() -> None:
    """Strips within strips find nobody idle, and do their work alone."""
    at_once = most = 0
    lock = Lock()

    def inner(_start: int, _stop: int) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.005)
        with lock:
            at_once -= 1

    with threading.use_threads(3):
        threading.in_strips(lambda start, stop: threading.in_strips(inner, 100, 1), 100, 1)
        assert most == 3
        assert threading.CORES.borrow(5) == 2
        threading.CORES.give_back(2)


def test_threads_gram_matrix_is_symmetric_to_the_bit_and_that_of_any_number_of_threads() -> None:
    rng = np.random.default_rng(3)
    Z = Dense(rng.normal(size=(700, 5)).astype(np.float32))
    found = []
    for threads in (1, 2, 3):
        with threading.use_threads(threads):
            found.append(expansion.gram(Z, RBF(0.5), 5))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[0], found[0].T)
    rows = Z.values.astype(np.float64)
    squares = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(found[0], np.exp(-0.5 * squares), atol=3e-5)  # 10 ulp of norms of about 25


def test_threads_error_is_raised() -> None:
    def fail(start: int, _stop: int) -> None:
        if start:
            raise ValueError("in the second strip")

    with threading.use_threads(2), pytest.raises(ValueError, match="second strip"):
        threading.in_strips(fail, 100, 1)


FORKED = """
import os
from streamsvm.compute import threading
def sums():
    seen = []
    with threading.use_threads(2):
        threading.in_strips(lambda start, stop: seen.append(stop - start), 8, 1)
    return sorted(seen)
assert sums() == [4, 4]
child = os.fork()
if child == 0:
    os._exit(sums() != [4, 4])
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_threads_forked_process_waits_for_no_thread_of_its_parent() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert (
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FORKED], env=environment, timeout=60, check=False
        ).returncode
        == 0
    )
