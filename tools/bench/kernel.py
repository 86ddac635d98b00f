"""Kernel C-SVC and L2-SVM in full: decomposition and blended beside LIBSVM and scikit-learn, each in a process of its own.

CPU seconds of the training alone, peak anonymous memory of the whole process (ours within ``--memory``, data streamed
from a store; theirs with the data in memory), dual objective, error on the test rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, arguments, in_child, scratch, show, unpacked

SETS = {"a9a": (123, 1.0, 0.03), "ijcnn1": (22, 10.0, 2.0), "w8a": (300, 10.0, 0.02), "covtype": (54, 10.0, 0.1)}
"""Columns, C, gamma."""

OURS = """
import json, sys, time
from streamsvm.jobs.fit import fit
from streamsvm.jobs.planning import FitJob
store, model, loss, C, gamma, tolerance, memory = sys.argv[1:]
settings = dict(kernel="rbf", gamma=float(gamma), memory=int(memory) << 20, overwrite=True)
fit(FitJob(sys.argv[1] + ".small", model, loss=loss, C=1.0, **settings))  # compiles
began = time.process_time()
result = fit(FitJob(store, model, loss=loss, C=float(C), tolerance=float(tolerance), **settings))
taken, training = time.process_time() - began, result.training
found = training.runs[0].certificate
print(json.dumps({"cpu s": taken, "wall s": training.seconds, "passes": training.passes, "gap": found.gap,
                  "dual": found.dual, "support": result.model.weights.shape[1] - 1}))
"""

LIBSVM = """
import json, sys, time
import numpy as np, scipy.sparse as sp
from libsvm.svmutil import svm_problem, svm_parameter, svm_train, svm_save_model
rows, model, C, gamma = sys.argv[1:]
file = np.load(rows)
X = sp.csr_matrix((file["data"].astype(float), file["indices"], file["indptr"]), file["shape"])
problem = svm_problem(file["y"].astype(float), X)
began = time.process_time()
found = svm_train(problem, svm_parameter(f"-q -s 0 -t 2 -c {C} -g {gamma} -m 1000"))
taken = time.process_time() - began
svm_save_model(model, found)
print(json.dumps({"cpu s": taken, "support": found.get_nr_sv()}))
"""

SKLEARN = """
import json, sys, time
import numpy as np, scipy.sparse as sp
{patch}
from sklearn.svm import SVC
rows, C, gamma = sys.argv[1:]
file = np.load(rows)
X = sp.csr_matrix((file["data"], file["indices"], file["indptr"]), file["shape"]).toarray()
y = file["y"]
began = time.process_time()
found = SVC(C=float(C), gamma=float(gamma), cache_size=1000).fit(X, y)
taken = time.process_time() - began
Z, c = found.support_vectors_.astype(float), np.ravel(found.dual_coef_)
squares, quadratic = (Z * Z).sum(1), 0.0
for start in range(0, len(Z), 1000):
    part = slice(start, start + 1000)
    distance = squares[part, None] + squares - 2.0 * Z[part] @ Z.T
    quadratic += c[part] @ (np.exp(-float(gamma) * np.maximum(distance, 0.0)) @ c)
print(json.dumps({{"cpu s": taken, "dual": float(np.abs(c).sum() - 0.5 * quadratic), "support": len(Z)}}))
"""
INTEL = "from sklearnex import patch_sklearn; patch_sklearn(verbose=False)"


def rows_of(name: str, directory: Path, limit: int) -> tuple[Any, Any]:
    """Training rows, CSR, and their signs."""
    import datasets
    import scipy.sparse as sp

    if name == "covtype":
        found = datasets.covtype(directory)
        return sp.csr_matrix(found.X[:limit]), found.y[:limit]
    from sklearn.datasets import load_svmlight_file

    kind = "xz" if name != "ijcnn1" else "gz"
    X, y = load_svmlight_file(str(unpacked(f"{name}.{kind}", directory)), n_features=SETS[name][0], dtype=np.float32)
    return X[:limit], np.where(y[:limit] > 0, 1.0, -1.0)


def stored(X: Any, y: Any, path: Path, *, dense: bool) -> None:
    from streamsvm.rows import CSR, Dense
    from streamsvm.store import create

    rows = Dense(X.toarray()) if dense else CSR(X.data, X.indices.astype(np.int32), X.indptr.astype(np.int64))
    writer = create(path, sparse=not dense)
    writer.append(rows, (y > 0).astype(np.int32), None)
    writer.commit(("-1", "1"), X.shape[1], {"names": None})


def contestants(name: str, options: Any, directory: Path) -> list[Row]:
    _, C, gamma = SETS[name]
    X, y = rows_of(name, directory, options.rows)
    store, arrays = directory / f"{name}.store", directory / f"{name}.npz"
    few = np.random.default_rng(0).permutation(len(y))[:1000]
    for rows, path in ((np.arange(len(y)), store), (few, Path(f"{store}.small"))):
        stored(X[rows], y[rows], path, dense=name in {"ijcnn1", "covtype"})
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
    np.savez(arrays, y=y, **parts)
    model, shared = str(directory / "model"), [str(options.tolerance), str(options.memory)]
    found = [
        {
            "set": name,
            "solver": f"streamsvm, {loss}",
            **in_child(OURS, str(store), model, loss, str(C), str(gamma), *shared),
        }
        for loss in options.losses.split(",")
    ]
    if "libsvm" in options.peers:
        found.append({"set": name, "solver": "LIBSVM", **in_child(LIBSVM, str(arrays), model, str(C), str(gamma))})
    for peer, patch in (("sklearn", ""), ("intelex", INTEL)):
        if peer in options.peers:
            script = SKLEARN.format(patch=patch)
            found.append({"set": name, "solver": peer, **in_child(script, str(arrays), str(C), str(gamma))})
    return found


def main() -> None:
    options = arguments(
        __doc__, sets="a9a,ijcnn1,w8a", rows=10**9, tolerance=1e-4, memory=512, losses="hinge", peers="libsvm"
    )
    with scratch() as directory:
        rows = [row for name in options.sets.split(",") for row in contestants(name, options, directory)]
    show("kernel machines in full", rows, options)
    print(json.dumps({"tolerance": options.tolerance}))


if __name__ == "__main__":
    main()
