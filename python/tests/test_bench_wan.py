"""The bench over an emulated line: what it makes of what clients and the line report."""

from __future__ import annotations

import argparse

import pytest
from forebay.bench import wan
from forebay.bench._wan_servers import Line, UnavailableBenchError


def reported(*bytes_per_report: int, rate: float = 1000.0) -> Line:
    """A line that is not running but has reported, ten times a second from unix time 100 on."""
    line = object.__new__(Line)
    line.bytes_per_second = rate
    carried = 0
    line.lines = []
    for number, amount in enumerate(bytes_per_report):
        carried += amount
        line.lines.append({"unix_seconds": 100 + number / 10, "down_bytes": carried})
    return line


def test_a_line_is_full_when_it_carried_its_share_for_a_while() -> None:
    ramp = reported(0, 0, 20, 50, 50, 95, 95, 95, 95, 95, 95)
    assert ramp.seconds_until_full(100.0, 101.0) == pytest.approx(0.7)
    burst = reported(0, 100, 10, 10, 10, 10, 10, 10, 10, 10, 10)
    assert burst.seconds_until_full(100.0, 101.0) == pytest.approx(1.0), "never: all of the run"


def test_the_share_of_the_link_is_taken_over_the_steady_part() -> None:
    marks = [(n / 10, 0 if n < 10 else 90 * (n - 10)) for n in range(1, 101)]
    seen = {
        "began_unix_seconds": 0.0,
        "seconds": 10.0,
        "open_seconds": 0.5,
        "samples": 100,
        "payload_bytes": marks[-1][1],
        "marks": marks,
        "cpu_seconds": 0.2,
        "memory_growth_bytes": 5,
    }
    figures = wan.figures_of(seen, reported(0, 0, *[0] * 8, 0, *[90] * 90))
    assert figures["link_share"] == pytest.approx(0.9)
    assert figures["cpu_seconds_per_1000"] == pytest.approx(2.0)
    assert "link_share" not in wan.figures_of(seen, None), "without a line there is no share of it"


def test_bars_name_every_goal_and_missing_cases_have_none() -> None:
    bench = wan.WanBench(rounds=1)
    far = {"link_share": 0.96, "full_after_seconds": 2.0, "memory_growth_bytes": 5e7}
    bars = {bar["name"]: bar["holds"] for bar in bench.bars({"objects/forebay": far, "stalls/forebay": far})}
    assert list(bars.values()) == [True] * 4
    assert [name.split(":")[0] for name in bars] == ["objects"] * 3 + ["stalls"]
    cpu = {"cpu_seconds_per_gigabyte": 0.9}
    assert [bar["holds"] for bar in bench.bars({"near/forebay": cpu, "cql_near/forebay": cpu})] == [False] * 2
    own, peer = {**cpu, "cpu_seconds_per_1000": 0.1}, {"cpu_seconds_per_1000": 0.4}
    costs = bench.bars({"near/forebay": own, "near/forebay_bytes": own, "near/boto3_pool": peer})
    assert costs[1]["name"] == "near: client CPU per GET against boto3_pool"
    assert costs[1]["value"] == pytest.approx(0.25)
    slow, near = {"payload_bytes_per_second": 4.8e7}, {"payload_bytes_per_second": 5e7}
    decoded = bench.bars({"decoded/forebay": slow, "decoded/forebay_near": near})
    assert decoded[0]["value"] == pytest.approx(96.0), "the CPU is the slower one here"
    virtual = bench.bars({"virtual/forebay": {"link_share": 0.96, "held_delays": 3.1}})
    assert [bar["holds"] for bar in virtual] == [True, False]


def test_clients_are_told_where_the_data_is() -> None:
    sizes = {"images": {"mean_bytes": 7}}
    assert wan.told_to_client("shards", {}, sizes, "h:1")["spec"] == "http://h:1/train-{000..015}.tar"
    objects = wan.told_to_client("objects", {}, sizes, "h:1")
    assert (objects["spec"], objects["storage_options"]["endpoint"]) == ("s3://bucket/", "http://h:1")
    assert wan.told_to_client("decoded", {}, sizes, "h:1")["sample_bytes"] == 7
    assert wan.told_to_client("cql", {}, sizes, "h:1")["spec"] == "cassandra://h:1/forebay_bench/samples"


def test_an_unknown_case_is_refused_with_the_known_ones() -> None:
    options = argparse.Namespace(
        only=["object"], rounds=1, peer_rounds=None, samples=None, rate_mbit=1.0, rtt_ms=1.0, seconds=1.0
    )
    with pytest.raises(UnavailableBenchError, match=r"no case `object`, only objects, shards"):
        wan.WanBench.from_options(options)


def test_the_time_of_a_run_is_known_before_it_begins() -> None:
    clients = {name: list(case.clients) for name, case in wan.CASES.items()}
    whole = wan.WanBench(rounds=5).minutes(clients)
    short = wan.WanBench(rounds=3, peer_rounds=1, seconds=8.0).minutes(clients)
    assert whole <= 40
    assert short <= 11
