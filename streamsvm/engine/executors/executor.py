"""What a job needs of a cluster, and the one that is no cluster at all."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from streamsvm.config.units import mib
from streamsvm.engine.checkpoint.interruption import check_time
from streamsvm.engine.groups.join_tree import JoinTree
from streamsvm.errors import BudgetError, UsageError
from streamsvm.registry import Registry
from streamsvm.schedule import budget

EXECUTORS = Registry(
    "cluster",
    {
        "tcp": "streamsvm.cluster:connected",
        "tls": "streamsvm.cluster:connected",
        "scheduler-file": "streamsvm.cluster:connected",
        "local": "streamsvm.cluster:connected",
        "client": "streamsvm.cluster.connection:of_program",
        "here": "streamsvm.engine.executors.executor:here",
    },
)


Part: TypeAlias = Any
"""A part of a job: what the function of the job's ``Task`` takes first."""

Shared: TypeAlias = Any
"""A value that every task of a job is given, or what stands for it until it is on a worker."""

Result: TypeAlias = Any
"""What the function of a ``Task`` returns. Part, shared and result are one job's own; no executor looks into them."""


@runtime_checkable
class PeakAware(Protocol):
    """A result that knows what memory it took to make it: what an executor sees from outside is added to it."""

    def at_peak(self, peak: int) -> Result:
        """Return the same, made by a process that had as many bytes in use."""
        ...


@runtime_checkable
class CarefulJoin(Protocol):
    """A join that leaves what it joins as it is, which costs copies where nobody else sees that."""

    def of_own(self, *shared: Shared) -> Callable[[Result, Result], Result]:
        """Return the join of results that whoever joins them has made, which may be changed; ``shared``: as the tasks were given."""
        ...


class Task(NamedTuple):
    """What is done to each part of a job: ``function(part, *shared)``, a function of a module."""

    phase: str
    """What people call it: fit, embed, ..."""
    function: Callable[..., Result]
    """What is called, with a part and the shared values; it is sent by name."""
    needs: int = 0
    """Bytes it is expected to hold, to be said where a worker did not have them."""
    each: Callable[..., Generator[Result]] | None = None
    """``each(parts, *shared)`` yields what comes of parts, in their order: a thread that takes several reads ahead over
    their borders. None: ``function`` has nothing to gain from that."""

    def results(self, parts: Iterator[Part], shared: Sequence[Shared]) -> Generator[Result]:
        """Yield what comes of the parts, one after the other."""
        if self.each is not None:
            return self.each(parts, *shared)
        return (self.function(part, *shared) for part in parts)


class Joins(NamedTuple):
    """How results become one: ``join(one, other)``, then ``close(all, *shared)``."""

    join: Callable[[Result, Result], Result]
    """Makes one result of two neighboring ones; on a cluster it must leave both as they are."""
    close: Callable[..., Result] | None = None
    """A function of a module; it runs where the last join has run."""
    tree: JoinTree[Result] | None = None
    """Where results are joined in this process, and what is known of them already; None: nothing is."""

    def tree_over(self, parts: Sequence[Part]) -> JoinTree[Result]:
        """Return the tree that results of these parts are joined along."""
        return JoinTree(len(parts), self.join) if self.tree is None else self.tree

    def of_span(self, task: Task, parts: Sequence[Part], shared: Sequence[Shared]) -> Result:
        """Return what comes of some neighboring parts, one after the other, joined."""
        made: object = self.join
        join = made.of_own(*shared) if isinstance(made, CarefulJoin) else self.join
        tree = JoinTree(len(parts), join)
        with closing(task.results(iter(parts), shared)) as found:
            for number in range(len(parts)):
                tree.add(number, next(found))
        return tree.result

    def closed(self, found: Result, shared: Sequence[Shared]) -> Result:
        """Return what is made of the joined results in the end."""
        return found if self.close is None else self.close(found, *shared)


OnProgress = Callable[[int], None]
"""Takes the number of parts that are done, now and then while a job waits. What it raises ends the waiting."""


def ignore_progress(done: int) -> None:
    """Report nothing."""


class Executor(Protocol):
    """Runs tasks over parts. Each part counts exactly once, whatever happens to workers. Raises ClusterError."""

    @property
    def threads(self) -> int:
        """Tasks that run at once, now."""
        ...

    def limit(self, stated: int | None) -> int | None:
        """Bytes one task may hold, given what the user allows."""
        ...

    def share(self, value: Shared) -> Shared:
        """A value as every task is to see it: sent once to each worker, not with each task. Not to be changed there."""
        ...

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[Shared] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """The results in the order of the parts, which are taken as they are needed where that is in this process."""
        ...

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[Shared], on_progress: OnProgress
    ) -> Result:
        """The results joined two by two along ``join_tree.JoinTree``, and closed."""
        ...


class InThisProcess:
    """What is the same of every executor whose tasks see the memory of this process."""

    def limit(self, stated: int | None) -> int | None:
        """Return what the user allows: the plan has counted all there is here."""
        return stated

    def share(self, value: Shared) -> Shared:
        """Return the value itself."""
        return value


class SerialExecutor(InThisProcess):
    """In this process: one part after the other. What a cluster returns is what this returns, to the last bit."""

    threads = 1
    """One task at a time."""

    def map(
        self,
        task: Task,
        parts: Iterable[Part],
        shared: Sequence[Shared] = (),
        on_progress: OnProgress = ignore_progress,
    ) -> Generator[Result]:
        """Yield what the task makes of each part, one after the other."""
        with closing(task.results(iter(parts), shared)) as found:
            for done, result in enumerate(found, 1):
                yield result
                check_time()
                on_progress(done)

    def reduce(
        self, task: Task, parts: Sequence[Part], joins: Joins, shared: Sequence[Shared], on_progress: OnProgress
    ) -> Result:
        """Return the results joined as they come, and closed."""
        tree = joins.tree_over(parts)
        missing = tree.missing()
        with closing(task.results((parts[number] for number in missing), shared)) as found:
            for done, number in enumerate(missing, len(parts) - len(missing) + 1):
                tree.add(number, next(found))
                check_time()
                on_progress(done)
        return joins.closed(tree.result, shared)


@contextmanager
def here(address: str, *, insecure: bool = False) -> Iterator[Executor]:
    """The executor of 'here:', whatever follows and whatever is allowed."""
    del address, insecure
    yield SerialExecutor()


class ClusterJob(Protocol):
    """A job that can run on a cluster."""

    @property
    def cluster(self) -> str | None:
        """The address of the cluster; None: the job runs in this process."""
        ...

    @property
    def insecure_network(self) -> bool:
        """Whether a connection without TLS is allowed."""
        ...

    @property
    def memory(self) -> int | None:
        """Bytes the job may use; None where nothing is said."""
        ...


@contextmanager
def executor_for(job: ClusterJob, given: Executor | None = None) -> Iterator[Executor | None]:
    """``given``, else that of the cluster a job names; None where it names none. Raises UsageError, ClusterError."""
    if given is None and job.cluster is None:
        yield None
        return
    with nullcontext(given) if job.cluster is None or given is not None else _connected(job, job.cluster) as executor:
        assert executor is not None
        try:
            yield executor
        except BudgetError as error:
            _name_workers(error, executor.limit(None), job.memory)
            raise


def _connected(job: ClusterJob, cluster: str) -> AbstractContextManager[Executor]:
    kind, colon, _ = cluster.partition(":")
    if not colon:
        raise UsageError(f"'{cluster}' is no cluster", hint=f"write {', '.join(f'{k}:...' for k in EXECUTORS)}")
    found: AbstractContextManager[Executor] = EXECUTORS[kind](cluster, insecure=job.insecure_network)
    return found


def _name_workers(error: BudgetError, bound: int | None, stated: int | None) -> None:
    """Say so where it is the workers' limit that is too low: more ``--memory`` would change nothing."""
    if bound is not None and (stated is None or bound < stated):
        error.message += f"; a task may take {mib(bound)}, a share of its worker's memory limit for each thread"
        error.hint = f"start workers with a higher --memory-limit or fewer --nthreads; without workers: {error.hint}"


def task_limit(executor: Executor, stated: int | None) -> int:
    """Bytes a task may hold; the limits of this process hold too, where parts are joined."""
    return budget.memory_limit(executor.limit(stated))
