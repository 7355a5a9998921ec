"""The dashboard in a real Chromium: it loads, lives, asks nobody else, and shows names as text.

Run by scripts/browser/test.sh. Screenshots are kept in target/dashboard: by day, by night, and on a phone.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import forebay as fb
import pytest
from opened import SCREENS, page
from playwright.sync_api import Browser, Page, expect

SHOTS = Path(__file__).parents[2] / "target/dashboard"
HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>'\"&amp;"


def figures(seconds: float) -> str:
    """What eight ranks and their caches would show so many seconds after they began; rank 5 is late in fetching."""
    steps = seconds * 8
    lines = []
    for rank in range(8):
        fetch = 0.11 if rank == 5 else 0.012 + 0.004 * (rank % 3)
        parts = {"step": 0.07, "fetch_stall": fetch, "prep_stall": 0.02, "queue": 0.0004, "transfer": 0.003}
        lines += [
            f'forebay_engine_part_seconds_sum{{rank="{rank}",part="{part}"}} {steps * each}'
            for part, each in parts.items()
        ]
        own = f'{{rank="{rank}"}}'
        lines += [
            f"forebay_engine_batches_total{own} {steps}",
            f"forebay_engine_samples_total{own} {32 * steps}",
            f"forebay_engine_requests_total{own} {40 * steps}",
            f"forebay_engine_payload_bytes_total{own} {4e6 * steps}",
            f"forebay_engine_prep_seconds_total{own} {2.6 * seconds}",
            f"forebay_engine_budget_wait_seconds_total{own} {0.01 * seconds}",
            f"forebay_engine_threads{own} 4",
            f"forebay_engine_open_batches{own} 8",
            f"forebay_engine_ready_batches{own} {3 + rank % 4}",
            f"forebay_engine_cache_misses_total{own} {6 * steps}",
        ]
        for tier, held, hits in (("memory", 0.94, 20), ("disk", 0.4, 6)):
            labels = f'{{rank="{rank}",tier="{tier}"}}'
            lines += [
                f"forebay_engine_cache_bytes{labels} {held * 8e9}",
                f"forebay_engine_cache_limit_bytes{labels} 8e9",
                f"forebay_engine_cache_hits_total{labels} {hits * steps}",
            ]
    return "\n".join(lines) + "\n"


@contextmanager
def showing() -> Iterator[str]:
    """Somebody who shows those figures."""
    began = time.monotonic()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = figures(60 + time.monotonic() - began).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()


@contextmanager
def command(*arguments: str) -> Iterator[dict[str, Any]]:
    """A `forebay` command that runs until the end, and what it said when it began."""
    child = subprocess.Popen(
        [sys.executable, "-m", "forebay", *arguments, "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        text = ""
        for line in child.stdout:
            text += line
            if line.rstrip() == "}":
                break
        yield json.loads(text)
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(timeout=20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()


def wait_for_change(opened: Page, selector: str, value: str) -> None:
    """Until `value` (of JavaScript, with `it` as the element) is another than it was."""
    code = f"selector => {{ const it = document.querySelector(selector); return {value}; }}"
    first = opened.evaluate(code, selector)
    opened.wait_for_function(
        f"([selector, first]) => {{ const it = document.querySelector(selector); return ({value}) !== first; }}",
        arg=[selector, first],
        timeout=30_000,
    )


@pytest.mark.parametrize(("name", "settings"), SCREENS)
def test_the_page_lives_and_calls_out_the_late_rank(
    browser: Browser, name: str, settings: dict[str, Any]
) -> None:
    with (
        showing() as metrics,
        command("dashboard", "--attach", metrics, "--listen", "127.0.0.1:0") as said,
        page(browser, said["url"], **settings) as opened,
    ):
        expect(opened.locator("#live-words")).to_have_text("live", timeout=30_000)
        wait_for_change(opened, "#bands path", "it.getAttribute('d')")
        expect(opened.locator("#late")).to_contain_text("rank 5 is late", timeout=30_000)
        expect(opened.locator("#late")).to_contain_text("fetch")
        expect(opened.locator(".heat li")).to_have_count(8)
        expect(opened.locator(".heat li.late")).to_have_count(1)
        expect(opened.locator(".heat li.late")).to_contain_text("5")
        expect(opened.locator("#stages [role=meter]")).to_have_count(3)
        expect(opened.locator("#tiers [role=meter]")).to_have_count(2)
        # 8 ranks, 8 steps a second, 32 samples each: to the accuracy of a busy machine.
        shown = opened.locator("#n-samples").text_content() or ""
        assert 1000 < float(shown.replace(",", "").replace(" k", "e3")) < 4000, shown
        too_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        assert opened.evaluate(too_wide) is False
        opened.wait_for_timeout(4000)
        opened.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def test_a_dispatcher_shows_a_hostile_job_as_text(browser: Browser, tmp_path: Path) -> None:
    ended = threading.Event()

    def train(url: str) -> None:
        via = {"url": url, "job": HOSTILE}
        with fb.Loader(fb.synthetic(64, bytes=64), [fb.raw("bin")], batch_size=8, via=via) as loader:
            while not ended.is_set():
                for _ in loader:
                    time.sleep(0.01)

    with (
        command("dispatcher", "--listen", "127.0.0.1:0", "--dashboard", "127.0.0.1:0") as dispatcher,
        command("worker", "--dispatcher", dispatcher["url"], "--threads", "1"),
    ):
        training = threading.Thread(target=train, args=(dispatcher["url"],))
        training.start()
        try:
            with page(browser, dispatcher["dashboard"]) as opened:
                expect(opened.locator(".job h3")).to_contain_text(HOSTILE, timeout=60_000)
                expect(opened.locator("#workers tbody tr")).to_have_count(1)
                expect(opened.locator("#feeds tbody tr")).to_have_count(1)
                expect(opened.locator("img")).to_have_count(0)
                expect(opened.locator("body script")).to_have_count(0)
                wait_for_change(opened, "#workers tbody tr", "it.textContent")
                opened.wait_for_function("document.querySelector('#bands path') !== null", timeout=60_000)
                assert opened.title() == "Forebay"
                opened.screenshot(path=SHOTS / "dispatcher.png", full_page=True)
        finally:
            ended.set()
            training.join(timeout=60)


def test_with_a_token_nothing_is_shown_before_it_is_given(browser: Browser, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a token of some length\n")
    options = ("--listen", "127.0.0.1:0", "--dashboard-token-file", str(token))
    with showing() as metrics, command("dashboard", "--attach", metrics, *options) as said:
        with page(browser, said["url"]) as opened:
            expect(opened.locator("#door")).to_be_visible(timeout=30_000)
            expect(opened.locator("#n-samples")).to_have_text("\N{EN DASH}")
            opened.fill("#token", "another token of some length")
            opened.click("#door button")
            expect(opened.locator("#door")).to_be_visible(timeout=30_000)
            opened.fill("#token", "a token of some length")
            opened.click("#door button")
            expect(opened.locator("#live-words")).to_have_text("live", timeout=30_000)
            expect(opened.locator(".heat li")).to_have_count(8, timeout=30_000)
        with page(browser, said["url"] + "#token=a%20token%20of%20some%20length") as opened:
            expect(opened.locator("#live-words")).to_have_text("live", timeout=30_000)
            assert "token" not in opened.url
