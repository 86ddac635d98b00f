"""tune: search of settings by cross-validation.

options  the options of a search
regret   proof that no C between those that were fitted has a better error
files    a search on raw files: ingest, then tune
run      all C and folds of a cell of the grid on shared passes
search   which points are tried: grids, random points, successive halving, points beyond the edge of the grid
results  tables and heat maps of the scores, and the command that fits with the best settings
"""
