"""Kernel features at scale: test error and CPU seconds beside Nystroem + averaged SGDClassifier over the same chunks.

Both read raw rows in chunks and keep the features of a chunk at most. Ours ends with a certificate; theirs after
``--epochs``, each of which makes the features again. Theirs is run with each of ``--alphas``; the fastest way to its
best error is the row that counts. One thread of BLAS.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.jobs.synth.options import SynthJob
from streamsvm.jobs.synth.run import synth
from streamsvm.schedule.plan import epoch_visits
from streamsvm.schedule.stream import Stream
from streamsvm.store import open_store
from tools.measure.harness import Row, arguments, scratch, show
from tools.measure.kernel_features import cpu_of, pieces
from tools.measure.splits import Split, load, stored

SETTINGS: dict[str, dict[str, Any]] = {
    "susy": {"landmarks": 300, "gamma": 0.02, "C": 1.0},
    "covtype": {"landmarks": 1000, "gamma": 0.1, "C": 1.0},
}
TEST_ROWS = 200_000
FIRST = 20_000
"""Rows the other side draws its landmarks from, unless ``--share 1`` gives it ours."""


def stores(name: str, rows: int, directory: Path) -> tuple[str, str]:
    """Training and test rows as stores."""
    train, test = str(directory / "train.zarr"), str(directory / "test.zarr")
    if name == "susy":
        synth(SynthJob("susy", train, rows=rows, seed=1))
        synth(SynthJob("susy", test, rows=TEST_ROWS, seed=2))
    else:
        split = load(name, directory)
        stored(split, Path(train))
        stored(Split(name, split.X_test, split.y_test, None, None), Path(test))
    return train, test


def ours(train: str, test: str, directory: Path, **settings: Any) -> tuple[Row, Any]:
    """A fit on the fly, and its landmarks."""
    base = {"kernel": "rbf", "embedding": "fly", "solver": "newton", "overwrite": True}
    job = FitJob(train, str(directory / "model"), **{**base, **settings})
    cpu, wall, result = cpu_of(lambda: fit(job))
    error = 1 - evaluate(EvaluateJob(job.model, (test,))).evaluation.accuracy
    gap, training = result.training.runs[0].certificate.gap, result.training
    row: Row = {"who": "fit", "error %": 100 * error, "CPU s": cpu, "wall s": wall, "passes": training.passes}
    return row | {"gap": gap, "peak MiB": training.peak / 2**20}, result.model.expansion.points.values


def chunks_of(path: str) -> Any:
    """Rows and signs of a store, chunk by chunk."""
    store = open_store(path)
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False), depth=1) as stream:
        for loaded in stream:
            yield loaded.chunk.X.values, np.where(loaded.chunk.codes > 0, 1.0, -1.0)


def theirs(stored_at: tuple[str, str], settings: dict[str, Any], alpha: float, epochs: int, landmarks: Any) -> Row:
    """Nystroem + averaged SGDClassifier, features of 20,000 rows at a time; landmarks None: of its own."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import SGDClassifier

    features = Nystroem(kernel="rbf", gamma=settings["gamma"], n_components=settings["landmarks"], random_state=0)
    model = SGDClassifier(loss="hinge", alpha=alpha, average=True, random_state=0)

    train, test = stored_at

    def run() -> None:
        features.fit(next(chunks_of(train))[0][:FIRST] if landmarks is None else landmarks)
        for _ in range(epochs):
            for X, y in chunks_of(train):
                for part, signs in pieces(X, y):
                    model.partial_fit(features.transform(part), signs, classes=[-1.0, 1.0])

    cpu, wall, _ = cpu_of(run)
    parts = [(part, signs) for X, y in chunks_of(test) for part, signs in pieces(X.copy(), y)]
    wrong = [model.predict(features.transform(X)) != y for X, y in parts]
    error = float(np.mean(np.concatenate(wrong)))
    return {"who": f"sklearn, alpha {alpha:g}", "error %": 100 * error, "CPU s": cpu, "wall s": wall, "passes": epochs}


def main() -> None:
    defaults = {"sets": "susy,covtype", "rows": 5_000_000, "tolerance": 1e-3, "loss": "squared_hinge", "epochs": 1}
    options = arguments(__doc__, **defaults, alphas="1e-6,1e-5", C=0.0, sampling="uniform", sample=0, seed=0, share=0)
    with threadpool_limits(1):
        for name in options.sets.split(","):
            with scratch() as directory:
                train, test = stores(name, options.rows, directory)
                settings = SETTINGS[name] | ({"C": options.C} if options.C else {})
                chosen = {"tolerance": options.tolerance, "loss": options.loss, "sampling": options.sampling}
                chosen |= {"options": {"sample": options.sample} if options.sample else {}}
                row, landmarks = ours(train, test, directory, seed=options.seed, **settings, **chosen)
                rows = [row]
                print(row, flush=True)
                shared = landmarks if options.share else None
                for alpha in filter(None, options.alphas.split(",")):
                    rows.append(theirs((train, test), settings, float(alpha), options.epochs, shared))
                    print(rows[-1], flush=True)
                show(f"{name}: {settings}", rows, options)


if __name__ == "__main__":
    main()
