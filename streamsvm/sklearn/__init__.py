"""Estimators with the interface of scikit-learn (``pip install streamsvm[sklearn]``), for arrays, tables, files and stores.

    from streamsvm.sklearn import StreamSVC
    StreamSVC(C=10, kernel="rbf", landmarks=300).fit(X, y)
    StreamSVC(memory="512MiB").fit("train.zarr")

They pass all checks of scikit-learn (1.6 and later) for estimators, including the one that a weight of k is equivalent to k copies of a row.

    base       parameters and fit of all estimators
    svc        classification
    svr        regression
    one_class  outlier detection
    nystroem   kernel features as a transformer
    search     StreamSVCCV and StreamKFold
    rows       checks of rows, merging of copies, StreamRows: rows of a store as an array
    convert    conversion of a model to estimators of scikit-learn
"""

from __future__ import annotations

from streamsvm.sklearn.nystroem import StreamNystroem
from streamsvm.sklearn.one_class import StreamOneClassSVM
from streamsvm.sklearn.rows import StreamRows
from streamsvm.sklearn.search import StreamKFold, StreamSVCCV
from streamsvm.sklearn.svc import StreamSVC
from streamsvm.sklearn.svr import StreamSVR

TRUSTED_TYPES = [
    "streamsvm.calibration.calibrators.Calibration",
    "streamsvm.calibration.calibrators.Isotonic",
    "streamsvm.calibration.calibrators.PlattSigmoid",
    "streamsvm.calibration.calibrators.Temperature",
    "streamsvm.compute.kernel_values.kernel_matrix.Points",
    "streamsvm.features.expansion.Expansion",
    "streamsvm.features.nystrom.Projection",
    "streamsvm.features.scaling.Raw",
    "streamsvm.features.scaling.Standardized",
    "streamsvm.kernels.Laplacian",
    "streamsvm.kernels.Linear",
    "streamsvm.kernels.Polynomial",
    "streamsvm.kernels.RBF",
    "streamsvm.kernels.Sigmoid",
    "streamsvm.model.model.Model",
    "streamsvm.rows.CSR",
    "streamsvm.rows.Dense",
    "streamsvm.sklearn.nystroem.StreamNystroem",
    "streamsvm.sklearn.one_class.StreamOneClassSVM",
    "streamsvm.sklearn.search.StreamSVCCV",
    "streamsvm.sklearn.svc.StreamSVC",
    "streamsvm.sklearn.svr.StreamSVR",
    "streamsvm.store.sources.preprocessing.Filling",
    "streamsvm.store.sources.offsets.Offsets",
]
"""The types of which a fitted estimator consists, for ``skops.io.load(path, trusted=TRUSTED_TYPES)`` and ``skops_trusted_types`` of MLflow."""
__all__ = ["StreamKFold", "StreamNystroem", "StreamOneClassSVM", "StreamRows", "StreamSVC", "StreamSVCCV", "StreamSVR"]
