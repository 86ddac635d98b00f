#!/bin/sh
# A generated file of 1,000,000 orders - ids, dates, money, percentages, yes and no, missing values, words - from the raw
# rows to predictions beside ids, by commands alone. sh tools/raw/orders.sh FOLDER [ROWS]
set -eu
cd "$1"; rows=${2:-1250000}
streamsvm -q synth table orders.csv --rows "$rows" --test-fraction 0.2 --overwrite
streamsvm ingest orders.csv --label fate --id order --text remark=words --describe
streamsvm -q ingest orders.csv orders.zarr --label fate --id order --text remark=words --missing mean --memory 512MiB --overwrite
streamsvm -q fit orders.zarr orders.ssvm --standardize --memory 512MiB --overwrite
streamsvm -q predict orders.ssvm orders.csv raw.csv --output label,decision --memory 512MiB --overwrite
streamsvm -q predict orders.ssvm orders.zarr store.csv --output label,decision --memory 512MiB --overwrite
cmp raw.csv store.csv && echo "raw rows and the store: the same predictions, to the bit"
head -3 raw.csv
streamsvm -q predict orders.ssvm orders.test.csv new.csv --output label,decision --memory 512MiB --overwrite
streamsvm evaluate orders.ssvm orders.test.csv --memory 512MiB
