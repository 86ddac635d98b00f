"""The engine of a fit: it visits blocks of rows with solvers, pass by pass, in one process, on threads or on a cluster.

- ``loop``: the fit loop, time limits included, and the trainer for online solvers, which visits one chunk after the
  other
- ``fit_state``: the live state of a fit, and whether and why it ends; ``progress``: reports of progress
- ``groups``: passes group by group: copies of a state visit groups of chunks and are merged
- ``partition``: groups of chunks; ``join_tree``: the fixed tree along which their results are joined; ``executor``:
  runs tasks one after the other, on threads or on a cluster
- ``cluster_loop``: the loop on a cluster; ``state_transfer``: serialization of states
- ``block``: the rows of a chunk with the targets and weights of a problem
- ``row_state``: dual variables of all rows, in memory or in files; ``checkpoint``: saving and resuming a run
- ``signals``: Ctrl-C, SIGTERM and time limits
- ``evaluation``: P and D of given weights over all rows; ``store_reference``: the store of a job, as other processes
  open it; ``store_parts``: stores that are written in parts by several tasks
"""
