"""The engine of a fit: it visits blocks of rows with solvers, pass by pass, in one process, on threads or on a cluster.

- ``loop``: the fit loop, written once for every solver; ``local_loop``: its passes in this process, on one thread or
  several; ``cluster_loop``: its passes on a cluster
- ``fit_state``: the live state of a fit, and whether and why it ends; ``progress``: reports of progress
- ``group_tasks``: the tasks of a pass, each of which visits a group of chunks; ``partition``: the groups; ``join_tree``:
  the fixed tree along which their results are joined
- ``executor``: runs tasks one after the other, on threads, or on the cluster that --cluster names
- ``block_visitor``: shows the rows of a chunk to the solver of each problem, with its targets and weights
- ``row_state``: dual variables of all rows, in memory or in files; ``state_transfer``: solver states on the way to
  workers, and the fields that stay in files; ``checkpoint``: saving and resuming a run
- ``signals``: Ctrl-C and SIGTERM; ``time_limit``: --time-limit
- ``evaluation``: P and D of given weights over all rows; ``store_reference``: the store of a job, as other processes
  open it; ``store_parts``: stores that are written in parts by several tasks
"""
