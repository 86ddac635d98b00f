"""tune: search of settings by cross-validation.

job      its options
run      all C and folds of a cell of the grid on shared passes
search   which points are tried: grids, random points, halving, beyond the edge
results  tables and heat maps of errors
"""
