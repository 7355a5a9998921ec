#!/usr/bin/env bash
# The tests on real clusters: scripts/cluster/test.sh [PART...]
#
# Runs every part that this machine can, scripts/cluster/PART-test.sh each, and says which it skipped and why. A part that
# cannot run here ends with 77 and gives the reason in its last line. With names, only those parts. One that fails runs once
# more: passing then it is called unsteady, and is no failure.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
logs=target/test-logs
mkdir -p "$logs"
status=0
summary=()
for script in scripts/cluster/*-test.sh; do
    part=$(basename "$script" -test.sh)
    [ $# -eq 0 ] || [[ " $* " == *" $part "* ]] || continue
    printf -- '-- cluster: %s\n' "$part"
    started=$SECONDS
    "$script" 2>&1 | tee "$logs/cluster-$part.log"
    code=${PIPESTATUS[0]}
    ok=ok
    if [ "$code" != 0 ] && [ "$code" != 77 ]; then
        printf -- '-- cluster: %s, once more\n' "$part"
        "$script" 2>&1 | tee "$logs/cluster-$part-again.log"
        code=${PIPESTATUS[0]}
        ok="unsteady, ok the second time"
    fi
    took="$((SECONDS - started)) s"
    case "$code" in
        0) summary+=("$part: $ok in $took") ;;
        77) summary+=("$part: skipped: $(tail -n 1 "$logs/cluster-$part.log")") ;;
        *)
            summary+=("$part: FAILED with $code in $took")
            status=1
            ;;
    esac
done
printf -- '-- cluster: %s\n' "${summary[@]:-no such part: $*}"
[ ${#summary[@]} -gt 0 ] || status=2
exit "$status"
