"""What a store consists of, in the Zarr and in the HDF5 format.

manifest     the file that is written last: chunks, checksums, facts
arrays       names, types and units of the arrays
compression  units compressed with blosc-lz4
labels       convert labels to class codes and back
statistics   moments of columns
row_ids      ids of rows
predictions  files of predictions
"""
