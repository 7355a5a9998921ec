"""``forebay bench wan``: how much of a long fat line one process fills when no knob is set, and what that costs it.

The line is emulated on this machine by ``forebay-wan``, the server is ``forebay-objects``; both are processes of their
own, so that the client's cost is the client's. Every case alternates its clients, each in a fresh process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from . import _peers
from ._harness import Bench, Figures, bar, environment, last_line
from ._wan_clients import NEEDS
from ._wan_data import SAMPLE_BYTES, SHARDS, ingest, write_images, write_mds, write_shards
from ._wan_servers import (
    Cable,
    Cassandra,
    Line,
    Program,
    UnavailableBenchError,
    allow_connections,
    build,
    virtual_link,
)

BATCH_SIZE, SHARD_SAMPLES = 64, 280
READY_BATCHES = 9
"""Batches that a loader keeps ready without being told, and the one in the hands of the consumer."""


@dataclass(frozen=True)
class Case:
    """What is read over which line, and by whom."""

    clients: tuple[str, ...]
    far: bool = True
    stall_share: float = 0.0
    loss: float = 0.0
    """Share of packets that are dropped, on a line of packets instead of the relay."""
    rate_share: float = 1.0
    """Of the rate that was asked for: packets cost more to emulate than streams."""
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where the clients of a case find its server."""

    far: tuple[str, Line | None]
    near: tuple[str, Line | None]
    inside: tuple[str, ...] = ()
    """What runs a command in the client's own network, if it has one."""


POOLS = ("http_client_pool", "urllib3_pool", "boto3_pool")
OBJECTS: dict[str, Any] = {"spec": "s3://bucket/", "extensions": ["bin"], "objects": 16_384}
CASES: dict[str, Case] = {
    "objects": Case(("forebay", *POOLS, "s3torchconnector"), settings=OBJECTS),
    "shards": Case(("forebay", "webdataset", "streaming"), settings={"shards": SHARDS}),
    "stalls": Case(("forebay", *POOLS), stall_share=0.01, settings={**OBJECTS, "arrival": True}),
    "decoded": Case(("forebay", "forebay_near"), settings={"decode": True, "extensions": ["jpg"]}),
    "near": Case(("forebay", "forebay_bytes", *POOLS, "s3torchconnector"), far=False, settings=OBJECTS),
    "loss": Case(("forebay", *POOLS), loss=0.001, rate_share=0.2, settings=OBJECTS),
    "cql": Case(("forebay", "cassandra_driver"), settings={"keyspace": "forebay_bench", "table": "samples"}),
    "cql_near": Case(
        ("forebay", "forebay_bytes", "cassandra_driver"),
        far=False,
        settings={"keyspace": "forebay_bench", "table": "samples"},
    ),
}


class WanBench(Bench):
    """Forebay over an emulated line, beside what people use for that today."""

    name: ClassVar[str] = "wan"
    subjects: ClassVar[tuple[str, ...]] = tuple(CASES)
    packages: ClassVar[tuple[str, ...]] = (
        *("forebay", "numpy", "torch", "urllib3", "boto3", "s3torchconnector"),
        *("webdataset", "mosaicml-streaming", "cassandra-driver"),
    )
    default_samples: ClassVar[int] = SHARDS * SHARD_SAMPLES

    def __init__(
        self,
        *,
        rounds: int,
        samples: int | None = None,
        only: Sequence[str] | None = None,
        peer_rounds: int | None = None,
        rate_mbit: float = 1000.0,
        rtt_ms: float = 100.0,
        seconds: float = 10.0,
    ) -> None:
        super().__init__(rounds=rounds, samples=samples, only=only, peer_rounds=peer_rounds)
        self.rate_mbit, self.rtt_ms, self.seconds = rate_mbit, rtt_ms, seconds
        self.cassandra = os.environ.get("FOREBAY_TEST_CASSANDRA")

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> Self:
        unknown = sorted(set(options.only or ()) - CASES.keys())
        if unknown:
            raise UnavailableBenchError(f"run bench `wan`: no case `{unknown[0]}`, only {', '.join(CASES)}")
        return cls(
            rounds=options.rounds,
            samples=options.samples,
            only=options.only,
            peer_rounds=options.peer_rounds,
            rate_mbit=options.rate_mbit,
            rtt_ms=options.rtt_ms,
            seconds=options.seconds,
        )

    def make(self, folder: Path) -> dict[str, Any]:
        """Shards and images; single objects are made up by the server."""
        sizes: dict[str, Any] = {"sample_bytes": SAMPLE_BYTES, "objects": OBJECTS["objects"]}
        if {"shards", "cql", "cql_near"} & set(self.measured):
            sizes["shards"] = write_shards(folder / "shards", self.samples)
        if "decoded" in self.measured:
            sizes["images"] = write_images(folder / "images")
        return sizes

    def settings(self, folder: Path) -> dict[str, Any]:
        return {
            "rate_mbit": self.rate_mbit,
            "rtt_ms": self.rtt_ms,
            "seconds": self.seconds,
            "batch_size": BATCH_SIZE,
            "path_manifests": str(folder / "manifests"),
        }

    def run(self, progress: Callable[[str], None]) -> dict[str, Any]:
        began = time.monotonic()
        allow_connections()
        programs = build(progress)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="forebay-bench-")))
            progress(f"wan: making data for {', '.join(self.measured)}")
            sizes, settings = self.make(folder), self.settings(folder)
            clients = {name: self._clients(name, folder, sizes, progress) for name in self.measured}
            progress(f"wan: about {self.minutes(clients):.0f} minutes")
            rounds: list[dict[str, Any]] = []
            for name in list(self.measured):
                try:
                    rounds.extend(
                        self._case(name, clients[name], programs, folder, settings, sizes, progress)
                    )
                except UnavailableBenchError as fault:
                    # What other cases showed is not lost with this one.
                    self.skip(progress, name, str(fault))
            if "objects" in self.measured:
                try:
                    rounds.append({"round": 0, "subject": "virtual/forebay", **virtual_link(progress)})
                except UnavailableBenchError as fault:
                    self.skip(progress, "virtual", str(fault))
        if not rounds:
            raise UnavailableBenchError(f"run bench `wan`: nothing was measured, skipped: {self.skipped}")
        return self.figures(rounds, sizes, settings, time.monotonic() - began)

    def _clients(
        self, name: str, folder: Path, sizes: dict[str, Any], progress: Callable[[str], None]
    ) -> list[str]:
        """The clients of a case that are installed here."""
        found = []
        for client in CASES[name].clients:
            try:
                python = _peers.interpreter(NEEDS.get(client.removesuffix("_near"), ()))
                if client == "streaming":
                    write_mds(python, folder / "shards", sizes["shards"]["samples"])
            except (_peers.MissingPeerError, UnavailableBenchError) as fault:
                self.skip(progress, f"{name}/{client}", str(fault))
            else:
                found.append(client)
        return found

    def minutes(self, clients: dict[str, list[str]]) -> float:
        """How long all of it takes: the time of each measurement, and what starting its process costs."""
        peers = sum(not name.startswith("forebay") for names in clients.values() for name in names)
        own = sum(map(len, clients.values())) - peers
        measured = self.seconds + 1.5
        return (own * (self.rounds * measured + 3.5) + peers * self.peer_rounds * (measured + 5)) / 60

    def _case(
        self,
        name: str,
        clients: list[str],
        programs: Path,
        folder: Path,
        settings: dict[str, Any],
        sizes: dict[str, Any],
        progress: Callable[[str], None],
    ) -> Iterator[dict[str, Any]]:
        with ExitStack() as stack:
            place = self._place(stack, name, programs, folder)
            # One unmeasured turn builds our manifests. Others keep nothing from one process to the next.
            for number in range(-1, self.rounds):
                for client in clients if number % 2 == 0 else clients[::-1]:
                    peer = not client.startswith("forebay")
                    subject = f"{name}/{client}"
                    if subject in self.skipped or (peer and not 0 <= number < self.peer_rounds):
                        continue
                    host, line = place.near if client.endswith("_near") else place.far
                    told = told_to_client(name, settings, sizes, host)
                    told["seconds"] = min(2.0, self.seconds) if number < 0 else self.seconds
                    try:
                        seen = read(client.removesuffix("_near"), told, place.inside)
                    except UnavailableBenchError as fault:
                        if not peer:
                            raise UnavailableBenchError(f"measure `{subject}`: {fault}") from fault
                        self.skip(progress, subject, str(fault))
                        continue
                    figures = figures_of(seen, line)
                    warmup: dict[str, Any] = {"warmup": True} if number < 0 else {}
                    shown = ", ".join(f"{key} {value:.4g}" for key, value in figures.items())
                    progress(f"wan: round {number} {subject}: {shown}")
                    yield {"round": number, "subject": subject, **warmup, **figures}

    def _place(self, stack: ExitStack, name: str, programs: Path, folder: Path) -> Place:
        """Starts server and line of a case."""
        case = CASES[name]
        rate_mbit = self.rate_mbit * case.rate_share
        if case.loss:
            cable = Cable(programs, rtt_ms=self.rtt_ms, rate_mbit=rate_mbit, loss=case.loss)
            stack.enter_context(cable)
            target = self._target(stack, name, programs, folder, cable)
            return Place((target, cable), (target, None), cable.client)
        target = self._target(stack, name, programs, folder)
        if not case.far:
            return Place((target, None), (target, None))
        wan = {"rtt_ms": self.rtt_ms, "rate_mbit": rate_mbit, "stall_share": case.stall_share}
        line = stack.enter_context(Line(programs, target, **wan))
        near = (target, None)
        if any(client.endswith("_near") for client in case.clients):
            # Without delay and cap, but at the same cost to the machine as the line it is compared with.
            plain = stack.enter_context(Line(programs, target, rtt_ms=0, rate_mbit=0, stall_share=0))
            near = (f"127.0.0.1:{plain.port}", None)
        return Place((f"127.0.0.1:{line.port}", line), near)

    def _target(
        self, stack: ExitStack, name: str, programs: Path, folder: Path, cable: Cable | None = None
    ) -> str:
        """Starts the server of a case; returns its host and port."""
        if name.startswith("cql"):
            # Started for its own cases: no other is measured beside a server that is never quite idle.
            address = self.cassandra or stack.enter_context(Cassandra(folder / f"{name}-server")).address
            ingest(address, folder, CASES[name].settings)
            return address
        flags: list[object] = ["--objects", OBJECTS["objects"], "--bytes", SAMPLE_BYTES]
        if name == "shards":
            flags = ["--dir", folder / "shards"]
        elif name == "decoded":
            flags = ["--dir", folder / "images", "--objects", OBJECTS["objects"]]
        host, inside = (cable.address, cable.server) if cable else ("127.0.0.1", ())
        flags += ["--listen", f"{host}:0"]
        server = stack.enter_context(Program(programs / "forebay-objects", flags, inside=inside))
        return f"{host}:{server.port}"

    def bars(self, medians: dict[str, Figures]) -> list[dict[str, Any]]:
        bars = []
        mine = {name: medians.get(f"{name}/forebay") for name in CASES}
        for name in ("objects", "shards"):
            if figures := mine[name]:
                bars += [
                    bar(f"{name}: share of the link", figures["link_share"] * 100, ">= 95", "%"),
                    bar(f"{name}: until 90 % of the link", figures["full_after_seconds"], "<= 3", "s"),
                    bar(
                        f"{name}: memory against 3 x bandwidth x delay + batches",
                        figures["memory_growth_bytes"] / self.memory_allowed(),
                        "<= 1.0",
                        "x",
                    ),
                ]
        if figures := mine["stalls"]:
            bars.append(bar("stalls: share of the link", figures["link_share"] * 100, ">= 85", "%"))
        near = medians.get("decoded/forebay_near")
        if (figures := mine["decoded"]) and near:
            slower = min(self.rate_mbit * 125_000, near["payload_bytes_per_second"])
            share = figures["payload_bytes_per_second"] / slower
            bars.append(bar("decoded: share of the slower of link and CPU", share * 100, ">= 95", "%"))
        if figures := mine["cql"]:
            bars.append(bar("cql: share of the link", figures["link_share"] * 100, ">= 95", "%"))
        for name in ("near", "cql_near"):
            if figures := mine[name]:
                cost = figures["cpu_seconds_per_gigabyte"]
                bars.append(bar(f"{name}: client CPU", cost, "<= 0.8", "s/GB"))
                bars += self.costs_of_others(name, medians)
        if figures := medians.get("virtual/forebay"):
            share, held = figures["link_share"] * 100, figures["held_delays"]
            bars += [
                bar("virtual 25 Gb/s x 100 ms: share of the link by batch 64 of 512", share, ">= 95", "%"),
                bar("virtual 25 Gb/s x 100 ms: memory against bandwidth x delay", held, "<= 3.0", "x"),
            ]
        return bars

    @staticmethod
    def costs_of_others(name: str, medians: dict[str, Figures]) -> list[dict[str, Any]]:
        """What a GET, or a row, costs the client against each of the others; each makes payloads ``bytes``."""
        own = medians.get(f"{name}/forebay_bytes") or medians[f"{name}/forebay"]
        peers = [client for client in CASES[name].clients if not client.startswith("forebay")]
        return [
            bar(
                f"{name}: client CPU per GET against {client}",
                own["cpu_seconds_per_1000"] / medians[f"{name}/{client}"]["cpu_seconds_per_1000"],
                "<= 1.0",
                "x",
            )
            for client in peers
            if medians.get(f"{name}/{client}", {}).get("cpu_seconds_per_1000")
        ]

    def memory_allowed(self) -> float:
        """Three times bandwidth x delay, and the batches that are ready or in use."""
        on_the_way = self.rate_mbit * 125_000 * self.rtt_ms / 1000
        return 3 * on_the_way + READY_BATCHES * BATCH_SIZE * SAMPLE_BYTES


def told_to_client(name: str, settings: dict[str, Any], sizes: dict[str, Any], host: str) -> dict[str, Any]:
    """The settings of one client: what to read from which host."""
    told = {**settings, **CASES[name].settings, "host": host, "sample_bytes": SAMPLE_BYTES}
    if name == "shards":
        told["spec"] = f"http://{host}/train-{{000..{SHARDS - 1:03}}}.tar"
    elif name.startswith("cql"):
        told["spec"] = f"cassandra://{host}/{told['keyspace']}/{told['table']}"
    else:
        told["spec"] = "s3://bucket/"
        # In the case `loss` the other end of the cable is another machine, as far as clients can tell.
        told["storage_options"] = {"endpoint": f"http://{host}", "anonymous": "true", "allow_http": "true"}
    if name == "decoded":
        told["sample_bytes"] = sizes["images"]["mean_bytes"]
    return told


def read(client: str, settings: dict[str, Any], inside: Sequence[str] = ()) -> dict[str, Any]:
    """Runs one client in a process of its own; what it printed last is its figures."""
    python = _peers.interpreter(NEEDS.get(client, ()))
    command = [*inside, python, "-m", "forebay.bench._wan_clients", client, json.dumps(settings)]
    limit = settings["seconds"] + 300
    try:
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired as fault:
        raise UnavailableBenchError(f"read `{settings['spec']}`: not done after {limit:.0f} s") from fault
    if done.returncode != 0:
        raise UnavailableBenchError(
            f"read `{settings['spec']}` with `{client}`: it ended with code {done.returncode}:"
            f" {last_line(done.stderr)}"
        )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "error" in figures:
        why = str(figures["error"])
        if client == "forebay" and why.startswith("UnsupportedError"):
            why += " (this build of forebay does not read from there)"
        raise UnavailableBenchError(f"read `{settings['spec']}` with `{client}`: {why}")
    if not figures["payload_bytes"]:
        raise UnavailableBenchError(f"read `{settings['spec']}` with `{client}`: nothing came")
    return figures


def figures_of(seen: dict[str, Any], line: Line | None) -> Figures:
    """What a client saw, as figures; the steady part begins 3 s after the first payload, or after 3 tenths."""
    marks: list[tuple[float, int]] = seen["marks"]
    begin = marks[0][0] + min(3.0, 0.3 * (seen["seconds"] - marks[0][0]))
    steady = [mark for mark in marks if mark[0] >= begin]
    if len(steady) < 2:
        steady = [(0.0, 0), marks[-1]]
    (since, before), (until, carried) = steady[0], steady[-1]
    rate = (carried - before) / max(until - since, 1e-9)
    figures = {
        "payload_bytes_per_second": rate,
        "cpu_seconds_per_gigabyte": seen["cpu_seconds"] / seen["payload_bytes"] * 1e9,
        "cpu_seconds_per_1000": seen["cpu_seconds"] / seen["samples"] * 1000,
        "memory_growth_bytes": float(seen["memory_growth_bytes"]),
        "open_seconds": seen["open_seconds"],
        "first_payload_seconds": marks[0][0],
    }
    if line is not None:
        began = seen["began_unix_seconds"]
        figures["link_share"] = rate / line.bytes_per_second
        figures["full_after_seconds"] = line.seconds_until_full(began, began + seen["seconds"])
    return figures
