#!/usr/bin/env bash
# A fit on many nodes under SLURM, from its own scheduler to its own end:
#
#     sbatch --nodes=8 --time=04:00:00 tools/slurm/fit.sh train.zarr model.ssvm --solver newton --memory 8GiB
#
# One task a node: the first runs the scheduler and the job, all of them a worker. Two minutes before the time limit, and
# when the job is preempted, SLURM sends SIGUSR1: the fit saves a checkpoint and ends with exit code 75, and the job is
# put back in the queue, where it goes on from there. A cluster that fell apart (exit code 69) is asked for again too, at
# most $STREAMSVM_ATTEMPTS times.
#SBATCH --job-name=streamsvm
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
set -uo pipefail

run=${STREAMSVM_RUN:-$PWD/.streamsvm-$SLURM_JOB_ID}
threads=${SLURM_CPUS_PER_TASK:-1}
attempts=${STREAMSVM_ATTEMPTS:-5}
mkdir -p "$run"
file=$run/scheduler-${SLURM_RESTART_COUNT:-0}.json
rm -f "$file"

# Every process of a cluster runs what it is sent: between nodes it is encrypted, on one node nothing leaves it.
place=() tls=() network=()
if [ -n "${STREAMSVM_TLS:-}" ]; then
  tls=(--protocol tls --tls-ca-file "$STREAMSVM_TLS/ca.pem" --tls-cert "$STREAMSVM_TLS/cert.pem"
    --tls-key "$STREAMSVM_TLS/key.pem")
  export DASK_DISTRIBUTED__COMM__TLS__CA_FILE=$STREAMSVM_TLS/ca.pem
  export DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT=$STREAMSVM_TLS/cert.pem
  export DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY=$STREAMSVM_TLS/key.pem
elif [ "${SLURM_JOB_NUM_NODES:-1}" -eq 1 ]; then
  place=(--host 127.0.0.1)
elif [ -n "${STREAMSVM_INSECURE_NETWORK:-}" ]; then
  network=(--insecure-network)
else
  echo "several nodes need certificates: set STREAMSVM_TLS to the folder of ca.pem, cert.pem and key.pem," \
    "or STREAMSVM_INSECURE_NETWORK=1 where everybody on the network may run programs as you" >&2
  exit 77
fi

dask scheduler --port 0 --dashboard-address 127.0.0.1:0 --scheduler-file "$file" "${place[@]}" "${tls[@]}" &
scheduler=$!
srun dask worker --scheduler-file "$file" --nthreads 1 --nworkers "$threads" --dashboard-address 127.0.0.1:0 \
  --death-timeout 60 "${place[@]}" "${tls[@]}" &
workers=$!
until [ -s "$file" ]; do
  kill -0 "$scheduler" 2>/dev/null || { echo "the scheduler did not start" >&2; exit 69; }
  sleep 0.2
done

streamsvm fit "$@" --cluster "scheduler-file:$file" "${network[@]}" --resume &
fit=$!
# A signal interrupts `wait`; the fit is told, and waited for again until it has saved what there is.
trap 'kill -TERM "$fit" 2>/dev/null' USR1 TERM
wait "$fit"
code=$?
while kill -0 "$fit" 2>/dev/null; do
  wait "$fit"
  code=$?
done
kill "$workers" "$scheduler" 2>/dev/null

if [ "$code" -eq 75 ] || { [ "$code" -eq 69 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt "$attempts" ]; }; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
