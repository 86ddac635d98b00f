"""fit: from a store and settings to a certified model.

job            its options
driver         the whole way, and fits of rows in memory
files          a fit of raw files: ingest, fit and evaluation in one
plan           all that is decided before anything is read
problems       the optimization problems: classes, C, weights, starts
solver_choice  --solver auto, and what solvers refuse
memory         the memory plan, and what is given up when it is too large
fallback       another solver or features in float64 when a fit stalls
validate       held-out rows, early stopping
certify        certificates of the model as it is saved, and the status
outputs        model, run folder, and what an earlier run left there
resume         which settings may change when a run is resumed
notices        why there is no certificate, what to do next, and other notices
"""
