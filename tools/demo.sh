#!/bin/bash
# A throw-away cluster on this machine, one job through it, and nothing left behind.
# Needs `gsched` and the commands in PATH (`make demo` sees to that). GSCHED_DEMO_KEEP=1 leaves it up.
set -eu
umask 022

dir=$(mktemp -d "${TMPDIR:-/tmp}/gsched-demo.XXXXXX")
chmod 755 "$dir"
leave() {
  rc=$?
  trap - EXIT
  if [ "${GSCHED_DEMO_KEEP:-0}" = 1 ] && [ $rc = 0 ]; then
    echo; echo "The cluster is still up:  eval \"\$(gsched env --dir $dir/cluster)\""
    echo "Take it down with:        gsched down --purge --dir $dir/cluster"
    exit 0
  fi
  if [ $rc != 0 ]; then
    echo "demo: failed; the end of the logs:" >&2
    tail -n 5 "$dir"/cluster/log/* >&2 2>/dev/null || true
  fi
  [ ! -d "$dir/cluster" ] || gsched down --purge --dir "$dir/cluster" || rc=1
  rm -rf "$dir"
  exit $rc
}
trap leave EXIT
trap 'exit 130' INT TERM

show() { echo; echo "\$ $*"; "$@"; }
# The state of job $1 becomes $2 (at most 10 s); squeue says nothing of a job that has ended.
await() {
  for _ in $(seq 1 100); do
    case " $2 " in *" $(squeue -h -j "$1" -o %T) "*) return 0 ;; esac
    sleep 0.1
  done
  echo "demo: job $1 is $(squeue -h -j "$1" -o '%T (%r)'), not $2" >&2
  return 1
}

echo "\$ gsched up --dir $dir/cluster"
gsched up --dir "$dir/cluster"
eval "$(gsched env --dir "$dir/cluster")"

mkdir "$dir/work"
cd "$dir/work"
cat > train.sh <<'SCRIPT'
#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --gres=gpu:2
#SBATCH --time=00:05:00
#SBATCH --output=train-%j.out
echo "job $SLURM_JOB_ID ($SLURM_JOB_NAME) on $SLURM_JOB_NODELIST with $SLURM_CPUS_ON_NODE CPUs"
echo "CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"
for epoch in 1 2 3; do
  echo "epoch $epoch"
  sleep 0.5
done
SCRIPT
show cat train.sh
show sinfo
show sbatch train.sh
id=$(squeue -h -o %A -n train)
await "$id" RUNNING
show squeue
show scontrol show job "$id"
await "$id" " "
show cat "train-$id.out"
grep -q "^CUDA_VISIBLE_DEVICES=[0-9]" "train-$id.out"
grep -q "^epoch 3" "train-$id.out"
echo
