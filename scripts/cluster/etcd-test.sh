#!/usr/bin/env bash
# Several dispatchers on a real etcd of three members, which are killed, stopped and taken away while a job trains:
# scripts/cluster/etcd-test.sh [TEST_NAME]
#
# Without etcd, or what fetches it, it says so, and the tests skip themselves. Two minutes after the build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
logs=target/test-logs
mkdir -p "$logs"
# Compiled first: the members need not wait for a build. Without a package named, as `make test` builds it.
# shellcheck disable=SC2086  # LOCKED is no word or one
cargo test ${LOCKED:-} --no-run --test cluster_etcd
status=0
# One after the other: they kill members of the same etcd, and measure.
# shellcheck disable=SC2086
scripts/servers/with etcd-three,etcd-auth,etcd-tls -- \
    cargo test ${LOCKED:-} --test cluster_etcd "$@" -- --show-output --test-threads 1 2>&1 \
    | tee "$logs/cluster-etcd.log" || status=$?
exit "$status"
