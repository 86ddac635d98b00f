"""Steps along single rows or small batches: what solvers without a number per row do in a pass."""
