"""Linear problems with an l1 term beside the squared norm, by a proximal Newton's method."""
