#!/usr/bin/env bash
# Runs one part of a test run and says how long it took: scripts/step.sh NAME COMMAND...
#
# The times are also kept in target/test-logs/times.tsv, which `.ci/run` prints at its end.
set -uo pipefail
name=$1
shift
logs="$(dirname "${BASH_SOURCE[0]}")/../target/test-logs"
mkdir -p "$logs"
printf '== %s\n' "$name"
started=$(date +%s.%N)
"$@"
status=$?
seconds=$(awk -v a="$started" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
[ "$status" -eq 0 ] && word=ok || word="FAILED with $status"
printf '== %s: %s in %s s\n\n' "$name" "$word" "$seconds"
printf '%s\t%s\t%s\n' "$name" "$seconds" "$word" >>"$logs/times.tsv"
exit "$status"
