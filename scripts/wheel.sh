#!/usr/bin/env bash
# Builds the release wheel into target/wheels and installs it into .venv, and beside the benches' peers if they are here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rm -f target/wheels/forebay-*.whl
# shellcheck disable=SC2086  # flags are a list of words on purpose
.venv/bin/maturin build --release ${LOCKED:-} --interpreter .venv/bin/python --out target/wheels </dev/null
for python in .venv/bin/python .venv-peers/bin/python; do
    [ ! -x "$python" ] ||
        scripts/uv pip install --quiet --python "$python" --force-reinstall --no-deps target/wheels/forebay-*.whl
done
echo "wheel: $(basename target/wheels/forebay-*.whl), $(du -h target/wheels/forebay-*.whl | cut -f1), installed in .venv"
