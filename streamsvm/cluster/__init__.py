"""The same jobs on the workers of a Dask cluster. The only place that knows Dask.

From a program that has a client already::

    with streamsvm.cluster.using(client) as executor:
        fit(FitJob(...), executor=executor)

A job that runs as a task itself (``client.submit(fit, FitJob(..., cluster="client:"))``) uses the cluster it is on.

Scheduler, workers and the program need the same installation and see the same files under the same names.

    connection        --cluster: addresses, TLS, local workers
    executor          tasks, lost workers, and the messages of failures
    dask_collections  Dask collections to a store, and a model applied to them, lazily
"""

from __future__ import annotations

from streamsvm.cluster.connection import connect_cluster, using
from streamsvm.cluster.dask_collections import evaluate_dask, ingest_dask, predict_dask

__all__ = ["connect_cluster", "evaluate_dask", "ingest_dask", "predict_dask", "using"]
