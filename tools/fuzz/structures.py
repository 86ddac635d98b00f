"""Fuzz what has a structure: python -m tools.fuzz.structures TARGET ... [--minutes M] [--seed S] [--trials N] [--counts FILE].

Bytes drawn at random are refused at the first look (``tools/fuzz/targets.py`` does that). Here something that is right is
changed in one or two places and sealed again, so that what is behind the seals is reached:

    job_file   steps with options of any value        options    one option of a fit at any value, and the fit
    manifest   of a store, which is then trained on   columns    tables of odd cells, read twice
    model      of a linear and of a kernel fit        dask       the same table as a file and as a data frame
    labels     columns of labels and weights         arrays     HDF5 and Zarr arrays of others, and their metadata
    model_text models as LIBLINEAR and LIBSVM write  report     what a run recorded, as a page
    tune       a search with settings of any value   arguments  the Python functions, with arguments of any type
    fits       every kind of problem, and the model      grids     a search of the same
    signals    SIGTERM at the n-th system call of a fit, then --resume (needs strace)

Of several targets the one that has had the least time is next. A trial ends well, or with a ``StreamSVMError``; anything
else, a hang, and an answer that is not right is a finding, printed with its seed, by which its target finds it again. Exit
code 1 when there is one. FILE holds the trials, seconds and findings of each target so far, whenever the search is ended.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamsvm.errors import StreamSVMError

TARGETS = {
    "job_file": "tools.fuzz.requests:job_file",
    "options": "tools.fuzz.requests:options",
    "manifest": "tools.fuzz.artifacts:manifest",
    "model": "tools.fuzz.artifacts:model",
    "columns": "tools.fuzz.tables:columns",
    "dask": "tools.fuzz.tables:frames",
    "labels": "tools.fuzz.tables:labels",
    "arrays": "tools.fuzz.faces:arrays",
    "model_text": "tools.fuzz.faces:model_text",
    "report": "tools.fuzz.faces:report",
    "tune": "tools.fuzz.faces:tune",
    "arguments": "tools.fuzz.faces:arguments",
    "fits": "tools.fuzz.kinds_of_fits:fits",
    "grids": "tools.fuzz.kinds_of_fits:grids",
    "signals": "tools.fuzz.interruptions:signals",
}
HANG_SECONDS = 2000
Trial = Callable[[random.Random], str]
"""One trial: returns in a word what became of it, raises AssertionError for what is wrong."""


@dataclasses.dataclass
class Tally:
    """What became of the trials of a target, by word, and what they took."""

    words: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    seconds: float = 0.0
    cpu: float = 0.0
    """Seconds of this process and of those it has begun."""

    def line(self) -> dict[str, Any]:
        """The tally as plain data."""
        found = sum(count for word, count in self.words.items() if word.startswith("FOUND"))
        spent = {"hours": round(self.seconds / 3600, 4), "cpu_hours": round(self.cpu / 3600, 4)}
        return {"trials": self.words.total(), "found": found, **spent, "words": dict(self.words.most_common())}


class Hang(AssertionError):
    """A trial that took too long."""


def _hang(*_: Any) -> None:
    raise Hang(f"more than {HANG_SECONDS} s")


def outcome(trial: Trial, draw: random.Random) -> str:
    """What became of a trial in a word; 'FOUND ...' for what should not have been."""
    signal.signal(signal.SIGALRM, _hang)
    signal.alarm(HANG_SECONDS)
    try:
        return trial(draw)
    except StreamSVMError as error:
        if error.exit_code in (1, 70):
            return f"FOUND {error}"
        return error.code
    except Exception as error:  # noqa: BLE001  whatever it is
        return f"FOUND {type(error).__name__}: {str(error)[:300]}\n{''.join(traceback.format_tb(error.__traceback__)[-3:])}"
    finally:
        signal.alarm(0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz what has a structure.")
    parser.add_argument("target", choices=TARGETS, nargs="+")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=10**9)
    parser.add_argument("--counts", type=Path, default=Path(os.devnull))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="streamsvm-fuzz-") as scratch:
        tallies = _searched(asked, Path(scratch))
    for target, tally in tallies.items():
        print(f"{target}: {tally.words.total()} trials from seed {asked.seed}")
        for word, count in tally.words.most_common():
            print(f"  {count:7d} {word}")
    sys.exit(any(tally.line()["found"] for tally in tallies.values()))


def _searched(asked: argparse.Namespace, scratch: Path) -> dict[str, Tally]:
    """What became of the trials of each target; findings are printed as they are made."""
    counts = asked.counts.absolute()
    trials = {target: _trial(target, scratch / target) for target in asked.target}
    tallies = {target: Tally() for target in trials}
    due, until = 0.0, time.monotonic() + 60.0 * asked.minutes
    for number in range(asked.seed, asked.seed + asked.trials):
        if time.monotonic() > until:
            break
        target = min(tallies, key=lambda name: tallies[name].seconds)
        os.chdir(scratch / target)
        _timed(tallies[target], target, number, trials[target])
        if time.monotonic() > due:
            _written(tallies, counts)
            due = time.monotonic() + 5.0
    _written(tallies, counts)
    return tallies


def _written(tallies: dict[str, Tally], counts: Path) -> None:
    counts.write_text(json.dumps({name: tally.line() for name, tally in tallies.items()}, indent=1))


def _timed(tally: Tally, target: str, number: int, trial: Trial) -> None:
    """One trial more in a tally."""
    began, cpu = time.monotonic(), sum(os.times()[:4])
    found = outcome(trial, random.Random(number))
    tally.seconds += time.monotonic() - began
    tally.cpu += sum(os.times()[:4]) - cpu
    tally.words[found.split("\n")[0][:60]] += 1
    if found.startswith("FOUND"):
        print(f"{target}, seed {number}: {found}", flush=True)


def _trial(target: str, place: Path) -> Trial:
    """What a trial of a target does, once what it needs is there."""
    module, _, name = TARGETS[target].partition(":")
    place.mkdir()
    os.chdir(place)
    made: Trial = getattr(importlib.import_module(module), name)(place)
    return made


if __name__ == "__main__":
    main()
