"""``tune`` beside scikit-learn's GridSearchCV on letter: exact kernels beside SVC, landmarks beside Nystroem and LinearSVC.

python -m tools.bench.tune --letters two --limit 600

Twelve cells (three widths, four values of C) and five folds on both sides, one thread, each in a process of its own, by turns; both are
timed without loading packages and rows. ``--letters two`` asks for A to M against N to Z, ``all`` for 26 classes: SVC then solves each pair
of classes, a problem of a thirteenth of the rows, where all others solve each class against the rest.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from tools.measure.harness import Row, arguments, in_child, scratch, show, unpacked

WIDTHS, COSTS, FOLDS, LANDMARKS = (0.5, 2.0, 8.0), (0.1, 1.0, 10.0, 100.0), 5, 400

OURS = """
import json, sys, time
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.run import tune
store, out, landmarks, grid = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
job = TuneJob(store, out, kernel="rbf", landmarks=tuple(landmarks), threads=1, overwrite=True, loss=grid.pop("loss"), **{k: tuple(v) for k, v in grid.items()})
began, spent = time.perf_counter(), time.process_time()
found = tune(job)
taken = {"s": time.perf_counter() - began, "CPU s": time.process_time() - spent}
gap = max(score.gap for score in found.scores)
print(json.dumps({**taken, "error %": 100 * found.best.error, "C": found.best.C, "gamma": found.best.gamma, "gap": gap}))
"""

THEIRS = """
import json, sys, time, warnings
import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC
warnings.simplefilter("ignore")
landmarks, grid = json.loads(sys.argv[3]), json.loads(sys.argv[4])
rows = np.load(sys.argv[1])
if landmarks:
    model = make_pipeline(Nystroem(kernel="rbf", n_components=landmarks[0], random_state=0), LinearSVC(loss=grid["loss"]))
    cells = {"nystroem__gamma": grid["gamma"], "linearsvc__C": grid["C"]}
else:
    model, cells = SVC(cache_size=200), {"gamma": grid["gamma"], "C": grid["C"]}
began, spent = time.perf_counter(), time.process_time()
found = GridSearchCV(model, cells, cv=KFold(5, shuffle=True, random_state=0), refit=False).fit(rows["X"], rows["y"])
taken = {"s": time.perf_counter() - began, "CPU s": time.process_time() - spent}
C, gamma = (found.best_params_[name] for name in reversed(list(cells)))
print(json.dumps({**taken, "error %": 100 * (1 - found.best_score_), "C": C, "gamma": gamma}))
"""


def prepared(directory: Path, letters: str) -> tuple[Path, Path]:
    """Return the rows as a store and as arrays."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(unpacked("letter.xz", directory)), n_features=16)
    X = np.asarray(X.todense(), np.float32)
    y = y.astype(int) if letters == "all" else np.where(y <= 13, -1, 1)
    arrays, labels = directory / "X.npy", directory / "y.npy"
    np.save(arrays, X)
    np.save(labels, y)
    np.savez(directory / "rows.npz", X=X, y=y)
    ingest(IngestJob(sources=(arrays,), store=directory / "rows.zarr", labels=labels, shuffle=True))
    return directory / "rows.zarr", directory / "rows.npz"


def main() -> None:
    options = arguments(__doc__, letters="two", limit=1800.0, ways="exact,landmarks", sides="tune,GridSearchCV")
    rows: list[Row] = []
    with scratch() as directory:
        store, arrays = prepared(directory, options.letters)
        for way in options.ways.split(","):
            loss = "hinge" if way == "exact" else "squared_hinge"
            grid = json.dumps({"gamma": WIDTHS, "C": COSTS, "loss": loss})
            landmarks = json.dumps([LANDMARKS] if way == "landmarks" else [])
            for side in options.sides.split(","):
                script, path = (OURS, store) if side == "tune" else (THEIRS, arrays)
                began = time.perf_counter()
                found = in_child(script, str(path), str(directory / "out"), landmarks, grid, limit=options.limit)
                rows.append({"way": way, "who": side, **found, "whole process s": time.perf_counter() - began})
    show(f"letter ({options.letters} classes), {len(WIDTHS) * len(COSTS)} cells, {FOLDS} folds", rows, options)


if __name__ == "__main__":
    main()
