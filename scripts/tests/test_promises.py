"""The promises tool: what it reads from a run, when a promise passes, and when the check fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import promises

CARGO = """\
     Running unittests src/lib.rs (target/debug/deps/forebay_core-0a1b2c)

running 5 tests
test plan::tests::p025_order_is_pure ... ok
test plan::tests::order_of_p025_is_a_word_inside ... ok
test portion::p026_p027_portions_cover_the_plan ... FAILED
test tar::p079_a_bad_header_is_refused - should panic ... ok
test p017_members::reads_one ... ok
test p030_last_batch ... ignored

failures:
    portion::p026_p027_portions_cover_the_plan

test result: FAILED. 3 passed; 1 failed; 1 ignored

     Running tests/tar.rs (target/debug/deps/tar-99ff)
test p018_gnu_long_names ... ok
noise on the same line test p019_not_a_result ... ok
   Doc-tests forebay_core
test crates/core/src/spec.rs - spec::expand (line 12) ... ok
"""

JUNIT = """\
<testsuites><testsuite>
<testcase classname="tests.test_resume" name="test_p058_next_step[spawn]"/>
<testcase classname="tests.test_resume" name="test_p058_next_step[fork]"><failure message="x"/></testcase>
<testcase classname="tests.test_jax" name="test_p040_zero_copy"><skipped/></testcase>
<testcase classname="tests.test_close" name="test_p077_close"/>
<testcase classname="tests.test_close" name="test_p077_close"><error message="tear-down"/></testcase>
</testsuite></testsuites>
"""


def table(**claims: str) -> str:
    """A promises.toml with extra lines for some numbers: table(p017='shown = true')."""
    return "\n".join(
        f'[[promise]]\nnumber = {n}\nwords = "promise {n}"\n{claims.get(f"p{n:03}", "")}'
        for n in range(1, 81)
    )


def joined(toml: str, tests: list[promises.Test]) -> list[promises.Promise]:
    rows = promises.read_promises(toml)
    assert promises.join(rows, tests) == []
    return rows


def states(tests: list[promises.Test]) -> dict[str, str]:
    return {test.short: test.state for test in tests}


def test_results_of_cargo_are_read_with_their_crate() -> None:
    tests = promises.read_rust(CARGO.splitlines())
    assert states(tests) == {
        "p025_order_is_pure": "ok",
        "order_of_p025_is_a_word_inside": "ok",
        "p026_p027_portions_cover_the_plan": "failed",
        "p079_a_bad_header_is_refused": "ok",
        "reads_one": "ok",
        "p030_last_batch": "skipped",
        "p018_gnu_long_names": "ok",
        "expand (line 12)": "ok",
    }
    assert [t.where for t in tests if t.short == "p018_gnu_long_names"] == ["tar (tests/tar.rs)"]


def test_a_test_listed_under_failures_failed_even_if_its_line_was_garbled() -> None:
    lines = ["prefix test a::p005_fence ... FAILED", "failures:", "    a::p005_fence", "test result: FAILED"]
    assert states(promises.read_rust(lines)) == {"p005_fence": "failed"}


def test_results_of_pytest_are_read_and_the_worst_outcome_stays() -> None:
    by_name = {test.name: test.state for test in promises.read_junit(JUNIT)}
    assert by_name == {
        "test_p058_next_step[spawn]": "ok",
        "test_p058_next_step[fork]": "failed",
        "test_p040_zero_copy": "skipped",
        "test_p077_close": "failed",
    }


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("a::b::p017_x", [17]),
        ("test_p017_x[1-2]", [17]),
        ("p004_p005_p012_x", [4, 5, 12]),
        ("the_p017_x", []),
        ("p017_module::plain", []),
        ("p17_x", []),
    ],
)
def test_numbers_come_from_the_start_of_the_tests_own_name(name: str, numbers: list[int]) -> None:
    assert promises.Test("w", name, "ok").numbers == numbers


@pytest.mark.parametrize(
    ("claim", "tests", "state"),
    [
        ("", [], "open"),
        ("", ["ok"], "open"),
        ("", ["failed"], "failed"),
        ("", ["skipped"], "open"),
        ("shown = true", [], "failed"),
        ("shown = true", ["ok", "ok"], "passed"),
        ("shown = true", ["ok", "failed"], "failed"),
        ("shown = true", ["ok", "skipped"], "failed"),
        ('shown = true\nneeds = ["p017_test_0"]', ["ok"], "passed"),
        ('shown = true\nneeds = ["test_p017_test"]', ["ok"], "passed"),
        ('shown = true\nneeds = ["p017_stale"]', ["ok"], "failed"),
    ],
)
def test_a_promise_passes_only_when_claimed_and_all_its_tests_passed(
    claim: str, tests: list[str], state: str
) -> None:
    run = [promises.Test("w", f"m::p017_test_{i}", s) for i, s in enumerate(tests)]
    rows = joined(table(p017=claim), run)
    assert rows[16].state == state
    assert all(row.state == "open" for row in rows if row.number != 17)


def test_one_test_may_show_several_promises() -> None:
    rows = joined(table(), [promises.Test("w", "p004_p005_x", "ok")])
    assert [row.number for row in rows if row.tests] == [4, 5]


def test_a_table_with_a_hole_or_an_unknown_key_is_refused() -> None:
    with pytest.raises(SystemExit, match="once each"):
        promises.read_promises(table().replace("number = 9\n", "number = 10\n"))
    with pytest.raises(SystemExit, match="unknown key `show`"):
        promises.read_promises(table(p003="show = true"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("scripts", "docs/reference", "target/test-logs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "scripts/promises.toml").write_text(table(p018="shown = true"))
    (tmp_path / "target/test-logs/rust.log").write_text("test p018_tar ... ok\n")
    return tmp_path


def test_the_check_passes_on_a_fresh_page_and_fails_on_an_old_one(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert promises.main(["--check"], tree) == 1
    assert "make promises" in capsys.readouterr().err
    assert promises.main(["--write", "--check"], tree) == 0
    assert "80 promises: 1 passed, 0 failed, 79 open" in capsys.readouterr().out
    assert "`p018_tar`" in (tree / "docs/reference/promises.md").read_text()


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("test p018_tar ... FAILED\n", "p018_tar failed"),
        ("test p019_spec ... ok\n", "promise 18: claimed"),
        ("test p018_tar ... ok\ntest p081_more ... ok\n", "p081_more carries 81"),
        ("error: could not compile\n", "no test run"),
    ],
)
def test_the_check_names_what_is_wrong(
    tree: Path, capsys: pytest.CaptureFixture[str], log: str, message: str
) -> None:
    (tree / "target/test-logs/rust.log").write_text(log)
    assert promises.main(["--write", "--check"], tree) == 1
    assert message in capsys.readouterr().err


def test_the_table_of_this_project_is_sound() -> None:
    rows = promises.read_promises((promises.ROOT / "scripts/promises.toml").read_text())
    assert all(row.words and "|" not in row.words and len(row.words) <= 100 for row in rows)


SKIPPED = """\
     Running tests/servers_rows.rs (target/debug/deps/servers_rows-77aa)
skipped: test `p010_a_tree`: FOREBAY_TEST_CASSANDRA names no server
test p010_a_tree ... ok
test p010_rows ... skipped: test `main`: FOREBAY_TEST_CASSANDRA names no server
ok
"""


def test_a_rust_test_without_its_server_is_skipped_whatever_libtest_says() -> None:
    found = {test.name: test.state for test in promises.read_rust(SKIPPED.splitlines())}
    assert found == {"p010_a_tree": "skipped", "p010_rows": "skipped"}


def test_what_ran_beside_its_server_ran(tmp_path: Path) -> None:
    (tmp_path / "rust.log").write_text(SKIPPED)
    assert {test.state for test in promises.read_run(tmp_path)} == {"skipped"}
    beside = SKIPPED.splitlines()[0] + "\ntest p010_a_tree ... ok\ntest p010_rows ... FAILED\n"
    (tmp_path / "servers.log").write_text(beside)
    assert {test.name: test.state for test in promises.read_run(tmp_path)} == {
        "p010_a_tree": "ok",
        "p010_rows": "failed",
    }
