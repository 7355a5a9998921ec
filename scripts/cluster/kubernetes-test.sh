#!/usr/bin/env bash
# Dispatcher and workers as pods of a real Kubernetes, a job beside it, and what goes wrong in between:
#   scripts/cluster/kubernetes-test.sh
#
# Uses the `forebay` program of target/ (FOREBAY_PROGRAM names another one) and the installed wheel. The cluster has one
# node, in a network and process space of its own, of which nothing is left at the end. It needs root, and the first
# time Go and Debian's packages, from which it builds Kubernetes (see scripts/servers/kubernetes.sh); without these it
# says what it skipped, and that is no failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/servers/lib.sh
home=$servers_cache/kubernetes

if [ "${1:-}" != --inside ]; then
    skip() {
        echo "skipped: Kubernetes: $*"
        exit 0
    }
    [ "$(id -u)" = 0 ] || skip "a node that runs pods needs root"
    unshare --net --mount --pid --fork true 2>/dev/null || skip "this machine lets nobody have a network of its own"
    [ -x .venv/bin/python ] && .venv/bin/python -c 'import forebay' 2>/dev/null || skip "there is no wheel in .venv; \`make wheel\` makes one"
    program=${FOREBAY_PROGRAM:-}
    for built in target/release/forebay target/debug/forebay; do
        if [ -z "$program" ] && [ -x "$built" ]; then program=$built; fi
    done
    if [ -z "$program" ]; then
        cargo build ${LOCKED:-} -p forebay-cli
        program=target/debug/forebay
    fi
    mkdir -p "$home"
    began=$SECONDS
    nice scripts/servers/kubernetes.sh install "$home" >"$servers_cache/kubernetes.log" 2>&1 ||
        skip "it could not be installed ($(tail -n 1 "$servers_cache/kubernetes.log"))"
    [ $((SECONDS - began)) -le 5 ] || say "installed Kubernetes in $((SECONDS - began)) s"
    run=$(mktemp -d "${TMPDIR:-/tmp}/forebay-k8s.XXXXXX")
    inside=''
    finish() {
        trap '' INT TERM HUP
        # What is inside stops the node, and takes down everything else with it.
        [ -z "$inside" ] || { kill -TERM "$inside" 2>/dev/null && wait "$inside" 2>/dev/null; } || true
        if [ -n "${FOREBAY_KEEP:-}" ]; then say "logs are in $run"; else rm -rf "$run"; fi
    }
    trap finish EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    scripts/image.sh --name localhost/forebay:test --binary "$program" --out "$run/image.tar" >/dev/null
    unshare --net --mount --propagation private --pid --fork --kill-child --mount-proc "$0" --inside "$run" &
    inside=$!
    status=0
    wait "$inside" || status=$?
    inside=''
    exit "$status"
fi

run=$2
test=''
stop() {
    local status=$?
    trap '' INT TERM HUP
    [ -z "$test" ] || kill -TERM "$test" 2>/dev/null || true
    scripts/servers/kubernetes.sh stop "$home" --run "$run/c" || true
    exit "$status"
}
trap stop EXIT
trap 'exit 143' INT TERM HUP
began=$SECONDS
kubeconfig=$(scripts/servers/kubernetes.sh start "$home" --run "$run/c")
scripts/servers/kubernetes.sh load "$home" --run "$run/c" "$run/image.tar" >/dev/null
echo "a cluster of one node is ready after $((SECONDS - began)) s"
# The job outside the cluster finds the dispatcher by its name, as pods do.
printf 'nameserver 10.96.0.10\noptions ndots:5\n' >"$run/resolv.conf"
mount --bind "$run/resolv.conf" "$(readlink -f /etc/resolv.conf)"
XDG_CACHE_HOME=$run/cache .venv/bin/python scripts/cluster/kubernetes_test.py --kubectl "$home/bin/kubectl" --kubeconfig "$kubeconfig" \
    --kinds "$home/keda" --folder "$run" &
test=$!
wait "$test"
