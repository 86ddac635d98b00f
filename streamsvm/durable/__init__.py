"""The only package that writes files. What it has acknowledged survives a kill and a power cut.

``write_file`` replaces a whole file atomically. Large outputs are made of many files written with ``write_part`` -
not yet durable, which is why nothing may refer to them - then ``sync`` makes them durable, and a last ``write_file``
of a manifest that names them is the commit. ``append_line`` is for journals, ``open_log`` for event logs.
What is written shows in ``steps``, where faults are put in.
"""

from streamsvm.durable.event_log import Log, open_log
from streamsvm.durable.in_place import open_part, open_state, read_at, resize, sync_state, write_at
from streamsvm.durable.names import ASIDE, exchange, rename
from streamsvm.durable.npy import is_npy_of_ours, npy_header, write_npy
from streamsvm.durable.steps import explained
from streamsvm.durable.whole_files import (
    PARTIAL,
    append_line,
    make_directory,
    sync,
    temporary_beside,
    write_file,
    write_part,
    write_stream,
)

__all__ = [
    "ASIDE",
    "PARTIAL",
    "Log",
    "append_line",
    "exchange",
    "explained",
    "is_npy_of_ours",
    "make_directory",
    "npy_header",
    "open_log",
    "open_part",
    "open_state",
    "read_at",
    "rename",
    "resize",
    "sync",
    "sync_state",
    "temporary_beside",
    "write_at",
    "write_file",
    "write_npy",
    "write_part",
    "write_stream",
]
