"""What comes of parts is joined the same way in whatever order it comes, is never nowhere, and is known again later."""

from __future__ import annotations

import random
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.engine.executor import Joins, SerialExecutor, Task, ThreadExecutor, ignore_progress
from streamsvm.engine.join_tree import JoinTree, PartSpan, spans_of, tree_reduce


def join(one: str, other: str) -> str:
    return f"({one}{other})"


def shape(count: int) -> str:
    """How ``tree_reduce`` joins so many parts."""
    return tree_reduce((f"{number}." for number in range(count)), count, join)


@given(st.integers(1, 40), st.randoms())
def test_join_tree_order_of_arrival_does_not_matter(count: int, order: random.Random) -> None:
    tree = JoinTree(count, join)
    numbers = list(range(count))
    order.shuffle(numbers)
    for number in numbers:
        tree.add(number, f"{number}.")
    assert tree.result == shape(count)
    assert tree.missing() == []


@given(st.integers(2, 40), st.integers(0, 39), st.randoms())
def test_join_tree_resumes_from_joined_parts(count: int, made: int, order: random.Random) -> None:
    before: JoinTree[str] = JoinTree(count, join)
    numbers = list(range(count))
    order.shuffle(numbers)
    for number in numbers[: min(made, count)]:
        before.add(number, f"{number}.")
    with before.lock_nodes() as known:
        after = JoinTree(count, join, known=known)
    assert after.missing() == sorted(numbers[min(made, count) :])
    for number in after.missing():
        after.add(number, f"{number}.")
    assert after.result == shape(count)


@given(st.integers(1, 100), st.integers(1, 12))
def test_a_tree_over_spans_is_the_tree_over_parts(count: int, tasks: int) -> None:
    spans = spans_of(count, tasks)
    assert [number for span in spans for number in range(*span)] == list(range(count))

    def inside(span: PartSpan) -> str:
        return tree_reduce((f"{number}." for number in range(*span)), span.stop - span.first, join)

    assert tree_reduce(map(inside, spans), len(spans), join) == shape(count)
    assert len(spans) <= 2 * tasks


def test_join_tree_holds_few_parts() -> None:
    tree: JoinTree[str] = JoinTree(100, join)
    for number in range(100):
        tree.add(number, "x")
        with tree.lock_nodes() as known:
            assert len(known) <= 7


def test_join_tree_many_threads_lose_nothing() -> None:
    tree: JoinTree[tuple[int, ...]] = JoinTree(400, lambda one, other: one + other)

    def add(numbers: range) -> None:
        for number in numbers:
            tree.add(number, (number,))

    threads = [Thread(target=add, args=(range(k, 400, 8),)) for k in range(8)]
    for thread in threads:
        thread.start()
    while tree.missing():
        with tree.lock_nodes() as known:
            assert all(found == tuple(range(*span)) for span, found in known.items())
    for thread in threads:
        thread.join()
    assert tree.result == tuple(range(400))


def doubled(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("executor", [SerialExecutor(), ThreadExecutor(2), ThreadExecutor(5)])
class TestExecutors:
    """One protocol, whoever does the work."""

    def test_join_tree_they_are_joined_along_the_tree(self, executor: Any) -> None:
        task, joins = Task("text", str), Joins(join)
        found = [executor.reduce(task, range(count), joins, (), ignore_progress) for count in (1, 2, 13)]
        assert found == [shape(count).replace(".", "") for count in (1, 2, 13)]

    def test_join_tree_can_be_ended_while_waited_for(self, executor: Any) -> None:
        def stop(done: int) -> None:
            if done >= 3:
                raise InterruptedError(done)

        with pytest.raises(InterruptedError):
            executor.reduce(Task("double", doubled), range(5000), Joins(max), (), stop)
