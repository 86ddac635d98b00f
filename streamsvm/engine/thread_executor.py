"""The executor of a job on several cores of this machine: N threads, each with parts of the job one after the other.

A thread that is free takes the next part. What comes of the parts is joined along ``join_tree.JoinTree``, or handed
over in the order of the parts, so that who did what shows in no result. Passes, products and reads give up the
interpreter's lock.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Self

from streamsvm.compute.threading import CORES
from streamsvm.engine.executor import (
    Executor,
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


class ThreadExecutor:
    """On N threads of this process; see ``engine.executor.Executor``."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        """Tasks that run at once, where no strip of another one has taken their core."""

    def limit(self, stated: int | None) -> int | None:
        """Return what the user allows: the plan has counted every thread."""
        return stated

    def share(self, value: Shared) -> Shared:
        """Return the value itself."""
        return value

    def map(
        self,
        task: Task,
        parts: Sequence[Part],
        shared: Sequence[Shared] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Iterator[Result]:
        """Yield the results in the order of the parts; threads are ahead by a few parts at most. Raises what tasks
        raise.
        """
        found: dict[int, Result] = {}
        numbered = list(enumerate(parts))

        def results(some: Iterator[Part]) -> Generator[Result]:
            return (task.function(part, *shared) for part in some)

        with _Lanes(results, numbered, found.__setitem__, self.threads, AHEAD * self.threads) as lanes:
            for number in range(len(numbered)):
                while number not in found:
                    lanes.wait()
                    on_progress(lanes.done)
                yield found.pop(number)
                lanes.allow_one_more()

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

        def results(some: Iterator[Part]) -> Generator[Result]:
            return task.results(some, shared)

        with _Lanes(results, missing, tree.add, self.threads, len(missing) + 1) as lanes:
            while lanes.done < len(missing):
                lanes.wait()
                on_progress(len(parts) - len(missing) + lanes.done)
        on_progress(len(parts))
        return joins.closed(tree.result, shared)


def local_executor(threads: int) -> Executor:
    """What makes the tasks of a job in this process."""
    return ThreadExecutor(threads) if threads > 1 else SerialExecutor()


class _Lanes:
    """Threads that take parts in their order and hand what they make of each to ``take(number, result)``."""

    def __init__(
        self,
        results: Callable[[Iterator[Part]], Generator[Result]],
        numbered: Sequence[tuple[int, Part]],
        take: Callable[[int, Result], None],
        threads: int,
        allowed: int,
    ) -> None:
        """``results`` makes what comes of some parts, in their order; ``allowed``: parts that may be taken before more
        are.
        """
        self._results, self._take = results, take
        self._left, self._lock = iter(numbered), threading.Lock()
        self._wanted = min(threads, len(numbered))
        self._allowed = threading.Semaphore(allowed)
        self._news: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._borrowed = 0
        self.done = 0
        """Parts whose results were taken."""

    def __enter__(self) -> Self:
        self._borrowed = CORES.borrow(self._wanted - 1)
        for number in range(min(self._wanted, self._borrowed + 1)):
            lane = threading.Thread(target=self._work, name=f"streamsvm-lane-{number}", daemon=True)
            lane.start()
            self._threads.append(lane)
        return self

    def __exit__(self, *outcome: object) -> None:
        self._stop.set()
        for _ in self._threads:
            self._allowed.release()
        for lane in self._threads:
            lane.join()

    def wait(self) -> None:
        """Wait for a result, not for long. Raises what went wrong in a thread."""
        try:
            error = self._news.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return
        if error is not None:
            raise error

    def allow_one_more(self) -> None:
        """Say that a result was taken where threads may be ahead by so many only."""
        self._allowed.release()

    def _work(self) -> None:
        mine: deque[int] = deque()
        try:
            with closing(self._results(self._parts(mine))) as results:
                for found in results:
                    self._take(mine.popleft(), found)
                    with self._lock:
                        self.done += 1
                    self._news.put(None)
        except BaseException as error:  # noqa: BLE001 (carried to the thread that waits, which raises it)
            self._stop.set()
            self._news.put(error)
        finally:
            self._leave()

    def _parts(self, mine: deque[int]) -> Iterator[Part]:
        """The parts one thread takes, as long as there are any; their numbers go to ``mine``."""
        while self._allowed.acquire():  # before a part is taken: who has the lowest one must never wait for the others
            with self._lock:
                taken = None if self._stop.is_set() else next(self._left, None)
            if taken is None:
                self._allowed.release()  # another thread may be waiting to hear the same
                return
            mine.append(taken[0])
            yield taken[1]

    def _leave(self) -> None:
        """Give this thread's core to whoever has more to do; the one of the thread that waits stays taken."""
        with self._lock:
            given, self._borrowed = min(1, self._borrowed), max(0, self._borrowed - 1)
        CORES.give_back(given)
