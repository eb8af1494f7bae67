#!/usr/bin/env bash
# Rolls a fleet of five from an earlier version to this one and back, under load: chaos/upgrade.sh COMMIT|BINARY…
#
# A commit is built in a work tree of its own below target/, which stays for the next time. At every mixture
# of the two versions an endpoint falls ill and heals, and every node must take it out and back in; no request may
# fail, and no node may throw away what another says. Needs cargo and git; everything runs on loopback.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 1 ] || { echo "usage: chaos/upgrade.sh COMMIT|BINARY…" >&2; exit 64; }
cd "$here"

# Prints the path of the binary that is meant.
binary_of() {
  if [ -x "$1" ] && [ ! -d "$1" ]; then realpath "$1"; return; fi
  local commit folder
  commit=$(git rev-parse --short=12 --verify --quiet "$1^{commit}") ||
    { echo "upgrade: $1 is neither a binary nor a commit" >&2; return 64; }
  folder=$here/target/earlier/$commit
  if [ ! -x "$folder/quorumgate" ]; then
    [ -d "$folder/source" ] || git worktree add --detach "$folder/source" "$commit" >&2
    (cd "$folder/source" && cargo build --locked --bin quorumgate --target-dir "$folder/target") >&2
    cp "$folder/target/debug/quorumgate" "$folder/quorumgate"
  fi
  echo "$folder/quorumgate"
}

broken=0
for version in "$@"; do
  older=$(binary_of "$version")
  echo "== from $version and back"
  if QUORUMGATE_OLDER=$older cargo test --locked -p quorumgate --test rolling -- --exact --nocapture \
    upgrade::two_versions_in_one_fleet_lose_no_request_and_decide_together; then
    echo "== $version: held"
  else
    echo "== $version: BROKEN"
    broken=$((broken + 1))
  fi
done
exit $((broken > 0))
