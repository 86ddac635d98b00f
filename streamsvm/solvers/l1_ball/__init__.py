"""Least squares over the l1 ball by the Frank-Wolfe methods."""
