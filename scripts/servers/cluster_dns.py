"""Names of headless Services, for a test cluster: answers NAME.NAMESPACE.svc.cluster.local with the ready endpoints.

A real cluster has CoreDNS for this. Here it is a page of Python, because the test needs this one thing of it: a pod
that comes back with another address is found again by its name. Every question asks the API server anew; whatever is
not such a name does not exist.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
import struct
import urllib.request

ZONE = ["svc", "cluster", "local"]
A, AAAA, IN = 1, 28, 1
NAME_ERROR = 3


class Endpoints:
    """Ready addresses of Services, from the API server."""

    def __init__(self, server: str, ca: str, token: str) -> None:
        self._server, self._token = server, token
        self._trust = ssl.create_default_context(cafile=ca)

    def addresses(self, service: str, namespace: str) -> list[str]:
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        url = f"{self._server}{path}?labelSelector=kubernetes.io/service-name={service}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self._token}"})
        with urllib.request.urlopen(request, context=self._trust, timeout=5) as answer:
            slices = json.load(answer)["items"]
        return [
            address
            for part in slices
            for endpoint in part.get("endpoints") or []
            if endpoint["conditions"].get("ready")
            for address in endpoint["addresses"]
        ]


def question(packet: bytes) -> tuple[list[str], int, int]:
    """Labels, kind and end of the first question."""
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode("ascii").lower())
        at += 1 + packet[at]
    (kind,) = struct.unpack_from(">H", packet, at + 1)
    return labels, kind, at + 5


def answer(packet: bytes, endpoints: Endpoints) -> bytes:
    labels, kind, end = question(packet)
    is_service = len(labels) == 5 and labels[2:] == ZONE and all(label.isascii() for label in labels)
    found = endpoints.addresses(labels[0], labels[1]) if is_service else []
    records = [socket.inet_aton(address) for address in found] if kind == A else []
    # A service that has no address of this kind exists all the same.
    code = 0 if found else NAME_ERROR
    head = packet[:2] + struct.pack(">HHHHH", 0x8580 | code, 1, len(records), 0, 0)
    body = b"".join(struct.pack(">HHHIH", 0xC00C, A, IN, 0, len(record)) + record for record in records)
    return head + packet[12:end] + body


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("listen", "server", "ca", "token"):
        parser.add_argument(f"--{name}", required=True)
    told = parser.parse_args()
    endpoints = Endpoints(told.server, told.ca, told.token)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind((told.listen, 53))
        while True:
            packet, sender = door.recvfrom(512)
            try:
                door.sendto(answer(packet, endpoints), sender)
            except (OSError, ValueError, IndexError, struct.error, KeyError) as problem:
                print(f"a question was not answered: {problem}", flush=True)


if __name__ == "__main__":
    main()
