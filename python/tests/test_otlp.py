"""Figures pushed to a collector of OpenTelemetry: a real HTTP server that takes requests apart by the words of OTLP."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import forebay as fb
import pytest

# Messages of opentelemetry/proto/metrics/v1, as far as figures have them: field by field, in their JSON names. What has
# anything else is refused, as a decoder made from the definitions does.
MESSAGES: dict[str, dict[str, str]] = {
    "ExportMetricsServiceRequest": {"resourceMetrics": "ResourceMetrics*"},
    "ResourceMetrics": {"resource": "Resource", "scopeMetrics": "ScopeMetrics*", "schemaUrl": "string"},
    "Resource": {"attributes": "KeyValue*", "droppedAttributesCount": "uint32"},
    "ScopeMetrics": {"scope": "InstrumentationScope", "metrics": "Metric*", "schemaUrl": "string"},
    "InstrumentationScope": {"name": "string", "version": "string", "attributes": "KeyValue*"},
    "Metric": {
        "name": "string",
        "description": "string",
        "unit": "string",
        "gauge": "Gauge",
        "sum": "Sum",
        "histogram": "Histogram",
    },
    "Gauge": {"dataPoints": "NumberDataPoint*"},
    "Sum": {"dataPoints": "NumberDataPoint*", "aggregationTemporality": "enum", "isMonotonic": "bool"},
    "Histogram": {"dataPoints": "HistogramDataPoint*", "aggregationTemporality": "enum"},
    "NumberDataPoint": {
        "attributes": "KeyValue*",
        "startTimeUnixNano": "fixed64",
        "timeUnixNano": "fixed64",
        "asDouble": "double",
        "flags": "uint32",
    },
    "HistogramDataPoint": {
        "attributes": "KeyValue*",
        "startTimeUnixNano": "fixed64",
        "timeUnixNano": "fixed64",
        "count": "fixed64",
        "sum": "double",
        "bucketCounts": "fixed64*",
        "explicitBounds": "double*",
    },
    "KeyValue": {"key": "string", "value": "AnyValue"},
    "AnyValue": {"stringValue": "string"},
}


def decoded(kind: str, value: Any) -> Any:
    """The value as its definition has it; numbers of 64 bits come as strings."""
    if kind.endswith("*"):
        assert isinstance(value, list), (kind, value)
        return [decoded(kind[:-1], one) for one in value]
    if kind in MESSAGES:
        assert isinstance(value, dict), (kind, value)
        unknown = value.keys() - MESSAGES[kind].keys()
        assert not unknown, f"{kind} has no {unknown}"
        return {name: decoded(MESSAGES[kind][name], one) for name, one in value.items()}
    if kind == "fixed64":
        assert isinstance(value, str), (kind, value)
        assert 0 <= int(value) < 2**64
        return int(value)
    if kind == "double":
        assert isinstance(value, int | float), (kind, value)
        assert math.isfinite(value)
        return float(value)
    types = {"string": str, "bool": bool, "enum": int, "uint32": int}
    assert isinstance(value, types[kind]), (kind, value)
    return value


class Collector:
    """What was pushed, decoded, in the order in which it came."""

    def __init__(self) -> None:
        self.heads: list[tuple[str, dict[str, str]]] = []
        self.requests: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.url = ""

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.heads.append((path, headers))
        try:
            self.requests.append(decoded("ExportMetricsServiceRequest", json.loads(body)))
        except (AssertionError, ValueError) as fault:
            self.faults.append(repr(fault))


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(self.path, dict(self.headers), body)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def metrics_of(request: dict[str, Any]) -> dict[str, dict[str, Any]]:
    (resource,) = request["resourceMetrics"]
    (scope,) = resource["scopeMetrics"]
    assert scope["scope"] == {"name": "forebay"}
    return {metric["name"]: metric for metric in scope["metrics"]}


def test_p076_figures_pushed_to_a_collector_equal_those_of_the_loader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=abc")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "job-17")
        # One epoch: what is fetched ahead for another would be counted too.
        with fb.Loader(
            fb.synthetic(40, bytes=8), [fb.raw("bin")], batch_size=4, epochs=1, metrics="otlp"
        ) as loader:
            for _ in loader:
                pass
            assert loader.metrics_url is None
            stats = loader.stats()
    assert collector.faults == []
    path, headers = collector.heads[-1]
    assert path == "/v1/metrics"
    assert headers["Content-Type"] == "application/json"
    assert headers["api-key"] == "abc"
    last = collector.requests[-1]
    attributes = last["resourceMetrics"][0]["resource"]["attributes"]
    assert attributes == [{"key": "service.name", "value": {"stringValue": "job-17"}}]
    metrics = metrics_of(last)
    for name, figure in (("samples_total", "samples"), ("payload_bytes_total", "payload_bytes")):
        metric = metrics[f"forebay_engine_{name}"]
        assert metric["sum"]["isMonotonic"] is True
        assert metric["sum"]["aggregationTemporality"] == 2  # AGGREGATION_TEMPORALITY_CUMULATIVE
        (point,) = metric["sum"]["dataPoints"]
        assert point["asDouble"] == stats[figure]
        assert point["attributes"] == [{"key": "rank", "value": {"stringValue": "0"}}]
        assert 0 < point["startTimeUnixNano"] <= point["timeUnixNano"]
    (open_batches,) = metrics["forebay_engine_open_batches"]["gauge"]["dataPoints"]
    assert open_batches["asDouble"] == stats["open_batches"]
    histograms = [metric for metric in metrics.values() if "histogram" in metric]
    assert histograms
    for point in (point for metric in histograms for point in metric["histogram"]["dataPoints"]):
        assert len(point["bucketCounts"]) == len(point["explicitBounds"]) + 1
        assert sum(point["bucketCounts"]) == point["count"]
        assert point["explicitBounds"] == sorted(point["explicitBounds"])


def test_figures_are_pushed_again_and_again_and_also_shown_when_both_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    with collecting() as collector:
        both = {"listen": "127.0.0.1:0", "otlp": collector.url}
        with fb.Loader(fb.synthetic(4000, bytes=8), [fb.raw("bin")], batch_size=4, metrics=both) as loader:
            for _ in loader:
                if loader.epoch == 0 and len(collector.requests) >= 3:
                    break
                threading.Event().wait(0.005)
            assert loader.metrics_url is not None
    assert collector.faults == []
    counts = [
        metrics_of(request)["forebay_engine_batches_total"]["sum"]["dataPoints"][0]["asDouble"]
        for request in collector.requests
    ]
    assert len(counts) >= 3
    assert counts == sorted(counts)


def test_a_collector_that_is_not_there_costs_no_batch_and_what_cannot_be_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "10")
    data = fb.synthetic(40, bytes=8)
    with fb.Loader(data, [fb.raw("bin")], batch_size=4, metrics={"otlp": "http://127.0.0.1:1"}) as loader:
        assert sum(1 for _ in loader) == 10
    with pytest.raises(fb.ForebayError, match="http://"):
        fb.Loader(data, [fb.raw("bin")], metrics={"otlp": "https://example.org"})
    with pytest.raises(fb.InvalidConfigError, match="neither"):
        fb.Loader(data, [fb.raw("bin")], metrics={})
