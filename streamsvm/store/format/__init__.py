"""What a store consists of, whichever format holds its arrays.

manifest     written last: chunks, checksums, facts
arrays       names, types and units of the arrays
compression  blosc-lz4 units
labels       labels to class codes and back
statistics   moments of columns
row_ids      names of rows
predictions  files of predictions
"""
