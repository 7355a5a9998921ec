#!/usr/bin/env bash
# `forebay.ray` on a real Ray cluster of several nodes: scripts/cluster/ray-test.sh [PYTEST_ARGUMENT...]
#
# The nodes are processes with addresses of their own in a private network and process space, which ends with the tests:
# no port of this machine is taken, nothing reaches outside, nothing is left. Ray lives in .venv-cluster.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if ! unshare -n -p -f --mount-proc ip link set lo up 2>/dev/null; then
    echo "Ray: no network and process space of its own can be made here (needs root, and ip of iproute2)"
    exit 77
fi
[ -x .cache/uv/bin/uv ] || scripts/setup.sh build
[ -x .venv-cluster/bin/python ] || scripts/uv venv --quiet --python .venv/bin/python .venv-cluster
scripts/uv pip install --quiet --python .venv-cluster/bin/python -r scripts/requirements-cluster.txt --compile-bytecode
wheel=${FOREBAY_WHEEL:-}
if [ -z "$wheel" ]; then
    compgen -G 'target/wheels/forebay-*.whl' >/dev/null || scripts/wheel.sh
    wheel=$(ls -t target/wheels/forebay-*.whl | head -n 1)
fi
scripts/uv pip install --quiet --python .venv-cluster/bin/python --force-reinstall --no-deps "$wheel"
mkdir -p target/test-logs
# What the tests leave in temporary folders goes with theirs. Short, because paths of sockets are limited.
folder=$(mktemp -d /tmp/fr-XXXXXX)
trap 'rm -rf "$folder"' EXIT
# Ray reads this when it is imported. A token of the run's own, whatever this user's other clusters have.
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
# shellcheck disable=SC2016  # expanded inside
TMPDIR=$folder timeout --kill-after 10 600 unshare -n -p -f --kill-child --mount-proc bash -c '
    set -euo pipefail
    ip link set lo up
    for number in 1 2 3; do ip address add "10.77.0.$number/32" dev lo; done
    exec "$@"
' ray-test .venv-cluster/bin/python -m pytest python/cluster/test_ray*.py -W default --timeout 200 \
    --junitxml=target/test-logs/cluster-ray.xml "$@"
