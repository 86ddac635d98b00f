"""Train support vector machines on data larger than memory, inside a memory budget you state."""

__version__ = "0.1.0"
