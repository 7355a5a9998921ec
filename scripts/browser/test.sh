#!/usr/bin/env bash
# Tests the dashboard and written reports in a real Chromium: scripts/browser/test.sh
#
# Needs the wheel in .venv (`make setup wheel`). Chromium comes from Debian when this is root; where it cannot be had, says what
# is skipped and ends well. Playwright goes into .venv; it drives the browser that is there and fetches none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
chromium=${CHROMIUM:-/usr/bin/chromium}
if [ ! -x "$chromium" ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    mkdir -p .cache
    DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null >.cache/apt.log 2>&1 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium </dev/null >>.cache/apt.log 2>&1 || true
fi
if [ ! -x "$chromium" ]; then
    echo "browser: skipped, there is no $chromium: the tests of pages"
    echo "browser: install Debian's chromium, or name one by CHROMIUM"
    exit 0
fi
.venv/bin/python -c 'import playwright' 2>/dev/null ||
    scripts/uv pip install --quiet --python .venv/bin/python -r scripts/requirements-browser.txt
mkdir -p target/test-logs
CHROMIUM=$chromium .venv/bin/python -m pytest scripts/browser --timeout 300 --junitxml=target/test-logs/pytest-browser.xml
