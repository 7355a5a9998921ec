"""Pages that a command writes, in a real Chromium: the report of `forebay analyze`, and the drawings of a sweep.

Run by scripts/browser/test.sh. Screenshots are kept in target/reports: by day, by night, and on a phone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opened import SCREENS, TOO_WIDE, page
from playwright.sync_api import Browser, Page, expect

ROOT = Path(__file__).parents[2]
SHOTS = ROOT / "target/reports"
# Two threads that sleep: at most 100 samples a second, from a source that gives any number, to steps of 200.
PIPELINE = """
[data]
url = "synthetic://?samples=4000&bytes=1000"

[[recipe]]
field = "bin"
decode = "bytes"
ops = [{ op = "delay", seconds = 0.02 }]

[loader]
batch_size = 4
num_workers = 2
"""


@pytest.fixture(scope="module", autouse=True)
def shots() -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)


def analyzed(folder: Path, *options: str, loader: str = "") -> tuple[dict[str, Any], str]:
    """What `forebay analyze` says of the pipeline, and the address of the page that it wrote."""
    (folder / "pipeline.toml").write_text(PIPELINE + loader)
    command = [sys.executable, "-m", "forebay", "analyze", "pipeline.toml", "--seconds", "0.4", "--json"]
    said = subprocess.run(
        [*command, "--html", "report.html", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(said.stdout), (folder / "report.html").as_uri()


def values(opened: Page) -> dict[str, float]:
    """The figures of a page by their names."""
    found = opened.eval_on_selector_all("data", "all => all.map(it => [it.className, it.value])")
    return {name: float(value) for name, value in found}


@pytest.mark.parametrize(("name", "settings"), SCREENS)
def test_the_report_of_an_analysis_shows_the_figures_of_its_json(
    browser: Browser, tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    options = ("--step", "0.02", "--what-if", "cache=50%,cores=x2")
    said, url = analyzed(tmp_path, *options, loader='cache = "1MB"\n')
    with page(browser, url, **settings) as opened:
        expect(opened.locator("h1")).to_have_text("Where the time goes")
        expect(opened.locator("#bottleneck")).to_have_text("preparing")
        expect(opened.locator(".plot svg")).to_have_count(2)
        for plot in opened.locator(".plot svg").all():
            box = plot.bounding_box()
            assert box is not None
            assert box["width"] > 250
            assert plot.locator("path.curve").bounding_box() is not None
        expect(opened.locator(".row")).to_have_count(6)
        prediction, later = said["prediction"], said["what_if"]["prediction"]["later"]
        wanted = {f"rate-{part}": said["rates"][part]["per_second"] for part in ("ingest", "prep", "fetch")}
        for key, epoch in (
            ("first", prediction["first"]),
            ("later", prediction["later"]),
            ("what-if", later),
        ):
            wanted[f"{key}-rate"] = epoch["rate"]
            wanted[f"{key}-step"] = epoch["step_seconds"]
            wanted[f"{key}-prep"] = epoch["prep_stall_seconds"]
            wanted[f"{key}-fetch"] = epoch["fetch_stall_seconds"]
        shown = values(opened)
        assert shown.pop("gain") == said["remedies"][-1]["gain"]
        assert shown == wanted
        # The bar of a part is as wide as its share.
        track = opened.locator(".row .track").nth(3).bounding_box()
        step = opened.locator(".row .track").nth(3).locator("i.step").bounding_box()
        assert track is not None
        assert step is not None
        share = prediction["first"]["step_seconds"] / prediction["first"]["seconds"]
        assert step["width"] / track["width"] == pytest.approx(share, abs=0.01)
        assert opened.evaluate(TOO_WIDE) is False
        opened.screenshot(path=SHOTS / f"analyze-{name}.png", full_page=True)


def test_a_report_without_a_step_says_that_it_has_no_limit(browser: Browser, tmp_path: Path) -> None:
    said, url = analyzed(tmp_path)
    with page(browser, url) as opened:
        expect(opened.locator(".row").first).to_contain_text("without limit")
        expect(opened.get_by_text("each epoch")).to_have_count(1)
        assert values(opened)["rate-prep"] == said["rates"]["prep"]["per_second"]
        opened.screenshot(path=SHOTS / "analyze-no-step.png", full_page=True)


@pytest.mark.parametrize(("name", "settings"), SCREENS)
def test_a_sweep_is_one_page_with_four_effects(
    browser: Browser, tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    command = [
        sys.executable,
        "-m",
        "forebay",
        "bench",
        "sweep",
        "--only",
        "forebay",
        "--report",
        str(tmp_path),
    ]
    grid = ["--batch-sizes", "32,64", "--threads", "1,2", "--steps", "0,0.2"]
    subprocess.run([*command, *grid], stdout=subprocess.DEVNULL, check=True)
    with page(browser, (tmp_path / "sweep.html").as_uri(), **settings) as opened:
        expect(opened.locator("svg")).to_have_count(4)
        expect(opened.locator("h2")).to_have_text(
            [
                f"Effect of {effect}"
                for effect in ("batch size", "number of workers", "sleep time", "dataset type")
            ]
        )
        assert opened.locator("svg circle").count() > 16
        assert opened.evaluate(TOO_WIDE) is False
        opened.screenshot(path=SHOTS / f"sweep-{name}.png", full_page=True)
