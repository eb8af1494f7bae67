# Where the commands of a document run: a network, a process table and a directory of their own, which
# end with this shell. Arguments: SCENE (bare, fleet or repository), REPOSITORY, BINARY.
set -Eeuo pipefail
scene=$1 repository=$2 binary=$3
ip link set lo up
mkdir bin && ln -s "$binary" bin/quorumgate
# A request that is refused is an example that does not work, whether it says --fail or not.
cat >bin/curl <<SH
#!/bin/sh
for word; do case \$word in --fail*|-[!-]*f*|-f*) exec "$(command -v curl)" "\$@";; esac; done
exec "$(command -v curl)" --fail-with-body "\$@"
SH
chmod +x bin/curl
PATH="$PWD/bin:$PATH"
stage=$PWD

# Building is not what is shown; running from the sources is what the binary does.
cargo() { case $1 in run) shift; while [ "$1" != -- ]; do shift; done; shift; quorumgate "$@";; esac; }

# A command that does not end by itself is well if it still runs after a second.
endless() {
  local code=0
  timeout -s KILL 1 "$@" >>"$stage/endless" 2>&1 || code=$?
  [ "$code" = 0 ] || [ "$code" = 137 ] || { tail -5 "$stage/endless" >&2; return 1; }
}

# exits CODE COMMAND…
exits() {
  local wanted=$1 code=0
  shift
  "$@" || code=$?
  [ "$code" = "$wanted" ] || { echo "exited with $code" >&2; return 1; }
}

# wait_for WHAT COMMAND…
wait_for() {
  local what=$1 until=$((SECONDS + 30))
  shift
  until "$@"; do
    [ $SECONDS -lt $until ] || { echo "waited in vain: $what" >&2; return 1; }
    sleep 0.05
  done
}

may_decide() {
  curl -sf --max-time 5 "127.0.0.1:$1/admin/v1/cluster" |
    python3 -c 'import json, sys; it = json.load(sys.stdin); sys.exit(not (it["live"] == 3 and it["observing_ms"] == 0))' 2>/dev/null
}

# Three gateways before two mock endpoints, where the documents say that they are.
fleet() {
  local n clients
  quorumgate certs init --dir certs >/dev/null
  for n in 1 2; do quorumgate mock --listen "127.0.0.1:900$n" --name "gpu-$n" 2>"mock-$n.log" & done
  for n in 1 2 3; do
    quorumgate certs issue "gw-$n" --dir certs >/dev/null
    clients=808$n operators=909$n
    [ $n != 1 ] || clients=8080 operators=9090
    cat >"gw-$n.yaml" <<YAML
server: { listen: 127.0.0.1:$clients, workers: 1, drain_delay: 100ms }
admin: { listen: 127.0.0.1:$operators }
cluster:
  id: example
  node_id: gw-$n
  listen: 127.0.0.1:794$n
  seeds: [127.0.0.1:7941]
  tls: { ca: certs/ca.crt, cert: certs/gw-$n.crt, key: certs/gw-$n.key }
  gossip_interval: 200ms
  quorum: { expected_members: 3, observe: 1s }
models:
  - name: demo-model
    endpoints:
      - { name: gpu-a, address: "http://127.0.0.1:9001" }
      - { name: gpu-b, address: "http://127.0.0.1:9002" }
YAML
    quorumgate serve --config "gw-$n.yaml" 2>"gw-$n.log" &
  done
  for n in 9090 9092 9093; do wait_for "the fleet forms" may_decide $n; done
}

case $scene in
bare)
  cat >gw.yaml <<'YAML'
models:
  - name: demo-model
    endpoints: [ { name: gpu-a, address: "http://127.0.0.1:9001" } ]
YAML
  cat >config.yaml <<'YAML'
model_list:
  - model_name: demo-model
    litellm_params: { model: openai/demo-model, api_base: "http://127.0.0.1:9001/v1", api_key: none }
YAML
  cp "$repository/gateway/tests/examples/access.log" access.log
  ;;
fleet) fleet ;;
repository) cp -r "$repository/deploy" "$repository/chaos" . ;;
esac
trap 'echo "in vain: $BASH_COMMAND" >&2' ERR
