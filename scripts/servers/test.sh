#!/usr/bin/env bash
# The tests against real servers: scripts/servers/test.sh [CARGO_TEST_ARGUMENT...]
#
# Every test program whose name begins with `servers_`, beside all servers that this machine can install. Each test says
# by itself why it was skipped. The first run builds the servers, which takes minutes; later ones start them in seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
logs=target/test-logs
mkdir -p "$logs"
# Compiled first: servers need not wait, idle and in memory, for a build.
# shellcheck disable=SC2086  # LOCKED is no word or one
cargo test ${LOCKED:-} --no-run --test 'servers_*'
# shellcheck disable=SC2086
scripts/servers/with minio,minio-tls,aistore,cassandra,cassandra-auth,cassandra-tls -- \
    cargo test ${LOCKED:-} --no-fail-fast --test 'servers_*' "$@" -- --show-output 2>&1 | tee "$logs/servers.log"
