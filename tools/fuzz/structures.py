"""Fuzz what has a structure: python -m tools.fuzz.structures TARGET ... [--minutes M] [--seed S] [--trials N].

Bytes drawn at random are refused at the first look (``tools/fuzz/targets.py`` does that). Here something that is right is
changed in one or two places and sealed again, so that what is behind the seals is reached:

    job_file   steps with options of any value        options    one option of a fit at any value, and the fit
    manifest   of a store, which is then trained on   columns    tables of odd cells, read twice
    model      of a linear and of a kernel fit        dask       the same table as a file and as a data frame
    labels     columns of labels and weights         arrays     HDF5 and Zarr arrays of others, and their metadata
    model_text models as LIBLINEAR and LIBSVM write  report     what a run recorded, as a page
    tune       a search with settings of any value   arguments  the Python functions, with arguments of any type
    signals    SIGTERM at the n-th system call of a fit, then --resume (needs strace)

Several targets take turns, trial by trial. A trial ends well, or with a ``StreamSVMError``; anything else, a hang, and an answer that is not right is a finding, printed
with its seed. Exit code 1 when there is one.
"""

from __future__ import annotations

import argparse
import collections
import importlib
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
    "signals": "tools.fuzz.interruptions:signals",
}
HANG_SECONDS = 2000
Trial = Callable[[random.Random], str]
"""One trial: returns in a word what became of it, raises AssertionError for what is wrong."""


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
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="streamsvm-fuzz-") as scratch:
        counts = _searched(asked, Path(scratch))
    for target, words in counts.items():
        print(f"{target}: {words.total()} trials from seed {asked.seed}")
        for word, count in words.most_common():
            print(f"  {count:7d} {word}")
    sys.exit(any(word.startswith("FOUND") for words in counts.values() for word in words))


def _searched(asked: argparse.Namespace, scratch: Path) -> dict[str, collections.Counter[str]]:
    """What became of the trials of each target, by word; findings are printed as they are made."""
    trials = {target: _trial(target, scratch / target) for target in asked.target}
    counts = {target: collections.Counter[str]() for target in trials}
    until = time.monotonic() + 60.0 * asked.minutes
    for number in range(asked.seed, asked.seed + asked.trials):
        if time.monotonic() > until:
            break
        target = asked.target[number % len(asked.target)]
        os.chdir(scratch / target)
        found = outcome(trials[target], random.Random(number))
        counts[target][found.split("\n")[0][:60]] += 1
        if found.startswith("FOUND"):
            print(f"{target}, seed {number}: {found}", flush=True)
    return counts


def _trial(target: str, place: Path) -> Trial:
    """What a trial of a target does, once what it needs is there."""
    module, _, name = TARGETS[target].partition(":")
    place.mkdir()
    os.chdir(place)
    made: Trial = getattr(importlib.import_module(module), name)(place)
    return made


if __name__ == "__main__":
    main()
