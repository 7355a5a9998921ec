"""Prints every promise of the project with its tests in the last test run.

A test that shows a promise carries the promise's number in its name: `p017_...` in Rust, `test_p017_...` in
Python, `p004_p005_...` when it shows two. The promises stand in promises.toml, with our own judgement whether the
tests assert all of a promise's numbers at the sizes it states (`shown = true`). A promise is

    passed   we claim it, and every test it has and every test it needs passed
    failed   one of its tests failed, or we claim it and a test is missing or was skipped
    open     we do not claim it (some of its tests may exist and pass)

Reads cargo's output from target/test-logs/{rust,servers}*.log and JUnit files from target/test-logs/pytest*.xml.
`--write` renews docs/reference/promises.md, `--check` fails when a promise failed or that page is out of date.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COUNT = 80

# libtest's result line. A doc test's name has spaces in it, a should_panic test says so before the dots.
RUST_RESULT = re.compile(r"^test (?P<name>.+?)(?: - should panic)? \.\.\. (?P<state>ok|FAILED|ignored)\b")
RUST_BINARY = re.compile(r"^\s+Running (?:unittests )?(?P<path>\S+) \((?P<binary>\S+)\)")
# What a test says that has nothing to run against, past libtest's capture. With one thread libtest has begun the line,
# and the name is that of the main thread.
RUST_SKIPPED = re.compile(r"^(?:test (?P<begun>\S+) \.\.\. )?skipped: test `(?P<name>[\w:]+)`")
RUST_FAILURE = re.compile(r"^ {4}(?P<name>[\w:]+)$")
# How the log of a second run ends: that of tests that failed in the first.
AGAIN = "-again"
NUMBERS = re.compile(r"(?:^|::|_)(p\d{3}(?:_p\d{3})*)_")


@dataclass(frozen=True)
class Test:
    """One test of the last run. `where` tells equal names of different crates apart."""

    where: str
    name: str
    state: str  # "ok", "failed", "skipped"

    @property
    def short(self) -> str:
        """The name without module path and parameters."""
        return self.name.partition("[")[0].rpartition("::")[2]

    @property
    def numbers(self) -> list[int]:
        """The promises that the test's own name carries; a module's name does not count."""
        found = NUMBERS.search(self.short.removeprefix("test_"))
        return [int(part[1:]) for part in found[1].split("_")] if found and found.start() == 0 else []


@dataclass
class Promise:
    """One row of promises.toml with its tests."""

    number: int
    words: str
    shown: bool = False
    needs: list[str] = field(default_factory=list)
    lacks: str = ""
    tests: list[Test] = field(default_factory=list)

    def missing(self) -> list[str]:
        """Needs that no test meets. A need is a test's name or how it begins, with or without `test_`."""
        names = [test.short.removeprefix("test_") for test in self.tests]
        return [n for n in self.needs if not any(name.startswith(n.removeprefix("test_")) for name in names)]

    def faults(self) -> list[str]:
        """Why the promise counts as failed; empty when it does not."""
        faults = [f"{test.short} failed" for test in self.tests if test.state == "failed"]
        if self.shown:
            faults += [f"{test.short} was skipped" for test in self.tests if test.state == "skipped"]
            faults += [f"no test {need}" for need in self.missing()]
            if not self.tests:
                faults.append("claimed, but no test carries its number")
        return faults

    @property
    def state(self) -> str:
        if self.faults():
            return "failed"
        return "passed" if self.shown else "open"


def read_promises(text: str) -> list[Promise]:
    """The table, checked: numbers 1 to 80 once each, words present, no unknown keys."""
    promises = []
    for row in tomllib.loads(text)["promise"]:
        unknown = set(row) - {"number", "words", "shown", "needs", "lacks"}
        if unknown:
            raise SystemExit(f"read promises.toml, number {row.get('number')}: unknown key `{min(unknown)}`")
        promises.append(Promise(**row))
    if [promise.number for promise in promises] != list(range(1, COUNT + 1)):
        raise SystemExit(f"read promises.toml: the numbers must be 1 to {COUNT}, once each, in order")
    return promises


def read_rust(lines: Iterable[str]) -> list[Test]:
    """Tests in the output of `cargo test`, in order. A test that is also listed under `failures:` has failed."""
    tests: dict[tuple[str, str], Test] = {}
    where, in_failures = "", False
    for line in lines:
        line = line.rstrip()
        if binary := RUST_BINARY.match(line):
            crate = Path(binary["binary"]).name.rpartition("-")[0]
            where = crate if binary["path"].startswith("src/") else f"{crate} ({binary['path']})"
        elif line.startswith("   Doc-tests "):
            where = line.split()[-1]
        elif line == "failures:":
            in_failures = True
        elif line.startswith("test result:"):
            in_failures = False
        elif skipped := RUST_SKIPPED.match(line):
            _add(tests, Test(where, skipped["begun"] or skipped["name"], "skipped"))
        elif result := RUST_RESULT.match(line):
            state = {"ok": "ok", "FAILED": "failed", "ignored": "skipped"}[result["state"]]
            _add(tests, Test(where, result["name"], state))
        elif in_failures and (failure := RUST_FAILURE.match(line)):
            _add(tests, Test(where, failure["name"], "failed"))
    return list(tests.values())


def read_junit(text: str) -> list[Test]:
    """Tests in a JUnit file of pytest."""
    tests: dict[tuple[str, str], Test] = {}
    for case in ET.fromstring(text).iter("testcase"):
        tags = {child.tag for child in case}
        state = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "ok"
        _add(tests, Test(case.get("classname", ""), case.get("name", ""), state))
    return list(tests.values())


def _add(tests: dict[tuple[str, str], Test], test: Test) -> None:
    """Keeps the worst outcome when a test is reported twice (a call and its tear-down, two runs)."""
    order = ("ok", "skipped", "failed")
    known = tests.get((test.where, test.name))
    if known is None or order.index(test.state) > order.index(known.state):
        tests[test.where, test.name] = test


def read_run(logs: Path) -> list[Test]:
    """All tests of the last run; a slow run beside it counts too. Skipped in one log and run in another is run, and
    what failed in a log and passed by itself afterwards (again.py) has passed."""
    tests: dict[tuple[str, str, bool], Test] = {}
    for path in sorted([*logs.glob("rust*.log"), *logs.glob("servers*.log")]):
        if path.stem.endswith(AGAIN):
            continue
        for test in _with_second_words(read_rust(_lines(path)), read_rust(_lines(_again(path)))):
            tests.setdefault((test.where, test.name, test.state == "skipped"), test)
            if test.state == "failed":
                tests[test.where, test.name, False] = test
    ran = [t for t in tests.values() if t.state != "skipped" or (t.where, t.name, False) not in tests]
    for path in sorted(logs.glob("pytest*.xml")):
        if path.stem.endswith(AGAIN):
            continue
        second = _again(path)
        ran += _with_second_words(
            read_junit(path.read_text()), read_junit(second.read_text()) if second.exists() else []
        )
    return ran


def _again(path: Path) -> Path:
    return path.with_stem(path.stem + AGAIN)


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def _with_second_words(first: list[Test], second: list[Test]) -> list[Test]:
    """Tests of a run, where those that failed are what they were when they ran again by themselves."""
    words = {(test.where, test.name): test for test in second}
    return [words.get((t.where, t.name), t) if t.state == "failed" else t for t in first]


def join(promises: list[Promise], tests: Iterable[Test]) -> list[str]:
    """Gives each promise its tests; returns the tests that carry a number nobody promised."""
    strays = []
    for test in tests:
        for number in test.numbers:
            if 1 <= number <= len(promises):
                promises[number - 1].tests.append(test)
            else:
                strays.append(f"{test.short} carries {number}, but promises end at {len(promises)}")
    return strays


def count(promises: list[Promise]) -> dict[str, int]:
    return {s: sum(p.state == s for p in promises) for s in ("passed", "failed", "open")}


def short_names(promise: Promise) -> list[str]:
    """Names of a promise's tests, each once though it ran with several parameters or in several crates."""
    return list(dict.fromkeys(sorted(test.short for test in promise.tests)))


def as_text(promises: list[Promise]) -> str:
    lines = []
    for promise in promises:
        lines.append(f"{promise.number:3}  {promise.state:6}  {promise.words}")
        states = {test.short: test.state for test in promise.tests if test.state != "ok"}
        lines += [f"{'':13}{name}  {states.get(name, 'ok')}" for name in short_names(promise)]
        lines += [f"{'':13}! {fault}" for fault in promise.faults()]
        if promise.lacks and promise.state == "open" and promise.tests:
            lines.append(f"{'':13}lacks: {promise.lacks}")
    total = count(promises)
    lines.append("")
    lines.append(
        f"{len(promises)} promises: {total['passed']} passed, {total['failed']} failed, {total['open']} open"
    )
    return "\n".join(lines)


def as_page(promises: list[Promise]) -> str:
    """docs/reference/promises.md. Holds names and states only, so that equal runs give equal pages."""
    total = count(promises)
    lines = [
        "# Promises",
        "",
        "Made by `make promises` from the last test run; do not edit. *passed*: all numbers of the promise are",
        "asserted, at the sizes it states, and every test passed. *open*: not claimed yet; tests listed there show",
        "a part of it. The list itself is `scripts/promises.toml`.",
        "",
        f"**{total['passed']} passed, {total['failed']} failed, {total['open']} open.**",
        "",
        "| # | Promise | State | Tests |",
        "| ---: | --- | --- | --- |",
    ]
    for promise in promises:
        tests = "<br>".join(f"`{name}`" for name in short_names(promise))
        note = f" (lacks: {promise.lacks})" if promise.lacks and promise.state == "open" else ""
        lines.append(f"| {promise.number} | {promise.words} | {promise.state}{note} | {tests} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="renew docs/reference/promises.md")
    parser.add_argument("--check", action="store_true", help="fail when a promise failed or the page is old")
    options = parser.parse_args(arguments)

    promises = read_promises((root / "scripts/promises.toml").read_text())
    tests = read_run(root / "target/test-logs")
    strays = join(promises, tests)
    print(as_text(promises))
    if not tests:
        print("no test run found: `make test` makes one", file=sys.stderr)

    page = root / "docs/reference/promises.md"
    if options.write and tests:
        page.write_text(as_page(promises))
    if not options.check:
        return 0
    faults = strays + [f"promise {p.number}: {fault}" for p in promises for fault in p.faults()]
    if not tests:
        faults.append("no test run to check")
    elif not page.exists() or page.read_text() != as_page(promises):
        faults.append(f"{page.relative_to(root)} is not what this run gives: `make promises` renews it")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
