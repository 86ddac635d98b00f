"""Change the program in one place and see whether the tests notice: python -m tools.mutants.

    python -m tools.mutants --planted                        the faults in PLANTED: every one must be noticed
    python -m tools.mutants --files 'streamsvm/schedule/*.py' --most 60 --seed 1 --minutes 15
    python -m tools.mutants --map-only                       only look which tests reach what

A mutant is one operator, constant, comparison or word of control exchanged in the syntax tree of a function (``changes``). All
tests that reach the function (``reach``) run in a fork (``trial``) until one fails or hangs: first those that noticed other
mutants, trajectories and the contract suite, and what is cheap. A mutant survives that all of them let live; one that
there was no time for (--longest) is undecided, and counted apart. Both are printed as a diff of a line. What tests reach
is looked up once and kept in a file (--map), as is what they noticed; a test file that changed is looked at anew. Exit code 1
when a planted fault survived.
"""

from __future__ import annotations

import argparse
import collections
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
    hash_of,
    imported_files,
    keep,
    known,
    ordered,
    packed,
    unpacked,
)
from tools.mutants.trial import OPTIONS, Trials

FOLDERS = (
    "golden/test_trajectories.py",
    "compute",
    "solvers",
    "schedule",
    "engine",
    "features",
    "jobs",
    "contract",
    "store",
    "api",
    "calibration",
    "display",
    "model",
    "sklearn",
    "test_audit.py",
    "test_cli.py",
    "test_config.py",
    "test_durable.py",
    "test_hints.py",
    "test_kernels.py",
    "test_losses.py",
    "test_memory.py",
    "test_outputs.py",
    "fault/test_determinism.py",
    "fault/test_models.py",
    "fault/test_odd_settings.py",
    "fault/test_resume.py",
)
"""Folders and files of tests whose reach is looked up. Others test programs, which a change does not get into, or what is damaged."""


def mapped(trials: Trials, kept: Path, until: float, first: set[str]) -> tuple[Reach, list[str]]:
    """What the tests reach, and the files of tests that were not looked at in time; those that name ``first`` come first.

    ``first`` are the files that are changed: a test that was written for one imports it.
    """
    found = known(kept)
    reach: Reach = {}
    tests_of = trials.by_file()
    hashes = {name: hash_of(name) for name in tests_of}  # as collected: a file may change while others are looked at
    order = sorted(tests_of, key=lambda name: not first & imported_files(name))
    for name in order:
        tests = tests_of[name]
        if found.get(name, {}).get("hash") != hashes[name] and time.monotonic() < until:
            found[name] = {"hash": hashes[name], **_looked_at(trials, tests, kept.with_suffix(".seen"))}
            keep(kept, found)
            print(f"{name}: {len(found[name]['tests'])} of {len(tests)} tests", flush=True)
        if name in found:
            reach |= unpacked(found[name])
    return reach, [name for name in order if found.get(name, {}).get("hash") != hashes[name]]


def _looked_at(trials: Trials, tests: list[str], seen: Path) -> Kept:
    """What the tests of one file reach. One that took long may have waited for the compiler: it is looked at again."""
    seen.unlink(missing_ok=True)
    trials.run(tests, Tracer(seen, COMPILING))
    found = known(seen) or {"functions": [], "tests": {}}
    slow = [test for test, (seconds, _) in found["tests"].items() if seconds > LONGEST / 5]
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
    parser.add_argument("--only", default="", help="numbers of some of them, as they are printed: what survived before")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--map-minutes", type=float, default=30.0, help="how long to look which tests reach what")
    parser.add_argument("--longest", type=float, default=4.0, help="minutes that a mutant is given at most")
    parser.add_argument("--map", type=Path, help="the file that keeps which tests reach what")
    asked = parser.parse_args()
    asked.map = asked.map or Path(tempfile.gettempdir()) / "streamsvm-mutants.json"
    return asked


def _drawn(asked: argparse.Namespace) -> list[tuple[int, Mutant]]:
    """The mutants that are tried, with the places they have in the draw: what becomes known as equivalent moves no other."""
    if asked.planted:
        return list(enumerate(planted(), 1))
    files = sorted({path for pattern in asked.files.split(",") for path in REPOSITORY.glob(pattern)})
    wanted = re.compile(asked.functions)
    found = [one for path in files for one in mutants(path) if one.function and wanted.search(one.function)]
    random.Random(asked.seed).shuffle(found)
    numbered = [(number, one) for number, one in enumerate(found, 1) if not one.equivalent]
    if asked.only:
        only = set(map(int, asked.only.split(",")))
        return [(number, one) for number, one in numbered if number in only]
    return numbered[asked.first : asked.most]


def _try(asked: argparse.Namespace, trials: Trials) -> None:
    """Look up what is reached, try the mutants and print what became of them."""
    until = time.monotonic() + 60.0 * asked.minutes
    drawn = [] if asked.map_only else _drawn(asked)
    paths = {mutant.path for _, mutant in drawn}
    looking = until if asked.map_only else time.monotonic() + 60.0 * asked.map_minutes
    reach, unknown = mapped(trials, asked.map, looking, paths)
    trials.load(paths)
    choice = _Choice(reach, asked.map.with_suffix(".kills"))
    ended: collections.Counter[str] = collections.Counter()
    for number, mutant in drawn:
        if time.monotonic() > until:
            break
        costs = choice.tests(trials, mutant)
        killer, left = trials.noticed_by(mutant, costs, 60.0 * asked.longest)
        choice.note(killer)
        word = "noticed" if killer else "UNDECIDED" if left else "SURVIVED"
        ended[word] += 1
        told = killer or f"{len(costs) - len(left)} of {len(costs)} tests"
        print(f"{word} {number}: {mutant.path}:{mutant.number}: {mutant.was} -> {mutant.now} ({told})", flush=True)
    survived, decided = ended["SURVIVED"], max(ended["SURVIVED"] + ended["noticed"], 1)
    print(
        f"{ended.total()} mutants of seed {asked.seed} from {asked.first}: {survived} survived ({survived / decided:.0%} "
        f"of what is decided), {ended['UNDECIDED']} undecided"
    )
    if unknown:
        print(f"nobody knows what these reach, and no share is to be claimed: {', '.join(unknown)}")
    trials.failed = bool(asked.planted and survived + ended["UNDECIDED"])


class _Choice:
    """Which tests a mutant is given, in which order, and what they have noticed so far."""

    def __init__(self, reach: Reach, kept: Path) -> None:
        self._reach, self._kept, self._imports = reach, kept, Imports()
        self._kills = collections.Counter(known(kept))

    def tests(self, trials: Trials, mutant: Mutant) -> dict[str, float]:
        """All tests that reach what a mutant changes, with what each takes."""
        places = {f"{mutant.path}::{mutant.outermost}"} | trials.callers(mutant)
        return ordered(self._reach, places, ({mutant.path}, self._imports.users(mutant.path)), self._kills)

    def note(self, killer: str) -> None:
        """Keep which test noticed a mutant."""
        if killer:
            self._kills[killer] += 1
            keep(self._kept, dict(self._kills))


def main() -> None:
    asked = _asked()
    os.environ |= {"HYPOTHESIS_PROFILE": "ci"}
    os.chdir(REPOSITORY)
    trials = Trials(lambda trials: _try(asked, trials))
    with tempfile.TemporaryDirectory(prefix="streamsvm-mutants-") as scratch:
        words = [*OPTIONS, f"--basetemp={scratch}/tests", *asked.tests.split(",")]
        ended = int(pytest.main(words, plugins=[trials]))
    sys.exit(ended or trials.failed)


if __name__ == "__main__":
    main()
