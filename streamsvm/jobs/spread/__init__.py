"""The jobs over many workers: tasks over groups of chunks, joined in an order that no worker has a say in.

A task is a function of paths and settings; it carries no rows. It may run twice and counts once. How tasks reach workers
is an ``Executor``'s business, looked up by name, so that nothing here knows of any cluster.
"""
