"""Write stores. A directory becomes a readable store only by the commit at the end.

writer    write chunks as units, with checksums and statistics; the journal; the commit
chunking  cut rows into chunks and chunks into units
shuffle   shuffle more rows than memory holds, exactly
resume    locks, disk space, interrupted builds, repairs
"""
