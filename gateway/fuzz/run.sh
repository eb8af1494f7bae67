#!/usr/bin/env bash
# Runs fuzzers one after the other, each for SECONDS of CPU time: fuzz/run.sh SECONDS [TARGET…]
# Without a target it runs all. What they learn, what they find and one line for each run are kept in
# $FUZZ_DIR, by default target/fuzz beside this script, so that they go on where they were. It ends with 1 if
# anything was found.
set -euo pipefail
cd "$(dirname "$0")"

[ $# -ge 1 ] || { echo "usage: $0 SECONDS [TARGET…]" >&2; exit 64; }
budget=$1
shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cd fuzz_targets && ls | sed 's/\.rs$//')

# Inputs beyond this say nothing that shorter ones do not, and cost speed.
bytes_max=8192
# No promise takes longer, in seconds, nor more memory, in MiB.
seconds_max=20
memory_max=2048

home=${FUZZ_DIR:-target/fuzz}
mkdir -p "$home"
home=$(cd "$home" && pwd)
table=$home/table
[ -s "$table" ] || echo "target cpu_seconds executions coverage features corpus findings" >"$table"

# Stable Rust builds the fuzzers, too; nothing of ours is unsafe, so that no sanitizer is needed.
export RUSTC_BOOTSTRAP=1
if [ -z "${FUZZ_BUILT:-}" ]; then
  (cd .. && cargo fuzz build --sanitizer none)
fi
host=$(rustc -vV | sed -n 's/^host: //p')
binaries=$(cargo metadata --format-version 1 --no-deps --locked | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/$host/release

# One run of at most so many seconds; sets cpu, executions, coverage, features and corpus.
run() {
  local target=$1 seconds=$2 log=$home/$1.log dictionary=()
  [ -f "dict/$target.dict" ] && dictionary=("-dict=dict/$target.dict")
  TIMEFORMAT="%U %S"
  # The fuzzer's own exit is told by what it has left in the folder of findings.
  { time "$binaries/$target" "$home/corpus/$target" "corpus/$target" -max_total_time="$seconds" \
    -max_len=$bytes_max -timeout=$seconds_max -rss_limit_mb=$memory_max -print_final_stats=1 \
    -artifact_prefix="$home/found/$target/" "${dictionary[@]}" >"$log" 2>&1 || true; } 2>"$log.time"
  cpu=$(awk '{ print int($1 + $2 + 0.5) }' "$log.time")
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
  read -r coverage features corpus < <(sed -n 's/.* cov: \([0-9]*\) ft: \([0-9]*\) corp: \([0-9]*\).*/\1 \2 \3/p' "$log" | tail -1) || true
}

found() { find "$home/found/$1" -type f | wc -l; }

status=0
for target in "${targets[@]}"; do
  mkdir -p "$home/corpus/$target" "$home/found/$target"
  spent=0 total=0 coverage=0 features=0 corpus=0 before=$(found "$target")
  # The time that a run takes is no less than the CPU's, so that further runs may be needed.
  while [ "$spent" -lt "$budget" ] && [ "$(found "$target")" -eq "$before" ]; do
    cpu=0 executions=0
    run "$target" $((budget - spent))
    spent=$((spent + cpu + 1)) total=$((total + ${executions:-0}))
  done
  findings=$(($(found "$target") - before))
  [ "$findings" -eq 0 ] || status=1
  line="$target $spent $total ${coverage:-0} ${features:-0} ${corpus:-0} $findings"
  echo "$line" | tee -a "$table"
done

# What all runs together amount to.
awk 'NR > 1 { cpu[$1] += $2; runs[$1] += $3; coverage[$1] = $4; features[$1] = $5; corpus[$1] = $6; found[$1] += $7 }
  END { for (name in cpu) print name, cpu[name], runs[name], coverage[name], features[name], corpus[name], found[name] }' \
  "$table" | sort >"$home/sums"
exit "$status"
