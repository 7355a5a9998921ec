"""Checks that the written docs agree with the tree: links, error kinds, tests, dependencies, fuzz targets, paths.

Run by `make docs-check`. Reads tracked files, and untracked ones that git would not ignore, so that a page is
checked before it is committed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
KIND_NAME = re.compile(r"Self::\w+ => \"([a-z_]+)\"")
SHOWN_BY = re.compile(r"^Shown by:(.*?)(?:\n\n|\bOpen:|\Z)", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"`(\w+)`")
# Built from parts, so that this file does not match itself. Tests of hostile archives aim at `.ssh`; that is no leak.
MACHINE_PATH = re.compile(
    r"(?<![\w.~*}])/(?:" + "|".join(("wor" + "k", "roo" + "t", "hom" + r"e/\w+")) + r")/(?!\.ssh)"
)
# Pages that promise something name the test that shows it; a name must exist in the tree.
PAGES_WITH_TESTS = ("docs/concepts/guarantees.md",)


def files(root: Path) -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if listed.returncode == 0:
        names = sorted(set(listed.stdout.decode().split("\0")) - {""})
        return [path for name in names if (path := root / name).is_file()]
    # An unpacked release has no git: everything counts but what is built or installed.
    built = {"target", ".venv", ".cache", "dist", "__pycache__"}
    return sorted(p for p in root.rglob("*") if p.is_file() and not built & set(p.relative_to(root).parts))


def anchor(heading: str) -> str:
    """The fragment under which a heading is reached, as forges make it."""
    text = LINK.sub(lambda m: m[0][1 : m[0].index("]")], heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    seen: dict[str, int] = {}
    found = set()
    for match in HEADING.finditer(FENCE.sub("", page.read_text())):
        name = anchor(match[1])
        again = seen.get(name, 0)
        seen[name] = again + 1
        found.add(f"{name}-{again}" if again else name)
    return frozenset(found)


def broken_links(root: Path, pages: list[Path]) -> Iterator[str]:
    for page in pages:
        for match in LINK.finditer(CODE.sub("", FENCE.sub("", page.read_text()))):
            target, _, fragment = match[1].partition("#")
            if re.match(r"[a-z][a-z+.-]*:", target):
                continue
            where = (page.parent / target).resolve() if target else page
            name = page.relative_to(root)
            if not where.is_relative_to(root):
                yield f"{name}: link to `{match[1]}` leaves the repository"
            elif not where.exists():
                yield f"{name}: link to `{match[1]}`: no such file"
            elif fragment and where.suffix == ".md" and fragment not in anchors(where):
                yield f"{name}: link to `{match[1]}`: no such heading"


def undescribed_kinds(root: Path) -> Iterator[str]:
    source = root / "crates/core/src/error.rs"
    page = root / "docs/reference/errors.md"
    text = source.read_text()
    body = text[text.index("fn name(") : text.index("fn python_class(")]
    kinds = set(KIND_NAME.findall(body))
    if not kinds:
        yield f"{source.relative_to(root)}: no error kinds found; was it rewritten?"
    headings = anchors(page) if page.exists() else frozenset()
    for kind in sorted(kinds - headings):
        yield f"{page.relative_to(root)}: no heading for the error kind `{kind}`"
    for heading in sorted(h for h in headings - kinds if re.fullmatch(r"[a-z]+(_[a-z]+)+", h)):
        yield f"{page.relative_to(root)}: heading `{heading}` is no error kind"


def unknown_tests(root: Path, listed: list[Path]) -> Iterator[str]:
    sources = [path for path in listed if path.suffix in (".rs", ".py")]
    known = {
        name
        for path in sources
        for name in re.findall(r"\b(?:fn|def)\s+(\w+)", path.read_text(errors="replace"))
    }
    for page in (root / name for name in PAGES_WITH_TESTS):
        named = {n for part in SHOWN_BY.findall(page.read_text()) for n in NAME.findall(part)}
        for name in sorted(named - known):
            yield f"{page.relative_to(root)}: names the test `{name}`, which is not in the tree"


def unlisted_pages(root: Path, pages: list[Path]) -> Iterator[str]:
    """Every page below docs/ is linked from docs/README.md or from the README.md of its own folder."""
    docs = root / "docs"
    indexes = [page for page in pages if page.name == "README.md" and page.is_relative_to(docs)]
    linked = {
        (index.parent / match[1].partition("#")[0]).resolve()
        for index in indexes
        for match in LINK.finditer(index.read_text())
    }
    for page in pages:
        if page.is_relative_to(docs) and page not in {*linked, docs / "README.md"}:
            yield f"{page.relative_to(root)}: no README.md below docs/ links to it"


def unexplained_dependencies(root: Path) -> Iterator[str]:
    workspace = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]
    page = root / "docs/design/dependencies.md"
    named = set(re.findall(r"`([\w-]+)`", page.read_text()))
    for name, entry in workspace["dependencies"].items():
        if not (isinstance(entry, dict) and "path" in entry) and name not in named:
            yield f"{page.relative_to(root)}: does not say why `{name}` is there"


def unlisted_targets(root: Path) -> Iterator[str]:
    page = root / "fuzz/README.md"
    rows = page.read_text() if page.is_file() else ""
    for target in sorted((root / "fuzz/fuzz_targets").glob("*.rs")):
        if f"`{target.stem}`" not in rows:
            yield f"{page.relative_to(root)}: its table has no `{target.stem}`"


def machine_paths(root: Path, listed: list[Path]) -> Iterator[str]:
    for path in listed:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE_PATH.search(line):
                yield f"{path.relative_to(root)}:{number}: a path of one machine: {line.strip()[:80]}"


def main(root: Path = ROOT) -> int:
    listed = files(root)
    pages = [path for path in listed if path.suffix == ".md"]
    faults = [
        *broken_links(root, pages),
        *undescribed_kinds(root),
        *unknown_tests(root, listed),
        *unlisted_pages(root, pages),
        *unexplained_dependencies(root),
        *unlisted_targets(root),
        *machine_paths(root, listed),
    ]
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"docs: {len(pages)} pages, {len(listed)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
