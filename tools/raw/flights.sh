#!/bin/sh
# 3,000,000 flights with airports and days as text: from the raw rows to an evaluation of June, by commands alone.
# sh tools/raw/flights.sh DATA FOLDER
set -eu
data=$(realpath "$1"); cd "$2"
# the file with its points in time as text, which is how such tables come
python -c "import sys, pyarrow.csv, pyarrow.parquet as pq
pyarrow.csv.write_csv(pq.read_table(sys.argv[1]), sys.argv[2])" "$data/flights-3m.parquet" flights.csv
read="--label delay --label-threshold 15 --memory 512MiB"
streamsvm ingest flights.csv $read --describe
streamsvm -q ingest flights.csv flights.zarr $read --split-after date=2001-05-31 --overwrite
streamsvm -q fit flights.zarr flights.ssvm --standardize --memory 512MiB --overwrite
streamsvm evaluate flights.ssvm flights.test.zarr --memory 512MiB
# the same rows in one store, to compare raw rows with stored ones
streamsvm -q ingest flights.csv all.zarr $read --overwrite
streamsvm -q fit all.zarr all.ssvm --standardize --memory 512MiB --overwrite
streamsvm -q predict all.ssvm flights.csv raw.csv --output label,decision --memory 512MiB --overwrite
streamsvm -q predict all.ssvm all.zarr store.csv --output label,decision --memory 512MiB --overwrite
cmp raw.csv store.csv && echo "raw rows and the store: the same predictions, to the bit"
