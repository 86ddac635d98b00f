"""Mutants in forks of one session of pytest: all is loaded and collected once, a trial takes no longer than its tests.

Nothing is written. A fork exchanges the code of the function that the mutant changes, in every function object made of it, and
runs the tests it was given until one fails or takes too long. Passes that the change is in run as Python there. Whether it was
the mutant, or passes that are slow as Python, is seen from the same test without the mutant.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import tempfile
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tools.mutants.as_python import Passes, all_passes, inlining, put_in_place, refers
from tools.mutants.changes import REPOSITORY, Mutant

IGNORED = "ignore::RuntimeWarning"
"""Python tells of whole numbers that wrap around and of divisions by 0 where compiled passes do not."""
OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", IGNORED)
SECONDS, TIMES = 20.0, 5.0
"""CPU seconds, and times what it usually takes, after which a test hangs."""
IDLE = 15.0
"""Seconds by the clock without work, neither of its own nor of a program that it began, after which a test waits for ever."""
NOTICED = 1
ALL_PASS = "all pass"


class Ended(NamedTuple):
    """How some tests ended."""

    test: str
    """The one that failed or hung, the one it was stopped at; empty where all passed."""
    failed: bool


class Trials:
    """A plugin of pytest: instead of the tests it runs ``work``, which asks for trials."""

    def __init__(self, work: Callable[[Trials], None]) -> None:
        self._work = work
        self.failed = False
        self._items: dict[str, pytest.Item] = {}
        self._of_no_use: set[tuple[frozenset[int], str]] = set()
        self._package: list[types.FunctionType] = []
        self._functions: dict[tuple[str, str], list[types.FunctionType]] = defaultdict(list)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do the work, once all tests are known."""
        self._items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # what tests/conftest.py freezes is not found below
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

    def run(self, names: list[str], plugin: object) -> None:
        """Run tests in a fork, in this order, until one fails, with one more plugin of pytest."""
        child = os.fork()
        if child == 0:
            os._exit(self._child(names, plugin))
        _watched(child, {}, None, float("inf"))

    def passes_of(self, mutant: Mutant) -> Passes:
        """The passes that are made of the function a mutant changes."""
        return inlining(all_passes(), self._functions[mutant.path, mutant.outermost])

    def callers(self, mutant: Mutant) -> set[str]:
        """The functions that call a pass that a mutant changes, as 'path::qualified.name'."""
        passes = self.passes_of(mutant)
        if not passes:
            return set()
        if not self._package:
            self._package = [
                found for found in gc.get_objects() if isinstance(found, types.FunctionType) and _is_ours(found)
            ]
        called = (found.__code__ for found in self._package if refers(found, passes))
        return {f"{os.path.relpath(code.co_filename, REPOSITORY)}::{_outermost(code)}" for code in called}

    def noticed_by(self, mutant: Mutant, costs: dict[str, float], longest: float) -> tuple[str, list[str]]:
        """The test that notices a mutant, and those there was no time for, of tests with what each takes, in this order."""
        passes = self.passes_of(mutant)
        left, until = [name for name in costs if (frozenset(passes), name) not in self._of_no_use], longest
        while left and until > 0.0:
            begun = time.monotonic()
            ended = self._trial(left, costs, until, passes, mutant)
            until -= time.monotonic() - begun
            if not ended.test:
                return "", []
            if ended.failed and not self._trial([ended.test], costs, longest, passes).test:
                return ended.test, []
            if ended.failed:
                self._of_no_use.add((frozenset(passes), ended.test))
            left = left[left.index(ended.test) + ended.failed :]
        return "", left

    def _trial(
        self, names: list[str], costs: dict[str, float], longest: float, passes: Passes, mutant: Mutant | None = None
    ) -> Ended:
        """Run tests in a fork, with a mutant in place, or none."""
        with tempfile.TemporaryDirectory() as scratch:
            at = Path(scratch) / "test"
            at.write_text(names[0], encoding="utf-8")
            child = os.fork()
            if child == 0:
                put_in_place(passes)
                if mutant:
                    self._exchange(mutant)
                os._exit(self._child(names, _Telling(at)))
            failed = _watched(child, costs, at, longest)
            test = at.read_text(encoding="utf-8")
            return Ended("" if test == ALL_PASS else test, failed)

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
            if isinstance(plugin, _Telling):
                plugin.tell(ALL_PASS)
        except BaseException:  # noqa: BLE001  whatever a mutant does, it was noticed
            return NOTICED
        return 0

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


class _Telling:
    """A plugin of pytest that writes into a file which test it is at."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def tell(self, what: str) -> None:
        """Write it, whole or not at all."""
        new = self._file.with_suffix(".new")
        new.write_text(what, encoding="utf-8")
        new.replace(self._file)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write the name of the test that begins."""
        self.tell(nodeid)


def _codes(whole: types.CodeType) -> Iterator[types.CodeType]:
    """The code of every function of a module, however deep."""
    for part in whole.co_consts:
        if isinstance(part, types.CodeType):
            yield part
            yield from _codes(part)


def _is_ours(function: types.FunctionType) -> bool:
    return str(function.__module__).startswith("streamsvm.")


def _outermost(code: types.CodeType) -> str:
    return code.co_qualname.partition(".<locals>")[0]


def _cpu_seconds(process: int) -> float:
    """What a process and the children it has waited for have used."""
    with open(f"/proc/{process}/stat", encoding="ascii") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:15])) / os.sysconf("SC_CLK_TCK")


class _Pace:
    """Whether the test that a fork is at takes too long, or waits for what does not come."""

    def __init__(self, child: int, costs: dict[str, float]) -> None:
        self._child, self._costs = child, costs
        self._test, self._began = "", 0.0
        self._used, self._since = 0.0, time.monotonic()
        self.hangs = False

    def look(self, test: str) -> None:
        """Look at the fork, which is at this test now."""
        used, now = _cpu_seconds(self._child), time.monotonic()
        if test != self._test:
            self._test, self._began, self._since = test, used, now
        if used > self._used + 0.05:
            self._used, self._since = used, now
        waits = now - self._since > IDLE and not psutil.Process(self._child).children()
        self.hangs = waits or used - self._began > SECONDS + TIMES * self._costs.get(test, 0.0)


def _watched(child: int, costs: dict[str, float], at: Path | None, longest: float) -> bool:
    """Whether the test a fork is at failed or hung; with the fork ends all that it began, after ``longest`` seconds at the latest."""
    ended, until, pace = (0, 0), time.monotonic() + longest, _Pace(child, costs)
    while not ended[0] and not pace.hangs and time.monotonic() < until:
        time.sleep(0.02)
        if at:
            pace.look(at.read_text(encoding="utf-8"))
        ended = os.waitpid(child, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended[0]:
        os.waitpid(child, 0)
        return pace.hangs
    return os.waitstatus_to_exitcode(ended[1]) != 0
