#!/usr/bin/env bash
# Builds the release wheel into target/wheels and installs it into .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rm -f target/wheels/forebay-*.whl
# shellcheck disable=SC2086  # flags are a list of words on purpose
.venv/bin/maturin build --release ${LOCKED:-} --interpreter .venv/bin/python --out target/wheels </dev/null
scripts/uv pip install --quiet --python .venv/bin/python --force-reinstall --no-deps target/wheels/forebay-*.whl
echo "wheel: $(basename target/wheels/forebay-*.whl), $(du -h target/wheels/forebay-*.whl | cut -f1), installed in .venv"
