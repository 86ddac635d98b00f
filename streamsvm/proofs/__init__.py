"""Prove what the exact optimum of a fit answers, which nobody computes.

enclosure    intervals that contain the decision values and coefficients of the optimum
row_changes  the same without a row, or after rows were removed or added
cost_range   intervals for all C of a range
kept         what a model keeps of them
"""
