"""The fault program in full: python tools/soak.py [--minutes 60] [--seed 0]. Opt-in; prints a table, exits 1 on a failure.

Kills at every durable step and at random ones, power cuts, flipped bits and tampered models, with data and options drawn
anew each round. The fast tier, in tests/fault, does a fixed small part of the same.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fault import test_corruption as corruption
from tests.fault import test_models as tampering
from tests.fault import test_power as power
from tests.fault.golden import digest_of, ingested, leftovers, write_table
from tests.fault.killing import Server

KILLED = -9
COUNTS: Counter[str] = Counter()
FAILURES: Counter[str] = Counter()


def judge(part: str, good: bool, what: str) -> None:
    """Count one trial."""
    COUNTS[part] += 1
    if not good:
        FAILURES[part] += 1
        print(f"FAILED {part}: {what}", flush=True)


def kill_ingest(server: Server, directory: Path, draw: random.Random) -> None:
    """Every durable step of one ingest."""
    source = write_table(directory, rows=draw.randrange(200, 900), columns=draw.randrange(3, 9))
    name, layout = draw.choice(["s.zarr", "s.h5"]), draw.choice(["dense", "csr"])
    settings: dict[str, Any] = {
        "sources": [str(source)],
        "label": "y",
        "chunk_bytes": draw.choice([4096, 8192]),
        "layout": layout,
    }
    reference = directory / f"reference{Path(name).suffix}"
    steps, expected = server.run("ingest", store=str(reference), **settings).steps, digest_of(reference)
    for at in range(1, steps + 1):
        store = directory / str(at) / name
        died = server.run("ingest", kill=at, store=str(store), **settings).status
        again = server.run("ingest", store=str(store), **settings)
        good = died == KILLED and again.status in (0, 73) and digest_of(store) == expected
        judge("kill ingest", good, f"{name} {layout} at step {at}: {again.said}")
        shutil.rmtree(store.parent)


def kill_fit(server: Server, directory: Path, draw: random.Random) -> None:
    """Random durable steps of one fit, several kills each."""
    write_table(directory, rows=draw.randrange(200, 900), columns=draw.randrange(3, 9))
    store = ingested(directory)
    solver = draw.choice(["dcd", "newton", "sgd", "pegasos", "assg"])
    settings: dict[str, Any] = {
        "store": str(store),
        "solver": solver,
        "loss": "hinge",
        "tolerance": 1e-12,
        "max_passes": 4,
    }
    settings |= {"checkpoint_every": 1e-9, "resume": True, "in_file": draw.random() < 0.5, "C": draw.choice([0.1, 1.0])}
    reference = directory / "reference"
    steps = server.run("fit", model=str(reference), **settings).steps
    for trial in range(40):
        model = directory / f"m{trial}"
        for _ in range(draw.randrange(1, 4)):
            if not model.exists():
                server.run("fit", kill=draw.randrange(1, steps + 1), model=str(model), **settings)
        again = server.run("fit", model=str(model), **settings)
        good = again.status in (0, 73) and weights(model) == weights(reference)
        judge("kill fit", good, f"{solver}, trial {trial}: {again.said}")


def kill_predict(server: Server, directory: Path, draw: random.Random) -> None:
    """Every durable step of predictions in one of three forms."""
    from streamsvm.jobs.fit.run import fit
    from tests.fault.golden import fit_job

    write_table(directory, rows=draw.randrange(200, 3000), columns=draw.randrange(3, 9))
    store = ingested(directory, store=directory / draw.choice(["s.zarr", "s.h5"]))
    fit(fit_job(store, directory / "m", max_passes=1))
    name, source = draw.choice(["p.npy", "p.csv", "p.txt"]), draw.choice([store, directory / "t.csv"])
    settings: dict[str, Any] = {
        "model": str(directory / "m"),
        "data": [str(source)],
        "output": draw.choice(["label", "decision"]),
    }
    reference = directory / f"reference{Path(name).suffix}"
    steps = server.run("predict", out=str(reference), **settings).steps
    for at in range(1, steps + 1):
        out = directory / str(at) / name
        out.parent.mkdir()
        died = server.run("predict", kill=at, out=str(out), **settings).status
        whole = not out.exists() or out.read_bytes() == reference.read_bytes()
        again = server.run("predict", out=str(out), overwrite=True, **settings)
        good = died == KILLED and whole and again.status == 0 and out.read_bytes() == reference.read_bytes()
        judge("kill predict", good and not leftovers(out.parent), f"{name} at step {at}: {again.said}")


def weights(model: Path) -> bytes:
    from safetensors.numpy import load

    return bytes(load(model.read_bytes())["weights"].tobytes())


def cut_power(_: Server, directory: Path, draw: random.Random) -> None:
    states, findings = power.lost(directory, choices=draw.randrange(4, 9))
    COUNTS["power cut"] += states - len(findings)
    for finding in findings:
        judge("power cut", good=False, what=finding)


def flip_bits(_: Server, directory: Path, draw: random.Random) -> None:
    """Single bits of every file of a store."""
    store = ingested(directory, store=directory / draw.choice(["s.zarr", "s.h5"]), layout=draw.choice(["dense", "csr"]))
    files = corruption.payload(store)
    for _trial in range(300):
        path = draw.choice(files)
        raw = path.read_bytes()
        bit = draw.randrange(8 * len(raw))
        path.write_bytes(raw[: bit // 8] + bytes([raw[bit // 8] ^ 1 << bit % 8]) + raw[bit // 8 + 1 :])
        judge("flipped bit", bool(corruption.complaints(store)), f"bit {bit} of {path.name}")
        path.write_bytes(raw)


def tamper(_: Server, directory: Path, draw: random.Random) -> None:
    """Bytes of a model."""
    from streamsvm.jobs.fit.run import fit
    from tests.fault.golden import fit_job

    fit(fit_job(ingested(directory), directory / "m", max_passes=1))
    raw, path = (directory / "m").read_bytes(), directory / "mutant"
    for _trial in range(300):
        at = draw.randrange(len(raw))
        mutant = raw[:at] + draw.randbytes(draw.randrange(0, 9)) + raw[at + draw.randrange(0, 9) :]
        path.write_bytes(mutant)
        judge("tampered model", mutant == raw or tampering.refused(path), mutant.hex()[:80])


PARTS: list[Callable[[Server, Path, random.Random], Any]] = [
    kill_ingest,
    kill_fit,
    kill_predict,
    cut_power,
    flip_bits,
    tamper,
]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    until, rounds = time.monotonic() + 60 * options.minutes, 0
    with Server() as server:
        while time.monotonic() < until:
            for part in PARTS:
                draw = random.Random(f"{options.seed} {rounds} {part.__name__}")
                with tempfile.TemporaryDirectory(prefix="streamsvm-soak-") as directory:
                    try:
                        part(server, Path(directory), draw)
                    except Exception:  # noqa: BLE001  a finding like any other
                        judge(part.__name__, good=False, what=traceback.format_exc())
            rounds += 1
    print(f"{rounds} rounds, seed {options.seed}")
    for name in sorted(COUNTS):
        print(f"{name:<16} {COUNTS[name]:>8} trials {FAILURES[name]:>4} failures")
    return bool(FAILURES)


if __name__ == "__main__":
    sys.exit(main())
