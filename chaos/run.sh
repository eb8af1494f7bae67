#!/usr/bin/env bash
# Breaks a fleet on purpose and says whether it kept its promises: chaos/run.sh SCENARIO|all
#
# Needs the built binary (QUORUMGATE, or target/release/quorumgate), curl and python3. Everything runs
# on loopback; only processes that this script started are ended, by their ids.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
binary=${QUORUMGATE:-$here/../target/release/quorumgate}
scenarios=(kill-steward kill-member heal)

usage() {
  echo "usage: chaos/run.sh SCENARIO|all   (one of: ${scenarios[*]})" >&2
  exit 64
}

[ $# -eq 1 ] || usage
for tool in curl python3; do
  command -v "$tool" >/dev/null || { echo "chaos: $tool is missing; install it" >&2; exit 69; }
done
[ -x "$binary" ] || { echo "chaos: no $binary; run 'cargo build --release'" >&2; exit 69; }

export here binary

run() {
  local file=$here/scenarios/$1.sh
  [ -f "$file" ] || usage
  echo "== $1: $(sed -n 's/^# Expect: //p' "$file")"
  # A shell of its own, so that any command that fails ends the scenario.
  if bash -euo pipefail -c 'source "$here/fleet.sh"; fleet_up; source "$1"' chaos "$file"; then
    echo "== $1: held"
  else
    echo "== $1: BROKEN"
    return 1
  fi
}

broken=0
if [ "$1" = all ]; then
  for scenario in "${scenarios[@]}"; do run "$scenario" || broken=$((broken + 1)); done
  echo "$((${#scenarios[@]} - broken)) passed, $broken failed"
else
  run "$1" || broken=1
fi
exit $((broken > 0))
