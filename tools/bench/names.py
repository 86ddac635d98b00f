"""A text column of short names, cut into runs of 2 to 4 characters: ours against HashingVectorizer and LinearSVC.

python -m tools.bench.names [--rows 1000000] [--limit 256MiB] [--C 0.25]

Both read the same generated files (``synth names``), train on one and are asked about the other. Memory is the most
anonymous memory of a process, CPU seconds are of all threads. Ours is three commands: what is told is their sum of
seconds and the largest of their memory. scikit-learn's vectorizer makes 2^18 columns of 'char_wb' runs, its default
LinearSVC fits them.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

from tools.measure.harness import Row, anonymous_bytes, arguments, scratch, show

PEER = """
import csv, sys
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.svm import LinearSVC
def read(path):
    with open(path, newline="") as file:
        rows = csv.reader(file)
        next(rows)
        names, labels = zip(*rows)
        return names, labels
vectorizer = HashingVectorizer(analyzer="char_wb", ngram_range=(2, 4), n_features=2**18)
names, labels = read(sys.argv[1])
model = LinearSVC(C=float(sys.argv[3])).fit(vectorizer.transform(names), labels)
names, labels = read(sys.argv[2])
print("accuracy", model.score(vectorizer.transform(names), labels))
"""


def measured(command: list[str]) -> tuple[str, float, int]:
    """What a command prints, its CPU seconds, and its most anonymous bytes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    printed, _ = process.communicate()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:6])} ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return printed, spent, peak


def row(who: str, runs: list[tuple[str, float, int]]) -> Row:
    """The error in the last line that names the accuracy, seconds of all runs, and the largest memory."""
    words = next(line for line in runs[-1][0].splitlines() if line.startswith("accuracy")).split()
    memory, seconds = max(run[2] for run in runs), sum(run[1] for run in runs)
    return {
        "who": who,
        "error %": round(100 * (1 - float(words[1])), 2),
        "CPU s": round(seconds, 1),
        "MiB": memory >> 20,
    }


def main() -> None:
    options = arguments(__doc__, rows=1_000_000, C=0.25, limit="256MiB", bits=18)
    with scratch() as directory:
        train, test, store, model = (str(directory / name) for name in ("n.csv", "n.test.csv", "n.zarr", "n.ssvm"))
        ours = [sys.executable, "-m", "streamsvm", "-q"]
        share = 0.2 / 1.2
        subprocess.run(
            [*ours, "synth", "names", train, "--rows", str(round(options.rows * 1.2)), "--test-fraction", str(share)],
            check=True,
        )
        text = ["--label", "class", "--text", "name=chars:2-4", "--text-bits", str(options.bits)]
        limit = ["--memory", options.limit]
        runs = [
            measured([*ours, "ingest", train, store, *text, *limit]),
            measured([*ours, "fit", store, model, "--C", str(options.C), *limit]),
            measured([*ours, "evaluate", model, test, *limit]),
        ]
        steps = [
            f"{name} {run[1]:.1f} s, {run[2] >> 20} MiB"
            for name, run in zip(("ingest", "fit", "evaluate"), runs, strict=True)
        ]
        print(f"{options.rows} names, {Path(train).stat().st_size >> 20} MiB; ours: {'; '.join(steps)}", flush=True)
        print(row("streamsvm", runs), flush=True)
        peer = measured([sys.executable, "-c", PEER, train, test, str(options.C)])
        rows = [row("streamsvm", runs), row("HashingVectorizer + LinearSVC", [peer])]
        show("Short names by runs of 2 to 4 characters", rows, options)


if __name__ == "__main__":
    main()
