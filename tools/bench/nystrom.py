"""Kernel features of landmarks: accuracy and CPU seconds beside scikit-learn, and which rows become landmarks.

``--what landmarks``: test error, CPU seconds of the fit and microseconds of a prediction of the squared hinge, by how landmarks are drawn:
evenly (uniform), by leverage, far from each other (kmeans++) and by labels (greedy), the mean of ``--seeds`` draws, on at most
``--rows`` training rows. A last line has uniform landmarks, as many more as make the fit take about the CPU time of the greedy one
(MORE). C and gamma are near the best of uniform landmarks, and the same for all. A set takes up to three minutes.
``--what accuracy``: test error of ``fit`` and of Nystroem + LinearSVC with the same landmarks, gamma and C (squared
hinge). LinearSVC takes features in float64 and copies them to 16 bytes each: ``--train-rows`` keeps both from the rest.
``--what susy``: a fit within 1 GiB, on the fly or with features on disk (``--embedding int8``), beside
``Nystroem.transform`` of as many rows in pieces; both on ``--threads``.
All else on one thread of BLAS. CPU seconds are those of the process, reader and writer threads included.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import streamsvm as sv
from streamsvm.jobs.common_options import SynthJob
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.synth import synth
from streamsvm.rows import Dense
from tools.measure import datasets
from tools.measure.datasets import Split, dense, stored
from tools.measure.fits import PIECE, cpu_of, cutoff_of, setting, sklearn_fitted
from tools.measure.harness import Row, arguments, in_child, print_table, scratch, show, unpacked

SAMPLINGS = ("uniform", "leverage", "kmeans++", "greedy")
MORE = 1.5
"""Uniform landmarks of the last line for each of the others."""


class Setting(NamedTuple):
    """A fit of a set."""

    landmarks: int
    gamma: float
    C: float


SETTINGS = {
    "a9a": Setting(300, 0.03, 1.0),
    "ijcnn1": Setting(300, 2.0, 10.0),
    "letter": Setting(300, 0.5, 10.0),
    "mnist": Setting(300, 0.02, 1.0),
    "covtype": Setting(400, 0.1, 1.0),
}


def fitted(split: Split, store: Any, directory: Path, options: Any, **settings: Any) -> tuple[float, float, Any]:
    """Fit and test: CPU seconds, error, the fit."""
    m, gamma, C = setting(split.name, len(split.y), options)
    base = {"kernel": "rbf", "gamma": gamma, "landmarks": m, "C": C, "cutoff": cutoff_of(split.name, options)}
    base |= {"overwrite": True}
    job = FitJob(store.name, str(directory / "model"), **{**base, "embedding": "fly", **settings})
    cpu, _, result = cpu_of(lambda: fit(job))
    codes = result.model.codes(result.model.decision(Dense(split.X_test)))
    return cpu, float(np.mean(codes != (split.y_test > 0))), result


def accuracy(options: Any, directory: Path) -> list[Row]:
    """Test error, objective and CPU seconds, ours and scikit-learn's."""
    found = []
    for name in options.sets.split(","):
        split = dense(datasets.split(name, directory))
        kept = options.train_rows or len(split.y)
        split = split._replace(X=split.X[:kept], y=split.y[:kept])
        store = stored(split, directory / f"{name}.zarr")
        asked = {name: getattr(options, name) for name in ("seed", "sampling", "tolerance")}
        cpu, error, result = fitted(split, store, directory, options, **asked)
        run, (m, gamma, C) = result.training.runs[0], setting(split.name, len(split.y), options)
        row = {"set": name, "rows": kept, "m": m, "gamma": gamma, "C": C, "rank": len(run.state.best) - 1}
        row |= {"error %": 100 * error, "CPU s": cpu, "primal": run.certificate.primal, "gap": run.certificate.gap}
        row |= {"passes": result.training.passes}
        print(row, flush=True)
        if options.peer:
            row |= sklearn_fitted(split, options, result.model.expansion.points.values)
            print(row, flush=True)
        found.append(row)
    return found


def susy(options: Any, directory: Path) -> list[Row]:
    """Raw store to certified model, beside one scikit-learn transform of the same rows."""
    store = str(directory / "susy.zarr")
    settings = {"kernel": "rbf", "gamma": 0.02, "landmarks": options.landmarks, "threads": options.threads}
    synth(SynthJob("susy", store, rows=options.rows))
    places = {"fly": "float32"} if options.embedding == "fly" else {"disk": options.embedding}
    found: list[Row] = []
    for place, dtype in places.items():
        chosen = {"embedding": place, "embedding_dtype": dtype, "memory": 1 << 30, "solver": "newton"}
        job = {"store": store, "model": str(directory / "model"), **settings, **chosen}
        facts = in_child(FITTED, json.dumps(job))
        found.append({"who": f"fit, {place} {dtype}", "rows": options.rows, **facts})
        print(found[-1], flush=True)
    if options.peer:
        found.append(sklearn_transform(options))
    return found


FITTED = """
import json, sys, time
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
job = FitJob(**json.loads(sys.argv[1]))
cpu, wall = time.process_time(), time.perf_counter()
training = fit(job).training
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
print(json.dumps({"CPU s": cpu, "wall s": wall, "gap": training.runs[0].certificate.gap, "passes": training.passes}))
"""
"""In a process of its own, so that the peak is its own."""


def sklearn_transform(options: Any) -> Row:
    """CPU seconds of ``Nystroem.transform`` for as many rows of 18 columns, in pieces: a fifth of them, times five."""
    from sklearn.kernel_approximation import Nystroem

    random = np.random.default_rng(0)
    features = Nystroem(kernel="rbf", gamma=0.02, n_components=options.landmarks, random_state=0)
    features.fit(random.normal(size=(options.landmarks, 18)).astype(np.float32))
    X, rows = random.normal(size=(PIECE, 18)).astype(np.float32), options.rows // 5

    def run() -> None:
        for start in range(0, rows, PIECE):
            features.transform(X[: rows - start])

    with threadpool_limits(options.threads):
        cpu, wall, _ = cpu_of(run)
    return {"who": "sklearn transform, x 5", "rows": options.rows, "CPU s": 5 * cpu, "wall s": 5 * wall}


def letter(directory: Path) -> Split:
    """All 26 classes."""
    from sklearn.datasets import load_svmlight_file

    parts: list[Any] = []
    for file in ("letter.xz", "letter.t.xz"):
        X, y = load_svmlight_file(str(unpacked(file, directory)), n_features=16, dtype=np.float32)
        parts += [X.toarray(), y]
    return Split("letter", *parts)


def measured(split: Split, setting: Setting, sampling: Any, options: Any, directory: Path) -> Row:
    """The mean over seeds of a sampling."""
    store, model, found = str(directory / f"{split.name}.zarr"), str(directory / "m.ssvm"), []
    for seed in range(options.seeds):
        fit = partial(
            sv.fit, store, model, kernel="rbf", gamma=setting.gamma, C=setting.C, landmarks=setting.landmarks,
            sampling=sampling, seed=seed, threads=1, memory="2GiB", embedding="fly", overwrite=True,
        )  # fmt: skip
        fit_seconds, _, _ = cpu_of(fit)
        seconds, _, predicted = cpu_of(partial(sv.load_model(model).predict, split.X_test))
        wrong = np.asarray(predicted).astype(float) != split.y_test
        found.append((100.0 * wrong.mean(), fit_seconds, 1e6 * seconds / len(wrong)))
    error, fit_seconds, each = np.mean(found, axis=0).tolist()
    return {
        "set": split.name, "rows": len(split.y), "sampling": sampling, "landmarks": setting.landmarks, "error %": error,
        "CPU s": fit_seconds, "us a prediction": each,
    }  # fmt: skip


def landmarks(options: Any, directory: Path) -> list[Row]:
    """Measure and print each line as it is known."""
    table: list[Row] = []
    for name in options.sets.split(","):
        split = letter(directory) if name == "letter" else dense(datasets.split(name, directory))
        split = split._replace(X=split.X[: options.rows], y=split.y[: options.rows])
        sv.ingest(split.X, str(directory / f"{name}.zarr"), y=split.y)
        one = SETTINGS[name]
        measured(split, one, "uniform", options, directory)  # compiles
        lines = [(sampling, one) for sampling in SAMPLINGS]
        lines.append(("uniform", one._replace(landmarks=round(MORE * one.landmarks))))
        for sampling, each in lines:
            table.append(measured(split, each, sampling, options, directory))
            print_table(table[-1:])
    return table


def main() -> None:
    options = arguments(
        __doc__, what="landmarks", rows=50_000, landmarks=1000, sets=",".join(SETTINGS), peer=1, embedding="fly", m=0, C=0.0, seed=0,
        seeds=2, sampling="uniform", cutoff=0.0, threads=1, tolerance=1e-3, sklearn_tol=1e-4, train_rows=0,
    )  # fmt: skip
    run = {"landmarks": landmarks, "accuracy": accuracy, "susy": susy}[options.what]
    with scratch() as directory, threadpool_limits(1):
        show(f"nystrom: {options.what}", run(options, directory), options)


if __name__ == "__main__":
    main()
