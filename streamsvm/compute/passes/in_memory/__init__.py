"""Passes of second-order methods whose rows are in memory."""
