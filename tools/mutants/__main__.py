"""Change the program in one place and see whether the tests notice: python -m tools.mutants.

    python -m tools.mutants --planted                        the faults in PLANTED: every one must be noticed
    python -m tools.mutants --files 'streamsvm/schedule/*.py' --most 60 --seed 1 --minutes 15
    python -m tools.mutants --map-only                       only look which tests reach what

A mutant is one operator, constant, comparison or word of control exchanged in the syntax tree (``changes``). It is written into
a copy of the repository, where the tests run that reach the function it is in (``reach``), the cheapest first, until one fails
or hangs (``trial``). Survivors are printed as a diff of a line, and counted. What tests reach is looked up once and kept, with
the copy, in a folder outside of the repository (--scratch); a test file that changed is looked at anew.
Exit code 1 when a planted fault survived.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tools.mutants.changes import REPOSITORY, Mutant, mutants, planted
from tools.mutants.reach import Imports, Kept, Reach, Tracer, chosen, keep, known, packed, test_files, unpacked
from tools.mutants.trial import Trials, copied

FOLDERS = ("compute", "solvers", "schedule", "engine", "features", "jobs", "contract", "store")
"""Folders of tests, besides the files beside them, whose reach is looked up."""


def mapped(trials: Trials, tree: Path, kept: Path, folders: list[str], until: float) -> Reach:
    """What the tests of some folders reach, of those files that were looked at in time."""
    found = known(kept)
    reach: Reach = {}
    for name, digest in test_files(tree, folders).items():
        if found.get(name, {}).get("hash") != digest and time.monotonic() < until:
            found[name] = {"hash": digest, **_looked_at(trials, tree, name, kept.with_name("seen.json"))}
            keep(kept, found)
            print(f"{name}: {len(found[name]['tests'])} tests", flush=True)
        if name in found:
            reach |= unpacked(found[name])
    return reach


def _looked_at(trials: Trials, tree: Path, name: str, seen: Path) -> Kept:
    """What the tests of one file reach."""
    seen.unlink(missing_ok=True)
    tracer = Tracer(tree)
    trials.tests([name], tracer, lambda: keep(seen, packed(tracer.reach)))
    return known(seen) or {"functions": [], "tests": {}}


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Change the program in one place and see whether tests notice.")
    parser.add_argument("--planted", action="store_true", help="the faults that were planted once")
    parser.add_argument("--map-only", action="store_true", help="only look which tests reach what")
    parser.add_argument("--files", default="streamsvm/schedule/*.py", help="patterns, separated by commas")
    parser.add_argument("--tests", default=",".join(FOLDERS), help="folders of tests, separated by commas")
    parser.add_argument("--most", type=int, default=40, help="mutants drawn of all files together")
    parser.add_argument("--first", type=int, default=0, help="leave out so many of them, which were tried before")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "streamsvm-mutants")
    return parser.parse_args()


def _drawn(asked: argparse.Namespace) -> list[Mutant]:
    if asked.planted:
        return list(planted())
    files = sorted(path for pattern in asked.files.split(",") for path in REPOSITORY.glob(pattern))
    found = [mutant for path in files for mutant in mutants(path)]
    random.Random(asked.seed).shuffle(found)
    return found[asked.first : asked.most]


def _tried(
    trials: Trials, tree: Path, reach: Reach, drawn: list[Mutant], until: float
) -> Iterator[tuple[Mutant, int, int]]:
    """Of every mutant that was tried in time: the tests it was given, and how they ended."""
    imports = Imports(tree)
    for mutant in drawn:
        if time.monotonic() > until:
            return
        tests = chosen(reach, mutant.path, mutant.function, imports.users(mutant.path))
        ended = trials.with_file(mutant.path, mutant.text, tests) if tests else 0
        yield mutant, len(tests), ended


def main() -> None:
    asked = _asked()
    until = time.monotonic() + 60.0 * asked.minutes
    asked.scratch.mkdir(exist_ok=True, mode=0o700)
    tree = asked.scratch / "tree"
    copied(REPOSITORY, tree)
    trials = Trials(tree)
    reach = mapped(trials, tree, asked.scratch / "reach.json", asked.tests.split(","), until)
    if asked.map_only:
        return
    survived, tried = 0, 0
    for mutant, tests, ended in _tried(trials, tree, reach, _drawn(asked), until):
        tried += 1
        survived += ended == 0
        if ended == 0 or asked.planted:
            word = "SURVIVED" if ended == 0 else "noticed "
            print(f"{word} {mutant.path}:{mutant.number} ({tests} tests): {mutant.was} -> {mutant.now}", flush=True)
    share = survived / tried if tried else 0.0
    print(f"{tried} mutants of seed {asked.seed} from {asked.first}, {survived} survived ({share:.0%})")
    sys.exit(bool(asked.planted and survived))


if __name__ == "__main__":
    main()
