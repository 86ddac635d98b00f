#!/bin/sh
# KDD Cup 1999, as it is downloaded: from the raw rows to an evaluation of the other file, by commands alone.
# sh tools/raw/kdd99.sh DATA FOLDER
set -eu
data=$(realpath "$1"); cd "$2"
read="--no-header --label last --positive normal. --memory 512MiB"
streamsvm ingest "$data/kddcup.data_10_percent.gz" $read --describe
streamsvm -q ingest "$data/kddcup.data_10_percent.gz" kdd99.zarr $read --overwrite
streamsvm -q fit kdd99.zarr kdd99.ssvm --standardize --memory 512MiB --overwrite
streamsvm -q predict kdd99.ssvm "$data/kddcup.data_10_percent.gz" raw.csv --output label,decision --memory 512MiB --overwrite
streamsvm -q predict kdd99.ssvm kdd99.zarr store.csv --output label,decision --memory 512MiB --overwrite
cmp raw.csv store.csv && echo "raw rows and the store: the same predictions, to the bit"
streamsvm evaluate kdd99.ssvm "$data/corrected.gz" --memory 512MiB
