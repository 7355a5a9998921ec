"""The bench of the analyzer: what is known of its pipelines, what it says of figures, and a small run of it."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from forebay import bench
from forebay.bench._analyze_cases import CASES, PARTS, POINTS, Pipeline, Point, known
from forebay.bench._harness import SubjectError
from forebay.bench.analyze import AnalyzeBench

QUICK = Pipeline(ingest=800, prep=400, fetch=200, batch=4, threads=4)


def test_known_pipelines_are_many_and_no_two_of_their_rates_are_near() -> None:
    assert len(set(CASES)) == len(CASES) >= 30
    seen = set()
    for case, hits in itertools.product(CASES, (0.0, 0.5)):
        rates = sorted((case.ingest, case.prep, case.fetch / (1 - hits * (case.cached > 0))))
        assert all(high / low >= 1.25 for low, high in itertools.pairwise(rates)), case
        seen.add(known(case, case.cached).bottleneck)
    assert seen == set(PARTS), "each part is the slowest of some"


def test_what_is_known_of_an_epoch_follows_from_its_rates() -> None:
    three = Pipeline(ingest=200, prep=100, fetch=50)
    assert known(three, 0.0) == ("fetch", (0.25, 0.25, 0.5))
    assert known(three, 0.9) == ("prep", (0.5, 0.5, 0.0))
    assert known(three._replace(ingest=20), 0.0) == ("ingest", (1.0, 0.0, 0.0))
    assert (three.step_seconds, three.op_seconds) == (0.04, 0.08)


def test_p069_points_are_caches_of_0_to_100_threads_of_1_to_8_stores_and_steps_of_half_and_twice() -> None:
    changes = {point.change for point in POINTS}
    assert {f"cache={percent}%" for percent in (0, 25, 50, 75, 100)} <= changes
    assert {"cores=1", "cores=2", "cores=4", "cores=8", "cores=x0.5"} <= changes
    assert {f"{part}=x{factor}" for part in ("bandwidth", "step") for factor in ("0.5", "2")} <= changes
    for point in POINTS:
        assert point.then != point.base or point.change in ("cache=0%", "cores=1"), point.change


def test_the_worst_of_all_cases_is_what_a_bar_is_about() -> None:
    case = {"rate_error_share": 0.02, "share_error_share": 0.01, "bottleneck_right_share": 1.0}
    medians = {
        "rates/a": case,
        "rates/b": {**case, "share_error_share": 0.06, "bottleneck_right_share": 0.0},
        "what_if/cache=0%/a": {"error_share": 0.01},
        "what_if/cache=50%/a": {"error_share": 0.12},
        "what_if/step=x2/a": {"error_share": 0.03},
        "metering/arrays": {"cost_share": 0.004, "cpu_cost_share": 0.002},
    }
    bars = AnalyzeBench().bars(medians)
    assert [(bar["value"], bar["goal"], bar["unit"], bar["holds"]) for bar in bars] == [
        (2.0, "<= 10", "%", True),
        (6.0, "<= 5", "points", False),
        (50.0, ">= 100", "%", False),
        (12.0, "<= 10", "%", False),
        (3.0, "<= 10", "%", True),
        (0.4, "<= 1", "%", True),
    ]


@pytest.mark.timeout(300)
def test_p068_a_small_run_finds_known_rates_predicts_and_compares_metered_epochs() -> None:
    point = Point(QUICK, "bandwidth=x2", QUICK._replace(fetch=400))
    said: list[str] = []
    small = AnalyzeBench(cases=[QUICK], points=[point], seconds=0.4, pairs=2, share=0.02)
    figures = small.run(said.append)
    json.dumps(figures)
    results: dict[str, Any] = figures["results"]
    assert list(results) == [
        f"rates/{QUICK.name}",
        f"what_if/{point.name}",
        "metering/payloads",
        "metering/arrays",
    ]
    rates, what_if = (results[subject] for subject in list(results)[:2])
    assert rates["bottleneck_right_share"]["median"] == 1.0, said
    assert 0 < rates["fetch_per_second"]["median"] <= 220, "a store gives no more than it was made to"
    assert what_if["measured_per_second"]["median"] > 0
    assert what_if["predicted_per_second"]["median"] > 1.5 * rates["fetch_per_second"]["median"]
    assert [bar["goal"] for bar in figures["bars"]] == ["<= 10", "<= 5", ">= 100", "<= 10", "<= 1", "<= 1"]
    assert "predicted" in small.table(figures)
    assert figures["conditions"]["sizes"] == {"cases": 1, "points": 1}


def test_a_subject_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnalyzeBench, "module", "forebay.bench._nothing")
    with pytest.raises(SubjectError, match=r"rates/ingest800.*_nothing"):
        AnalyzeBench(cases=[QUICK], only=["rates"]).run(lambda line: None)


def test_the_command_knows_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["--help"])
    assert "forebay bench analyze" in capsys.readouterr().out
