"""Figures for Prometheus: read by a strict reader of the format, and equal to what the test counted itself."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path

import forebay as fb
import pytest
from slow_store import SlowStore, serving

SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')

Figures = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(text: str) -> Figures:
    """The figures of a text in the format of Prometheus; anything that the format does not allow is an error."""
    figures: Figures = {}
    kinds: dict[str, str] = {}
    current = ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split(" ")[2]
            assert current not in kinds, f"{current} is not in one place"
            continue
        if line.startswith("# TYPE "):
            name, kind = line.split(" ")[2:]
            assert name == current
            assert kind in ("counter", "gauge", "histogram")
            kinds[name] = kind
            continue
        found = SAMPLE.match(line)
        assert found, line
        name, labels, value = found[1], found[2] or "", float(found[3])
        suffixes = ("_bucket", "_sum", "_count") if kinds[current] == "histogram" else ("",)
        assert name in {current + suffix for suffix in suffixes}, line
        pairs = LABEL.findall(labels)
        assert "".join(f'{key}="{text}",' for key, text in pairs) == (labels + "," if labels else ""), line
        key = (name, tuple(sorted(pairs)))
        assert key not in figures, line
        assert kinds[current] == "gauge" or value >= 0, line
        figures[key] = value
    return figures


def scrape(url: str, token: str | None = None) -> Figures:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return read(answer.read().decode())


def one(figures: Figures, name: str, **labels: str) -> float:
    found = [v for (n, pairs), v in figures.items() if n == name and labels.items() <= dict(pairs).items()]
    assert len(found) == 1, f"{name}: {found}"
    return found[0]


def test_p076_counters_are_what_the_loop_counted() -> None:
    data = fb.synthetic(64, bytes=1000)
    with fb.Loader(
        data, [fb.raw("bin"), fb.label("cls")], batch_size=8, cache="1MiB", metrics="127.0.0.1:0", epochs=2
    ) as loader:
        assert loader.metrics_url is None, "nothing is started before the first iteration"
        batches = 0
        for _ in range(2):
            for batch in loader:
                batches += 1
                with loader.phase("forward"):
                    assert len(batch.ids) == 8
        assert loader.metrics_url is not None
        figures, stats = scrape(loader.metrics_url), loader.stats()
        rank = {"rank": "0"}
        assert one(figures, "forebay_engine_batches_total", **rank) == batches == 16
        assert one(figures, "forebay_engine_samples_total", **rank) == 128
        # The first epoch misses everything; what of it is kept in time is hit by the second.
        hits = one(figures, "forebay_engine_cache_hits_total", tier="memory", **rank)
        misses = one(figures, "forebay_engine_cache_misses_total", **rank)
        assert hits + misses == 128
        assert misses >= 64
        assert one(figures, "forebay_engine_cache_hit_bytes_total", **rank) == 1000 * hits
        assert one(figures, "forebay_engine_payloads_total", **rank) == misses
        assert one(figures, "forebay_engine_payload_bytes_total", **rank) == 1000 * misses
        requests = one(figures, "forebay_engine_requests_total", **rank)
        assert requests == stats["requests"] == one(figures, "forebay_engine_request_seconds_count", **rank)
        for name in ("retries", "hedges", "throttled"):
            assert one(figures, f"forebay_engine_{name}_total", **rank) == 0
        for part in ("step", "fetch_stall", "prep_stall", "queue", "transfer"):
            name = "forebay_engine_part_seconds"
            assert one(figures, f"{name}_count", part=part, **rank) == batches
            assert one(figures, f"{name}_sum", part=part) == pytest.approx(stats[f"{part}_seconds"])
            buckets = [
                v for (n, pairs), v in figures.items() if n == f"{name}_bucket" and ("part", part) in pairs
            ]
            assert buckets == sorted(buckets)
            assert buckets[-1] == batches
        assert one(figures, "forebay_engine_phase_seconds_count", phase="forward") == batches
        assert one(figures, "forebay_engine_ready_batches", **rank) >= 1
        url = loader.metrics_url
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=10)


def test_p076_retries_of_a_store_that_fails_are_what_the_store_counted(tmp_path: Path) -> None:
    store = SlowStore(60, 500, fail_every=4)
    with serving(store) as options:
        data = fb.open("s3://bucket/o/", storage_options=options, extensions=["bin"], manifest_dir=tmp_path)
        with fb.Loader(
            data, [fb.raw("bin")], batch_size=6, epochs=1, hedge=False, metrics="127.0.0.1:0"
        ) as loader:
            taken = sum(len(batch.ids) for batch in loader)
            assert loader.metrics_url is not None
            figures, stats = scrape(loader.metrics_url), loader.stats()
    assert taken == 60
    assert len(store.failed) == 15
    assert sorted(store.answered) == sorted(store.objects), "each was given once"
    assert one(figures, "forebay_engine_retries_total") == stats["retries"] == len(store.failed)
    assert one(figures, "forebay_engine_payloads_total") == len(store.answered)
    assert one(figures, "forebay_engine_payload_bytes_total") == 500 * len(store.answered)
    assert one(figures, "forebay_engine_hedges_total") == 0


def test_p076_figures_answer_while_a_batch_is_awaited() -> None:
    data = fb.synthetic(8, bytes=100)
    with fb.Loader(
        data, [fb.raw("bin").delay(0.2)], batch_size=2, num_workers=1, metrics="127.0.0.1:0"
    ) as loader:
        for taken, _ in enumerate(loader, 1):
            assert loader.metrics_url is not None
            assert one(scrape(loader.metrics_url), "forebay_engine_batches_total") == taken


def test_beyond_this_machine_figures_need_a_token(tmp_path: Path) -> None:
    data = fb.synthetic(8, bytes=100)
    with (
        fb.Loader(data, [fb.raw("bin")], metrics="0.0.0.0:0") as loader,
        pytest.raises(fb.InvalidConfigError, match="token"),
    ):
        iter(loader)
    token = tmp_path / "token"
    token.write_text("a token of some length\n")
    with fb.Loader(data, [fb.raw("bin")], metrics={"listen": "127.0.0.1:0", "token_file": token}) as loader:
        list(loader)
        assert loader.metrics_url is not None
        with pytest.raises(urllib.error.HTTPError, match="401"):
            scrape(loader.metrics_url)
        assert one(scrape(loader.metrics_url, "a token of some length"), "forebay_engine_samples_total") == 8
    with pytest.raises(fb.InvalidConfigError, match="no address"):
        fb.Loader(data, [fb.raw("bin")], metrics="nowhere")


def test_the_environment_says_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_METRICS", "127.0.0.1:0")
    with fb.Loader(fb.synthetic(8, bytes=100), [fb.raw("bin")], batch_size=8) as loader:
        list(loader)
        assert loader.metrics_url is not None
        assert loader.metrics_url.startswith("http://127.0.0.1:")
