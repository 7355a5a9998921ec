#!/usr/bin/env bash
# Runs every fuzz target for a short while: scripts/fuzz.sh [SECONDS_EACH]
#
# cargo-fuzz is installed into .cache/cargo when missing. RUSTC_BOOTSTRAP lets the stable compiler use sanitizers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-30}
version=0.13.2
if [ ! -f fuzz/Cargo.toml ]; then
    echo "fuzz: this tree has no fuzz targets"
    exit 0
fi
export PATH="$PWD/.cache/cargo/bin:$PATH" RUSTC_BOOTSTRAP=1
cargo fuzz --version >/dev/null 2>&1 || cargo install --quiet --locked --root .cache/cargo --version "$version" cargo-fuzz
fuzz/seed.sh
for target in $(cargo fuzz list); do
    echo "fuzz: $target, $seconds s"
    cargo fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 -print_final_stats=1
done
