"""Feature maps: from blocks of stored rows to blocks of features. A model contains its map, so that prediction applies
it.

scaling         standardization and centering
curves          piecewise-linear curves of columns: knots, the penalty, rows of hat functions
jumps           values of numbers with effects of their own, and the test that finds them
column_pairs    tables of pairs of columns: cells, the penalty
pair_statistic  the test that chooses pairs
landmarks       selection of the rows that become landmarks
nystrom         the map to Nystrom features
expansion       kernel expansions sum_j b_j k(x, z_j), as part of a model
mapfile         the file of a map, stored with the features that it computed
"""
