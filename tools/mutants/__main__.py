"""Change the program in one place and see whether the tests notice: python -m tools.mutants.

    python -m tools.mutants --planted                        the faults in PLANTED: every one must be noticed
    python -m tools.mutants --files 'streamsvm/schedule/*.py' --most 60 --seed 1 --minutes 15
    python -m tools.mutants --map-only                       only look which tests reach what
    python -m tools.mutants --compiled --files 'streamsvm/jobs/**/*.py' --tests tests/jobs

A mutant is one operator, constant, comparison or word of control exchanged in the syntax tree of a function (``changes``). It is
given the tests that reach the function (``reach``), the cheapest first, in a fork (``trial``), until one fails or takes too
long; what survives is given all others that reach it, those last that take long. Tests that import a file that is changed are looked at first, and those that there was no time for are named. Survivors are printed as a diff of a line, and counted. Passes run as Python, so that they can be changed, too; for files
that hold none ``--compiled`` is a lot faster. What tests reach is looked up once and kept in a file (--map);
a test file that changed is looked at anew. Exit code 1 when a planted fault survived.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tools.mutants.changes import REPOSITORY, Mutant, mutants, planted
from tools.mutants.reach import (
    COMPILING,
    LONGEST,
    Imports,
    Kept,
    Reach,
    Tracer,
    chosen,
    hash_of,
    imported_files,
    keep,
    known,
    packed,
    unpacked,
)
from tools.mutants.trial import OPTIONS, Trials

FOLDERS = ("compute", "solvers", "schedule", "engine", "features", "jobs", "contract", "store")
"""Folders of tests whose reach is looked up."""


def mapped(trials: Trials, kept: Path, until: float, *, compiled: bool, first: set[str]) -> tuple[Reach, list[str]]:
    """What the tests reach, and the files of tests that were not looked at in time; those that name ``first`` come first.

    ``first`` are the files that are changed: a test that was written for one imports it.
    """
    found = known(kept)
    reach: Reach = {}
    tests_of = trials.by_file()
    order = sorted(tests_of, key=lambda name: not first & imported_files(name))
    for name in order:
        tests = tests_of[name]
        if found.get(name, {}).get("hash") != hash_of(name) and time.monotonic() < until:
            found[name] = {"hash": hash_of(name), **_looked_at(trials, tests, kept.with_suffix(".seen"), compiled)}
            keep(kept, found)
            print(f"{name}: {len(found[name]['tests'])} of {len(tests)} tests", flush=True)
        if name in found:
            reach |= unpacked(found[name])
    return reach, [name for name in order if found.get(name, {}).get("hash") != hash_of(name)]


def _looked_at(trials: Trials, tests: list[str], seen: Path, compiled: bool) -> Kept:
    """What the tests of one file reach. One that took long may have waited for the compiler: it is looked at again."""
    seen.unlink(missing_ok=True)
    trials.run(tests, Tracer(seen, COMPILING if compiled else LONGEST))
    found = known(seen) or {"functions": [], "tests": {}}
    slow = [test for test, (seconds, _) in found["tests"].items() if compiled and seconds > LONGEST / 5]
    if not slow:
        return found
    seen.unlink()
    trials.run(slow, Tracer(seen))
    reach = {test: seen for test, seen in unpacked(found).items() if test not in slow}
    return packed(reach | unpacked(known(seen) or {"functions": [], "tests": {}}))


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Change the program in one place and see whether tests notice.")
    parser.add_argument("--planted", action="store_true", help="the faults that were planted once")
    parser.add_argument("--map-only", action="store_true", help="only look which tests reach what")
    parser.add_argument("--files", default="streamsvm/schedule/*.py", help="patterns, separated by commas")
    parser.add_argument("--functions", default="", help="a regular expression that is found in the names of theirs")
    parser.add_argument("--tests", default=",".join(f"tests/{name}" for name in FOLDERS), help="separated by commas")
    parser.add_argument("--most", type=int, default=40, help="mutants drawn of all files together")
    parser.add_argument("--first", type=int, default=0, help="leave out so many of them, which were tried before")
    parser.add_argument(
        "--only", default="", help="numbers of some of them, as they are printed: what survived other tests"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--map-minutes", type=float, default=30.0, help="how long to look which tests reach what")
    parser.add_argument("--compiled", action="store_true", help="passes run as machine code, and cannot be changed")
    parser.add_argument("--map", type=Path, help="the file that keeps which tests reach what")
    asked = parser.parse_args()
    name = "streamsvm-mutants-compiled.json" if asked.compiled else "streamsvm-mutants.json"
    asked.map = asked.map or Path(tempfile.gettempdir()) / name
    return asked


def _drawn(asked: argparse.Namespace) -> list[Mutant]:
    if asked.planted:
        return list(planted())
    files = sorted(path for pattern in asked.files.split(",") for path in REPOSITORY.glob(pattern))
    wanted = re.compile(asked.functions)
    found = [one for path in files for one in mutants(path) if one.function and wanted.search(one.function)]
    random.Random(asked.seed).shuffle(found)
    if asked.only:
        return [found[int(number) - 1] for number in asked.only.split(",")]
    return found[asked.first : asked.most]


def _try(asked: argparse.Namespace, trials: Trials) -> None:
    """Look up what is reached, try the mutants and print what became of them."""
    until = time.monotonic() + 60.0 * asked.minutes
    drawn, imports = [] if asked.map_only else _drawn(asked), Imports()
    paths = {mutant.path for mutant in drawn}
    looking = until if asked.map_only else time.monotonic() + 60.0 * asked.map_minutes
    reach, unknown = mapped(trials, asked.map, looking, compiled=asked.compiled, first=paths)
    trials.load(paths)
    survived = tried = 0
    for mutant in drawn:
        if time.monotonic() > until:
            break
        first, wider = chosen(reach, mutant.path, mutant.function, imports.users(mutant.path))
        alive = _survives(trials, mutant, first, reach) and _survives(trials, mutant, wider, reach)
        tried += 1
        survived += alive
        if alive or asked.planted:
            word = "SURVIVED" if alive else "noticed "
            print(
                f"{word} {tried}: {mutant.path}:{mutant.number} ({len(first)} and {len(wider)} tests): {mutant.was} -> {mutant.now}",
                flush=True,
            )
    print(
        f"{tried} mutants of seed {asked.seed} from {asked.first}, {survived} survived ({survived / max(tried, 1):.0%})"
    )
    if unknown:
        print(f"nobody knows what these reach, and no share is to be claimed: {', '.join(unknown)}")
    trials.failed = bool(asked.planted and survived)


def _survives(trials: Trials, mutant: Mutant, tests: list[str], reach: Reach) -> bool:
    """Whether a mutant survives some tests; those that take long are looked at first without it."""
    slow = trials.passing([test for test in tests if reach[test][0] > LONGEST])
    tests = [test for test in tests if reach[test][0] <= LONGEST or test in slow]
    usual = sum(reach[test][0] for test in tests)
    return not tests or not trials.knows(mutant) or trials.survives(mutant, tests, usual)


def main() -> None:
    asked = _asked()
    os.environ |= {"NUMBA_DISABLE_JIT": str(int(not asked.compiled)), "HYPOTHESIS_PROFILE": "ci"}
    os.chdir(REPOSITORY)
    trials = Trials(lambda trials: _try(asked, trials))
    with tempfile.TemporaryDirectory(prefix="streamsvm-mutants-") as scratch:
        words = [*OPTIONS, f"--basetemp={scratch}/tests", *asked.tests.split(",")]
        ended = int(pytest.main(words, plugins=[trials]))
    sys.exit(ended or trials.failed)


if __name__ == "__main__":
    main()
