#!/usr/bin/env bash
# Makes a fresh machine ready: scripts/setup.sh [build|test|bench]
#
#   build   what the wheel and the demo need
#   test    build, and what the tests need, among it torch and JAX (3 GB to fetch, once)
#   bench   test, and what the benches and `make test-references` compare with: those whose pins do not fit the tests' set
#           go into .venv-peers
#
# Needs cargo, Python 3.11 or newer and a C compiler. Installs nasm and cmake from Debian's packages when it may,
# else says what to install. Python parts go into .venv by uv, which itself lives in .cache/uv. Asks nothing,
# changes nothing outside the checkout but those Debian packages, and costs about a second when all is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

set_name=${1:-test}
uv_version=0.13.7
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf 'setup: %s\n' "$*"; }
give_up() {
    printf 'setup: %s\n' "$1" >&2
    [ -z "${2:-}" ] || printf '\nhint: %s\n' "$2" >&2
    exit "${3:-3}"
}
case "$set_name" in
    build | test | bench) ;;
    *) give_up "set up \`$set_name\`: no such set" "scripts/setup.sh build|test|bench" 2 ;;
esac

# Installs Debian packages, or says which command or reason stands in the way.
debian_packages() {
    local packages=$1 why=$2
    if ! command -v apt-get >/dev/null; then
        give_up "$why" "install these with this system's package manager: $packages"
    fi
    if [ "$(id -u)" -ne 0 ]; then
        give_up "$why" "sudo apt-get install -y $packages"
    fi
    say "installing from Debian: $packages"
    # shellcheck disable=SC2086  # a list of words on purpose
    if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages; } </dev/null >.cache/apt.log 2>&1; then
        tail -n 20 .cache/apt.log >&2
        give_up "$why, and apt-get could not install it" "see the lines above; then: apt-get install -y $packages"
    fi
}

# The newest Python that will do, unless PYTHON names one.
find_python() {
    local name
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            "$name" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    return 1
}

mkdir -p .cache

command -v cargo >/dev/null || give_up "no cargo on the PATH" "https://rustup.rs installs it"
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
found=$(cargo --version | cut -d' ' -f2)
if [ "$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n1)" != "$wanted" ]; then
    give_up "cargo is $found but $wanted or newer is needed" "rustup update stable"
fi
command -v cc >/dev/null || debian_packages "gcc libc6-dev" "no C compiler (\`cc\`) on the PATH"
python=$(find_python) || give_up "no Python 3.11 or newer on the PATH" "name one with PYTHON=/path/to/python3"

# libjpeg-turbo is built from source. On x86 its SIMD code is assembly: without nasm the decoder would be several
# times slower, so the build refuses, with two hundred lines of cmake. Say it in one line first.
missing=""
command -v cmake >/dev/null || missing="cmake"
case "$(uname -m)" in
    x86_64 | i?86) command -v nasm >/dev/null || [ -n "${ASM_NASM:-}" ] || missing="nasm $missing" ;;
esac
if [ -n "$missing" ]; then
    missing=$(xargs <<<"$missing")
    debian_packages "$missing" "the JPEG decoder cannot be built with SIMD without: $missing"
fi

if [ "$(.cache/uv/bin/uv --version 2>/dev/null | cut -d' ' -f2)" != "$uv_version" ]; then
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        debian_packages "python3-venv" "\`$python\` cannot make virtual environments (no ensurepip)"
    fi
    say "installing uv $uv_version into .cache/uv"
    rm -rf .cache/uv
    "$python" -m venv .cache/uv
    .cache/uv/bin/python -m pip install --quiet "uv==$uv_version" </dev/null ||
        give_up "install uv $uv_version with pip: see above" "pip must reach a package index; PIP_INDEX_URL names one"
fi

if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "making .venv with $("$python" --version)"
    scripts/uv venv --quiet --clear --python "$python" .venv
fi
if [ "$set_name" != build ] && ! compgen -G '.venv/lib/python*/site-packages/torch' >/dev/null; then
    say "installing torch and JAX: 3 GB to fetch once, 6 GB on disk"
fi
scripts/uv pip install --quiet --python .venv/bin/python -r "scripts/requirements-$set_name.txt"
if [ "$set_name" = bench ]; then
    [ -x .venv-peers/bin/python ] || scripts/uv venv --quiet --python .venv/bin/python .venv-peers
    peers=(scripts/uv pip install --quiet --python .venv-peers/bin/python)
    # One that this machine cannot have costs the benches its rows and nothing else.
    "${peers[@]}" -r scripts/requirements-peers.txt || for peer in $(grep -o '^[a-z0-9-]*==[^ ]*' scripts/requirements-peers.in); do
        "${peers[@]}" -c scripts/requirements-peers.txt "$peer" || say "left out: $peer, see above; its rows will be missing"
    done
fi
say "ready: $set_name"
