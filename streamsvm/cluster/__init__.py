"""The same jobs on the workers of a Dask cluster. The only place that knows Dask.

From a program that has a client already::

    with streamsvm.cluster.using(client) as executor:
        fit(FitJob(...), executor=executor)

Scheduler, workers and the program need the same installation and see the same files under the same names.
"""

from __future__ import annotations

from streamsvm.cluster.arrays import ingest_dask
from streamsvm.cluster.connection import connected, using

__all__ = ["connected", "ingest_dask", "using"]
