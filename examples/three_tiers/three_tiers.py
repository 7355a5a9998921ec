"""Store, preparation and training as three nodes of one machine, with links of a chosen speed between them.

Each node is a network namespace; `tc` limits what the links between them carry. Needs root, `ip`, `tc` and `openssl`.

    sudo python examples/three_tiers/three_tiers.py                      # one run with the usual speeds
    sudo python examples/three_tiers/three_tiers.py --training-link 20   # a slow link to the training node
    sudo python examples/three_tiers/three_tiers.py --check              # each tier in turn made the slowest
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import report

HERE = Path(__file__).resolve().parent
SAMPLE_BYTES = 50_000
SAMPLES = 1_200
BATCH = 8
THREADS = 4
STORE, PREP, TRAIN = (f"fb3-{os.getpid()}-{name}" for name in ("s", "p", "t"))
METRICS = 9464


def run(*words: str, check: bool = True) -> str:
    """Runs a command to its end."""
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def inside(node: str, *words: str) -> list[str]:
    """A command in a node."""
    return ["ip", "netns", "exec", node, *words]


class Nodes:
    """Three namespaces in a row: store, preparation, training. Links are Mbit/s."""

    def __init__(self, store_link: float, training_link: float) -> None:
        for node in (STORE, PREP, TRAIN):
            run("ip", "netns", "add", node)
            run(*inside(node, "ip", "link", "set", "lo", "up"))
        self._join(STORE, PREP, "1", store_link)
        self._join(PREP, TRAIN, "2", training_link)
        # The training node looks once at what the store has; samples come to it prepared.
        run(*inside(PREP, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"))
        run(*inside(TRAIN, "ip", "route", "add", "10.77.1.0/24", "via", "10.77.2.1"))
        run(*inside(STORE, "ip", "route", "add", "10.77.2.0/24", "via", "10.77.1.2"))

    def _join(self, left: str, right: str, net: str, speed: float) -> None:
        ends = (f"fb{os.getpid()}a{net}"[-15:], f"fb{os.getpid()}b{net}"[-15:])
        run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for node, end, host in ((left, ends[0], "1"), (right, ends[1], "2")):
            run("ip", "link", "set", end, "netns", node)
            run(*inside(node, "ip", "link", "set", end, "name", f"link{net}"))
            run(*inside(node, "ip", "address", "add", f"10.77.{net}.{host}/24", "dev", f"link{net}"))
            run(*inside(node, "ip", "link", "set", f"link{net}", "up"))
            limit = ("rate", f"{speed}mbit", "burst", "64kb", "latency", "200ms")
            run(*inside(node, "tc", "qdisc", "add", "dev", f"link{net}", "root", "tbf", *limit))

    def sent(self, node: str, link: str) -> int:
        """Bytes that left a node over a link."""
        return int(run(*inside(node, "cat", f"/sys/class/net/{link}/statistics/tx_bytes")))

    def close(self) -> None:
        """Ends the nodes; what runs in them was ended before."""
        for node in (STORE, PREP, TRAIN):
            run("ip", "netns", "del", node, check=False)


def make_data(folder: Path) -> None:
    """Shards of random bytes, which nothing makes smaller."""
    for shard in range(4):
        with tarfile.open(folder / f"train-{shard:06}.tar", "w") as tar:
            for number in range(SAMPLES // 4):
                info = tarfile.TarInfo(f"{shard * SAMPLES // 4 + number:06}.bin")
                info.size = SAMPLE_BYTES
                tar.addfile(info, io.BytesIO(os.urandom(SAMPLE_BYTES)))


def make_certificates(folder: Path) -> dict[str, str]:
    """An authority and one certificate for all nodes: nothing listens beyond a machine without."""
    ca, key, cert, request = (str(folder / name) for name in ("ca.pem", "key.pem", "cert.pem", "request.pem"))
    extra = folder / "names"
    extra.write_text("subjectAltName=IP:10.77.2.1,IP:127.0.0.1,DNS:forebay\nbasicConstraints=CA:FALSE\n")
    new = ("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    run(*new, "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", str(folder / "ca.key"), "-out", ca)
    run(*new, "-subj", "/CN=forebay", "-keyout", key, "-out", request)
    sign = (
        "openssl",
        "x509",
        "-req",
        "-days",
        "2",
        "-in",
        request,
        "-CA",
        ca,
        "-CAkey",
        str(folder / "ca.key"),
    )
    run(*sign, "-CAcreateserial", "-extfile", str(extra), "-out", cert)
    return {"tls_ca": ca, "tls_cert": cert, "tls_key": key}


def forebay(*words: str) -> list[str]:
    """The command `forebay` of this Python."""
    return [sys.executable, "-m", "forebay", *words]


def start(stack: ExitStack, node: str, words: list[str]) -> str:
    """Starts a process in a node, which ends with the stack; its first line."""
    child = subprocess.Popen(inside(node, *words), stdout=subprocess.PIPE, text=True)
    stack.callback(child.wait)
    stack.callback(child.kill)
    assert child.stdout is not None
    line = child.stdout.readline().strip()
    if not line:
        raise SystemExit(f"{' '.join(words)}: it ended at once")
    return line


def metric(text: str, name: str) -> float:
    """The sum of a figure over its labels."""
    return sum(float(value) for value in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE))


def snapshot(nodes: Nodes) -> dict[str, float]:
    """What was counted so far."""
    fetch = (
        f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{METRICS}/metrics').read().decode())"
    )
    figures = run(*inside(PREP, sys.executable, "-c", fetch))
    return {
        "at": time.perf_counter(),
        "store_bytes": nodes.sent(STORE, "link1"),
        "batch_bytes": nodes.sent(PREP, "link2"),
        "prep_seconds": metric(figures, "forebay_engine_prep_seconds_total"),
    }


def tiers(folder: Path, tls: dict[str, str], how: argparse.Namespace) -> dict[str, Any]:
    """One run: rate, the busy share of each tier, and the one that limits."""
    with ExitStack() as stack:
        nodes = Nodes(how.store_link, how.training_link)
        stack.callback(nodes.close)
        start(stack, STORE, [sys.executable, str(HERE / "store.py"), "10.77.1.1", "8000", str(folder)])
        manifest = folder / "train.fbm"
        if not manifest.exists():
            url = "http://10.77.1.1:8000/train-{000000..000003}.tar"
            run(*inside(PREP, *forebay("index", url, "--out", str(manifest))))
        files = [word for name, path in tls.items() for word in (f"--{name.replace('_', '-')}", path)]
        start(stack, PREP, forebay("dispatcher", "--listen", "10.77.2.1:7077", *files))
        words = ("--listen", "10.77.2.1:7078", "--threads", str(THREADS), "--metrics", f"127.0.0.1:{METRICS}")
        start(stack, PREP, forebay("worker", "--dispatcher", "forebay://10.77.2.1:7077", *words, *files))
        settings = {
            "manifest": str(manifest),
            "via": {"url": "forebay://10.77.2.1:7077", **tls},
            "batch_size": BATCH,
            "delay": how.prep_ms / 1000,
            "step": how.step_ms / 1000,
            "warm": how.warm,
            "seconds": how.seconds,
        }
        train = inside(TRAIN, sys.executable, str(HERE / "train.py"), json.dumps(settings))
        child = subprocess.Popen(train, stdout=subprocess.PIPE, text=True)
        stack.callback(child.wait)
        stack.callback(child.kill)
        assert child.stdout is not None
        if child.stdout.readline().strip() != "counting":
            raise SystemExit("the training node ended before it had a batch")
        before = snapshot(nodes)
        said = child.stdout.readline()
        after = snapshot(nodes)
        if not said:
            raise SystemExit("the training node ended early")
        trained = json.loads(said)
    grown = {name: after[name] - before[name] for name in before}
    busy = report.utilisation(
        seconds=grown["at"],
        store_bytes=grown["store_bytes"],
        store_link=how.store_link * 1e6 / 8,
        prep_seconds=grown["prep_seconds"],
        prep_threads=THREADS,
        batch_bytes=grown["batch_bytes"],
        training_link=how.training_link * 1e6 / 8,
        step_share=trained["step_share"],
    )
    rate = trained["samples"] / trained["seconds"]
    return {"samples_per_second": rate, "busy": busy, "limits": report.limiting(busy)}


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--store-link", type=float, default=120.0, help="Mbit/s from the store")
    parser.add_argument("--training-link", type=float, default=120.0, help="Mbit/s to the training node")
    parser.add_argument("--prep-ms", type=float, default=12.0, help="milliseconds of preparing a sample")
    parser.add_argument("--step-ms", type=float, default=24.0, help="milliseconds of a training step")
    parser.add_argument("--seconds", type=float, default=6.0, help="how long to measure")
    parser.add_argument("--warm", type=float, default=4.0, help="how long before that")
    parser.add_argument("--check", action="store_true", help="make each tier the slowest, and be told so")
    parser.add_argument("--json", action="store_true", help="print JSON")
    how = parser.parse_args()
    slow = {"store link": ("store_link", 20.0), "preparation": ("prep_ms", 80.0)}
    slow |= {"training link": ("training_link", 20.0), "training step": ("step_ms", 160.0)}
    wrong = []
    with tempfile.TemporaryDirectory(prefix="forebay-tiers-") as name:
        folder = Path(name)
        make_data(folder)
        tls = make_certificates(folder)
        for tier, (setting, value) in (slow if how.check else {"": ("warm", how.warm)}).items():
            outcome = tiers(folder, tls, argparse.Namespace(**{**vars(how), setting: value}))
            if tier and outcome["limits"] != tier:
                wrong.append(f"{tier} was made the slowest, {outcome['limits']} was named")
            if how.json:
                print(json.dumps({"slowest": tier or None, **outcome}), flush=True)
            else:
                title = [f"{tier} made the slowest"] if tier else []
                text = report.lines(outcome["busy"], outcome["samples_per_second"])
                print("\n".join([*title, *text, ""]), flush=True)
    if wrong:
        raise SystemExit("; ".join(wrong))


if __name__ == "__main__":
    main()
