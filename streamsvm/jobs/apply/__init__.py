"""predict and evaluate: a model applied to rows.

job              their options
rows             rows of a store or of files, checked against the model and decided
predict          predictions to a file
evaluate         how good a model is
row_samples      rows of an evaluation that are kept for the page: a sample and the worst errors
metrics          accuracy, AUC, thresholds and errors, counted in bounded memory
decision_values  decision values of arrays, tables and stores of a program
column_names     names of the columns of a store
"""
