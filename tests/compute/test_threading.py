"""Threads: strips cover every row once, whatever their number the bits are those of one, and an error in one of them is not lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from threading import Barrier, Event, Lock
from typing import Any

import numpy as np
import pytest

from streamsvm.compute import threading
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import TILE, Factored, form_rows
from streamsvm.compute.kernel_values import kernel_products
from streamsvm.compute.kernel_values.kernel_products import expand
from streamsvm.kernels import RBF
from streamsvm.rows import Dense
from tests.arrays import csr_of
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
    monkeypatch.setattr(kernel_products, "TILE_ROWS", 16)
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
    lock, all_of_them = Lock(), Barrier(3)

    def inner(_start: int, _stop: int) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        all_of_them.wait(120.0)
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
            found.append(kernel_products.gram(Z, RBF(0.5), 5))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[0], found[0].T)
    rows = Z.values.astype(np.float64)
    squares = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(found[0], np.exp(-0.5 * squares), atol=3e-5)  # 10 ulp of norms of about 25


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
            [sys.executable, "-W", "ignore", "-c", FORKED], env=environment, timeout=240, check=False
        ).returncode
        == 0
    )


# -- products in memory --------------------------------------------------------------------------------------------------


ROWS = 5 * TILE + 77
RNG = np.random.default_rng(3)
X = RNG.standard_normal((ROWS, 9)).astype(np.float32)
WIDE = RNG.standard_normal((ROWS, operators.MAX_COMPONENTS_FOR_FLOAT64 + 4)).astype(np.float32)
WEIGHTS = RNG.standard_normal((WIDE.shape[1] + 1, 2))
ORDER = RNG.permutation(ROWS)
BLOCKS: dict[str, Any] = {
    "dense": Dense(X, 1.0),
    "wide": Dense(WIDE, 1.0),
    "sparse": csr_of(X),
    "factored": Factored(X, RNG.standard_normal((9, 5)).astype(np.float32), 1.0),
}


def pieces(block: Any) -> list[Any]:
    """The rows of a dense or a factored block in parts of uneven sizes."""
    edges = [0, 10, TILE + 11, TILE + 12, 4 * TILE, ROWS]
    return [block._replace(**{block._fields[0]: block[0][a:b].copy()}) for a, b in pairwise(edges)]


OPERATIONS: dict[str, Callable[[Any, int], Any]] = {
    "gram": lambda block, p: operators.gram(block, np.abs(X[:, 0]).astype(np.float64), p),
    "adjoint": lambda block, p: operators.adjoint(block, X[:, :2].astype(np.float64), p),
    "margins": lambda block, p: operators.margins(block, WEIGHTS[: p + 1]),
    "formed": lambda block, p: form_rows(pieces(block), ORDER)[0],
}


@pytest.mark.parametrize(
    ("operation", "name"),
    [(operation, name) for operation in OPERATIONS for name in BLOCKS if (operation, name) != ("formed", "sparse")],
)
def test_threads_products_in_memory_are_those_of_one(
    name: str, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "PIECE_ENTRIES", 20_000)
    block = BLOCKS[name]
    columns = operators.shape(block, 9)[1] - 1
    with threading.use_threads(1):
        alone = OPERATIONS[operation](block, columns)
    for threads in (2, 7):
        with threading.use_threads(threads):
            np.testing.assert_array_equal(OPERATIONS[operation](block, columns), alone)


@pytest.mark.parametrize("where", ["make", "take"])
def test_threads_error_of_one_of_them_is_raised(where: str) -> None:
    def fail(number: int, _lane: int = 0) -> int:
        if number == 4:
            raise ValueError("number 4")
        return number

    def pass_on(number: int, _lane: int = 0) -> int:
        return number

    make, take = (fail, pass_on) if where == "make" else (pass_on, fail)
    with threading.use_threads(3), pytest.raises(ValueError, match="number 4"):
        threading.in_turn(make, take, 9, 3)


def test_threads_who_waits_for_the_turn_of_one_that_fails_does_not_wait_for_ever() -> None:
    second = Event()

    def make(number: int, _lane: int) -> int:
        if number == 0:
            second.wait(120.0)
            raise ValueError("the first one")
        second.set()
        return number

    taken = list[int]()
    with threading.use_threads(2), pytest.raises(ValueError, match="the first one"):
        threading.in_turn(make, taken.append, 5, 2)
    assert taken == []
