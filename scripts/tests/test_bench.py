"""The bench report: wrong figures are refused, bars that do not hold are named."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bench


def run(**changes: Any) -> str:
    bar = {"name": "speed", "value": 1.7, "goal": ">= 2.0", "unit": "x", "holds": False}
    whole = {"bench": "images", "conditions": {}, "rounds": [], "results": {}, "bars": [bar]}
    return json.dumps(whole | changes)


def test_a_bar_that_does_not_hold_is_named_with_value_and_goal() -> None:
    text = bench.report(bench.read(run() + "\n\n" + run(bars=[])))
    assert text.splitlines() == [
        "does not hold: images: speed is 1.7 x, the goal is >= 2.0",
        "2 benches, 1 bars: 0 hold, 1 do not",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (run(rounds=None), "`rounds` is missing"),
        (run(bars=[{"name": "speed"}]), "bar `speed`: no `goal`"),
        ("not json", "Expecting value"),
    ],
)
def test_figures_of_another_shape_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bench.read(text)


def test_what_was_skipped_is_named() -> None:
    text = bench.report(bench.read(run(bars=[], conditions={"skipped": {"wan/boto3": "not installed"}})))
    assert "skipped: images: wan/boto3: not installed" in text.splitlines()


def test_a_bench_that_fails_loses_no_figures_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = tmp_path / "forebay"
    command.write_text(f"#!/bin/sh\n[ $2 = images ] && echo '{run()}' || exit 4\n")
    command.chmod(0o755)
    monkeypatch.setattr(bench, "FOREBAY", str(command))
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    monkeypatch.setattr(bench, "KEPT", tmp_path / "target/bench")
    monkeypatch.setattr(sys, "argv", ["bench.py", "raw", "images", "--rounds", "1"])
    assert bench.main() == 4
    said = capsys.readouterr()
    assert "bench raw: failed with 4 after" in said.out
    assert "does not hold: images: speed" in said.out
    assert "failed: raw" in said.err
    assert json.loads((tmp_path / "target/bench/images.json").read_text())["bench"] == "images"
    assert len((tmp_path / "target/bench/latest.jsonl").read_text().splitlines()) == 1
