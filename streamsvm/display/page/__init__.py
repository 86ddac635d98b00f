"""The page of a run: one HTML file with drawings of ours in it, nothing to load and nothing to execute."""
