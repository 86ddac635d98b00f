"""Fit a certified model to a store.

options        the options of a fit
driver         the whole fit, also of rows in memory
files          a fit of raw files: ingest, fit and evaluation in one
plan           all decisions made before any row is read
problems       the optimization problems: classes, C, class weights, warm starts
solver_choice  --solver auto, and problems that a solver refuses
memory         the memory plan, and how it is reduced to the limit
fallback       another solver, or float64 features, if a fit stalls
validate       held-out rows, early stopping
certify        certificates of the model as it is saved, and the status
outputs        models and the folder of the run
resume         plan a resumed fit, refuse other data or settings, recognize an earlier or finished run
notices        reasons of a missing certificate with advice, and other notices
"""
