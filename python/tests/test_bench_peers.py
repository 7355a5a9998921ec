"""Packages that are measured beside Forebay: found here or in an environment of their own, and named when missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from forebay.bench import _harness, _peers
from forebay.bench._harness import Bench, Figures


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No environment beside this one, and nothing remembered of one."""
    monkeypatch.setattr(_peers, "checkout", lambda: None)
    monkeypatch.delenv(_peers.VARIABLE, raising=False)
    _peers.interpreter.cache_clear()
    yield
    _peers.interpreter.cache_clear()


def other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another interpreter that has a package of its own besides all of ours."""
    package = folder / "packages/made_up_peer"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    about = folder / "packages/made_up_peer-3.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up-peer\nVersion: 3.1\n")
    python = folder / "bin/python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}/packages:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv(_peers.VARIABLE, str(python))
    return python


def test_what_is_installed_here_is_run_here() -> None:
    assert _peers.interpreter(()) == sys.executable
    assert _peers.interpreter(("numpy",)) == sys.executable
    assert _peers.versions(["forebay", "no-such-peer"])["no-such-peer"] == "not installed"


def test_what_is_missing_here_is_run_by_the_other_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(_peers.MissingPeerError, match=r"`made_up_peer` is not installed"):
        _peers.interpreter(("made_up_peer",))
    python = other(tmp_path, monkeypatch)
    assert _peers.interpreter(("made_up_peer", "numpy")) == str(python)
    assert _peers.versions(["made-up-peer"]) == {"made-up-peer": "3.1"}
    with pytest.raises(_peers.MissingPeerError, match=r"`no_such_peer` is not installed in"):
        _peers.interpreter(("made_up_peer", "no_such_peer"))


def test_an_interpreter_that_cannot_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_peers.VARIABLE, "/no/such/python")
    with pytest.raises(_peers.MissingPeerError, match=r"run `/no/such/python`"):
        _peers.interpreter(("made_up_peer",))


class Three(Bench):
    """One of ours, a peer that is missing, and one that fails."""

    name: ClassVar[str] = "three"
    subjects: ClassVar[tuple[str, ...]] = ("ours", "missing", "failing", "peer")
    needs: ClassVar[dict[str, tuple[str, ...]]] = {
        "missing": ("no_such_peer",),
        "failing": ("numpy",),
        "peer": ("numpy",),
    }
    packages: ClassVar[tuple[str, ...]] = ()
    default_samples: ClassVar[int] = 1

    def make(self, folder: Path) -> dict[str, Any]:
        return {}

    def settings(self, folder: Path) -> dict[str, Any]:
        return {}

    def bars(self, medians: dict[str, Figures]) -> list[dict[str, Any]]:
        return []


def test_a_peer_that_is_missing_or_fails_costs_its_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(subject: str, settings: object, module: str, python: str) -> Figures:
        if subject == "failing":
            raise _harness.SubjectError("measure `failing`: it ended with code 1: no memory")
        return {"speed": 1.0}

    monkeypatch.setattr(_harness, "measure", measure)
    figures = Three(rounds=3, peer_rounds=1).run(lambda line: None)
    assert figures["results"]["ours"]["speed"]["rounds"] == 3
    assert figures["results"]["peer"]["speed"]["rounds"] == 1, "of the rounds that others take part in"
    assert list(figures["results"]) == ["ours", "peer"]
    skipped = figures["conditions"]["skipped"]
    assert skipped["missing"] == "`no_such_peer` is not installed"
    assert skipped["failing"].endswith("no memory")


def test_our_own_subject_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: object) -> Figures:
        raise _harness.SubjectError("measure `ours`: it ended with code 1: no memory")

    monkeypatch.setattr(_harness, "measure", measure)
    with pytest.raises(_harness.SubjectError, match="no memory"):
        Three(rounds=1, only=["ours"]).run(lambda line: None)
