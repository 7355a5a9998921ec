"""Runs tests, and those that failed once more by themselves: again.py LOG COMMAND...

    again.py rust cargo test --no-fail-fast --lib --bins --tests
    again.py pytest python -m pytest python/tests

A test of processes, clocks and sockets can fail because a busy machine was taken away from it for seconds. Such a
failure is told from a fault by running the test again with nothing beside it. What passes then does not fail the run;
it is named at the end as *unsteady*, because it should be mended. A fault fails twice. More than a few failures at once
are not chance, and neither is a run that ended without telling its tests: those are not run again.

The output of `cargo` goes to target/test-logs/LOG.log, that of the second run to LOG-again.log; pytest writes LOG.xml
and LOG-again.xml there. promises.py takes the second word of a test for its last.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import promises

# Beyond this many, failures have one cause.
LIMIT = 5
# Exit code of pytest when tests failed; any other is about the run itself.
PYTEST_FAILED = 1


def tee(command: list[str], log: Path) -> int:
    """Runs a command, showing what it prints and keeping it."""
    with (
        log.open("w") as kept,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            kept.write(line)
    return process.returncode


def cargo_again(command: list[str], names: list[str]) -> list[str]:
    """The same programs, so that nothing is built, with these tests alone and one at a time."""
    before, _, own = _cut(command, "--")
    own = [word for word in own if word.startswith("--") and not word.startswith("--skip")]
    return [*before, "--", *own, "--exact", "--test-threads=1", *names]


def _cut(words: list[str], at: str) -> tuple[list[str], str, list[str]]:
    if at not in words:
        return words, "", []
    place = words.index(at)
    return words[:place], at, words[place + 1 :]


def run_cargo(name: str, command: list[str], logs: Path) -> int:
    status = tee(command, logs / f"{name}.log")
    if status == 0:
        return 0
    tests = promises.read_rust((logs / f"{name}.log").read_text().splitlines())
    failed = sorted({test.name for test in tests if test.state == "failed"})
    # A doc test has spaces in its name, and looks at no clock.
    if not few(failed) or any(" " in test for test in failed):
        return status
    say(failed)
    second = tee(cargo_again(command, failed), logs / f"{name}-again.log")
    return judge(failed, second)


def run_pytest(name: str, command: list[str], logs: Path) -> int:
    first = logs / f"{name}.xml"
    status = subprocess.call([*command, f"--junitxml={first}"])
    if status != PYTEST_FAILED:
        return status
    failed = [test.short for test in promises.read_junit(first.read_text()) if test.state == "failed"]
    if not few(failed):
        return status
    say(failed)
    again = ["--last-failed", "--last-failed-no-failures=none", f"--junitxml={logs / f'{name}-again.xml'}"]
    return judge(failed, subprocess.call([*command, *again]))


def few(failed: list[str]) -> bool:
    return 0 < len(failed) <= LIMIT


def say(failed: list[str]) -> None:
    print(f"\n== again, each by itself: {', '.join(failed)}", flush=True)


def judge(failed: list[str], status: int) -> int:
    if status == 0:
        print(f"== unsteady, failed once and passed by itself: {', '.join(failed)}", flush=True)
    return status


def main(arguments: list[str], root: Path = promises.ROOT) -> int:
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    name, *command = arguments
    logs = root / "target/test-logs"
    logs.mkdir(parents=True, exist_ok=True)
    for old in (f"{name}-again.log", f"{name}-again.xml"):
        (logs / old).unlink(missing_ok=True)
    run = run_pytest if "pytest" in command else run_cargo
    return run(name, command, logs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
