"""What must hold when dispatcher and workers are pods: nothing is lost or doubled, whatever Kubernetes does to them.

Run by kubernetes-test.sh inside the network of a fresh cluster. Each check prints what was seen and how long it took.
The store is here too: a shard over HTTP, with so many bytes a second for each pod that a worker makes about 25 samples
a second, whatever the machine.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import signal
import subprocess
import tarfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import forebay as fb

REPOSITORY = Path(__file__).resolve().parents[2]
SAMPLES, BATCH, PAYLOAD = 600, 10, 32 << 10
RATE, SCALED_RATE = 400.0, 25.0
"""Samples a second for which the store gives one worker the bytes: at first, and while their number is measured.

Where samples are shuffled a worker reads what lies between them too, so it makes fewer than that."""
DEADLINE = 120.0
"""Seconds until something that must happen counts as not happening; machines of tests are slow at times."""
GATEWAY = "10.244.0.1"
NAMESPACE = "forebay"


def until(what: str, check: Callable[[], Any], seconds: float = DEADLINE) -> float:
    """Waits for it; the seconds that it took."""
    began = time.monotonic()
    while not check():
        assert time.monotonic() - began < seconds, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.2)
    return time.monotonic() - began


def report(text: str) -> None:
    print(text, flush=True)


class Cluster:
    """What `kubectl` is asked for."""

    def __init__(self, kubectl: str, kubeconfig: str) -> None:
        self._command = [kubectl, "--kubeconfig", kubeconfig]

    def run(self, *arguments: str, given: str | None = None, fails: bool = False) -> str:
        done = subprocess.run(
            [*self._command, *arguments], input=given, capture_output=True, text=True, check=False
        )
        if (done.returncode != 0) != fails:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout + (done.stderr if fails else "")

    def get(self, *arguments: str) -> dict[str, Any]:
        return json.loads(self.run("get", "--namespace", NAMESPACE, "-o", "json", *arguments))

    def apply(self, text: str, *more: str) -> str:
        words = ["apply", "--server-side", "--validate=strict", "--field-manager=test", "-f", "-", *more]
        return self.run(*words, given=text)

    def render(self, folder: str) -> str:
        # Bases lie beside the overlay, in other folders.
        return self.run("kustomize", "--load-restrictor=LoadRestrictionsNone", str(REPOSITORY / folder))

    def pods(self, name: str) -> list[dict[str, Any]]:
        """Pods that are not on their way out."""
        pods = self.get("pods", "-l", f"app.kubernetes.io/name={name}")["items"]
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def ready(self, name: str) -> list[dict[str, Any]]:
        return [pod for pod in self.pods(name) if is_ready(pod)]

    def replicas(self) -> int:
        return int(self.get("deployment", "forebay-worker")["spec"].get("replicas", 0))


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def name_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def restarts(pod: dict[str, Any]) -> int:
    return sum(one["restartCount"] for one in pod["status"].get("containerStatuses", []))


class Store:
    """One object over HTTP, given at a pace, separately for each connection: a worker has one.

    Addresses do not tell pods apart: where they ask from may be hidden behind their node's.
    """

    def __init__(self, payload: bytes) -> None:
        paces: dict[tuple[str, int], threading.Lock] = {}
        given: Counter[tuple[str, int]] = Counter()
        self.samples_per_second = RATE
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.give(with_body=False)

            def do_GET(self) -> None:
                self.give(with_body=True)

            def give(self, *, with_body: bool) -> None:
                asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
                begin = int(asked[1]) if asked else 0
                end = min(int(asked[2]) + 1 if asked and asked[2] else len(payload), len(payload))
                part = payload[begin:end]
                # A worker reads the shard once to index it; that is not what is measured here.
                who = self.client_address
                given[who] += len(part) if with_body else 0
                if with_body and given[who] > 1.1 * len(payload):
                    with paces.setdefault(who, threading.Lock()):
                        time.sleep(len(part) * SAMPLES / len(payload) / store.samples_per_second)
                self.send_response(206 if asked else 200)
                self.send_header("Content-Length", str(len(part)))
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("ETag", '"one"')
                if asked:
                    self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(payload)}")
                # A worker that is killed, or has it from elsewhere by now, does not read to the end.
                with suppress(ConnectionError):
                    self.end_headers()
                    if with_body:
                        self.wfile.write(part)

            def log_message(self, format: str, *args: object) -> None:
                pass

            def handle(self) -> None:
                with suppress(ConnectionError):
                    super().handle()

        self._server = ThreadingHTTPServer((GATEWAY, 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://{GATEWAY}:{self._server.server_address[1]}/train.tar"


def shard() -> bytes:
    """Samples with a payload and a label each."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(SAMPLES):
            for field, content in (("bin", os.urandom(PAYLOAD)), ("cls", str(number % 10).encode())):
                member = tarfile.TarInfo(f"{number:06d}.{field}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


class Job:
    """A training loop outside the cluster: takes batches, steps, and remembers what it got, epoch by epoch."""

    def __init__(
        self, store: Store, secrets: Path, seed: int, step_seconds: float, *, shuffle: bool = True
    ) -> None:
        self.step_seconds = step_seconds
        self.epochs: list[Counter[int]] = [Counter()]
        self.taken = 0
        self.longest_wait = 0.0
        self.stats: dict[str, Any] = {}
        self._stopping = False
        self._problem: BaseException | None = None
        via = {
            "url": f"forebay://forebay-dispatcher.{NAMESPACE}.svc.cluster.local:7077",
            "token_file": str(secrets / "token"), "tls_ca": str(secrets / "ca.crt"),
            "tls_cert": str(secrets / "tls.crt"), "tls_key": str(secrets / "tls.key"), "tls_name": "forebay",
        }  # fmt: skip
        # One request of a worker at a time: the store makes others wait anyway. A second one for what is late would
        # come by another connection, which has a pace of its own.
        data = fb.open(store.url, storage_options={"connections": "1"})
        recipe = [fb.raw("bin"), fb.label("cls")]
        self._loader = fb.Loader(
            data,
            recipe,
            batch_size=BATCH,
            shuffle=shuffle,
            seed=seed,
            via=via,
            timeout=DEADLINE,
            hedge=False,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._loader as loader:
                while not self._stopping:
                    asked = time.monotonic()
                    for batch in loader:
                        self.longest_wait = max(self.longest_wait, time.monotonic() - asked)
                        ids = [int(one) for one, pad in zip(batch.ids, batch.padding, strict=True) if not pad]
                        self.epochs[-1].update(ids)
                        self.taken += len(ids)
                        time.sleep(self.step_seconds * BATCH)
                        asked = time.monotonic()
                    self.epochs.append(Counter())
                self.stats = dict(loader.stats())
        except BaseException as problem:
            self._problem = problem

    def at(self, samples: int) -> None:
        """Waits until so many samples were taken since the job began."""
        until(f"{samples} samples", lambda: self._problem or self.taken >= samples)
        self.check()

    def check(self) -> None:
        if self._problem is not None:
            raise self._problem

    def finish(self) -> None:
        """Ends with the running epoch, and looks at all of them."""
        self._stopping = True
        self._thread.join(DEADLINE)
        self.check()
        assert not self._thread.is_alive(), "the job does not end"
        epochs = self.epochs[:-1]
        every = Counter(range(SAMPLES))
        assert epochs, "no epoch was finished"
        assert all(epoch == every for epoch in epochs), "an epoch has not every sample once"
        report(f"  exact: {len(epochs)} epochs of {SAMPLES} samples, each sample once in each; "
               f"longest wait {self.longest_wait:.1f} s")  # fmt: skip


@contextmanager
def step(name: str) -> Iterator[None]:
    report(f"- {name}")
    began = time.monotonic()
    yield
    report(f"  done in {time.monotonic() - began:.1f} s")


class Test:
    """The checks, in the order in which they are run."""

    def __init__(self, told: argparse.Namespace) -> None:
        self.cluster = Cluster(told.kubectl, told.kubeconfig)
        self.folder, self.kinds = Path(told.folder), Path(told.kinds)
        self.secrets = self.folder / "secrets"
        self.store = Store(shard())
        self.looks: list[tuple[int, dict[str, Any]]] = []
        """Pods that there were, and what the dispatcher wanted, while the number of workers was waited for."""

    def every_manifest_is_taken_without_an_unknown_field(self) -> None:
        script = str(REPOSITORY / "deploy/kubernetes/secrets.sh")
        self.cluster.apply((REPOSITORY / "deploy/kubernetes/base/namespace.yaml").read_text())
        self.cluster.apply(subprocess.check_output([script, str(self.secrets)], text=True))
        for kind in sorted(self.kinds.glob("*.yaml")):
            self.cluster.run("apply", "--server-side", "-f", str(kind))
        kinds = ["crd/scaledobjects.keda.sh", "crd/triggerauthentications.keda.sh"]
        self.cluster.run("wait", "--for=condition=Established", "--timeout=60s", *kinds)
        overlays = sorted(path.name for path in (REPOSITORY / "deploy/kubernetes/overlays").iterdir())
        for folder in ["base", *(f"overlays/{name}" for name in overlays)]:
            text = self.cluster.render(f"deploy/kubernetes/{folder}")
            taken = self.cluster.apply(text, "--dry-run=server").count("serverside-applied")
            assert taken == len(re.findall(r"(?m)^kind:", text)) > 0, folder
            wrong = text.replace("readOnlyRootFilesystem:", "readOnlyRootFileSystem:")
            assert "readOnlyRootFileSystem" in self.refused(wrong), "a field that does not exist is seen"
            report(f"  {folder}: {taken} objects")

    def refused(self, text: str) -> str:
        words = ["apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", "-"]
        return self.cluster.run(*words, given=text, fails=True)

    def pods_of_the_base_get_ready(self) -> None:
        journal = self.folder / "journal"
        journal.mkdir()
        journal.chmod(0o777)
        # A cluster has somebody who makes volumes; here there is one.
        volume = {
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "journal"},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": str(journal), "type": "Directory"},
            },
        }  # fmt: skip
        # Claimed first: a scheduler that is told of the claim and of the volume at once may wait for minutes.
        claim = {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "journal-forebay-dispatcher-0", "namespace": NAMESPACE},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }  # fmt: skip
        self.cluster.apply(json.dumps(volume))
        self.cluster.apply(json.dumps(claim))
        until(
            "the volume is bound",
            lambda: self.cluster.get("pvc")["items"][0]["status"].get("phase") == "Bound",
        )
        self.cluster.apply(self.cluster.render("scripts/cluster/kubernetes"))
        took = until("two workers are ready", lambda: len(self.cluster.ready("forebay-worker")) == 2)
        assert len(self.cluster.ready("forebay-dispatcher")) == 1
        report(f"  a dispatcher and two workers are ready after {took:.1f} s")

    def a_worker_process_that_is_killed_comes_back_and_costs_no_sample(self) -> None:
        job = Job(self.store, self.secrets, seed=1, step_seconds=0.0)
        job.at(SAMPLES // 4)
        pod = self.cluster.ready("forebay-worker")[0]
        os.kill(process_of(pod), signal.SIGKILL)
        name = name_of(pod)
        took = until("the container runs again", lambda: self.restarted(name))
        report(f"  Kubernetes started the container again; it is ready after {took:.1f} s")
        job.finish()

    def restarted(self, name: str) -> bool:
        pods = {name_of(pod): pod for pod in self.cluster.ready("forebay-worker")}
        return name in pods and restarts(pods[name]) > 0

    def a_worker_pod_that_is_deleted_drains_and_costs_no_sample(self) -> None:
        job = Job(self.store, self.secrets, seed=2, step_seconds=0.0)
        job.at(SAMPLES // 4)
        pod = self.cluster.ready("forebay-worker")[0]
        name, process = name_of(pod), process_of(pod)
        self.cluster.run("delete", "pod", "--namespace", NAMESPACE, "--wait=false", name)
        gone = until("its process ended", lambda: not Path(f"/proc/{process}").exists())
        assert gone < 50, "before the time that Kubernetes gives it is over"
        took = until("another one is ready", lambda: len(self.cluster.ready("forebay-worker")) == 2)
        report(f"  drained and gone after {gone:.1f} s, replaced after {took:.1f} s more")
        job.finish()

    def a_dispatcher_pod_that_is_deleted_comes_back_with_its_journal_and_costs_no_sample(self) -> None:
        job = Job(self.store, self.secrets, seed=3, step_seconds=0.0)
        job.at(SAMPLES // 4)
        before = self.cluster.ready("forebay-dispatcher")[0]
        self.cluster.run("delete", "pod", "--namespace", NAMESPACE, "--wait=false", name_of(before))
        took = until("another one is ready", lambda: self.is_another(before))
        after = self.cluster.ready("forebay-dispatcher")[0]
        addresses = before["status"]["podIP"], after["status"]["podIP"]
        assert addresses[0] != addresses[1], "it is found again by its name alone"
        report(f"  ready after {took:.1f} s, at {addresses[1]} instead of {addresses[0]}")
        job.at(job.taken + SAMPLES)
        job.finish()

    def is_another(self, before: dict[str, Any]) -> bool:
        pods = self.cluster.ready("forebay-dispatcher")
        return len(pods) == 1 and pods[0]["metadata"]["uid"] != before["metadata"]["uid"]

    def the_dispatcher_scales_the_deployment_up_and_down(self) -> None:
        before = self.cluster.ready("forebay-dispatcher")[0]
        self.cluster.apply(self.cluster.render("scripts/cluster/kubernetes/scale"))
        self.cluster.run("scale", "--namespace", NAMESPACE, "deployment/forebay-worker", "--replicas=1")
        until("the dispatcher scales", lambda: self.is_another(before))
        until("one worker is left", lambda: self.workers_known() == 1)
        self.the_account_may_do_nothing_else()
        self.store.samples_per_second = SCALED_RATE
        job = Job(self.store, self.secrets, seed=4, step_seconds=0.010, shuffle=False)
        # Four is what steps of 10 ms take of workers that make 25 a second; on a busy machine they make fewer.
        up = until("more workers", lambda: self.settled(3, 8))
        highest = self.cluster.replicas()
        report(f"  steps of 10 ms: {highest} workers after {up:.1f} s ({self.asked()['why']})")
        job.at(job.taken + SAMPLES)
        job.step_seconds = 0.020
        # Two would be enough of the same workers.
        highest = self.cluster.replicas()
        down = until("fewer workers", lambda: self.settled(1, highest - 1))
        report(
            f"  steps of 20 ms: {self.cluster.replicas()} workers after {down:.1f} s ({self.asked()['why']})"
        )
        job.finish()
        assert "forebay_net_dispatcher_wanted_workers " in self.page("/metrics")
        sets = int(re.findall(r"forebay_net_scale_sets_total (\d+)", self.page("/metrics"))[0])
        # One doubling after another up, and down; a wrong guess on the way is put right once.
        assert 3 <= sets <= 10, f"{sets} changes"
        report(f"  the number was set {sets} times")

    def settled(self, least: int, most: int) -> bool:
        replicas = self.cluster.replicas()
        with suppress(OSError, IndexError):
            self.looks.append((replicas, self.asked()))
        return least <= replicas <= most and len(self.cluster.ready("forebay-worker")) == replicas

    def the_account_may_do_nothing_else(self) -> None:
        account = f"--as=system:serviceaccount:{NAMESPACE}:forebay-dispatcher"
        may = ["auth", "can-i", "--quiet", "--namespace", NAMESPACE, account]
        self.cluster.run(*may, "patch", "deployments/forebay-worker", "--subresource=scale")
        for verb, what in [
            ("patch", "deployments/forebay-worker"), ("delete", "pods"), ("get", "secrets"), ("list", "pods"),
        ]:  # fmt: skip
            self.cluster.run(*may, verb, what, fails=True)

    def page(self, path: str, *, with_token: bool = True) -> str:
        address = self.cluster.ready("forebay-dispatcher")[0]["status"]["podIP"]
        token = (self.secrets / "metrics-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"} if with_token else {}
        request = urllib.request.Request(f"http://{address}:9464{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())

    def asked(self) -> dict[str, Any]:
        """What KEDA would read."""
        return dict(json.loads(self.page("/scale")))

    def workers_known(self) -> int:
        try:
            return int(self.asked()["workers_now"])
        except (OSError, IndexError):
            return -1

    def figures_are_for_those_with_the_token(self) -> None:
        code = 200
        try:
            self.page("/scale", with_token=False)
        except urllib.error.HTTPError as refused:
            code = refused.code
        assert code == 401, "the wanted number is not told to anybody"
        assert self.page("/ready", with_token=False) == "ready\n"

    def run(self) -> None:
        for check in [
            self.every_manifest_is_taken_without_an_unknown_field,
            self.pods_of_the_base_get_ready,
            self.figures_are_for_those_with_the_token,
            self.a_worker_process_that_is_killed_comes_back_and_costs_no_sample,
            self.a_worker_pod_that_is_deleted_drains_and_costs_no_sample,
            self.a_dispatcher_pod_that_is_deleted_comes_back_with_its_journal_and_costs_no_sample,
            self.the_dispatcher_scales_the_deployment_up_and_down,
        ]:
            with step(check.__name__.replace("_", " ")):
                check()

    def tell(self) -> None:
        """What is known of a failure."""
        for look in self.looks:
            report(f"  {look}")
        for words in [
            ["get", "pods", "-o", "wide"], ["get", "events", "--sort-by=.lastTimestamp"],
            ["logs", "--prefix", "--tail=20", "-l", "app.kubernetes.io/part-of=forebay"],
        ]:  # fmt: skip
            try:
                report(self.cluster.run(*words, "--namespace", NAMESPACE))
            except AssertionError as problem:
                report(str(problem))


def process_of(pod: dict[str, Any]) -> int:
    """The worker's process, as this machine sees it: its arguments name the pod's address."""
    wanted = f"--advertise={pod['status']['podIP']}:7078".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if wanted in path.read_bytes().split(b"\0"):
                return int(path.parent.name)
        except OSError:
            continue
    raise AssertionError(f"no process of {name_of(pod)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("kubectl", "kubeconfig", "kinds", "folder"):
        parser.add_argument(f"--{name}", required=True)
    test = Test(parser.parse_args())
    began = time.monotonic()
    try:
        test.run()
    except BaseException:
        test.tell()
        raise
    report(f"all of it holds, in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
