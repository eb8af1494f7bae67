#!/usr/bin/env bash
# Keeps in the repository what fuzzers have learnt: fuzz/keep.sh TARGET…
# Of the corpus in $FUZZ_DIR (by default target/fuzz) the least that covers all of it is taken, the shortest
# first, up to BYTES_MAX with what has a name already; what people have named stays.
set -euo pipefail
cd "$(dirname "$0")"

[ $# -ge 1 ] || { echo "usage: $0 TARGET…" >&2; exit 64; }
home=${FUZZ_DIR:-target/fuzz}
bytes_max=${BYTES_MAX:-61440}
host=$(rustc -vV | sed -n 's/^host: //p')
binaries=$(cargo metadata --format-version 1 --no-deps --locked | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/$host/release

for target in "$@"; do
  least=$(mktemp -d)
  named=$(mktemp -d)
  # A name of forty digits is a fuzzer's.
  find "corpus/$target" -type f | grep -vE '/[0-9a-f]{40}$' | xargs -r cp -t "$named"
  cp "$named"/* "$least"/ 2>/dev/null || true
  "$binaries/$target" -merge=1 -max_len=8192 "$least" "$home/corpus/$target" "corpus/$target" 2>/dev/null
  find "corpus/$target" -type f | grep -E '/[0-9a-f]{40}$' | xargs -r rm
  size=$(cat "$named"/* 2>/dev/null | wc -c)
  while read -r bytes file; do
    [ -e "$named/$(basename "$file")" ] && continue
    size=$((size + bytes))
    [ "$size" -le "$bytes_max" ] || break
    cp "$file" "corpus/$target/"
  done < <(find "$least" -type f -printf '%s %p\n' | sort -n)
  echo "$target: $(ls "corpus/$target" | wc -l) files, $(cat "corpus/$target"/* | wc -c) bytes"
  rm -r "$least" "$named"
done
