"""Which tests reach a function: seen as they run, kept in a file, and chosen from for a mutant, the cheapest first.

A test reaches the functions that are called in its process, in any thread; passes are machine code, and who calls one is
known by its name. What another process calls is not seen. The map of a test file is made anew when the file changes; functions are known by name, so
that lines may move.
"""

from __future__ import annotations

import ast
import collections
import hashlib
import json
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tools.mutants.changes import REPOSITORY

FIRST = ("tests/golden/", "tests/contract/")
"""Suites that are about every solver: all their cases that reach a function come as early as one of any other test."""
LONGEST = 5.0
"""CPU seconds of a test; what one that takes longer reaches until then is known, and it comes last."""
SLOW = 30.0
"""CPU seconds that one is thought to take."""
COMPILING = 90.0
"""The same the first time: passes may be compiled then."""
Reach = dict[str, tuple[float, list[str]]]
"""Of every test its CPU seconds, compilations apart, and the functions it reaches as 'path::qualified.name'."""
Kept = dict[str, Any]
"""As it is kept, by test file: its hash, a list of functions, and of every test the seconds and numbers in that list."""


class Tracer:
    """A plugin of pytest that notes the functions of the package each test calls. What fails is left out.

    What is known is kept in ``seen`` after every test, so that a file that takes too long is known as far as it got.
    """

    def __init__(self, seen: Path, longest: float = LONGEST) -> None:
        self.reach: Reach = {}
        self._kept, self._longest = seen, longest
        self._seen: set[types.CodeType] = set()
        self._slow = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Run one test, watched."""
        self._seen, self._slow = set(), False
        begun = _cpu_seconds()
        signal.signal(signal.SIGPROF, self._too_long)
        signal.setitimer(signal.ITIMER_PROF, self._longest)
        threading.settrace(self._called)
        sys.settrace(self._called)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            sys.settrace(None)
            threading.settrace(None)
            if item.nodeid not in self.reach:
                seconds = SLOW if self._slow else min(round(_cpu_seconds() - begun, 3), self._longest)
                self.reach[item.nodeid] = (seconds, self._names())
            keep(self._kept, packed(self.reach))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that does not pass says nothing about a mutant."""
        if not report.passed:
            if not self._slow:
                self.reach[report.nodeid] = (0.0, [])
            report.outcome = "passed"

    def _too_long(self, *_: Any) -> None:
        self._slow = True
        sys.settrace(None)
        raise TimeoutError("more than a test may take that is run for mutants at first")

    def _called(self, frame: types.FrameType, *_: Any) -> None:
        self._seen.add(frame.f_code)

    def _names(self) -> list[str]:
        package = f"{REPOSITORY}/streamsvm/"
        return sorted(
            f"{os.path.relpath(code.co_filename, REPOSITORY)}::{code.co_qualname}"
            for code in self._seen
            if code.co_filename.startswith(package)
        )


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


def known(path: Path) -> Kept:
    """The map that was kept; empty where there is none."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def keep(path: Path, found: Kept) -> None:
    """Write the map, whole or not at all."""
    path.with_suffix(".new").write_text(json.dumps(found), encoding="utf-8")
    path.with_suffix(".new").replace(path)


def packed(reach: Reach) -> Kept:
    """The reach of the tests of a file, every function named once."""
    functions = sorted({name for _, called in reach.values() for name in called})
    number = {name: k for k, name in enumerate(functions)}
    tests = {test: (seconds, [number[name] for name in called]) for test, (seconds, called) in reach.items()}
    return {"functions": functions, "tests": tests}


def unpacked(found: Kept) -> Reach:
    """The reach of the tests of a file."""
    names = found["functions"]
    return {test: (seconds, [names[k] for k in called]) for test, (seconds, called) in found["tests"].items()}


def hash_of(name: str) -> str:
    """What a map of a test file is known to be of."""
    return hashlib.sha256((REPOSITORY / name).read_bytes()).hexdigest()[:16]


def ordered(tests: Reach, places: set[str], files: tuple[set[str], ...], kills: Mapping[str, int]) -> dict[str, float]:
    """All tests that reach one of some functions with the CPU seconds of each: what noticed other mutants and what is cheap first.

    A case of a test function counts for as much as all cheaper cases of it together: a table of quick ones comes early, of
    slow ones only the first. Where nobody was seen to call the functions those count that call anything of the first of some
    sets of files that anybody calls.
    """
    reaching = _reaching(tests, places, files)
    spent: dict[str, float] = collections.defaultdict(float)
    order = []
    for name in sorted(reaching, key=lambda name: (_rank(name, reaching, kills), name)):
        spent[_suite(name)] += _rank(name, reaching, kills)
        together = _rank(name, reaching, kills) if name.startswith(FIRST) else spent[_suite(name)]
        order.append((reaching[name] > LONGEST, together, name))
    return {name: reaching[name] for *_, name in sorted(order)}


def _rank(name: str, reaching: dict[str, float], kills: Mapping[str, int]) -> float:
    return reaching[name] / (1 + kills.get(name, 0))


def _suite(name: str) -> str:
    return name.partition("[")[0]


def _reaching(tests: Reach, places: set[str], files: tuple[set[str], ...]) -> dict[str, float]:
    """The tests that reach some functions, else one of the sets of files, with the seconds of each."""
    reaching = {name: seconds for name, (seconds, called) in tests.items() if not places.isdisjoint(called)}
    for some in files:
        reaching = reaching or {
            name: seconds
            for name, (seconds, called) in tests.items()
            if any(place.partition("::")[0] in some for place in called)
        }
    return reaching


def imported_files(name: str) -> set[str]:
    """The files of the package that a file imports by itself, for types only among them."""
    nodes = ast.walk(ast.parse((REPOSITORY / name).read_bytes()))
    modules = {module.replace(".", "/") for node in nodes for module in _names(node) if module.startswith("streamsvm")}
    return {path for module in modules for path in (f"{module}.py", f"{module}/__init__.py")}


class Imports:
    """Which files of the package import which."""

    def __init__(self) -> None:
        files = (REPOSITORY / "streamsvm").glob("**/*.py")
        parsed = {str(file.relative_to(REPOSITORY)): ast.walk(ast.parse(file.read_bytes())) for file in files}
        self._imported = {file: {name for node in nodes for name in _names(node)} for file, nodes in parsed.items()}

    def users(self, path: str) -> set[str]:
        """The files that import one."""
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return {file for file, names in self._imported.items() if module in names}


def _names(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {name.name for name in node.names}
    if isinstance(node, ast.ImportFrom) and node.module:
        return {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return set()
