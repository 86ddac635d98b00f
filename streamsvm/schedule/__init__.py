"""Memory planning, and the order in which chunks are read.

budget   the memory limit, and the terms of a memory plan
machine  control groups, usable cores, and the current and peak memory of this process
stream   the order of chunks in a pass, and the threads that read chunks ahead
"""
