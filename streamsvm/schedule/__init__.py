"""DECIDES: what fits into memory, and which chunk is read when.

budget   the memory limit, and the terms of a memory plan
machine  control groups, usable cores, and the memory of this process, now and at its peak
stream   the order of chunks in an epoch, and the threads that read them ahead
"""
