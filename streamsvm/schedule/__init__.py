"""DECIDES: what fits into memory, and which chunk is read when.

budget      the memory limit, and the terms of a memory plan
memory_use  memory of this process now, and its peak
machine     control groups and usable cores
stream      the order of chunks in an epoch, and the threads that read them ahead
"""
