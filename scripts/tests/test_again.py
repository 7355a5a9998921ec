"""Running tests again: what passes by itself is named and does not fail the run; a fault fails twice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import again
import promises

# Prints what libtest prints. Tests whose names are given by `--exact` run by themselves; `m::slow` passes only then.
PROGRAM = """\
import sys
print("     Running tests/m.rs (target/debug/deps/m-0a)")
alone = "--exact" in sys.argv
names = sys.argv[sys.argv.index("--test-threads=1") + 1:] if alone else {names}
failed = [n for n in names if n.startswith("m::fault") or (n == "m::slow" and not alone)]
for n in names:
    print(f"test {{n}} ... {{'FAILED' if n in failed else 'ok'}}")
sys.exit(101 if failed else 0)
"""


def run(root: Path, *names: str) -> int:
    (root / "program.py").write_text(PROGRAM.format(names=list(names)))
    return again.main(["rust", sys.executable, str(root / "program.py")], root)


def test_a_test_that_passes_by_itself_is_named_and_counts_as_passed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "m::good", "m::slow") == 0
    assert "unsteady, failed once and passed by itself: m::slow" in capfd.readouterr().out
    states = {test.name: test.state for test in promises.read_run(tmp_path / "target/test-logs")}
    assert states == {"m::good": "ok", "m::slow": "ok"}


def test_a_fault_fails_twice_and_a_run_without_one_leaves_no_second_word(tmp_path: Path) -> None:
    logs = tmp_path / "target/test-logs"
    assert run(tmp_path, "m::fault", "m::slow") == 101
    assert {test.name: test.state for test in promises.read_run(logs)} == {
        "m::fault": "failed",
        "m::slow": "ok",
    }
    assert run(tmp_path, "m::good") == 0
    assert [path.name for path in logs.iterdir()] == ["rust.log"]


def test_many_failures_are_no_chance_and_are_not_run_again(tmp_path: Path) -> None:
    assert run(tmp_path, *(f"m::fault_{n}" for n in range(again.LIMIT + 1))) == 101
    assert not (tmp_path / "target/test-logs/rust-again.log").exists()


def test_the_second_run_is_of_the_same_programs_without_what_chose_tests() -> None:
    first = ["cargo", "test", "--test", "servers_*", "--", "--show-output", "--skip", "a", "b"]
    assert again.cargo_again(first, ["m::x"]) == [
        *("cargo", "test", "--test", "servers_*"),
        *("--", "--show-output", "--exact", "--test-threads=1", "m::x"),
    ]


TESTS = """\
import pathlib
def test_good():
    pass
def test_slow():
    mark = pathlib.Path(__file__).with_suffix(".ran")
    before = mark.exists()
    mark.touch()
    assert before
"""


def test_pytest_runs_again_what_failed_and_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_made.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", f"--rootdir={tmp_path}", "-c/dev/null", str(tmp_path)]
    command += ["-o", f"cache_dir={tmp_path / 'cache'}"]
    assert again.main(["pytest", *command], tmp_path) == 0
    assert "by itself: test_slow" in capfd.readouterr().out
    logs = tmp_path / "target/test-logs"
    assert {test.name: test.state for test in promises.read_run(logs)} == {
        "test_good": "ok",
        "test_slow": "ok",
    }
    second = promises.read_junit((logs / "pytest-again.xml").read_text())
    assert [test.name for test in second] == ["test_slow"]
