"""Apply a model to rows: predict and evaluate.

options          the options of both commands
rows             rows of a store or of files, checked against the model, and their decision values
predict          predictions, written to a file
evaluate         the measures of a model on labeled rows
row_samples      rows of an evaluation that are kept for the page: a sample and the worst errors
leave_one_out    bounds of the leave-one-out error of the exact optima
measures         accuracy, AUC, thresholds and errors, computed in bounded memory
decision_values  decision values of arrays, tables and stores given in Python
column_names     names of the columns of a store or model
"""
