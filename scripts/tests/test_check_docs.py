"""The docs check: each kind of fault is found, and a sound tree has none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import check_docs

KINDS = 'fn name(self) { Self::NotFound => "not_found", Self::Stale => "stale" }\nfn python_class(self) {}\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "README.md": "[errors](docs/reference/errors.md#not_found) [site](https://example.org) `[code](x.md)`\n",
        "docs/reference/errors.md": "# Errors\n\n## `not_found`\n\n## `stale`\n\n```\n## not_a_heading\n```\n",
        "docs/concepts/guarantees.md": "Shown by: `p058_next_step`, `the_tail_is_the_same`.\nOpen: `not_a_test`.\n",
        "docs/README.md": "[e](reference/errors.md) [g](concepts/guarantees.md) [d](design/dependencies.md)\n",
        "docs/design/dependencies.md": "`bytes`\n",
        "Cargo.toml": '[workspace.dependencies]\nbytes = "1"\nours = { path = "crates/core" }\n',
        "crates/core/src/error.rs": KINDS,
        "crates/core/src/cursor.rs": "fn p058_next_step() {}\nfn the_tail_is_the_same(x: u64) {}\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def test_a_sound_tree_has_no_faults_with_and_without_git(tree: Path) -> None:
    assert check_docs.main(tree) == 0
    shutil.rmtree(tree / ".git")
    (tree / "target").mkdir()
    (tree / "target/built.md").write_text("[x](missing.md)")
    assert check_docs.main(tree) == 0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.md", "[x](missing.md)", "link to `missing.md`: no such file"),
        ("fuzz/fuzz_targets/new.rs", "", "its table has no `new`"),
        ("a.md", "[x](../outside.md)", "leaves the repository"),
        ("a.md", "[x](README.md#nowhere)", "no such heading"),
        ("docs/reference/errors.md", "## `stale`", "no heading for the error kind `not_found`"),
        ("docs/reference/errors.md", "## not_found\n## stale\n## not_there", "`not_there` is no error kind"),
        ("docs/concepts/guarantees.md", "Shown by: `p059_other`", "`p059_other`, which is not in the tree"),
        ("docs/guide/resume.md", "text", "docs/guide/resume.md: no README.md below docs/ links to it"),
        ("docs/design/dependencies.md", "nothing", "does not say why `bytes` is there"),
        ("a.rs", '// see "/' + 'home/me/data"', "a.rs:1: a path of one machine"),
    ],
)
def test_each_fault_is_named(
    tree: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, message: str
) -> None:
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(text)
    check_docs.anchors.cache_clear()
    assert check_docs.main(tree) == 1
    assert message in capsys.readouterr().err


def test_ordinary_slashes_are_no_machine_path() -> None:
    for text in ("a/work" + "/b", "~/root" + "/x", "s3://bucket/wor" + "kers/", "http://h/root" + "s/"):
        assert not check_docs.MACHINE_PATH.search(text), text


def test_anchors_are_made_as_forges_make_them() -> None:
    assert check_docs.anchor("A batch, once: `iter()` again!") == "a-batch-once-iter-again"
    assert check_docs.anchor("[Order](order.md) and seed") == "order-and-seed"
