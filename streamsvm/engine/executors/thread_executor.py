"""The executor of a job on several cores of this machine: N threads, each with parts of the job one after the other.

A thread that is free takes the next part. What comes of the parts is joined along ``join_tree.JoinTree``, or handed
over in the order of the parts, so that who did what shows in no result. Passes, products and reads give up the
interpreter's lock.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from typing import Self

from streamsvm.compute.threading import CORES, end_all, start_all
from streamsvm.engine.checkpoint.interruption import check_time
from streamsvm.engine.executors.executor import (
    InThisProcess,
    Joins,
    OnProgress,
    Part,
    Result,
    SerialExecutor,
    Shared,
    Task,
    ignore_progress,
)

POLL_SECONDS = 0.25
"""How often is looked, while nothing comes, whether the job is to stop."""
AHEAD = 2
"""Parts a thread may be ahead of who takes results in their order."""


class ThreadExecutor(InThisProcess):
    """On N threads of this process; see ``engine.executors.executor.Executor``."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        """Tasks that run at once, where no strip of another one has taken their core."""

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[Shared] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """Yield the results in the order of the parts; threads are ahead by a few parts at most. Raises what tasks
        raise.
        """
        found: dict[int, Result] = {}
        results = partial(task.results, shared=shared)
        with _Lanes(results, enumerate(parts), found.__setitem__, self.threads, AHEAD * self.threads) as lanes:
            for number in count():
                while True:
                    over = lanes.over  # asked first: a last result may come between two questions
                    if number in found:
                        break
                    if over:
                        return
                    lanes.wait()
                    check_time()
                    on_progress(lanes.done)
                yield found.pop(number)
                lanes.delivered()

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[Shared], on_progress: OnProgress
    ) -> Result:
        """Return the results joined as siblings are there, and closed in the thread that calls. Raises what tasks
        raise.
        """
        tree = joins.tree_over(parts)
        missing = [(number, parts[number]) for number in tree.missing()]
        if len(missing) < 2:  # nothing to share out, and nobody to wait for
            return SerialExecutor().reduce(task, parts, joins._replace(tree=tree), shared, on_progress)

        results = partial(task.results, shared=shared)
        with _Lanes(results, missing, tree.add, min(self.threads, len(missing))) as lanes:
            while not lanes.over:
                lanes.wait()
                check_time()
                on_progress(len(parts) - len(missing) + lanes.done)
        on_progress(len(parts))
        return joins.closed(tree.result, shared)


def local_executor(threads: int) -> SerialExecutor | ThreadExecutor:
    """What makes the tasks of a job in this process."""
    return ThreadExecutor(threads) if threads > 1 else SerialExecutor()


class _Lanes:
    """Threads that take parts in their order and hand what they make of each to ``take(number, result)``.

    A thread waits with a result that is ``ahead`` of what was delivered: who has the lowest part never waits for others.
    """

    def __init__(
        self,
        results: Callable[[Iterator[Part]], Generator[Result]],
        numbered: Iterable[tuple[int, Part]],
        take: Callable[[int, Result], None],
        threads: int,
        ahead: float = float("inf"),
    ) -> None:
        """``results`` makes what comes of some parts, in their order."""
        self._results, self._take = results, take
        self._left, self._turn = iter(numbered), threading.Lock()
        self._wanted, self._ahead, self._delivered = threads, ahead, 0
        self._changed = threading.Condition()
        self._news: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._stop = False
        self._threads: list[threading.Thread] = []
        self._borrowed = 0
        self.done, self._taken, self._last = 0, 0, False
        """Parts whose results were taken in, parts that threads have taken, and whether there are no more."""

    def __enter__(self) -> Self:
        start_all(self._lanes(), self._join)
        return self

    def __exit__(self, *outcome: object) -> None:
        self._join()
        while outcome[0] is None and not self._news.empty():
            self.wait()

    def wait(self) -> None:
        """Wait for a result, not for long. Raises what went wrong in a thread."""
        try:
            error = self._news.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return
        if error is not None:
            raise error

    @property
    def over(self) -> bool:
        """Whether what comes of all parts was taken in."""
        with self._changed:
            return self._last and self.done == self._taken

    def delivered(self) -> None:
        """Say that the next result in the order of the parts has gone its way."""
        with self._changed:
            self._delivered += 1
            self._changed.notify_all()

    def _lanes(self) -> Iterator[threading.Thread]:
        """One thread, and one more for each core that is idle."""
        self._borrowed = CORES.borrow(self._wanted - 1)
        for number in range(min(self._wanted, self._borrowed + 1)):
            self._threads.append(threading.Thread(target=self._work, name=f"streamsvm-lane-{number}", daemon=True))
            yield self._threads[-1]

    def _join(self) -> None:
        end_all(self._threads, self._end)
        CORES.give_back(self._borrowed)  # of lanes that did not come to be
        self._borrowed = 0

    def _end(self) -> None:
        """Let threads stop after what they are at."""
        with self._changed:
            self._stop = True
            self._changed.notify_all()

    def _work(self) -> None:
        mine: deque[int] = deque()
        try:
            with closing(self._results(self._parts(mine))) as results:
                for found in results:
                    self._hand_over(mine.popleft(), found)
        except BaseException as error:  # noqa: BLE001 (carried to the thread that waits, which raises it)
            self._end()
            self._news.put(error)
        finally:
            self._leave()

    def _hand_over(self, number: int, found: Result) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stop or number < self._delivered + self._ahead)
        self._take(number, found)
        with self._changed:
            self.done += 1
        self._news.put(None)

    def _parts(self, mine: deque[int]) -> Iterator[Part]:
        """The parts one thread takes, as long as there are any; their numbers go to ``mine``."""
        while (taken := self._next()) is not None:
            mine.append(taken[0])
            yield taken[1]

    def _next(self) -> tuple[int, Part] | None:
        """The next part, which may be long in the making; None after the last."""
        with self._turn:
            if self._stop or self._last:
                return None
            taken = next(self._left, None)
            with self._changed:
                self._taken, self._last = self._taken + (taken is not None), taken is None
        if taken is None:
            self._news.put(None)  # who waits may have had the last result already
        return taken

    def _leave(self) -> None:
        """Give this thread's core to whoever has more to do; the one of the thread that waits stays taken."""
        with self._changed:
            given, self._borrowed = min(1, self._borrowed), max(0, self._borrowed - 1)
        CORES.give_back(given)
