"""The bench over a grid: that it measures every cell, and what it makes of the figures."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from forebay import bench
from forebay.bench import sweep
from forebay.bench._harness import summarise
from forebay.bench._sweep_plots import Panel, svg
from forebay.bench._sweep_report import Grid, effects, table, write_report

EFFECTS = ["batch size", "number of workers", "sleep time", "dataset type"]


def made(*, failed: str | None = None) -> dict[str, Any]:
    """Figures of a grid that nobody measured: waits that tell where they are from."""
    cells = []
    grid = itertools.product(
        ("forebay", "dataloader"), ("encoded", "preprocessed"), (2, 8), (1, 4), (0.0, 0.5)
    )
    for loader, dataset, batch, threads, step in grid:
        subject = f"{loader}/{dataset}/batch{batch}/threads{threads}/step{step:g}"
        cell = {"round": 0, "subject": subject, "loader": loader, "dataset": dataset}
        cell |= {"batch_size": batch, "threads": threads, "step_seconds": step}
        if subject == failed:
            cells.append({**cell, "fault": "RuntimeError: no shared memory"})
            continue
        waits = [batch * threads / 10, 0.0, 0.25]
        cells.append({**cell, "waits_seconds": waits, **sweep._figures({"waits_seconds": waits})})
    numbers = ("round", "subject", *sweep.FIGURES)
    measured = [{key: cell[key] for key in numbers} for cell in cells if "fault" not in cell]
    settings = {"batches": 3, "scale": 1.0, "batch_sizes": [2, 8], "threads": [1, 4]}
    settings |= {"steps_seconds": [0.0, 0.5], "datasets": ["encoded", "preprocessed"]}
    machine = {"cpu": "none", "cores": 3, "load_average": 0.0}
    conditions = {
        "machine": machine,
        "versions": {"forebay": "0"},
        "sizes": {},
        "settings": settings,
        "skipped": {},
    }
    results = summarise(measured)
    return {"bench": "sweep", "conditions": conditions, "rounds": cells, "results": results, "bars": []}


def test_p038_the_grid_is_five_batch_sizes_seven_thread_counts_two_steps_two_datasets() -> None:
    whole = sweep.SweepBench(scale=1.0).settings(Path("x"))
    assert whole["batch_sizes"] == [32, 128, 256, 512, 1024]
    assert whole["threads"] == [1, 2, 4, 8, 32, 48, 64]
    assert whole["steps_seconds"] == [0.0, 2.0]
    assert whole["datasets"] == ["encoded", "preprocessed"]
    scaled = sweep.SweepBench().settings(Path("x"))
    assert [len(scaled[key]) for key in ("batch_sizes", "threads", "steps_seconds", "datasets")] == [
        5,
        7,
        2,
        2,
    ]
    assert scaled["batch_sizes"] == [2, 8, 16, 32, 64]
    assert scaled["steps_seconds"] == [0.0, 0.125]


def test_p038_the_figures_of_the_whole_grid_are_kept_with_each_wait() -> None:
    kept = json.loads((Path(__file__).parents[2] / "docs/reports/sweep/sweep.json").read_text())
    asked = kept["conditions"]["settings"]
    sides = [asked[key] for key in ("datasets", "batch_sizes", "threads", "steps_seconds")]
    assert [len(side) for side in sides] == [2, 5, 7, 2]
    grid = list(itertools.product(("forebay", "dataloader"), *sides))
    names = ("loader", "dataset", "batch_size", "threads", "step_seconds")
    found = sorted(tuple(cell[name] for name in names) for cell in kept["rounds"])
    assert found == sorted(grid), "each cell is there once"
    for cell in kept["rounds"]:
        waits = cell["waits_seconds"]
        assert len(waits) == 11, cell["subject"]
        assert all(wait >= 0 for wait in waits), cell["subject"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("loader", "steps"), [("forebay", [0.0, 0.02]), ("dataloader", [0.02])])
def test_p038_one_command_measures_every_cell_and_writes_each_wait_and_a_table(
    loader: str, steps: list[float], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if loader == "dataloader":
        pytest.importorskip("torchvision")
    given = ",".join(str(step * 16) for step in steps)
    grid = ["--scale", "1/16", "--batch-sizes", "32,64", "--threads", "1,2", "--steps", given]
    code = bench.main(["sweep", *grid, "--only", loader, "--report", str(tmp_path), "--json"])
    figures = json.loads(capsys.readouterr().out)
    assert code == 0
    cells = figures["rounds"]
    found = [(cell["dataset"], cell["batch_size"], cell["threads"], cell["step_seconds"]) for cell in cells]
    assert sorted(found) == sorted(itertools.product(("encoded", "preprocessed"), (2, 4), (1, 2), steps))
    for cell in cells:
        waits = cell["waits_seconds"]
        assert len(waits) == 11, "the samples are as many as the largest batches need"
        assert all(wait >= 0 for wait in waits)
        result = figures["results"][cell["subject"]]
        assert result["first_batch_seconds"]["median"] == waits[0]
        assert result["all_waits_seconds"]["median"] == pytest.approx(sum(waits))
    assert json.loads((tmp_path / "sweep.json").read_text()) == figures
    assert f"{loader}, preprocessed, step of 0.02 s" in table(figures)


def test_every_effect_is_drawn_and_nothing_is_fetched(tmp_path: Path) -> None:
    write_report(made(), tmp_path)
    page, text = (tmp_path / "sweep.html").read_text(), (tmp_path / "sweep.md").read_text()
    for effect in EFFECTS:
        assert f"Effect of {effect}" in page
        drawing = tmp_path / f"sweep-effect-of-{effect.replace(' ', '-')}.svg"
        assert drawing.name in text
        root = ElementTree.fromstring(drawing.read_text())
        circles = [part for part in root.iter() if part.tag.endswith("circle")]
        assert len(circles) >= 8, "two panels, two loaders, two cells or more"
        assert drawing.read_text().strip() in page
    for outside in ("src=", "href=", "@import", "url("):
        assert outside not in page
    assert page.count("http") == page.count("http://www.w3.org/2000/svg") == 4


def test_a_report_is_made_of_kept_figures_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_report(made(failed="dataloader/encoded/batch2/threads1/step0"), tmp_path / "first")
    file = tmp_path / "first" / "sweep.json"
    assert bench.main(["sweep", "--read", str(file), "--report", str(tmp_path / "again")]) == 0
    assert "forebay, preprocessed, step of 0.5 s" in capsys.readouterr().out
    written = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert len(written) == 7, "figures, page, HTML and four drawings"
    for name in written:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    text = (tmp_path / "again" / "sweep.md").read_text()
    assert "forebay waits less in 0 of 15 cells; dataloader takes 1.0 times as long" in text
    assert "32 measurements, 1 failed" in text
    assert "| first batch, by batch size, s | 2 | 8 |" in text
    file.write_text('{"bench": "raw"}')
    assert bench.main(["sweep", "--read", str(file), "--json"]) == 4
    assert "they are not of a sweep" in capsys.readouterr().err


def test_a_page_in_the_docs_is_what_its_figures_say(tmp_path: Path) -> None:
    for kept in (Path(__file__).parents[2] / "docs/reports").glob("*/sweep.json"):
        write_report(json.loads(kept.read_text()), tmp_path / kept.parent.name)
        for file in (tmp_path / kept.parent.name).iterdir():
            there = kept.with_name(file.name)
            assert file.read_text() == there.read_text(), f"{there} was edited: write it again with `--read`"


def test_the_command_that_takes_the_figures_again_is_named() -> None:
    asked = sweep.SweepBench(scale=0.25, threads=[1, 2], steps=[0.0], rounds=3).settings(Path("x"))["asked"]
    assert asked == {"threads": "1,2", "steps": "0", "scale": "0.25", "repeats": "3"}
    assert sweep.SweepBench().settings(Path("x"))["asked"] == {}


def test_an_effect_varies_one_thing_and_holds_the_rest() -> None:
    grid = Grid(made())
    assert (grid.base_batch, grid.base_threads) == (8, 4), "the middle batch, threads nearest to the cores"
    by_batch, by_threads, by_step, by_dataset = effects(grid).values()
    assert by_batch[0].lines["forebay"] == [0.8, 3.2]
    assert by_threads[1].lines["dataloader"] == pytest.approx([0.8 + 0.25, 3.2 + 0.25])
    assert [panel.lines["forebay"] for panel in by_step] == [[3.2, 0.0, 0.25]] * 2
    assert by_dataset[0].labels == ["encoded", "preprocessed"]


def test_a_cell_that_failed_is_told_and_left_out_of_the_drawing() -> None:
    figures = made(failed="dataloader/encoded/batch8/threads4/step0")
    assert "failed" in table(figures)
    by_batch = effects(Grid(figures))["Effect of batch size"]
    assert by_batch[0].lines["dataloader"] == [0.8, None]
    drawing = svg("batch size", by_batch)
    assert (
        drawing.count("<circle")
        == svg("batch size", effects(Grid(made()))["Effect of batch size"]).count("<circle") - 2
    )


def test_drawings_of_nothing_and_of_one_point_are_drawings() -> None:
    for line in ([], [None], [0.0], [1e-9], [12345.0]):
        panel = Panel("a < b", ["x"] * len(line), {"forebay": line})
        ElementTree.fromstring(svg("one", [panel]))


def test_a_grid_that_makes_no_sense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["--scale", "0"],
        ["--scale", "2"],
        ["--threads", "0"],
        ["--steps", "-1"],
        ["--datasets", "video"],
    ):
        with pytest.raises(SystemExit) as ended:
            bench.main(["sweep", *[f"{arguments[0]}={arguments[1]}"]])
        assert ended.value.code == 2
        assert arguments[0] in capsys.readouterr().err
