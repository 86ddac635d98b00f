"""Jobs on the workers of a Dask cluster.

From a program that has a client already::

    with streamsvm.cluster.using(client) as executor:
        fit(FitJob(...), executor=executor)

A job that runs as a task itself (``client.submit(fit, FitJob(..., cluster="client:"))``) uses the cluster on which it
runs.

Scheduler, workers and the program need the same installation and the same files under the same names.

    connection        --cluster: addresses, TLS, local workers
    dask_executor     tasks, lost workers, and the messages of failures
    dask_collections  writing Dask collections to a store, and applying a model to them lazily
"""

from __future__ import annotations

from streamsvm.cluster.connection import connect_cluster, using
from streamsvm.cluster.dask_collections import evaluate_dask, ingest_dask, predict_dask

__all__ = ["connect_cluster", "evaluate_dask", "ingest_dask", "predict_dask", "using"]
