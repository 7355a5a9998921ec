#!/usr/bin/env bash
# Builds the wheel into target/wheels and installs it into .venv, and beside the benches' peers if they are here.
#
# A release unless WHEEL_PROFILE says otherwise: `dev` shares what the Rust tests were built from, and checks its arithmetic.
# Only the outermost crate is told that it is no debug build, so that it does not warn of being one in every test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rm -f target/wheels/forebay-*.whl
# shellcheck disable=SC2086  # flags are a list of words on purpose
.venv/bin/maturin build --profile "${WHEEL_PROFILE:-release}" ${LOCKED:-} \
    --config profile.dev.package.forebay-py.debug-assertions=false --interpreter .venv/bin/python --out target/wheels </dev/null
for python in .venv/bin/python .venv-peers/bin/python; do
    [ ! -x "$python" ] ||
        scripts/uv pip install --quiet --python "$python" --force-reinstall --no-deps target/wheels/forebay-*.whl
done
echo "wheel: $(basename target/wheels/forebay-*.whl), $(du -h target/wheels/forebay-*.whl | cut -f1), profile ${WHEEL_PROFILE:-release}, installed in .venv"
