"""Write stores: nothing that could be taken for a store is there before the end.

writer    chunks to units, checksums and statistics; the journal; the commit
chunking  rows to chunks, chunks to units
shuffle   an exact shuffle of more rows than memory holds
resume    one writer at a time, room on the disk, builds that were interrupted, repairs
"""
