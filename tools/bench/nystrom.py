"""Kernel features: the builder against the machine's own sgemm, accuracy and CPU seconds beside scikit-learn.

``--what builder``: an embedding of susy-like rows: the W product beside sgemm, the pass beside computing and writing.
``--what accuracy``: test error of ``fit`` and of Nystroem + LinearSVC with the same landmarks, gamma and C (squared
hinge). LinearSVC takes features in float64 and copies them to 16 bytes each: ``--train-rows`` keeps both from the rest.
``--what types``: the same fit on embeddings of float32, float16 and int8.
``--what susy``: a fit within 1 GiB, on the fly or with features on disk (``--embedding int8``), beside
``Nystroem.transform`` of as many rows in pieces; both on ``--threads``.
``--what passes``: what one row costs: kernel values, margins, adjoint, features.
All else on one thread of BLAS. CPU seconds are those of the process, reader and writer threads included.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import Factored
from streamsvm.compute.kernel_values.gram import kernel_block, points_of
from streamsvm.features import nystrom
from streamsvm.features.part_sizes import part_rows
from streamsvm.jobs.embed import builder as embedder
from streamsvm.jobs.embed.feature_writer import Sink
from streamsvm.jobs.embed.options import EmbedJob
from streamsvm.jobs.embed.run import embed
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.jobs.synth.options import SynthJob
from streamsvm.jobs.synth.run import synth
from streamsvm.kernels import RBF
from streamsvm.rows import Dense
from tools.measure.harness import Row, arguments, in_child, scratch, show
from tools.measure.kernel_features import PIECE, cpu_of, cutoff_of, setting, sklearn_fitted
from tools.measure.splits import Split, load, stored


def sgemm_rate(rows: int, m: int, rank: int) -> float:
    """Flops a CPU second of the W product alone, the best of ten: a busy machine does not make it look slower."""
    random = np.random.default_rng(0)
    K, W = random.random((rows, m), np.float32), random.random((m, rank), np.float32)
    out, best = np.empty((rows, rank), np.float32), np.inf
    for _ in range(10):
        best = min(best, cpu_of(lambda: np.matmul(K, W, out=out))[0])
    return 2.0 * rows * m * rank / best


class Watch:
    """Wall and CPU seconds a function takes, over all its calls in one thread; a context manager puts it in place."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner, self._name, self._original = owner, name, getattr(owner, name)
        self.wall = self.cpu = 0.0

    def __enter__(self) -> Self:
        def timed(*arguments: Any) -> Any:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return self._original(*arguments)
            finally:
                self.wall += time.perf_counter() - wall
                self.cpu += time.thread_time() - cpu

        setattr(self._owner, self._name, timed)
        return self

    def __exit__(self, *_: object) -> None:
        setattr(self._owner, self._name, self._original)


def builder(options: Any, directory: Path) -> list[Row]:
    """The W product in the builder beside sgemm alone, and the pass beside its longer half, computing or writing.

    Wall seconds of both halves are of the same run, so that a busy machine stretches them and the pass alike.
    """
    store, found = str(directory / "susy.zarr"), []
    synth(SynthJob("susy", store, rows=options.rows))
    for dtype in ("float32", "float16", "int8"):
        job = EmbedJob(store, str(directory / dtype), gamma=0.02, landmarks=options.landmarks, dtype=dtype)
        with (
            Watch(nystrom.Nystrom, "into") as made,
            Watch(nystrom, "kernel_block") as values,
            Watch(embedder.Builder, "_map") as whole,
            Watch(Sink, "_write") as written,
        ):
            before = sgemm_rate(part_rows(options.landmarks), options.landmarks, options.landmarks)
            built = embed(job)
        rank = built.projection.rank
        alone = max(before, sgemm_rate(part_rows(options.landmarks), options.landmarks, rank))
        here = 2.0 * options.rows * options.landmarks * rank / (made.cpu - values.cpu)
        row = {"dtype": dtype, "rank": rank, "sgemm GF/s": alone / 1e9, "W product GF/s": here / 1e9}
        row |= {"ratio": here / alone, "compute s": made.wall, "write s": written.wall, "pass s": whole.wall}
        found.append(row | {"pass / longer half": whole.wall / max(made.wall, written.wall)})
        shutil.rmtree(directory / dtype)
    return found


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
        split = load(name, directory)
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


def types(options: Any, directory: Path) -> list[Row]:
    """Test error on embeddings of each type."""
    found = []
    for name in options.sets.split(","):
        split = load(name, directory)
        store = stored(split, directory / f"{name}.zarr")
        row: Row = {"set": name}
        for dtype in ("float32", "float16", "int8"):
            settings = {"embedding": "disk", "embedding_dtype": dtype}
            cpu, error, _ = fitted(split, store, directory, options, **settings)
            row |= {f"{dtype} error %": 100 * error, f"{dtype} CPU s": cpu}
        found.append(row)
        print(row, flush=True)
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
from streamsvm.jobs.fit.run import fit
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


def passes(options: Any, _: Path) -> list[Row]:
    """Nanoseconds a row and landmark of each step, d = 18."""
    m, rows = options.landmarks, part_rows(options.landmarks)
    random = np.random.default_rng(0)
    X, Z = Dense(random.normal(size=(rows, 18)).astype(np.float32)), points_of(random.normal(size=(m, 18)))
    K, W = np.empty((rows, m), np.float32), random.normal(size=(m, m)).astype(np.float32)
    block, w, a = Factored(K, W, 1.0), random.normal(size=m + 1), random.random(rows)
    steps: dict[str, Callable[[], Any]] = {
        "kernel values": lambda: kernel_block(X, Z, RBF(0.02), K),
        "margins": lambda: operators.margins(block, w),
        "adjoint": lambda: operators.adjoint(block, a, m),
        "features K W": lambda: K @ W,
        "gram, all rows": lambda: operators.gram(block, a, m),
    }
    found = []
    for name, run in steps.items():
        run()
        seconds = min(cpu_of(run)[0] for _ in range(5))
        found.append({"step": name, "ns": seconds / rows / m * 1e9})
    return found


def main() -> None:
    defaults = {"what": "builder", "rows": 200_000, "landmarks": 1000, "sets": "a9a,ijcnn1,mnist,covtype", "peer": 1}
    asked = {
        "m": 0,
        "C": 0.0,
        "seed": 0,
        "sampling": "uniform",
        "cutoff": 0.0,
        "threads": 1,
        "tolerance": 1e-3,
        "sklearn_tol": 1e-4,
        "train_rows": 0,
    }
    options = arguments(__doc__, **defaults, embedding="fly", **asked)
    with scratch() as directory, threadpool_limits(1):
        made = {"builder": builder, "accuracy": accuracy, "types": types, "susy": susy, "passes": passes}
        show(f"nystrom: {options.what}", made[options.what](options, directory), options)


if __name__ == "__main__":
    main()
