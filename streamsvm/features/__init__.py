"""MAPS: a raw block to a block of features. A map is part of the model, so that prediction cannot forget it."""
