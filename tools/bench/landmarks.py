"""Which rows become landmarks: test error, CPU seconds of the fit and microseconds of a prediction, by sampling, on real sets.

``python -m tools.bench.landmarks`` fits the squared hinge on features of so many landmarks drawn evenly (uniform), by leverage,
far from each other (kmeans++) and by labels (greedy), the mean of ``--seeds`` draws, on at most ``--rows`` training rows. A last
line has uniform landmarks, as many more as make the fit take about the CPU time of the greedy one (MORE). One thread; a set takes up
to three minutes. C and gamma are near the best of uniform landmarks, and the same for all.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import streamsvm as sv
from tools.measure import splits
from tools.measure.harness import Row, arguments, print_table, scratch, show, unpacked
from tools.measure.kernel_features import cpu_of

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


def letter(directory: Path) -> splits.Split:
    """All 26 classes."""
    from sklearn.datasets import load_svmlight_file

    parts: list[Any] = []
    for file in ("letter.xz", "letter.t.xz"):
        X, y = load_svmlight_file(str(unpacked(file, directory)), n_features=16, dtype=np.float32)
        parts += [X.toarray(), y]
    return splits.Split("letter", *parts)


def measure(split: splits.Split, setting: Setting, sampling: str, options: Any, directory: Path) -> Row:
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


def main() -> None:
    """Measure and print each line as it is known, and all of them at the end."""
    options = arguments(__doc__, sets=",".join(SETTINGS), rows=50_000, seeds=2)
    table: list[Row] = []
    with scratch() as directory, threadpool_limits(1):
        for name in options.sets.split(","):
            split = letter(directory) if name == "letter" else splits.load(name, directory)
            split = split._replace(X=split.X[: options.rows], y=split.y[: options.rows])
            sv.ingest(split.X, str(directory / f"{name}.zarr"), y=split.y)
            setting = SETTINGS[name]
            measure(split, setting, "uniform", options, directory)  # compiles
            lines = [(sampling, setting) for sampling in SAMPLINGS]
            lines.append(("uniform", setting._replace(landmarks=round(MORE * setting.landmarks))))
            for sampling, one in lines:
                table.append(measure(split, one, sampling, options, directory))
                print_table(table[-1:])
    show("Landmarks by how they are drawn", table, options)


if __name__ == "__main__":
    main()
