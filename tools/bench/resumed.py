"""Kills at random moments, each resumed in a control group of the memory limit: python tools/bench/resumed.py [--kills 40] [--seed 0].

Eight kinds of fit take turns. A fit is killed (SIGKILL) at a moment that is drawn from the time it takes uninterrupted, and resumed below its memory
limit. Printed: how often memory was above the limit, or the kernel ended the fit; whether the model has the bits of the uninterrupted one.
Exits 1 where either is wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import streamsvm as sv
from tools.bench.memory import limited
from tools.measure.harness import hardware

LIMIT = 320
"""MiB: --memory of every fit, and the limit of the control group it is resumed in."""
KINDS = {
    "newton hinge": ["--loss", "hinge", "--solver", "newton", "--tolerance", "1e-4"],
    "newton squared hinge": ["--solver", "newton", "--tolerance", "1e-4"],
    "newton logistic": ["--loss", "logistic", "--solver", "newton", "--tolerance", "1e-4"],
    "standardized": ["--loss", "hinge", "--standardize", "--solver", "newton"],
    "interior point": ["--loss", "hinge", "--solver", "interior_point", "--max-passes", "6"],
    "dcd": ["--loss", "hinge", "--solver", "dcd", "--max-passes", "8"],
    "sgd": ["--loss", "hinge", "--solver", "sgd", "--max-passes", "6"],
    "landmarks": ["--kernel", "rbf", "--landmarks", "100", "--embedding", "fly"],
}


def make_store(path: Path, rows: int, columns: int) -> None:
    """Write a store of two classes that overlap."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(rows, columns)).astype(np.float32)
    y = X @ draw.normal(size=columns) + 3.0 * draw.normal(size=rows) > 0.0
    sv.ingest(X, str(path), y=y.astype(int))


def command_of(store: Path, model: Path, options: list[str], *, resume: bool = False) -> list[str]:
    """Return the command of a fit that saves a checkpoint as often as it may."""
    command = [sys.executable, "-m", "streamsvm", "-q", "fit", str(store), str(model), *options]
    return [
        *command,
        "--memory",
        f"{LIMIT}MiB",
        "--threads",
        "1",
        "--checkpoint-every",
        "0.1s",
        *(["--resume"] if resume else []),
    ]


def digest_of(model: Path) -> str:
    """Return the sha256 of a model; nothing where there is none."""
    return hashlib.sha256(model.read_bytes()).hexdigest() if model.is_file() else ""


def kill_and_resume(place: Path, store: Path, options: list[str], moment: float, name: str) -> tuple[str, float, bool]:
    """Return the digest of the resumed model, the most anonymous MiB, and whether a checkpoint was there to resume from."""
    model = place / name
    process = subprocess.Popen(command_of(store, model, options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(moment)
    process.kill()
    process.wait()
    resumed = any((place / f"{name}.run" / "checkpoint").glob("ckpt-*"))
    row = limited(command_of(store, model, options, resume=True), LIMIT)
    over = float(row["peak anon MiB"]) if str(row["oom kills"]) == "0" else float("inf")
    found = digest_of(model)
    shutil.rmtree(place / f"{name}.run", ignore_errors=True)
    return found, over, resumed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--columns", type=int, default=496)
    parser.add_argument("--minutes", type=float, default=15.0, help="begin no other kill after so long")
    asked = parser.parse_args()
    draw, began, above, differ, made, resumptions = random.Random(asked.seed), time.monotonic(), 0, 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
        place = Path(folder)
        store = place / "s.zarr"
        make_store(store, asked.rows, asked.columns)
        whole: dict[str, tuple[str, float]] = {}
        for number in range(asked.kills):
            if time.monotonic() - began > 60.0 * asked.minutes:
                break
            kind = list(KINDS)[number % len(KINDS)]
            if kind not in whole:
                for _ in range(2):  # the first one compiles
                    start = time.monotonic()
                    subprocess.run(
                        command_of(store, place / "whole.ssvm", KINDS[kind]), check=True, capture_output=True
                    )
                    whole[kind] = digest_of(place / "whole.ssvm"), time.monotonic() - start
                    shutil.rmtree(place / "whole.ssvm.run")
                    (place / "whole.ssvm").unlink()
            expected, seconds = whole[kind]
            moment = draw.uniform(0.2, 1.0) * seconds
            found, peak, resumed = kill_and_resume(place, store, KINDS[kind], moment, f"m{number}.ssvm")
            above, differ, made = above + (peak > LIMIT), differ + (found != expected), made + 1
            resumptions += resumed
            same = "same bits" if found == expected else "OTHER BITS"
            print(
                f"{number:3d} {kind:<21} killed at {moment:5.1f} of {seconds:5.1f} s, peak {peak:6.1f} of {LIMIT} MiB, {same}",
                flush=True,
            )
    print(
        f"{made} kills, {resumptions} resumed from a checkpoint: memory above the limit {above} times, other bits {differ} times"
    )
    print(hardware())
    return int(above > 0 or differ > 0)


if __name__ == "__main__":
    sys.exit(main())
