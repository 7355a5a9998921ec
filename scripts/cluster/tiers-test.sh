#!/usr/bin/env bash
# Store, preparation and training as three network namespaces with limited links: each tier is made the slowest in turn,
# and the example's report must name it. About a minute. Needs the package in .venv (make wheel), root, ip, tc, openssl.
set -euo pipefail
cd "$(dirname "$0")/../.."

python=${PYTHON:-.venv/bin/python}
skip() { echo "skipped: three tiers: $1" >&2; exit 0; }
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
for tool in ip tc openssl; do command -v "$tool" >/dev/null || skip "there is no \`$tool\`"; done
"$python" -c "import forebay" 2>/dev/null || skip "the package is not installed: run \`make wheel\`"
space="fb3-probe-$$"
ip netns add "$space" 2>/dev/null || skip "network namespaces cannot be made here"
limit=(ip netns exec "$space" tc qdisc add dev lo root tbf rate 1mbit burst 32kb latency 50ms)
"${limit[@]}" 2>/dev/null || { ip netns del "$space"; skip "links cannot be limited here"; }
ip netns del "$space"

# Not tests/test_*.py: the decision needs neither root nor processes.
"$python" - <<'PYTHON'
import sys

sys.path.insert(0, "examples/three_tiers")
import report

common = {"seconds": 10.0, "store_link": 1e6, "prep_threads": 4, "training_link": 2e6}
free = {"store_bytes": 3e6, "prep_seconds": 12.0, "batch_bytes": 6e6, "step_share": 0.3}
for tier, busy in zip(report.TIERS, ("store_bytes", "prep_seconds", "batch_bytes", "step_share"), strict=True):
    shares = report.utilisation(**common, **{**free, busy: free[busy] * 3})
    assert report.limiting(shares) == tier, (tier, shares)
    assert abs(shares[tier] - 0.9) < 1e-9, shares
PYTHON
timeout 110 "$python" examples/three_tiers/three_tiers.py --check --json
