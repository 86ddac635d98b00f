"""The engine of a fit: it shows blocks of rows to solvers, pass by pass, in one process, on threads or on a cluster.

- ``loop``: the fit loop, time limits included, and the trainer that shows one chunk after the other
- ``fit_state``: what is known while a fit trains, and whether it is over; ``progress``: reports of progress
- ``groups``: passes group by group: copies of a state visit groups of chunks and are merged
- ``partition``: which chunks make a group; ``join_tree``: the fixed tree along which their results are joined; ``executor``: tasks in turn, on threads
  or on a cluster
- ``cluster_loop``: the loop on a cluster; ``state_transfer``: states as they are sent
- ``block``: a chunk as a problem sees it, with targets and weights
- ``row_state``: dual variables of all rows, in memory or in files; ``checkpoint``: saving a run, and resuming it
- ``signals``: Ctrl-C, SIGTERM and time limits
- ``evaluation``: P and D of given weights over all rows; ``store_reference``: the store that a job reads, as other
  processes open it; ``store_parts``: stores that tasks leave as parts of one
"""
