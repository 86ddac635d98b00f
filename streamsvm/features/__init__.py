"""MAPS: a raw block to a block of features. A map is part of the model, so that prediction cannot forget it.

scaling    standardization, centering, gamma
landmarks  which rows become landmarks
nystrom    the map to Nystrom features
expansion  sums of kernel values k(x, z_j), as models hold them
mapfile    a map beside the embedding it made
"""
