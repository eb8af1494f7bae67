#!/usr/bin/env bash
# The test command: format, lints, documentation, and every test. It needs Rust with rustfmt and
# clippy, a C compiler, python3 with venv and node from version 20 on with npm (for the official clients
# of OpenAI and Anthropic, which one test installs below the target directory), promtool (for the page of
# metrics and the alerts), redis-server with redis-cli (tests start their own on free ports and leave the
# system's alone), for fleets in networks of their own ip, nft and libfaketime, h2load, curl, for the page
# Chromium with its driver, and for what is deployed systemd-analyze and the system's certificate authorities; on
# Debian, as root, it installs what is missing. Who is not root must be allowed user namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3 python3-venv)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
command -v promtool >/dev/null || missing+=(prometheus)
command -v redis-server >/dev/null || missing+=(redis-server)
command -v ip >/dev/null || missing+=(iproute2)
command -v nft >/dev/null || missing+=(nftables)
command -v faketime >/dev/null || missing+=(faketime)
command -v h2load >/dev/null || missing+=(nghttp2-client)
command -v curl >/dev/null || missing+=(curl)
command -v chromedriver >/dev/null || missing+=(chromium chromium-driver)
command -v systemd-analyze >/dev/null || missing+=(systemd)
[ -s /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    apt-get update -q && apt-get install -qy "${missing[@]}"
  else
    echo "missing: ${missing[*]}; install them with your system's package manager" >&2
    exit 69
  fi
fi

# A machine that tests is new each time and has little disk: nothing is kept for a next build, nothing for a
# debugger. The target directory ends at some 4 GB.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0

cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$log" || status=$?
# One closing line over all test binaries.
awk '/^test result:/ { passed += $4; failed += $6 } END { print passed + 0 " passed, " failed + 0 " failed" }' "$log"
exit "$status"
