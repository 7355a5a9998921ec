#!/usr/bin/env bash
# The tests against real servers: scripts/servers/test.sh [CARGO_TEST_ARGUMENT...]
#
# Every test program whose name begins with `servers_`, beside all servers that this machine can install. Each test says
# by itself why it was skipped. The first run builds the servers, which takes minutes; later ones start them in seconds.
# The tests that kill nodes of Cassandra and AIStore come last, so that those nodes take the memory of the servers before.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=.venv/bin/python
[ -x "$python" ] || python=python3
again=("$python" scripts/again.py)
# Compiled first: servers need not wait, idle and in memory, for a build.
# shellcheck disable=SC2086  # LOCKED is no word or one
cargo test ${LOCKED:-} --no-run --test 'servers_*'
status=0
# shellcheck disable=SC2086
scripts/servers/with minio,minio-tls,minio-restart,aistore,cassandra,cassandra-auth,cassandra-tls,cassandra-mutual -- \
    "${again[@]}" servers cargo test ${LOCKED:-} --no-fail-fast --test 'servers_*' "$@" -- --show-output \
    --skip p010_a_node_killed --skip cassandra_killed --skip aistore_killed || status=$?
# shellcheck disable=SC2086
scripts/servers/with cassandra-three,cassandra-restart,aistore-restart -- \
    "${again[@]}" servers-killed cargo test ${LOCKED:-} --test servers_three --test servers_restart "$@" -- --show-output \
    p010_a_node_killed cassandra_killed aistore_killed || status=$?
# A feature that is off by default, so it is built by itself, with as little as it needs and as fast as it goes.
hdfs=(cargo test ${LOCKED:-} -p forebay-store --no-default-features --features hdfs --target-dir target/hdfs
    --config 'profile.dev.opt-level=0' --config 'profile.dev.package."*".opt-level=0' --test servers_hdfs)
if "${hdfs[@]}" --no-run; then
    scripts/servers/with hdfs -- "${again[@]}" servers-hdfs "${hdfs[@]}" "$@" -- --show-output || status=$?
else
    status=1
fi
exit "$status"
