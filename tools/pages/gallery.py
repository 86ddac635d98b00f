"""Run the examples and draw their pages: ``python -m tools.pages.gallery build/gallery`` (minutes, some 300 MB).

Writes the page of every job file of ``configs``, and of what no job file shows: ten classes, an exact kernel, a fit that was
stopped, and several runs compared. ``python -m tools.pages.render build/gallery/*.html`` then looks at them.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import streamsvm as sv

REPOSITORY = Path(__file__).parent.parent.parent
JOB_FILES = {path.stem: path for path in sorted((REPOSITORY / "configs").glob("*.toml"))}
PROGRAM = (sys.executable, "-m", "streamsvm")


def of_job_file(name: str) -> Path:
    """Run a job file, which ends with its page."""
    subprocess.run([*PROGRAM, "run", str(JOB_FILES[name])], check=True)
    return Path("runs", f"{name}.html")


def digits() -> None:
    """Make stores of the 1,797 images of digits that come with scikit-learn, four fifths and one fifth, unless they are there."""
    from sklearn.datasets import load_digits

    if not Path("digits.zarr").exists():
        X, y = load_digits(return_X_y=True)
        sv.ingest(X, "digits.zarr", y=y, test_fraction=0.2, chunk="64KiB", seed=1)


def ten_classes() -> Path:
    """Return the page of ten linear machines on the same readings."""
    digits()
    sv.fit("digits.zarr", "digits.ssvm", C=0.01, standardize=True, overwrite=True)
    return evaluated("digits")


def exact_kernel() -> Path:
    """Return the page of exact RBF machines: no landmarks, every row may become a support row."""
    digits()
    sv.fit("digits.zarr", "exact.ssvm", C=10, kernel="rbf", gamma=0.001, loss="hinge", overwrite=True)
    return evaluated("exact")


def evaluated(name: str) -> Path:
    """Evaluate a model of the digits and draw its page."""
    sv.evaluate(f"{name}.ssvm", "digits.test.zarr")
    return drawn(name, f"{name}.ssvm")


def stopped() -> Path:
    """Return the page of a fit that got SIGTERM, as jobs do that a scheduler preempts."""
    sv.synth("susy", "stopped.zarr", rows=100_000, overwrite=True)
    asked = ("fit", "stopped.zarr", "stopped.ssvm", "--solver", "dcd", "--tolerance", "1e-12", "--overwrite")
    run = subprocess.Popen([*PROGRAM, *asked])
    log = Path("stopped.ssvm.run", "events.jsonl")
    while run.poll() is None and not (log.is_file() and log.read_text().count('"pass"') > 12):
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    if run.wait() != 75:
        raise RuntimeError(f"a fit that was stopped ended with {run.returncode}, not with 75")
    return drawn("stopped", "stopped.ssvm")


def compared() -> Path:
    """Return a page that compares three solvers on the same rows."""
    sv.synth("susy", "compared.zarr", rows=50_000, overwrite=True)
    models = [f"{solver}.ssvm" for solver in ("newton", "dcd", "pegasos")]
    for model in models:
        sv.fit("compared.zarr", model, solver=Path(model).stem, standardize=True, max_passes=12, overwrite=True)
    return drawn("compared", *models)


def drawn(name: str, *models: str) -> Path:
    """Return where the page of these runs was written."""
    out = Path("runs", f"{name}.html")
    out.parent.mkdir(exist_ok=True)
    sv.report(models, out, overwrite=True)
    return out


OTHERS: dict[str, Callable[[], Path]] = {
    "digits": ten_classes,
    "exact": exact_kernel,
    "stopped": stopped,
    "compared": compared,
}


def main() -> None:
    """Draw the pages that were asked for, all of them without a name."""
    known = [*JOB_FILES, *OTHERS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="a folder for pages; data and models go to work/ in it")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which; without, all: {', '.join(known)}")
    asked = parser.parse_args()
    work = asked.out / "work"
    work.mkdir(parents=True, exist_ok=True)
    for name in asked.names or known:
        began = time.perf_counter()
        with chdir(work):
            page = (OTHERS[name]() if name in OTHERS else of_job_file(name)).read_bytes()
        (asked.out / f"{name}.html").write_bytes(page)
        print(f"{name}.html: {len(page) / 1000:.0f} kB in {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
