# A fleet of three gateways over four mock endpoints, and how to ask it. Sourced by run.sh in a shell
# of its own for each scenario, whose end ends every process that it started.

model=demo-model
endpoint=$model/gpu-b

# Starts the fleet of deploy/local in a directory of its own, and waits until it can decide.
fleet_up() {
  work=$(mktemp -d)
  declare -gA node_id=()
  declare -ga others=()
  trap fleet_down EXIT
  cp "$here"/../deploy/local/gw-*.yaml "$work"
  cd "$work"
  "$binary" certs init --dir certs
  for n in 1 2 3; do "$binary" certs issue "gw-$n" --dir certs; done
  for n in 1 2 3 4; do
    "$binary" mock --listen "127.0.0.1:900$n" --name "gpu-$n" 2>"mock-$n.log" &
    others+=($!)
  done
  for n in 1 2 3; do
    "$binary" serve --config "gw-$n.yaml" 2>"gw-$n.log" &
    node_id[$n]=$!
  done
  for n in 1 2 3; do wait_for 20 "gw-$n joins the fleet" can_decide "$n"; done
}

fleet_down() {
  for id in "${node_id[@]}" "${others[@]}"; do kill -9 "$id" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}

# wait_for SECONDS WHAT COMMAND…: waits until the command succeeds, and fails saying what was
# waited for.
wait_for() {
  local until=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    if [ $SECONDS -ge "$until" ]; then echo "waited in vain: $what" >&2; return 1; fi
    sleep 0.1
  done
}

# ask NODE PATH EXPRESSION: an expression over the answer, `it`, as Python.
ask() {
  curl -sf --max-time 5 "127.0.0.1:909$1/admin/v1/$2" |
    python3 -c "import json,sys; it=json.load(sys.stdin); print($3)" 2>/dev/null
}

can_decide() { [ "$(ask "$1" cluster 'it["live"] == 3 and it["observing_ms"] == 0')" = True ]; }
is_out() { [ "$(ask "$1" "endpoints/$endpoint" 'it["cluster"]["state"]')" = open ]; }
is_in() { [ "$(ask "$1" "endpoints/$endpoint" 'it["in_rotation"]')" = True ]; }

# chat NODE: one request; prints its status.
chat() {
  curl -s -o /dev/null -w '%{http_code}\n' --max-time 20 "127.0.0.1:808$1/v1/chat/completions" \
    -H 'content-type: application/json' \
    -d '{"model":"'$model'","messages":[{"role":"user","content":"hello"}]}'
}

# mock_count FIELD: what gpu-b has counted.
mock_count() {
  curl -sf --max-time 5 127.0.0.1:9002/__admin/counts |
    python3 -c "import json,sys; print(json.load(sys.stdin)['$1'])"
}

# Makes gpu-b slow and sends traffic to the given nodes until each has it out. Every request of that
# traffic must be answered well: the healthy endpoints take over, or the slow one answers late.
convict() {
  curl -sf 127.0.0.1:9002/__admin/set -d '{"latency_ms":3000}' >/dev/null
  local calls=() n
  for _ in $(seq 200); do
    local all=yes
    for n in "$@"; do is_out "$n" || all=no; done
    [ $all = no ] || break
    for n in "$@"; do chat "$n" >>statuses & calls+=($!); done
    sleep 0.02
  done
  wait "${calls[@]}"
  for n in "$@"; do is_out "$n" || { echo "gw-$n does not take it out" >&2; return 1; }; done
  only_good statuses
}

only_good() {
  local bad
  bad=$(grep -cv '^200$' "$1" || true)
  [ "$bad" -eq 0 ] || { echo "$bad of $(wc -l <"$1") requests failed" >&2; return 1; }
  echo "$(wc -l <"$1") requests, all answered"
}

heal() { curl -sf -X POST 127.0.0.1:9002/__admin/reset >/dev/null; }

expect() { [ "$2" "$3" "$4" ] || { echo "$1: $2 $3 $4 does not hold" >&2; return 1; }; }

# The node that leads the recovery, as a number.
steward() { ask 1 "endpoints/$endpoint" 'it["cluster"]["steward"][3:]'; }
