"""Mutants in forks of one session of pytest: all is loaded and collected once, a trial takes no longer than its tests.

Nothing is written. A fork exchanges the code of the function that the mutant changes, in every function object made of it, and
runs the tests it was given. Passes run as Python (NUMBA_DISABLE_JIT), so that a change of one of them needs no compilation.
"""

from __future__ import annotations

import gc
import importlib
import math
import os
import signal
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tools.mutants.changes import REPOSITORY, Mutant

IGNORED = "ignore::RuntimeWarning"
"""Python tells of whole numbers that wrap around and of divisions by 0 where compiled passes do not."""
OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", IGNORED)
SECONDS, TIMES = 20.0, 5.0
"""CPU seconds, and times what its tests usually take, after which a mutant is noticed: it hangs."""
SLOWEST = 60.0
"""CPU seconds of a test that is slow; one that takes longer, or does not pass, is of no use."""
PATIENCE = 600.0
"""Seconds by the clock, for what waits; six times the CPU seconds if that is less."""
NOTICED = 1


class Trials:
    """A plugin of pytest: instead of the tests it runs ``work``, which asks for trials."""

    def __init__(self, work: Callable[[Trials], None]) -> None:
        self._work = work
        self.failed = False
        self._items: dict[str, pytest.Item] = {}
        self._passes: dict[str, bool] = {}
        self._functions: dict[tuple[str, str], list[types.FunctionType]] = defaultdict(list)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do the work, once all tests are known."""
        self._items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # what tests/conftest.py freezes is not found below
        for found in gc.get_objects():
            if isinstance(found, types.FunctionType) and str(found.__module__).startswith("streamsvm.compute"):
                found.__dict__.setdefault("py_func", found)  # what tests of compiled passes compare them with
        self._work(self)
        return True

    def load(self, paths: set[str]) -> None:
        """Load the modules that are going to be changed and find the functions of theirs that there are.

        Raises RuntimeError where there are none at all: every change would seem to survive.
        """
        for path in paths:
            importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        for found in gc.get_objects():
            if isinstance(found, types.FunctionType):
                name = os.path.relpath(found.__code__.co_filename, REPOSITORY)
                if name in paths:
                    self._functions[name, found.__code__.co_qualname].append(found)
        if paths and not self._functions:
            raise RuntimeError(f"no function was found of {', '.join(sorted(paths))}")

    def by_file(self) -> dict[str, list[str]]:
        """The tests that were collected, by file."""
        found = defaultdict(list)
        for name in self._items:
            found[name.partition("::")[0]].append(name)
        return found

    def run(self, names: list[str], plugin: object) -> bool:
        """Run tests in a fork, in this order, until one fails, with one more plugin of pytest; whether all pass."""
        child = os.fork()
        if child == 0:
            os._exit(self._child(names, plugin))
        return _ended(child) == 0

    def _child(self, names: list[str], plugin: object) -> int:
        os.setsid()
        items = [self._items[name] for name in names if name in self._items]
        manager = items[0].config.pluginmanager
        manager.unregister(manager.get_plugin("terminalreporter"))
        manager.register(_AtTheFirst())
        manager.register(plugin)
        try:
            for item, following in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except BaseException:  # noqa: BLE001  whatever a mutant does, it was noticed
            return NOTICED
        return 0

    def passing(self, names: list[str]) -> list[str]:
        """Those of some slow tests that pass without any mutant, within the time that one is given."""
        for name in names:
            if name not in self._passes:
                child = os.fork()
                if child == 0:
                    os._exit(self._child([name], object()))
                self._passes[name] = _ended(child, SLOWEST) == 0
        return [name for name in names if self._passes[name]]

    def survives(self, mutant: Mutant, names: list[str], usual: float) -> bool:
        """Whether all these tests, which usually take so many CPU seconds, pass with the mutant in place."""
        child = os.fork()
        if child == 0:
            self._exchange(mutant)
            os._exit(self._child(names, object()))
        return _ended(child, SECONDS + TIMES * usual) == 0

    def knows(self, mutant: Mutant) -> bool:
        """Whether the function a mutant changes was found."""
        return bool(self._functions[mutant.path, mutant.outermost])

    def _exchange(self, mutant: Mutant) -> None:
        """Put the code of the mutant in place."""
        whole = compile(mutant.text, str(REPOSITORY / mutant.path), "exec", dont_inherit=True)
        for code in _codes(whole):
            for function in self._functions[mutant.path, code.co_qualname]:
                function.__code__ = code


class _AtTheFirst:
    """A plugin of pytest that ends the process with the first failure."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """End it."""
        if report.failed:
            os._exit(NOTICED)


def _codes(whole: types.CodeType) -> Iterator[types.CodeType]:
    """The code of every function of a module, however deep."""
    for part in whole.co_consts:
        if isinstance(part, types.CodeType):
            yield part
            yield from _codes(part)


def _cpu_seconds(process: int) -> float:
    """What a process and the children it has waited for have used."""
    with open(f"/proc/{process}/stat", encoding="ascii") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:15])) / os.sysconf("SC_CLK_TCK")


def _ended(child: int, seconds: float = math.inf) -> int:
    """How a fork ended; with it end all that it began, and it itself where it hangs: after so many CPU seconds."""
    until, ended = time.monotonic() + min(PATIENCE, 6.0 * seconds), (0, 0)
    while not ended[0] and time.monotonic() < until and _cpu_seconds(child) < seconds:
        time.sleep(0.02)
        ended = os.waitpid(child, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended[0]:
        os.waitpid(child, 0)
        return NOTICED
    return os.waitstatus_to_exitcode(ended[1])
