"""Whether a change of the code changes what is trained: fits of every solver on real data, a hash of each model's arrays.

    python tools/model_bits.py --json before.json          # at the old commit
    python tools/model_bits.py --compare before.json       # at the new one, on the same machine: exit code 1 if one differs

Every command is a process of its own, ``python -m streamsvm`` in this checkout, so that nothing but the command line is
taken for granted. The hash is over name, type, shape and bytes of the arrays, not over what the file says of the run.
CPU seconds are those of the process and all it starts; the first run of a checkout compiles, only later ones compare.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import lzma
import os
import resource
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("STREAMSVM_DATA", REPOSITORY.parent / "shared" / "data"))
MEMORY = "1GiB"
"""Stated, because plans depend on it."""


class Part(NamedTuple):
    """The first ``rows`` of a file of the data folder, as a store made with ``options``."""

    file: str
    rows: int
    options: str


STORES = {
    "covtype": Part("covtype.csv.gz", 60_000, "--label last --positive 2 --chunk 1MiB"),
    "a9a": Part("a9a.xz", 40_000, "--chunk 256KiB"),
    "ijcnn1": Part("ijcnn1.gz", 40_000, "--layout dense --features 22 --chunk 512KiB"),
    "letter": Part("letter.xz", 20_000, "--layout dense --features 16 --chunk 256KiB"),
    "a9a few": Part("a9a.xz", 5_000, "--chunk 64KiB"),
    "ijcnn1 few": Part("ijcnn1.gz", 8_000, "--layout dense --features 22 --chunk 64KiB"),
}
RBF, NYSTROM = "--kernel rbf --gamma", "--kernel rbf --gamma 0.5 --landmarks"
FITS = {
    "dcd": ("covtype", "--solver dcd --loss hinge --standardize --C 0.01 --max-passes 30"),
    "dcd classes": ("letter", "--solver dcd --standardize --max-passes 20"),
    "newton": ("covtype", "--solver newton --standardize --tolerance 1e-5"),
    "newton csr": ("a9a", "--solver newton --loss hinge --tolerance 1e-4"),
    "sgd": ("ijcnn1", "--solver sgd --loss hinge --max-passes 20"),
    "pegasos": ("a9a", "--solver pegasos --loss hinge --max-passes 20"),
    "assg": ("covtype", "--solver assg --loss hinge --standardize --max-passes 20"),
    "decomposition": ("ijcnn1 few", f"--solver decomposition --loss hinge {RBF} 2 --C 10 --set solver.pool=3000"),
    "blended": ("a9a few", f"--solver blended {RBF} 0.03 --set solver.pool=2000"),
    "partan": ("ijcnn1 few", f"--solver partan {RBF} 2 --set solver.sample=194 --set solver.iterations=3000 --max-passes 4"),
    "nystrom on the fly": ("ijcnn1", f"--solver newton {NYSTROM} 200 --embedding fly"),
    "nystrom on disk": ("ijcnn1", f"--solver dcd {NYSTROM} 100 --embedding disk --embedding-dtype float16 --max-passes 30"),
    "cluster": ("covtype", "--solver newton --standardize --tolerance 1e-5 --cluster local:2 --groups 4"),
}  # fmt: skip
"""Store and options."""


def rows_of(path: Path, rows: int) -> Iterator[bytes]:
    """The first lines of a packed file."""
    with (gzip.open if path.suffix == ".gz" else lzma.open)(path, "rb") as file:
        yield from islice(file, rows)


def streamsvm(*arguments: object) -> float:
    """Run a command; the CPU seconds it took. Ends the program when it fails."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "streamsvm", "-q", *map(str, arguments)]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def bits_of(model: Path) -> str:
    """sha256 over the arrays of a safetensors file, in the order of their names."""
    raw = model.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    table, digest = json.loads(raw[8 : 8 + length]), hashlib.sha256()
    for name in sorted(table.keys() - {"__metadata__"}):
        entry = table[name]
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        digest.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode() + raw[start:end])
    return digest.hexdigest()


def trained(data: Path, directory: Path, chosen: list[str]) -> dict[str, Any]:
    """Hash and CPU seconds of each fit, told as they come."""
    found: dict[str, Any] = {}
    for name in chosen:
        part, options = FITS[name]
        store, model = directory / f"{part}.zarr", directory / f"{name}.ssvm"
        if not store.exists():
            source = directory / Path(STORES[part].file).stem
            source.write_bytes(b"".join(rows_of(data / STORES[part].file, STORES[part].rows)))
            streamsvm("ingest", source, store, *STORES[part].options.split())
        seconds = streamsvm("fit", store, model, "--memory", MEMORY, *options.split())
        found[name] = {"sha256": bits_of(model), "cpu_seconds": round(seconds, 2)}
        print(f"{name:<20} {found[name]['sha256'][:32]}  {seconds:7.2f} s", flush=True)
    return found


def compared(found: dict[str, Any], before: dict[str, Any]) -> bool:
    """Say same or different for each; whether all are the same."""
    same = True
    for name, now in found.items():
        then = before.get(name)
        verdict = "not known" if then is None else "same" if then["sha256"] == now["sha256"] else "DIFFERENT"
        same = same and verdict == "same"
        times = "" if then is None else f"  CPU {then['cpu_seconds']:.2f} -> {now['cpu_seconds']:.2f} s"
        print(f"{name:<20} {verdict:<10}{times}")
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--data", type=Path, default=DATA, help="the folder of real data sets [STREAMSVM_DATA, else %(default)s]"
    )
    parser.add_argument("--json", type=Path, help="write hashes and seconds there")
    parser.add_argument("--compare", type=Path, help="what --json wrote at another commit")
    parser.add_argument("--fits", default=",".join(FITS), help="which fits, separated by commas [all]")
    options = parser.parse_args()
    chosen = options.fits.split(",")
    if unknown := set(chosen) - FITS.keys():
        parser.error(f"there is no fit {', '.join(sorted(unknown))}; there are {', '.join(FITS)}")
    if not options.data.is_dir():
        sys.exit(f"{options.data} does not exist: this needs the real data (set STREAMSVM_DATA)")
    before = json.loads(options.compare.read_text()) if options.compare else None
    with tempfile.TemporaryDirectory(prefix="streamsvm-bits-", dir=os.environ.get("STREAMSVM_SCRATCH")) as scratch:
        found = trained(options.data, Path(scratch), chosen)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if before is None or compared(found, before) else 1


if __name__ == "__main__":
    sys.exit(main())
