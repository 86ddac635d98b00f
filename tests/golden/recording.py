"""Record the ways of all fits anew, or draw more of them: python -m tests.golden.recording.

    python -m tests.golden.recording                  every fit of cases.py and drawn.json, on this processor and as on others
    python -m tests.golden.recording --draw 50 --seed 3    and so many more in drawn.json
    python -m tests.golden.recording --widen          what is recorded stays; fits that go further apart here may do so from now on

Look at what has changed in the two files before it is landed. A fit that takes long is not drawn. Each fit is made with C, or what
stands for it, moved by a few roundings, and again with the products and the machine code of older processors, each in a program
of its own: what it does the same all the time is recorded, and how near others have to come.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.golden.cases import CASES, OF_KERNELS, Settings
from tests.golden.drawn import drawn
from tests.golden.tables import stores_in
from tests.golden.ways import Way, differences, joined, way_of

PLACE = Path(__file__).parent
TRAJECTORIES, DRAWN = PLACE / "trajectories.json", PLACE / "drawn.json"
MOVED = (0.0, 1e-13, -3e-13)
"""Relative: about as much as another order of a sum makes."""
PROCESSORS = (
    {"OPENBLAS_CORETYPE": "Prescott"},
    {"OPENBLAS_CORETYPE": "Haswell"},
    {"OPENBLAS_CORETYPE": "SkylakeX"},
    {"NUMBA_CPU_NAME": "x86-64-v2", "NUMBA_CPU_FEATURES": "", "OPENBLAS_CORETYPE": "Zen"},
)
LONGEST = 0.4
"""CPU seconds of a fit that is drawn, when its passes are compiled."""


def main() -> None:
    """Draw, try and write."""
    parser = argparse.ArgumentParser(description="Record the ways of fits.")
    parser.add_argument("--draw", type=int, default=0, help="how many more fits are drawn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--widen", action="store_true", help="only allow for this processor what it does otherwise")
    parser.add_argument("--tried", type=Path, help=argparse.SUPPRESS)  # in a program of its own: what it writes
    asked = parser.parse_args()
    kept = json.loads(DRAWN.read_text(encoding="utf-8")) if DRAWN.exists() else {}
    if asked.tried:
        of_all = json.loads(asked.tried.read_text(encoding="utf-8"))
        asked.tried.write_text(json.dumps(_tried(of_all, MOVED[:1])), encoding="utf-8")
        return
    if asked.widen:
        for file in (TRAJECTORIES, DRAWN):
            _widen(file)
        return
    of_drawn = {name: found["settings"] for name, found in kept.items()} | _more(asked.draw, asked.seed, kept)
    everything = CASES | of_drawn
    ways = _everywhere(everything)
    found = {name: joined(ways[name], _of_float32(everything[name])) for name in everything}
    _write(TRAJECTORIES, {name: found[name] for name in CASES})
    _write(DRAWN, {name: {"settings": of_drawn[name]} | found[name] for name in of_drawn})


def _more(count: int, seed: int, kept: dict[str, Any]) -> dict[str, Settings]:
    """Settings that are drawn, of which one in ten at most is refused, and which do not take long."""
    draw = random.Random(seed)
    found: dict[str, Settings] = {}
    first = 1 + max((int(name.partition(":")[0]) for name in kept), default=-1)
    with tempfile.TemporaryDirectory() as scratch:
        places, refused = stores_in(Path(scratch)), 0
        while len(found) < count:
            settings = drawn(draw)
            for _ in range(2):
                begun = time.process_time()
                way = way_of(places[settings["of"]], settings, Path(scratch) / "m")
                seconds = time.process_time() - begun
            if seconds > LONGEST or ("refused" in way and refused > len(found) // 10):
                continue
            refused += "refused" in way
            found[f"{first + len(found)}: {settings.get('solver', 'any')}, {settings['of']}"] = settings
    return found


def _widen(file: Path) -> None:
    """Let the ways in a file be as far apart as they are on this processor; names those it is needed for.

    One that was drawn and goes somewhere else altogether is drawn no longer.
    """
    recorded: dict[str, Way] = json.loads(file.read_text(encoding="utf-8"))
    settings = CASES if file == TRAJECTORIES else {name: way["settings"] for name, way in recorded.items()}
    here = _tried(settings, MOVED[:1])
    further = [name for name, (found,) in here.items() if differences(found, recorded[name])]
    for name, found in _everywhere({name: settings[name] for name in further}).items():
        wider = joined([recorded[name], *found], _of_float32(settings[name]))
        sys.stdout.write(f"{name}: {differences(here[name][0], recorded[name])}, within {wider['near']} from now on\n")
        recorded[name] |= wider
        if file == DRAWN and differences(here[name][0], wider):
            del recorded[name]
    _write(file, recorded)


def _everywhere(everything: dict[str, Settings]) -> dict[str, list[Way]]:
    """The ways of every fit: here, with C moved by a few roundings, and as on other processors whose instructions this one has."""
    ways = _tried(everything, MOVED)
    for environment in PROCESSORS:
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "ways"
            file.write_text(json.dumps(everything), encoding="utf-8")
            word = [sys.executable, "-m", "tests.golden.recording", "--tried", str(file)]
            ended = subprocess.run(word, env=os.environ | environment, check=False)
            if ended.returncode == -signal.SIGILL:
                continue
            ended.check_returncode()
            for name, more in json.loads(file.read_text(encoding="utf-8")).items():
                ways[name] += more
    return ways


def _tried(everything: dict[str, Settings], moved: tuple[float, ...]) -> dict[str, list[Way]]:
    with tempfile.TemporaryDirectory() as scratch:
        places = stores_in(Path(scratch))
        return {
            name: [way_of(places[settings["of"]], _moved(settings, by), Path(scratch) / "m") for by in moved]
            for name, settings in everything.items()
        }


def _moved(settings: Settings, by: float) -> Settings:
    """The settings with what weighs the losses moved by a share of itself."""
    name = next((name for name in ("nu", "l1_ball") if name in settings), "C")
    value = settings.get(name, 1.0)
    return settings | {name: [each * (1.0 + by) for each in value] if isinstance(value, list) else value * (1.0 + by)}


def _of_float32(settings: Settings) -> bool:
    """Whether the solver sees numbers that were rounded to float32: of kernels."""
    return "kernel" in settings or settings.get("solver") in OF_KERNELS


def _write(file: Path, found: dict[str, Any]) -> None:
    lines = (f"{json.dumps(name)}: {json.dumps(way)}" for name, way in found.items())
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
