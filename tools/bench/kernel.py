"""Kernel C-SVC and L2-SVM in full: decomposition and blended beside LIBSVM and scikit-learn, each in a process of its own.

CPU seconds of the training alone, peak anonymous memory of the whole process (ours within ``--memory``, data streamed
from a store; theirs with the data in memory), dual objective, error on the test rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tools.measure.datasets import Data, Split, dense, split, stored
from tools.measure.harness import Row, arguments, in_child, scratch, show

SETTINGS = {
    "a9a": (1.0, 0.03, False),
    "ijcnn1": (10.0, 2.0, True),
    "w8a": (10.0, 0.02, False),
    "mnist": (10.0, 0.02, True),
    "mnist-pixels": (10.0, 0.02 / 255**2, True),
    "fashion-pixels": (10.0, 0.02 / 255**2, True),
    "kdd99-100k": (10.0, 0.02, True),
    "covtype": (10.0, 0.1, True),
}
"""C, gamma, and whether rows are stored dense."""

OURS = """
import json, sys, time
import numpy as np
import scipy.sparse as sp
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.rows import CSR, Dense
store, test, model, loss, C, gamma, tolerance, memory, most, seconds, dense = sys.argv[1:]
settings = dict(kernel="rbf", gamma=float(gamma), memory=int(memory) << 20, overwrite=True, loss=loss)
options = {"max_support": int(most)} if int(most) else {}
fit(FitJob(store + ".small", model, C=1.0, **settings))  # compiles
job = FitJob(store, model, C=float(C), tolerance=float(tolerance), options=options, **settings, time_limit=float(seconds))
began = time.process_time()
result = fit(job)
taken, training = time.process_time() - began, result.training
found = training.runs[0].certificate
file = np.load(test)
part = CSR(file["data"], file["indices"].astype(np.int32), file["indptr"].astype(np.int64))
if int(dense):
    import scipy.sparse as sp
    part = Dense(sp.csr_matrix((part.data, part.indices, part.indptr), file["shape"]).toarray())
error = float(np.mean((np.ravel(result.model.decision(part)) > 0) != (file["y"] > 0)))
print(json.dumps({"cpu s": taken, "wall s": training.seconds, "passes": training.passes, "gap": found.gap,
                  "dual": found.dual, "support": result.model.weights.shape[1] - 1, "error %": 100 * error,
                  "fit MiB": round(training.peak / 2**20)}))
"""

DUAL = """
def dual_of(Z, c, gamma):
    squares, quadratic = np.asarray(Z.multiply(Z).sum(1)).ravel(), 0.0
    for start in range(0, Z.shape[0], 1000):
        part = slice(start, start + 1000)
        distance = squares[part, None] + squares - 2.0 * (Z[part] @ Z.T).toarray()
        quadratic += c[part] @ (np.exp(-gamma * np.maximum(distance, 0.0)) @ c)
    return float(np.abs(c).sum() - 0.5 * quadratic)
"""
"""The dual objective of what another side has found, in float64."""

LIBSVM = """
import json, sys, time
import numpy as np, scipy.sparse as sp
from libsvm.svmutil import svm_problem, svm_parameter, svm_train, svm_predict
rows, test, C, gamma = sys.argv[1:]
def read(name):
    file = np.load(name)
    return sp.csr_matrix((file["data"].astype(float), file["indices"], file["indptr"]), file["shape"]), file["y"]
X, y = read(rows)
problem = svm_problem(y, X)
began = time.process_time()
found = svm_train(problem, svm_parameter(f"-q -s 0 -t 2 -c {C} -g {gamma} -m 1000"))
taken = time.process_time() - began
dual = dual_of(X[np.array(found.get_sv_indices()) - 1], np.array(found.get_sv_coef())[:, 0], float(gamma))
X, y = read(test)
labels = svm_predict(y, X, found, "-q")[0]
print(json.dumps({"cpu s": taken, "dual": dual, "support": found.get_nr_sv(), "error %": 100 * float(np.mean(labels != y))}))
"""

SKLEARN = """
import json, sys, time
import numpy as np, scipy.sparse as sp
{patch}
from sklearn.svm import SVC
rows, test, C, gamma = sys.argv[1:]
def read(name):
    file = np.load(name)
    return sp.csr_matrix((file["data"], file["indices"], file["indptr"]), file["shape"]).toarray(), file["y"]
X, y = read(rows)
began = time.process_time()
found = SVC(C=float(C), gamma=float(gamma), cache_size=1000).fit(X, y)
taken = time.process_time() - began
dual = dual_of(sp.csr_matrix(found.support_vectors_.astype(float)), np.ravel(found.dual_coef_), float(gamma))
X, y = read(test)
error = float(np.mean(found.predict(X) != y))
print(json.dumps({{"cpu s": taken, "dual": dual, "support": len(found.support_), "error %": 100 * error}}))
"""
INTEL = "from sklearnex import patch_sklearn; patch_sklearn(verbose=False)"
SCRIPTS = {
    "libsvm": DUAL + LIBSVM,
    "sklearn": DUAL + SKLEARN.format(patch=""),
    "intelex": DUAL + SKLEARN.format(patch=INTEL),
}


def kept(X: Any, y: Any, path: Path) -> str:
    """Rows where every contestant can read them."""
    np.savez(path, y=y, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape)
    return str(path)


def contestants(name: str, options: Any, directory: Path) -> list[Row]:
    (C, gamma, as_dense), store = SETTINGS[name], directory / f"{name}.store"
    found = split(name, directory)
    found = found._replace(X=found.X[: options.rows], y=found.y[: options.rows])
    train = kept(sp.csr_matrix(found.X, dtype=np.float32), found.y, directory / f"{name}.npz")
    test = kept(sp.csr_matrix(found.X_test, dtype=np.float32), found.y_test, directory / f"{name}.test.npz")
    rows: Split = dense(found) if as_dense else found
    few = np.random.default_rng(0).permutation(len(rows.y))[:1000]
    stored(rows, store)
    stored(Data(name, rows.X[few], rows.y[few]), Path(f"{store}.small"))
    ours = [str(getattr(options, key)) for key in ("tolerance", "memory", "max_support", "seconds")]
    shared, table = [str(store), test, str(directory / "model")], []
    for loss in options.losses.split(","):
        measured = in_child(OURS, *shared, loss, str(C), str(gamma), *ours, str(int(as_dense)))
        table.append({"set": name, "solver": f"streamsvm, {loss}", **measured})
    table += [
        {"set": name, "solver": peer, **in_child(SCRIPTS[peer], train, test, str(C), str(gamma), limit=options.limit)}
        for peer in filter(None, options.peers.split(","))
    ]
    for row in table:
        print(row, flush=True)
    return table


def spelled(row: Row) -> Row:
    """The dual with all digits that are compared."""
    return {**row, "dual": f"{row['dual']:.2f}"} if "dual" in row else row


def main() -> None:
    options = arguments(
        __doc__,
        sets="a9a,ijcnn1,w8a,mnist,kdd99-100k",
        rows=10**9,
        tolerance=1e-4,
        memory=512,
        max_support=0,
        seconds=420.0,
        losses="hinge",
        peers="libsvm,intelex",
        limit=120.0,
    )
    with scratch() as directory:
        rows = [row for name in options.sets.split(",") for row in contestants(name, options, directory)]
    show("kernel machines in full", [spelled(row) for row in rows], options)


if __name__ == "__main__":
    main()
