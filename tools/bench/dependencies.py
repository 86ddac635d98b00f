"""What dependencies cost, and what each command loads of them: python -m tools.bench.dependencies [packages | commands].

``packages``: for each package that pyproject.toml requires, MiB on disk, alone and with what it requires in turn; and CPU seconds and MiB of
private memory of ``import`` in a fresh interpreter, medians of --runs.
``commands``: CPU seconds, peak memory and loaded packages of some commands on a small table. Compiled passes are taken from the cache: they
are run once before they are measured.

Python writes byte code on the first import; run it twice, or without PYTHONDONTWRITEBYTECODE, for figures of an installed package.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
MIB = 1 << 20
NAMES = {"dask": "distributed"}
"""What is imported of a package that is not called like it."""
PROBE = """
import os, resource, sys, time
def private():
    return sum(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Private"))
memory, began = private(), time.process_time()
__import__(sys.argv[1])
print(time.process_time() - began, (private() - memory) / 1024)
"""
RUN = """
import atexit, json, os, resource, sys
def report():
    used = resource.getrusage(resource.RUSAGE_SELF)
    loaded = sorted({name.partition(".")[0] for name in sys.modules})
    open(os.environ["REPORT"], "w").write(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, loaded]))
atexit.register(report)
sys.argv[0] = "streamsvm"
from streamsvm.__main__ import main
main()
"""
COMMANDS = {
    "streamsvm --help": "",
    "streamsvm --version": "",
    "streamsvm info model.ssvm": "",
    "streamsvm predict model.ssvm table.csv answers.csv --overwrite": "of a CSV file",
    "streamsvm predict stored.ssvm rows.zarr answers.csv --overwrite": "of a store",
    "streamsvm fit rows.zarr stored.ssvm --overwrite": "of a store",
    "streamsvm fit table.csv model.ssvm --label fate --overwrite": "of a CSV file, with its page",
    "streamsvm report model.ssvm page.html --overwrite": "",
}
"""What is measured."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("packages", "commands"))
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    if asked.what != "commands":
        print_packages(asked.runs)
    if asked.what != "packages":
        print_commands(asked.runs)


def print_packages(runs: int) -> None:
    """Print the table of packages, the largest first."""
    wanted = [
        required_name(text) for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    ]
    everything = set().union(*(closure(name) for name in wanted))
    print("| package | MiB on disk | with what it requires | import, CPU s | import, MiB |\n|---|---|---|---|---|")
    for name in sorted(wanted, key=lambda one: -size_of(one)):
        seconds, memory = import_cost(NAMES.get(name, name), runs)
        whole = sum(map(size_of, closure(name)))
        print(f"| {name} | {size_of(name):.1f} | {whole:.1f} | {seconds:.2f} | {memory:.0f} |")
    print(f"| all, {len(everything)} packages | {sum(map(size_of, everything)):.0f} | | | |\n")


def required_name(text: str) -> str:
    """The name of a package in a requirement."""
    return re.split(r"[\s\[<>=!~;]", text, maxsplit=1)[0].lower()


def closure(name: str) -> set[str]:
    """The packages that a package requires here, itself among them; extras are left out, but for those of ``dask[distributed]``."""
    found, open_ones = set[str](), [name, *(["distributed"] if name == "dask" else [])]
    while open_ones:
        one = open_ones.pop()
        try:
            required = importlib.metadata.requires(one) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system, or another Python
        if one not in found:
            found.add(one)
            open_ones += [required_name(text) for text in required if "extra ==" not in text]
    return found


def size_of(name: str) -> float:
    """The MiB of the files of a package, without byte code."""
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        return 0.0
    paths = (Path(str(file.locate())) for file in files if file.suffix != ".pyc")
    return sum(path.stat().st_size for path in paths if path.exists()) / MIB


def import_cost(module: str, runs: int) -> tuple[float, float]:
    """CPU seconds and MiB of private memory of an import, medians."""
    module = module.replace("-", "_")
    shown = [
        subprocess.run([sys.executable, "-c", PROBE, module], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(runs)
    ]
    return statistics.median(float(one[0]) for one in shown), statistics.median(float(one[1]) for one in shown)


def print_commands(runs: int) -> None:
    """Print the table of commands."""
    wanted = [
        required_name(text) for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    ]
    named = {
        **{name.replace("-", "_"): name for name in wanted},
        "distributed": "dask",
        "sklearn": "scikit-learn",
        "pandas": "pandas",
    }
    with tempfile.TemporaryDirectory() as folder:
        for command in (
            "synth table table.csv --rows 2000",
            "synth susy rows.zarr --rows 2000",
            "fit table.csv model.ssvm --label fate",
            "fit rows.zarr stored.ssvm",
        ):
            measure(folder, command.split())
        print("| command | CPU s | peak, MiB | loads |\n|---|---|---|---|")
        for command, note in COMMANDS.items():
            found = [measure(folder, command.split()[1:]) for _ in range(runs)]
            seconds, memory = statistics.median(one[0] for one in found), statistics.median(one[1] for one in found)
            loads = ", ".join(sorted({named[name] for name in found[-1][2] if name in named})) or "none"
            shown = command.removesuffix(" --overwrite")
            print(f"| `{shown}`{', ' + note if note else ''} | {seconds:.2f} | {memory:.0f} | {loads} |")


def measure(folder: str, arguments: list[str]) -> tuple[float, float, list[str]]:
    """Run a command in a folder, and return its CPU seconds, its peak in MiB and the packages it has loaded."""
    report = Path(folder, "report.json")
    environment = {**os.environ, "REPORT": str(report), "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-c", RUN, *arguments], cwd=folder, env=environment, capture_output=True, check=True
    )
    seconds, memory, loaded = json.loads(report.read_text())
    return seconds, memory, loaded


if __name__ == "__main__":
    main()
